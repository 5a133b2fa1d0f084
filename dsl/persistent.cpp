// Builder: persistent loops.
//
// All tiles have a number; block b of a grid of G blocks walks the numbers b, b + G, b + 2 G, ..., and takes each apart
// into the indices of the axes:
//
//   one axis         the number itself
//   two axes         row = number / columns, column = number % columns
//   groups of g      the tiles of g neighbouring columns come one after another, row by row:
//                    g * rows numbers to a group, whose last one may be narrower
//   share            the blocks of a cluster walk as one; block r of a cluster of c takes tile number * c + r of the
//                    shared axis
//
// Numbers are i32 where the host knows the extents: it refuses a launch whose tiles, together with one step behind
// them, are too many (kernels/jit/argument_binder.cpp, check_walk), so that no product of extents wraps in the kernel. Extents that
// only the kernel knows may be anything: one axis ends at its extent whatever the step (the loop is an ordinary
// serial one), and two axes, or blocks that share, are numbered in i64. A negative extent has no tiles.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "dsl/builder.h"
#include "dsl/ir/host_value.h"
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
  if (options.share < -1 || options.share >= static_cast<int>(tiles.size())) {
    r.fail("CLUSTER", "the blocks of a cluster cannot share along this axis", loc,
           fmt::format("-1 .. {}", tiles.size() - 1), fmt::format("{}", options.share));
  }
  // Blocks that share walk as one: `across` tiles of the shared axis are one for the walk.
  const int64_t across = options.share < 0 ? 1 : r.kernel.cluster;
  std::vector<Value> extents;
  for (const Arg& extent : tiles) {
    extents.push_back(extent.as(DType::i32, &r));
    r.check_in_scope(extents.back().expr(), loc);
  }
  const auto shared_axis = static_cast<size_t>(std::max(options.share, 0));
  const bool is_known = std::all_of(extents.begin(), extents.end(), [&](const Value& extent) {
    return ir::is_known_at_launch((extent * extent * extent).expr());  // as deep as any of the walk
  });
  const DType type = is_known || (extents.size() == 1 && across == 1) ? DType::i32 : DType::i64;
  const bool is_wide = type == DType::i64;
  if (is_wide) {
    for (Value& extent : extents) extent = let("extent", cast(type, max(extent, 0)), loc);
  }
  if (across > 1) extents[shared_axis] = ceil_div(extents[shared_axis], across);
  const Value columns = extents.back();
  // Groups of one axis, and groups of 1, keep row-major order.
  const bool grouped = options.group > 1 && extents.size() == 2;
  const Value end = extents.size() == 2 ? extents[0] * columns : columns;

  ir::Loop node;
  node.kind = ir::LoopKind::serial;
  const Value block(&r, ir::var(r.kernel.blocks[0]));
  const Value blocks(&r, ir::cast(DType::i32, r.kernel.grid[0]));
  const auto of_type = [&](const Value& value) { return is_wide ? cast(type, value) : value; };
  node.begin = of_type(across > 1 ? block / across : block).expr();
  node.extents = {end.expr()};
  node.step = of_type(across > 1 ? blocks / across : blocks).expr();
  if (is_known || is_wide) node.label = "persistent";  // the index and a step stay in the type
  const auto run = [&](std::vector<Value> tile) {
    if (across > 1) {
      Value& shared = tile[shared_axis];
      shared = let("shared_tile", shared * across + of_type(block % across), loc);
    }
    if (is_wide) {
      constexpr int64_t kLast = std::numeric_limits<int32_t>::max();
      for (Value& index : tile) index = let("index", cast(DType::i32, min(index, kLast)), loc);
    }
    body(tile);
  };
  const auto round = [&] {
    // The index starts at the block index but reaches every tile.
    node.vars.push_back(
        r.new_var("tile", type, ir::VarKind::loop, loc, ir::constant(type, 0), end.expr()));
    const Value tile(&r, ir::var(node.vars[0]));
    if (extents.size() == 1) {
      run({tile});
    } else if (!grouped) {
      const Value row = let("tile_row", tile / columns, loc);
      run({row, let("tile_column", tile % columns, loc)});
    } else {
      // The last group may be narrower, so that no round is empty.
      const Value group =
          Value(&r, is_wide ? ir::constant(type, options.group) : ir::index(options.group));
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
            run({row, column});
          },
          loc);
    }
  };
  breakable_body(node, false, round, loc);
  r.add({std::move(node), loc});
}

}  // namespace tessera::dsl
