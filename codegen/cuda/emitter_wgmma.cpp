// Emitter: wgmma.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/wgmma_text.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

/// The descriptor by which wgmma reads an operand from shared memory.
std::string Emitter::descriptor(const SharedMatrix& matrix) {
  const Array& array = *matrix.first.array;
  TESSERA_CHECK(array.swizzle.has_value(), "an operand of wgmma that is not arranged");
  const layout::Swizzle& swizzle = *array.swizzle;
  const int64_t element_bits = bits(array.dtype);
  const int64_t span = swizzle.panel * element_bits / 8;
  // Only an operand that is contiguous along m or n steps from panel to panel.
  const int64_t next_panel = matrix.transposed ? swizzle.rows * span : 16;
  const bool differs = depends_on_thread(matrix.first.offset);
  return fmt::format("{}<{}, {}>({})",
                     expressions_.call(differs ? "matrix_of_warp" : "matrix_in_shared"), span,
                     next_panel, expressions_.address(array, matrix.first.offset));
}

bool Emitter::depends_on_thread(const Expr& e) const {
  std::vector<VarRef> vars;
  ir::collect_vars(e, vars);
  return std::any_of(vars.begin(), vars.end(), [&](const VarRef& var) {
    if (const Expr value = usage_.definition(*var)) return depends_on_thread(value);
    return var->kind == ir::VarKind::thread || var->kind == ir::VarKind::value;
  });
}

void Emitter::print(const Wgmma& wgmma) {
  const std::string name = wgmma_name(wgmma);
  if (wgmma_names_.insert(name).second) {
    expressions_.call("u64");
    wgmma_text_ += wgmma_text(wgmma) + "\n";
  }
  const std::string left =
      wgmma.a.array ? expressions_.address(*wgmma.a.array, wgmma.a.base) : descriptor(wgmma.left);
  out_.line(fmt::format("{}({}, {}, {});", name, expressions_.address(*wgmma.c.array, wgmma.c.base),
                        left, descriptor(wgmma.right)));
}

void Emitter::print(const WgmmaSync& sync) {
  using Kind = WgmmaSync::Kind;
  if (sync.kind == Kind::commit) return out_.line(expressions_.call("commit_wgmma") + "();");
  if (!sync.c.array) {
    return out_.line(
        sync.kind == Kind::start
            ? expressions_.call("fence_wgmma") + "();"
            : fmt::format("{}<{}>();", expressions_.call("await_wgmma"), sync.pending));
  }
  const std::string sums = expressions_.address(*sync.c.array, sync.c.base);
  out_.line(sync.kind == Kind::start
                ? fmt::format("{}<{}>({});", expressions_.call("start_wgmma"), sync.width, sums)
                : fmt::format("{}<{}, {}>({});", expressions_.call("wait_for_wgmma"), sync.pending,
                              sync.width, sums));
}

}  // namespace tessera::codegen::cuda
