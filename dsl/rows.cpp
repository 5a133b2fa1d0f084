// Rows that an index chooses: gathers and scatters.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

[[noreturn]] void refuse(const Recorder& recorder, const Ref& of, SourceLoc loc,
                         std::string expected, std::string got) {
  recorder.fail("GATHER", fmt::format("rows of '{}' cannot be chosen so", of.region().buffer->name),
                loc, std::move(expected), std::move(got));
}

/// The extents of a tile, which are constants.
std::vector<int64_t> extents_of(const Recorder& recorder, const Ref& tile, SourceLoc loc) {
  std::vector<int64_t> result;
  for (const ir::Expr& extent : region_shape(tile.region())) {
    if (!ir::is_constant(extent)) {
      refuse(recorder, tile, loc, "constant extents of the tile", to_string(extent));
    }
    result.push_back(extent->integer);
  }
  return result;
}

}  // namespace

Rows Ref::rows(const Ref& index, SourceLoc loc) const {
  const std::vector<ir::Expr> shape = region_shape(index.region());
  if (shape.size() != 1 || !ir::is_constant(shape[0])) {
    refuse(*recorder_, *this, loc, "an index of one dimension and constant extent",
           shape_text(shape));
  }
  const DType type = index.dtype();
  if (type != DType::i32 && type != DType::i64 && type != DType::u32) {
    refuse(*recorder_, *this, loc, "an index of i32, i64 or u32", std::string(name(type)));
  }
  return rows(
      shape[0]->integer,
      [index, loc](const Value& row) {
        return std::vector<Value>{index.index({Arg(row, loc)}).read(loc)};
      },
      loc);
}

Rows Ref::rows(int64_t count, std::function<std::vector<Value>(const Value&)> place,
               SourceLoc loc) const {
  const ir::Space space = region_.buffer->space;
  if (space != ir::Space::global && space != ir::Space::shared) {
    refuse(*recorder_, *this, loc, "a global tensor or a shared buffer",
           std::string(ir::name(space)));
  }
  if (count < 1) refuse(*recorder_, *this, loc, "1 row or more", fmt::format("{}", count));
  return {*this, count, std::move(place)};
}

void Builder::copy(const Rows& from, const Ref& to, SourceLoc loc) {
  copy_rows(from, to, true, ir::CopyTime::at_once, loc);
}

void Builder::copy(const Ref& from, const Rows& to, SourceLoc loc) {
  const ir::Buffer& target = *to.of().region().buffer;
  if (target.space == ir::Space::global && !target.is_output) {
    recorder_->fail("WRITE_READ_ONLY",
                    fmt::format("copy writes the input tensor '{}'", target.name), loc,
                    "a tensor declared with k.output", "k.input");
  }
  copy_rows(to, from, false, ir::CopyTime::at_once, loc);
}

void Builder::copy_rows(const Rows& rows, const Ref& tile, bool gathers, ir::CopyTime when,
                        SourceLoc loc) {
  const Recorder& r = *recorder_;
  const ir::Buffer& source = *rows.of().region().buffer;
  const ir::Buffer& target = *tile.region().buffer;
  const std::vector<int64_t> extents = extents_of(r, tile, loc);
  if (extents.empty() || extents[0] != rows.count()) {
    refuse(r, rows.of(), loc, fmt::format("a tile of {} rows", rows.count()),
           shape_text(region_shape(tile.region())));
  }
  if (extents.size() > 4)
    refuse(r, rows.of(), loc, "a tile of at most 4 dimensions",
           shape_text(region_shape(tile.region())));
  const std::string label = gathers
                                ? fmt::format("copy rows of {} -> {}", source.name, target.name)
                                : fmt::format("copy {} -> rows of {}", target.name, source.name);
  std::optional<ir::CopyPlan> plan;
  if (gathers) plan = {.when = when};
  if (gathers && rows.of().is_bulk_) plan->engine = ir::Engine::bulk;
  parallel_loop(
      extents,
      [&](const std::vector<Value>& at) {
        std::vector<Arg> place;
        const std::vector<Value> leading = rows.place_(at[0]);
        for (const Value& index : leading) place.emplace_back(index, loc);
        const size_t free = rows.of().region().order.size();
        const bool gives_column = extents.size() == 2 && place.size() == free && free > 1;
        if (!gives_column && (place.empty() || place.size() + extents.size() - 1 != free)) {
          refuse(r, rows.of(), loc,
                 fmt::format("{} leading indices, for a tile of {} dimensions",
                             free + 1 - extents.size(), extents.size()),
                 fmt::format("{}", place.size()));
        }
        // An index of each dimension: the last one is the column of the tensor where the tile begins.
        if (gives_column) {
          place.pop_back();
          place.emplace_back(leading.back() + at[1], loc);
        }
        std::vector<Arg> of_tile;
        for (size_t d = 0; d < at.size(); ++d) {
          of_tile.emplace_back(at[d], loc);
          if (d > 0 && !gives_column) place.emplace_back(at[d], loc);
        }
        const Ref row = rows.of().index(place), element = tile.index(of_tile);
        const Ref& from = gathers ? row : element;
        const Ref& to = gathers ? element : row;
        Value value = recorder_->load(from.region(), loc);
        if (from.dtype() != to.dtype()) value = cast(to.dtype(), Arg(value, loc));
        recorder_->store(to.region(), value, loc);
      },
      loc, label, plan);
}

}  // namespace tessera::dsl
