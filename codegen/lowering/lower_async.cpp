// TileLowering: asynchronous copies from global to shared memory.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/layouts/layout_cost.h"
#include "codegen/lowering/tile_lowering.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// Statements before the element is loaded: the place of its row.
ir::Body place_of_row(const ir::Loop& copy) {
  return {copy.body.begin(), copy.body.end() - 2};
}

/// The indices of a loop over rows, at element `column` of row `row`.
std::map<const ir::Var*, Expr> coordinates(const ir::Loop& loop, const Expr& row,
                                           const Expr& column) {
  Expr rest = row;
  std::map<const ir::Var*, Expr> values = {{loop.vars.back().get(), column}};
  for (size_t axis = loop.vars.size() - 1; axis-- > 0;) {
    values[loop.vars[axis].get()] = axis == 0 ? rest : rest % loop.extents[axis];
    rest = rest / loop.extents[axis];
  }
  return values;
}

}  // namespace

void TileLowering::lower_pieces(const ir::Loop& loop, const Iteration& it, SourceLoc loc) {
  const ir::ElementLoad& load = load_of(loop);
  const ir::ElementStore& store = store_of(loop);
  std::vector<Expr> from, to;
  int64_t width = 1;
  const auto measure = [&] {
    lower_body(place_of_row(loop));
    from = resolve(load.indices);
    to = resolve(store.indices);
    if (it.vector == 1) return;
    width = std::min(feasible_vector(math_, *load.buffer, from, *it.lane, it.vector),
                     feasible_vector(math_, *store.buffer, to, *it.lane, it.vector));
  };
  nested(measure);  // for what it finds
  TESSERA_CHECK(is_async_width(width * bits(load.buffer->dtype)),
                "choose_copies chose pieces for runs that the hardware does not copy");
  when(sole_owner_, loc, [&] {
    lower_body(place_of_row(loop));
    for (int64_t first = 0; first < it.vector; first += width) {
      const auto at_first = [&](const Expr& e) {
        return ir::substitute(resolve(e), [&](const VarRef& var) {
          return it.lane && var == it.lane ? ir::index(first) : Expr();
        });
      };
      const auto all_at_first = [&](std::vector<Expr> indices) {
        for (Expr& index : indices) index = at_first(index);
        return indices;
      };
      const int elements = static_cast<int>(width);
      check_indices(load, at_first, loc);
      check_indices(store, at_first, loc);
      AsyncCopy copy;
      copy.from = access(load.buffer, all_at_first(from), elements, load.terms, loc);
      copy.to = access(store.buffer, all_at_first(to), elements, store.terms, loc);
      emit({std::move(copy), loc});
    }
  });
}

void TileLowering::lower_bulk(const ir::Loop& loop, SourceLoc loc) {
  constexpr int64_t kPieceBits = 128;
  const ir::ElementLoad& load = load_of(loop);
  const ir::ElementStore& store = store_of(loop);
  const auto refuse = [&](std::string expected, std::string got) {
    fail(
        "CPASYNC_ROWS",
        fmt::format("'{}' cannot be copied to '{}' in bulk", load.buffer->name, store.buffer->name),
        loc, std::move(expected), std::move(got), "leave out bulk()");
  };
  if (load.buffer->dtype != store.buffer->dtype) {
    refuse(std::string(name(store.buffer->dtype)), std::string(name(load.buffer->dtype)));
  }
  if (!group_.is_whole_warps()) {
    refuse("a block of whole warps", fmt::format("{} threads", group_.count));
  }
  const int64_t columns = loop.extents.back()->integer;
  const int64_t piece = kPieceBits / bits(load.buffer->dtype);
  // The indices of the first element of row `row`, with `column` along the row.
  const auto at_place = [&](const Expr& index, const Expr& row, const Expr& column) {
    const std::map<const ir::Var*, Expr> values = coordinates(loop, row, column);
    return resolve(ir::substitute(index, [&](const VarRef& var) {
      const auto found = values.find(var.get());
      return found == values.end() ? Expr() : found->second;
    }));
  };
  const auto at = [&](std::vector<Expr> indices, const Expr& row, const Expr& column) {
    for (Expr& index : indices) index = at_place(index, row, column);
    return indices;
  };
  const VarRef column =
      new_var("column", DType::i32, ir::VarKind::loop, ir::index(0), ir::index(columns));
  const auto require_pieces = [&](const ir::Buffer& buffer, const std::vector<Expr>& indices) {
    const std::vector<Expr> first = at(indices, ir::index(0), ir::var(column));
    const int64_t width = feasible_vector(math_, buffer, first, *column, piece);
    if (columns % piece == 0 && width == piece) return;
    refuse("rows of multiples of 16 bytes, at such addresses",
           fmt::format("rows of {} x {} of '{}', {} bytes at a time", columns, name(buffer.dtype),
                       buffer.name, width * bits(buffer.dtype) / 8));
  };
  require_pieces(*load.buffer, load.indices);
  require_pieces(*store.buffer, store.indices);
  const Expr last_read = at(load.indices, ir::index(0), ir::var(column)).back();
  if (!math_.non_negative(last_read) || !math_.less(last_read, load.buffer->shape.back())) {
    refuse("rows of the tile inside of the tensor's", "a tile that may be wider");
  }

  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < loop.extents.size(); ++axis) rows *= loop.extents[axis]->integer;
  const int64_t warps = group_.num_warps();
  const Expr warp = math_.simplify(thread() / ir::index(kThreadsPerWarp));
  unrolled("s", (rows + warps - 1) / warps, loc, [&](const Expr& s) {
    const Expr row = warp + s * ir::index(warps);
    const Expr exists = math_.less(row, ir::index(rows)) ? Expr() : row < ir::index(rows);
    when(exists, loc, [&] {
      const int width = static_cast<int>(columns);
      const std::map<const ir::Var*, Expr> values = coordinates(loop, row, ir::index(0));
      for (const auto& [var, value] : values) values_[var] = value;
      lower_body(place_of_row(loop));
      for (const auto& [var, value] : values) values_.erase(var);
      const auto at_first = [&](const Expr& e) { return at_place(e, row, ir::index(0)); };
      check_indices(load, at_first, loc);
      check_indices(store, at_first, loc);
      BulkCopy copy;
      copy.from = access(load.buffer, at(load.indices, row, ir::index(0)), width, load.terms, loc);
      copy.to = access(store.buffer, at(store.indices, row, ir::index(0)), width, store.terms, loc);
      if (const int ring = copy.to.array->ring; ring >= 0) {
        copy.mbarrier = rings_[static_cast<size_t>(ring)].filled;
        copy.expects = true;
      }
      emit({std::move(copy), loc});
    });
  });
}

}  // namespace tessera::codegen
