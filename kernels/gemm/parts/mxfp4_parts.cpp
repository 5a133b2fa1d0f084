#include "kernels/gemm/parts/mxfp4_parts.h"

#include <limits>
#include <utility>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::gemm {

using dsl::Ref;
using dsl::Value;

constexpr int32_t kLanes = 32;
constexpr int64_t kBoxWords = 256;  // of codes, along one dimension of a tensor copy

Mxfp4Parts::Mxfp4Parts(dsl::Builder& k, const Mxfp4Spec& s) : k_(k), s_(s) {
  m_ = k_.dim("m");
  n_ = k_.dim("n", {.multiple_of = s.n_multiple});
  declare_groups();
  if (s.has_depth != 0) {
    depth_ = k_.dim("depth", {.multiple_of = s.k_multiple});
    auto row_tiles = k_.dim("row_tiles"), tiles = k_.dim("depth_tiles");
    auto blocks = k_.dim("depth_blocks");
    a_ = strided("a", operand_dtype(s.operand), {slabs_, m_, depth_}, s.a_vector);
    if (s.operand == Mxfp4Operand::e4m3) {
      const DType dtype = s.is_packed != 0 ? DType::u32 : DType::f32;
      auto apart = k_.stride("a_sf_apart"), down = k_.stride("a_sf_down");
      auto across = k_.stride("a_sf_across");
      a_sf_ = k_.input("a_sf", dtype, {slabs_, m_, k_.dim("a_scales")},
                       {.strides = {apart, down, across}});
    }
    b_ =
        k_.input("b", DType::u32, {groups_, row_tiles, tiles, tile_words() / kBoxWords, kBoxWords});
    b_shift_ = k_.input("b_shift", DType::u32, {groups_, row_tiles, blocks, kMxRows});
    if (s.by_block != 0) {
      b_sf_ = k_.input("b_sf", DType::f32, {groups_, n_, blocks}, {.align = 4});
    } else {
      b_sf_ = k_.input("b_sf", DType::f32, {groups_, n_}, {.align = 4});
    }
  }
  if (s.has_bias != 0) bias_ = k_.input("bias", DType::f32, {groups_, n_}, {.align = 4});
  out_ = strided("out", out_dtype(), {slabs_, m_, n_}, s.out_vector);
}

void Mxfp4Parts::declare_groups() {
  switch (s_.groups) {
    case MxGroups::one:
      return;
    case MxGroups::masked:
      slabs_ = groups_ = k_.dim("groups");
      group_tiles_.emplace(k_, GroupRows::by_counts, groups_, m_);
      return;
    case MxGroups::by_rows:
      groups_ = k_.dim("groups");
      alignment_ = k_.scalar("alignment", DType::i32);
      m_indices_ = k_.input("m_indices", DType::i32, {m_}, {.align = 4});
      return;
    case MxGroups::by_ends:
      groups_ = k_.dim("groups");
      group_tiles_.emplace(k_, GroupRows::by_ends, groups_, m_);
      return;
  }
}

Ref Mxfp4Parts::strided(const std::string& name, DType dtype, std::vector<dsl::Arg> shape,
                        int vector) {
  auto apart = k_.stride(name + "_apart", {.multiple_of = vector});
  auto stride = k_.stride(name + "_stride", {.multiple_of = vector});
  const dsl::TensorOptions options = {.strides = {apart, stride, 1},
                                      .align = vector * bytes(dtype)};
  if (name == "out") return k_.output(name, dtype, std::move(shape), options);
  return k_.input(name, dtype, std::move(shape), options);
}

Value Mxfp4Parts::tiles_down() const {
  const int64_t rows = s_.tile.columns;
  switch (s_.groups) {
    case MxGroups::one:
      return ceil_div(m_, rows);
    case MxGroups::masked:
      return slabs_ * ceil_div(m_, rows);
    case MxGroups::by_ends:
      return ceil_div(m_, rows) + groups_;
    default:
      return (m_ - 1) / alignment_ * ceil_div(alignment_, rows) + ceil_div(alignment_, rows);
  }
}

Value Mxfp4Parts::blocks(const Value& at_once) const {
  // Each factor first, so that the product stays within 32 bits.
  return min(min(tiles_down(), at_once) * min(tiles_across(), at_once), at_once);
}

Value Mxfp4Parts::group_of(const Value& begin, const Value& end) {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  auto largest = k_.var(DType::i32, -1, "largest"), least = k_.var(DType::i32, -1, "least");
  auto first = k_.var(DType::i32, kNone, "first");  // the least that is a group
  const auto look = [&](Value row) {
    auto id = k_.let("id", (*m_indices_)(row));
    largest = max(Value(largest), id), least = min(Value(least), id);
    first = min(Value(first), select(id < 0, kNone, id));
  };
  k_.serial(begin + k_.lane(), end, look, kLanes);
  auto group = k_.let("group", k_.uniform(k_.warp_max(Value(largest))));
  auto lowest = k_.let("lowest", k_.uniform(k_.warp_min(Value(least))));
  auto lowest_group = k_.let("lowest_group", k_.uniform(k_.warp_min(Value(first))));
  auto in_range = k_.let("in_range", group < groups_ && lowest >= -1);
  auto is_one = k_.let("is_one", group < 0 || lowest_group == group);
  k_.report_unless(in_range, out_of_range("m_indices"));
  k_.report_unless(is_one, kSeveralGroupsAligned);
  return k_.let("group_here", select(in_range && is_one, group, -1));
}

void Mxfp4Parts::each_aligned_tile(const std::function<void(const GroupTile&)>& body) {
  const int64_t rows = s_.tile.columns;
  auto of_run = k_.let("of_run", ceil_div(alignment_, rows));  // tiles of `alignment` rows
  auto runs = k_.let("runs", (m_ - 1) / alignment_ + 1);
  const auto tile = [&](const Value& down, const Value& across) {
    // Values that a warp shares, and that the prover does not look into.
    const auto of_warp = [&](const char* name, const Value& value) {
      auto same = k_.let(name, k_.uniform(k_.shuffle(value, 0)));
      k_.assume(same >= 0);
      return same;
    };
    auto begin = of_warp("begin", down / of_run * alignment_);
    auto end = of_warp("end", begin + min(m_ - begin, alignment_));
    auto row = of_warp("row", begin + down % of_run * rows);
    k_.if_(row < end, [&] {
      auto group = group_of(begin, end);
      k_.if_(group >= 0, [&] { body({dsl::i32(0), row, end, group, across}); });
    });
  };
  k_.persistent({runs * of_run, tiles_across()}, tile, {.group = 8});
}

void Mxfp4Parts::each_tile(const std::function<void(const GroupTile&)>& body) {
  if (m_indices_) return each_aligned_tile(body);
  if (group_tiles_) {
    return group_tiles_->each(block_, blocks_, s_.tile.columns, tiles_across(), body);
  }
  const auto tile = [&](const Value& down, const Value& across) {
    body({dsl::i32(0), down * s_.tile.columns, m_, dsl::i32(0), across});
  };
  k_.persistent({tiles_down(), tiles_across()}, tile, {.group = 8});
}

MxStep Mxfp4Parts::tiles(const MakeTile& make) const {
  const Tile& t = s_.tile;
  const int64_t tiles = t.rows / kMxRows;
  const Ref words = make(DType::u32, {tiles, tile_words() / kBoxWords, kBoxWords}, "words");
  const Ref shifts = make(DType::u32, {tiles, kMxRows}, "shifts");
  MxStep step{words,
              {tiles, words.reshape({tiles, tile_words()}), shifts},
              make(operand_dtype(s_.operand), {t.columns, t.step}, "a_tile"),
              {}};
  if (s_.operand == Mxfp4Operand::e4m3) {
    step.a_scales = s_.is_packed != 0 ? make(DType::u32, {t.columns}, "a_scales")
                                      : make(DType::f32, {t.columns, scales_of_step()}, "a_scales");
  }
  return step;
}

void Mxfp4Parts::load(const GroupTile& at, const Value& step, const MxStep& tiles) {
  const Tile& t = s_.tile;
  const int64_t down = t.rows / kMxRows, boxes = tile_words() / kBoxWords;
  auto first = at.across * down, block = step * t.step / kMxBlock;
  dsl::CopyOptions by;
  if (t.by_roles != 0) by.engine = ir::Engine::tensor;
  k_.copy(b_->tile({at.group, first, step, 0, 0}, {1, down, 1, boxes, kBoxWords}), tiles.words, by);
  k_.copy(b_shift_->tile({at.group, first, block, 0}, {1, down, 1, kMxRows}), tiles.b.shifts, by);
  k_.copy(a_->tile({at.slab, at.row, step * t.step}, {1, t.columns, t.step}), tiles.a, by);
  if (s_.is_packed != 0) {
    k_.copy(a_sf_->tile({at.slab, at.row, step / (4 / scales_of_step())}, {1, t.columns, 1}),
            *tiles.a_scales);
  } else if (tiles.a_scales) {
    k_.copy(
        a_sf_->tile({at.slab, at.row, step * scales_of_step()}, {1, t.columns, scales_of_step()}),
        *tiles.a_scales);
  }
}

void Mxfp4Parts::load_row_scales(const GroupTile& at, const Value& step, const Ref& into) {
  // Cut into range instead of checked: scales beyond the matrix reach no element of out.
  auto block = k_.let("scale_block", min(step, steps() - 1));
  k_.parallel(into, [&](Value r) {
    auto row = k_.let("scale_row", min(at.across * s_.tile.rows + r, n_ - 1));
    into(r) = (*b_sf_)(at.group, row, block).unchecked();
  });
}

Ref Mxfp4Parts::staging() {
  return k_.shared(out_dtype(), {s_.tile.columns, s_.tile.rows}, "out_tile");
}

void Mxfp4Parts::write(const GroupTile& at, const Ref& sum, const Ref& through) {
  const int64_t rows = s_.tile.columns, columns = s_.tile.rows;
  auto column = at.across * columns;
  const bool by_row = s_.by_block == 0 && s_.has_depth != 0;
  k_.parallel({columns, rows}, [&](Value c, Value r) {
    Value value = sum(c, r);
    if (by_row) value = value * (*b_sf_)(at.group, column + c);
    if (bias_) value = value + (*bias_)(at.group, column + c);
    through(r, c) = cast(out_dtype(), value);
  });
  k_.parallel({rows, columns}, [&](Value r, Value c) {
    Value counts = at.row + r < at.end;
    if (m_indices_) counts = counts && (*m_indices_)(at.row + r) >= 0;
    k_.if_(counts, [&] { (*out_)(at.slab, at.row + r, column + c) = through(r, c); });
  });
}

}  // namespace tessera::kernels::gemm
