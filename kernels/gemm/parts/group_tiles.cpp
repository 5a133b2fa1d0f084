#include "kernels/gemm/parts/group_tiles.h"

namespace tessera::kernels::gemm {

using dsl::Value;

void each_group_tile(dsl::Builder& k, const TileShare& share, const Value& groups,
                     const std::function<GroupRows(const Value& group)>& rows_of,
                     const std::function<void(const GroupTile&)>& body) {
  auto across = k.let("across", share.across);
  // The group of the tile, its rows, the tiles of the group and those of the groups before it.
  auto group = k.var(DType::i32, -1, "group"), of_rows = k.var(DType::i32, -1, "of_rows");
  auto slab = k.var(DType::i32, 0, "slab");
  auto begin = k.var(DType::i32, 0, "begin"), end = k.var(DType::i32, 0, "end");
  auto tiles = k.var(DType::i32, 0, "tiles"), before = k.var(DType::i32, 0, "before");
  auto tile = k.var(DType::i32, share.block, "tile");
  k.loop([&] {
    k.loop([&] {
      k.break_if(Value(tile) < Value(before) + Value(tiles) || Value(group) >= groups);
      before += Value(tiles), group += 1;
      tiles = 0;
      k.if_(Value(group) < groups, [&] {
        const GroupRows rows = rows_of(group);
        slab = rows.slab, begin = rows.begin, end = rows.end, of_rows = rows.group;
        tiles = ceil_div(rows.end - rows.begin, share.rows) * across;
      });
    });
    // A value that the lanes of a warp share.
    const auto of_warp = [&](const char* name, const Value& value) {
      auto same = k.let(name, k.uniform(k.shuffle(value, 0)));
      k.assume(same >= 0);
      return same;
    };
    auto at_group = of_warp("at_group", group);
    k.break_if(at_group >= groups);
    auto of_tile = of_warp("of_tile", of_rows), of_slab = of_warp("of_slab", slab);
    auto end_here = of_warp("end_here", end);
    auto down = k.let("down", max(ceil_div(Value(end) - Value(begin), share.rows), 1));
    auto at = k.let("at", Value(tile) - Value(before));
    auto row = of_warp("row", Value(begin) + at % down * share.rows);
    auto column = of_warp("column", at / down);
    body({of_slab, row, end_here, of_tile, column});
    tile += share.blocks;
  });
}

}  // namespace tessera::kernels::gemm
