#include "tools/lib/op_choice.h"

namespace tessera::tools {

std::vector<const kernels::OpInfo*> choose_ops(const std::vector<kernels::OpInfo>& ops,
                                               const std::string& word) {
  std::vector<const kernels::OpInfo*> chosen;
  const bool all = word.empty() || word == "all";
  for (const kernels::OpInfo& op : ops) {
    // "transpose" is an op and a family: the op wins.
    if (op.name == word) return {&op};
    if (all || op.family == word) chosen.push_back(&op);
  }
  if (chosen.empty() && !all) chosen.push_back(&find_op(ops, word));  // throws
  return chosen;
}

}  // namespace tessera::tools
