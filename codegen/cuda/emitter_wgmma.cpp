// Emitter: wgmma.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/wgmma_text.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

/// The descriptor by which wgmma reads an operand from shared memory. Those of a product that begin at a
/// constant distance share one.
std::string Emitter::descriptor(const SharedMatrix& matrix) {
  const Array& array = *matrix.first.array;
  TESSERA_CHECK(array.swizzle.has_value(), "an operand of wgmma that is not arranged");
  const layout::Swizzle& swizzle = *array.swizzle;
  const int64_t element_bits = bits(array.dtype);
  const int64_t span = swizzle.panel * element_bits / 8;
  // Only an operand that is contiguous along m or n steps from panel to panel.
  const int64_t next_panel = matrix.transposed ? swizzle.rows * span : 16;
  Expr offset = of_warp(matrix.first.offset);
  int64_t pieces = 0;  // of 16 bytes, the unit of its address
  if (offset->op == ir::Op::add && ir::is_constant(offset->args[1])) {
    const int64_t distance = offset->args[1]->integer * element_bits / 8;
    if (distance % 16 == 0) {
      pieces = distance / 16;
      offset = offset->args[0];
    }
  }
  const bool differs = depends_on_thread(offset);
  const std::string value = fmt::format(
      "{}<{}, {}>({})", expressions_.call(differs ? "matrix_of_warp" : "matrix_in_shared"), span,
      next_panel, expressions_.address(array, offset));
  std::string& name = matrices_[value];
  if (name.empty()) {
    name = names_.fresh(array.name + "_matrix");
    out_.line(fmt::format("const {} {} = {};", expressions_.call("u64"), name, value));
  }
  return pieces == 0 ? name : fmt::format("{} + {}", name, pieces);
}

/// With the first thread of the warp in the place of the thread.
Expr Emitter::of_warp(const Expr& e) const {
  return ir::substitute(e, [&](const VarRef& var) {
    return var == thread_ && first_of_warp_ ? ir::var(first_of_warp_) : Expr();
  });
}

/// Binds the first thread of the warp if a product of `body` finds its operands by the thread.
void Emitter::bind_first_of_warp(const VarRef& thread, const Body& body) {
  thread_ = thread;
  first_of_warp_ = nullptr;
  const bool is_used = std::any_of(body.begin(), body.end(), [&](const Stmt& stmt) {
    return any_in(stmt, [&](const Stmt& inner) {
      const auto* wgmma = std::get_if<Mma>(&inner.node);
      if (wgmma == nullptr || !wgmma->is_of_group()) return false;
      std::vector<VarRef> vars;
      for (const SharedMatrix* matrix : {&wgmma->left, &wgmma->right}) {
        if (matrix->first.array) ir::collect_vars(matrix->first.offset, vars);
      }
      return std::find(vars.begin(), vars.end(), thread) != vars.end();
    });
  });
  if (!is_used) return;
  const auto first = std::make_shared<ir::Var>(*thread);
  first->name = "first_of_warp";
  first_of_warp_ = first;
  bind(first_of_warp_, fmt::format("__shfl_sync({}, {}, 0)", expressions_.call("all_lanes"),
                                   expressions_.index(ir::var(thread))));
}

bool Emitter::depends_on_thread(const Expr& e) const {
  std::vector<VarRef> vars;
  ir::collect_vars(e, vars);
  return std::any_of(vars.begin(), vars.end(), [&](const VarRef& var) {
    if (const Expr value = usage_.definition(*var)) return depends_on_thread(value);
    return var->kind == ir::VarKind::thread || var->kind == ir::VarKind::value;
  });
}

void Emitter::print_group(const Mma& wgmma) {
  const std::string name = wgmma_name(wgmma);
  if (matrix_names_.insert(name).second) {
    expressions_.call("u64");
    matrix_text_ += wgmma_text(wgmma) + "\n";
  }
  const std::string left =
      wgmma.a.array ? expressions_.address(*wgmma.a.array, wgmma.a.base) : descriptor(wgmma.left);
  out_.line(fmt::format("{}({}, {}, {});", name, expressions_.address(*wgmma.c.array, wgmma.c.base),
                        left, descriptor(wgmma.right)));
}

void Emitter::commit_products() {
  matrices_.clear();
  out_.line(expressions_.call("commit_wgmma") + "();");
}

void Emitter::await_products(const Await& wait) {
  if (wait.above.array) {
    out_.line(fmt::format("{}<{}>({});", expressions_.call("compute_above"), wait.above_width,
                          expressions_.address(*wait.above.array, wait.above.base)));
  }
  if (!wait.sum.array) {
    return out_.line(fmt::format("{}<{}>();", expressions_.call("await_wgmma"), wait.pending));
  }
  out_.line(fmt::format("{}<{}, {}>({});", expressions_.call("wait_for_wgmma"), wait.pending,
                        wait.width, expressions_.address(*wait.sum.array, wait.sum.base)));
}

void Emitter::fence_products(const Fence& fence) {
  if (!fence.sum.array) return out_.line(expressions_.call("fence_wgmma") + "();");
  out_.line(fmt::format("{}<{}>({});", expressions_.call("start_wgmma"), fence.width,
                        expressions_.address(*fence.sum.array, fence.sum.base)));
}

}  // namespace tessera::codegen::cuda
