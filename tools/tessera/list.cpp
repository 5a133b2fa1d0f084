// tessera list: every op with its tensors and parameters.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "kernels/op.h"
#include "tools/lib/op_listing.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct ListOptions {
  std::string family;
  bool json = false;
};

int list(const ListOptions& options) {
  const std::string text = reading_arguments([&] {
    return options.json ? list_json(program_ops(), options.family)
                        : list_text(program_ops(), options.family);
  });
  return print(text) ? kOk : kFailed;
}

}  // namespace

void add_list(CLI::App& app, Command& command) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* sub = app.add_subcommand("list", "every op, its tensors and its parameters");
  std::set<std::string> families;
  for (const kernels::OpInfo& op : program_ops()) families.insert(op.family);
  sub->add_option("--family", options->family,
                  fmt::format("only this family: {}", fmt::join(families, ", ")));
  sub->add_flag("--json", options->json, "for machines");
  sub->callback([options, &command] { command = [options] { return list(*options); }; });
}

}  // namespace tessera::tools
