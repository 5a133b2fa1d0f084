// tessera list: every op with its tensors and parameters.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "kernels/op.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/calls/op_listing.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct ListOptions {
  std::string op, family;
  bool json = false;
};

/// The output of `list WORD` where WORD is no op and no family; empty: nothing has the word.
std::string searched(const ListOptions& options) {
  const auto is_exact = [&](const kernels::OpInfo& op) {
    return op.name == options.op || op.family == options.op;
  };
  const std::vector<kernels::OpInfo>& ops = program_ops();
  if (options.op.empty() || options.op == "all" || std::any_of(ops.begin(), ops.end(), is_exact)) {
    return "";
  }
  const std::vector<kernels::OpInfo> found = find_ops(ops, options.op);
  if (found.empty()) return "";
  return options.json ? list_json(found, "") : list_lines(found);
}

int list(const ListOptions& options) {
  const std::string found = searched(options);
  if (!found.empty()) return print(found) ? kOk : kFailed;
  const std::string text = reading_arguments([&] {
    std::vector<kernels::OpInfo> ops;
    for (const kernels::OpInfo* op : choose_ops(program_ops(), options.op)) ops.push_back(*op);
    return options.json ? list_json(ops, options.family) : list_text(ops, options.family);
  });
  return print(text) ? kOk : kFailed;
}

}  // namespace

void add_list(CLI::App& app, Command& command) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* sub = app.add_subcommand("list", "every op, its tensors and its parameters");
  sub->footer(
      "Examples:\n"
      "  tessera list\n"
      "  tessera list per_token_cast\n"
      "  tessera list quantize\n"
      "  tessera list moe --json");
  CLI::Option* op =
      sub->add_option("op", options->op, "an op, a family, a word to search for, or all (default)");
  std::set<std::string> families;
  for (const kernels::OpInfo& one : program_ops()) families.insert(one.family);
  sub->add_option("--family", options->family,
                  fmt::format("only this family: {}", fmt::join(families, ", ")))
      ->excludes(op);
  sub->add_flag("--json", options->json, "for machines");
  sub->callback([options, &command] { command = [options] { return list(*options); }; });
}

}  // namespace tessera::tools
