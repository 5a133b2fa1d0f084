// tessera docs: makes the generated parts of the pages again, or says which are stale.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "tools/lib/docs/doc_pages.h"
#include "tools/lib/docs/header_docs.h"
#include "tools/lib/files/input_file.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostBytes = 1 << 22;  // of a page or a header

/// The headers that users include. Not kernels/ops.h, which is written from the signatures as kernels/OPS.md is.
constexpr const char* kPublicHeaders[] = {"dsl/base/dtype.h",
                                          "dsl/base/error.h",
                                          "dsl/base/tensor_view.h",
                                          "dsl/builder.h",
                                          "dsl/value.h",
                                          "dsl/reducer.h",
                                          "kernels/jit/jit.h",
                                          "kernels/jit/launch_plan.h",
                                          "kernels/jit/prepare.h",
                                          "kernels/moe_rows.h",
                                          "kernels/op.h",
                                          "kernels/op_call.h",
                                          "kernels/warm_up.h",
                                          "runtime/build_info.h",
                                          "runtime/counters.h",
                                          "runtime/dlpack.h",
                                          "runtime/launch.h",
                                          "runtime/log.h",
                                          "runtime/options.h",
                                          "runtime/request.h",
                                          "runtime/runtime.h"};

struct DocsOptions {
  std::string root = ".";
  bool check = false;
};

std::string option_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_name());
  std::string text = fmt::format("`{}`", fmt::join(names, "`, `"));
  if (option.get_required()) text += ", required";
  return text;
}

/// A section per command, from what the parser knows.
std::string command_text(const CLI::App& app, const std::string& path) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = path + " " + command->get_name();
    text += fmt::format("### {}\n\n{}.\n\n", name, command->get_description());
    std::string table;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_name() == "--help") continue;
      table += fmt::format("| {} | {} |\n", option_names(*option), option->get_description());
    }
    if (!table.empty()) text += "| option | meaning |\n|---|---|\n" + table + "\n";
    const std::string footer = command->get_footer();
    if (!footer.empty() && footer != app.get_footer()) {  // the examples of a group stand once
      text += fmt::format("```\n{}\n```\n\n", footer);
    }
    text += command_text(*command, name);
  }
  return text;
}

/// Errors: program, for public names without a comment.
void need_comments(const std::string& root) {
  std::string missing;
  for (const char* header : kPublicHeaders) {
    const HeaderDocs docs =
        read_header(header, read_text_file(fmt::format("{}/{}", root, header), kMostBytes));
    for (const std::string& one : docs.undocumented) missing += "\n            " + one;
  }
  if (missing.empty()) return;
  throw Error({.kind = ErrorKind::program,
               .what = "public names have no comment",
               .expected = "/// above, or // behind, each of them",
               .got = missing.substr(13)});
}

int docs(const DocsOptions& options, const std::string& commands) {
  need_comments(options.root);
  std::vector<std::string> stale;
  for (const std::string& page : pages_below(options.root)) {
    const std::string path = options.root + "/" + page;
    const std::string text = read_text_file(path, kMostBytes);
    const std::string made = filled(page, text, [&](const std::string& name) {
      return name == "commands" ? commands : made_from_sources(options.root, name);
    });
    if (made == text) continue;
    stale.push_back(page);
    if (!options.check) write_file(path, made);
  }
  for (const MadeFile& file : made_files(options.root)) {
    const std::string path = options.root + "/" + file.path;
    if (std::filesystem::exists(path) && read_text_file(path, kMostBytes) == file.text) continue;
    stale.push_back(file.path);
    if (!options.check) write_file(path, file.text);
  }
  if (options.check && !stale.empty()) {
    throw Error({.kind = ErrorKind::program,
                 .what = "generated parts of pages are stale",
                 .got = fmt::format("{}", fmt::join(stale, ", ")),
                 .hint = "run tessera docs in the top folder of the repository"});
  }
  return print(stale.empty() ? "every page is up to date\n"
                             : fmt::format("{} written\n", fmt::join(stale, ", ")))
             ? kOk
             : kFailed;
}

}  // namespace

void add_docs(CLI::App& app, Command& command) {
  auto options = std::make_shared<DocsOptions>();
  CLI::App* sub = app.add_subcommand("docs", "the generated parts of the pages of a checkout");
  sub->footer(
      "Examples:\n"
      "  tessera docs\n"
      "  tessera docs --check");
  sub->add_option("root", options->root, "the top folder of the checkout (default: this folder)");
  sub->add_flag("--check", options->check, "write nothing, fail if a page is stale");
  sub->callback([options, &app, &command] {
    command = [options, &app] { return docs(*options, command_text(app, "tessera")); };
  });
}

}  // namespace tessera::tools
