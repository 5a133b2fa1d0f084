// tessera: lists, runs, shows, checks and measures the ops of the kernel library.
//
// Exit codes: 0 ok, 1 the operation failed, 2 wrong usage; then one message on stderr.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <sstream>

#include "dsl/base/nearest_name.h"
#include "dsl/base/printable.h"
#include "dsl/base/version.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

OptionalOutput::OptionalOutput(const std::string& path) {
  if (!path.empty()) file_.emplace(path);
}

void OptionalOutput::write(const std::string& text) {
  if (!file_) return;
  file_->write(text);
  file_->commit();
}

namespace {

constexpr size_t kMostQuoted = 500;  // of what somebody typed

int report(const std::string& message, ExitCode code) {
  tell(message + "\n");
  return code;
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string unknown_word(const char* kind, const std::string& word,
                         const std::vector<std::string>& known) {
  const std::string shown = printable_line(word, kMostQuoted);
  std::string message = fmt::format("tessera: unknown {} '{}'\n  expected  {}\n  got       {}",
                                    kind, shown, fmt::join(known, ", "), shown);
  const std::string hint = did_you_mean(word, known);
  return hint.empty() ? message : message + fmt::format("\n  hint      {}", hint);
}

/// The first word that no command knows, which the parser may report as something else that is
/// missing; empty if there is none.
std::string explain_unknown_word(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return "";
    if (word.size() > 1 && word[0] == '-') {
      // A short option may carry its value: -pname=value.
      const std::string name = word[1] == '-' ? word.substr(0, word.find('=')) : word.substr(0, 2);
      const CLI::Option* option = command->get_option_no_throw(name);
      if (option == nullptr) return unknown_word("option", name, option_names_of(*command));
      if (option->get_items_expected_min() > 0 && name == word) ++i;
      continue;
    }
    const std::vector<const CLI::App*> commands = command->get_subcommands({});
    if (commands.empty()) continue;
    const auto chosen = std::find_if(commands.begin(), commands.end(),
                                     [&](const CLI::App* one) { return one->get_name() == word; });
    if (chosen == commands.end()) return unknown_word("command", word, names_of(commands));
    command = *chosen;
  }
  return "";
}

int report_usage(const CLI::App& app, const CLI::ParseError& error,
                 const std::vector<std::string>& words) {
  const std::string unknown = explain_unknown_word(app, words);
  if (!unknown.empty()) return report(unknown, kUsage);
  return report(fmt::format("tessera: {}\n  hint      run with --help for the words it knows",
                            printable_line(error.what(), kMostQuoted)),
                kUsage);
}

/// The file's name: a user's own program says its own in its help.
std::string program_name(int argc, char** argv) {
  const std::string path = argc > 0 ? argv[0] : "tessera";
  return path.substr(path.rfind('/') + 1);
}

int parse_and_run(int argc, char** argv) {
  program_ops();  // every command reports errors of a user's own kernels
  CLI::App app("tessera: kernels for DeepSeek-class models", program_name(argc, argv));
  app.footer(
      "Examples:\n"
      "  tessera list quant\n"
      "  tessera help run\n"
      "  tessera doctor");
  app.set_version_flag("-V,--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(1);
  Command command;
  add_list(app, command);
  add_run(app, command);
  add_show(app, command);
  add_check(app, command);
  add_bench(app, command);
  add_tune(app, command);
  add_report(app, command);
  add_compile(app, command);
  add_cache(app, command);
  add_doctor(app, command);
  add_docs(app, command);
  add_completion(app, command);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.front() == "help") {  // help [COMMAND ...] is [COMMAND ...] --help
    words.erase(words.begin());
    const std::string unknown = explain_unknown_word(app, words);
    if (!unknown.empty()) return report(unknown, kUsage);
    words.emplace_back("--help");
  }
  if (words.empty()) {
    static_cast<void>(print(app.help()));
    return kUsage;
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // it takes them reversed
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    app.exit(help, text, text);
    return print(text.str()) ? kOk : kFailed;
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error, words);
  }
  return command();
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const UsageError& error) {
    return report(error.what(), kUsage);
  } catch (const Error& error) {
    return report(error.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return report("tessera: not enough memory for the tensors", kFailed);
  } catch (const std::exception& error) {
    return report(fmt::format("tessera: internal error, a bug in Tessera: {}", error.what()),
                  kFailed);
  }
}

}  // namespace tessera::tools
