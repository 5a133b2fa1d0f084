// TileLowering: copies from global to shared memory that go on in the background.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/passes/layout_cost.h"
#include "codegen/passes/tile_lowering.h"

namespace tessera::codegen {

bool TileLowering::lower_async(const ir::Loop& loop, const Iteration& it, SourceLoc loc) {
  const auto& load = std::get<ir::ElementLoad>(loop.body[0].node);
  const auto& store = std::get<ir::ElementStore>(loop.body[1].node);
  const std::vector<Expr> from = resolve(load.indices);
  const std::vector<Expr> to = resolve(store.indices);
  int64_t width = 1;
  if (it.vector > 1) {
    width = std::min(feasible_vector(math_, *load.buffer, from, *it.lane, it.vector),
                     feasible_vector(math_, *store.buffer, to, *it.lane, it.vector));
  }
  const int64_t moved = width * bits(load.buffer->dtype);
  const bool possible =
      load.buffer->dtype == store.buffer->dtype && (moved == 32 || moved == 64 || moved == 128);
  if (!possible) {
    if (loop.mode != ir::CopyMode::async) return false;
    fail("CPASYNC_WIDTH",
         fmt::format("'{}' cannot be copied to '{}' asynchronously", load.buffer->name,
                     store.buffer->name),
         loc, "aligned runs of 4, 8 or 16 bytes",
         fmt::format("{} x {}, {} bits", width, name(load.buffer->dtype), moved),
         "declare multiple_of for the strides and extents involved, or use k.copy");
  }
  when(sole_owner_, loc, [&] {
    for (int64_t first = 0; first < it.vector; first += width) {
      auto at_first = [&](std::vector<Expr> indices) {
        for (Expr& index : indices) {
          index = ir::substitute(index, [&](const VarRef& var) {
            return it.lane && var == it.lane ? ir::index(first) : Expr();
          });
        }
        return indices;
      };
      const int elements = static_cast<int>(width);
      AsyncCopy copy;
      copy.from = access(load.buffer, at_first(from), elements, load.terms, loc);
      copy.to = access(store.buffer, at_first(to), elements, store.terms, loc);
      emit({std::move(copy), loc});
    }
  });
  return true;
}

}  // namespace tessera::codegen
