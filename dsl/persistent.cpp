// Builder: persistent loops.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {

void Builder::persistent_loop(std::vector<Arg> tiles,
                              const std::function<void(const std::vector<Value>&)>& body,
                              PersistentOptions options, SourceLoc loc) {
  Recorder& r = *recorder_;
  if (!r.launched) r.fail("NO_LAUNCH", "a persistent loop before launch()", loc);
  if (r.kernel.grid.size() != 1) {
    r.fail("LAUNCH", "a persistent loop needs a grid of one extent", loc, "1",
           fmt::format("{}", r.kernel.grid.size()));
  }
  if (options.group < 1) {
    r.fail("LOOP_STEP", "the group of a persistent loop must be positive", loc, "1, 2, ...",
           fmt::format("{}", options.group));
  }
  std::vector<Value> extents;
  for (const Arg& extent : tiles) {
    extents.push_back(extent.as(DType::i32, &r));
    r.check_in_scope(extents.back().expr(), loc);
  }
  const Value columns = extents.back();
  // Groups of one axis, and groups of 1, keep row-major order.
  const bool grouped = options.group > 1 && extents.size() == 2;
  const Value end = extents.size() == 2 ? extents[0] * columns : columns;

  ir::Loop node;
  node.kind = ir::LoopKind::serial;
  node.begin = ir::var(r.kernel.blocks[0]);
  node.extents = {end.expr()};
  node.step = ir::cast(DType::i32, r.kernel.grid[0]);
  node.label = "persistent";
  const auto round = [&] {
    // The index starts at the block index but reaches every tile.
    node.vars.push_back(
        r.new_var("tile", DType::i32, ir::VarKind::loop, loc, ir::index(0), end.expr()));
    const Value tile(&r, ir::var(node.vars[0]));
    if (extents.size() == 1) {
      body({tile});
    } else if (!grouped) {
      body({let("tile_row", tile / columns, loc), let("tile_column", tile % columns, loc)});
    } else {
      // The last group may be narrower, so that no round is empty.
      const Value group = Value(&r, ir::index(options.group));
      const Value of_group = let("of_group", tile % (group * extents[0]), loc);
      const Value first = let("first_column", tile / (group * extents[0]) * group, loc);
      const Value width = let("width", min(group, columns - first), loc);
      const Value row = let("tile_row", of_group / width, loc);
      // The sum is below `columns`. As a minimum it is a value of its own to the prover, which cannot show
      // that the sum does not wrap.
      const Value column = let("tile_column", min(first + of_group % width, columns), loc);
      // Always true: the prover takes the bounds from here.
      if_(
          row >= 0 && row < extents[0] && column >= 0 && column < columns,
          [&] {
            body({row, column});
          },
          loc);
    }
  };
  breakable_body(node, false, round, loc);
  r.add({std::move(node), loc});
}

}  // namespace tessera::dsl
