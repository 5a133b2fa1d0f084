#include "codegen/layouts/vector_width.h"

#include <algorithm>

#include "codegen/thread_ir.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {

bool is_run(const layout::Digit& digit, size_t rank) {
  return digit.axis + 1 == static_cast<int>(rank) && digit.div == 1 && digit.slot > 0;
}

bool is_straight_line(const ir::Body& body) {
  return std::all_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    return std::holds_alternative<ir::Let>(stmt.node) ||
           std::holds_alternative<ir::ElementLoad>(stmt.node) ||
           std::holds_alternative<ir::ElementStore>(stmt.node) ||
           std::holds_alternative<ir::Atomic>(stmt.node) ||
           std::holds_alternative<ir::ReducerUpdate>(stmt.node);
  });
}

bool is_sum(const ir::Atomic& atomic) {
  const ir::Space space = atomic.buffer->space;
  return atomic.op == ir::AtomicOp::add && is_float(atomic.buffer->dtype) &&
         has_wide_sum(ArraySpace::global, atomic.buffer->dtype) &&
         (space == ir::Space::global || space == ir::Space::shared);
}

bool has_wide_form(const ir::Atomic& atomic) {
  const bool is_shared = atomic.buffer->space == ir::Space::shared;
  const ArraySpace space = is_shared ? ArraySpace::shared : ArraySpace::global;
  return !atomic.old && atomic.order == ir::MemoryOrder::relaxed &&
         has_wide_sum(space, atomic.buffer->dtype);
}

const ir::If* shared_branch(const ir::Loop& loop) {
  if (loop.body.empty()) return nullptr;
  const auto* branch = std::get_if<ir::If>(&loop.body.back().node);
  if (branch == nullptr) return nullptr;
  std::vector<ir::VarRef> vars;
  ir::collect_vars(branch->condition, vars);
  for (auto stmt = loop.body.begin(); stmt != loop.body.end() - 1; ++stmt) {
    const bool only_reads = std::holds_alternative<ir::Let>(stmt->node) ||
                            std::holds_alternative<ir::ElementLoad>(stmt->node);
    if (!only_reads) return nullptr;
    for_each_expression(*stmt, [&](const ir::Expr& e) { ir::collect_vars(e, vars); });
  }
  const ir::VarRef& lane = loop.vars.back();
  return std::find(vars.begin(), vars.end(), lane) == vars.end() ? branch : nullptr;
}

int64_t vector_width(const ir::Loop& loop, const layout::Layout& layout) {
  const ir::If* const branch = shared_branch(loop);
  const bool straight = branch != nullptr
                            ? is_straight_line(branch->then) && is_straight_line(branch->otherwise)
                            : is_straight_line(loop.body);
  if (!straight) return 1;
  int64_t vector = 1;
  for (const layout::Digit& digit : layout.digits()) {
    if (!is_run(digit, loop.vars.size())) continue;
    vector = std::min<int64_t>(digit.extent & -digit.extent, 16);
    while (layout.shape().back() % vector != 0) vector /= 2;
  }
  return vector;
}

}  // namespace tessera::codegen
