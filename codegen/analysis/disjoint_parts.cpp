#include "codegen/analysis/disjoint_parts.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace tessera::codegen {
namespace {

/// True if the atom may differ between blocks or rounds.
bool moves(const ir::Expr& atom) {
  std::vector<ir::VarRef> vars;
  ir::collect_vars(atom, vars);
  return std::any_of(vars.begin(), vars.end(), [](const ir::VarRef& var) {
    return var->kind != ir::VarKind::dim && var->kind != ir::VarKind::scalar;
  });
}

}  // namespace

bool are_parts_disjoint(const ir::Kernel& kernel, const IndexMath& math,
                        const std::set<const ir::Var*>& loops, const ir::Region& part) {
  std::set<const ir::Var*> open = loops;
  for (size_t axis = 0; axis < kernel.grid.size(); ++axis) {
    if (!ir::is_constant(kernel.grid[axis], 1)) open.insert(kernel.blocks[axis].get());
  }
  for (size_t d = 0; d < part.offsets.size(); ++d) {
    const int64_t extent = part.extents[d] ? part.extents[d]->integer : 1;
    std::vector<Term> terms = math.value(part.offsets[d]).terms;
    std::erase_if(terms, [](const Term& term) { return !moves(term.atom); });
    const bool is_moved_by_one = terms.size() == 1 && terms[0].atom->op == ir::Op::var &&
                                 std::abs(terms[0].coefficient) >= extent;
    if (is_moved_by_one) open.erase(terms[0].atom->var.get());
  }
  return open.empty();
}

}  // namespace tessera::codegen
