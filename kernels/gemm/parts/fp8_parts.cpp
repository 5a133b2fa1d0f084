#include "kernels/gemm/parts/fp8_parts.h"

#include <utility>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::gemm {

using dsl::Ref;
using dsl::Value;

constexpr int32_t kScaledColumns = 128;  // of b that share a scale
constexpr int32_t kLanes = 32;

Fp8Parts::Fp8Parts(dsl::Builder& k, const Fp8Spec& s) : k_(k), s_(s) {
  m_ = k_.dim("m");
  n_ = k_.dim("n", {.multiple_of = s.n_multiple});
  if (s.groups == Groups::masked) {
    slabs_ = groups_ = k_.dim("groups");
  } else if (s.groups == Groups::by_ends) {
    groups_ = k_.dim("groups");
  } else if (has_ids()) {
    groups_ = s.has_depth != 0 ? k_.dim("groups") : k_.scalar("groups", DType::i32);
  }
  if (s.has_depth != 0) {
    depth_ = k_.dim("depth", {.multiple_of = s.k_multiple});
    auto parts = k_.dim("parts"), column_parts = k_.dim("column_parts");  // that share a scale
    a_ = matrices("a", DType::e4m3, {slabs_, m_, depth_}, s.a_vector);
    b_ = matrices("b", DType::e4m3, {groups_, n_, depth_}, s.b_vector);
    a_sf_ = scales("a_sf", {slabs_, m_, parts});
    b_sf_ = scales("b_sf", {groups_, column_parts, parts});
  }
  if (has_ids()) m_indices_ = k_.input("m_indices", DType::i32, {m_});
  if (s.groups == Groups::masked) group_tiles_.emplace(k_, GroupRows::by_counts, groups_, m_);
  if (s.groups == Groups::by_ends) group_tiles_.emplace(k_, GroupRows::by_ends, groups_, m_);
  out_ = matrices("out", out_dtype(), {slabs_, m_, n_}, s.out_vector);
}

Ref Fp8Parts::matrices(const std::string& name, DType dtype, std::vector<dsl::Arg> shape,
                       int vector) {
  auto apart = k_.stride(name + "_apart", {.multiple_of = vector});
  auto stride = k_.stride(name + "_stride", {.multiple_of = vector});
  const dsl::TensorOptions options = {.strides = {apart, stride, 1},
                                      .align = vector * bytes(dtype)};
  if (name == "out") return k_.output(name, dtype, std::move(shape), options);
  return k_.input(name, dtype, std::move(shape), options);
}

Ref Fp8Parts::scales(const std::string& name, std::vector<dsl::Arg> shape) {
  auto apart = k_.stride(name + "_apart"), down = k_.stride(name + "_down");
  auto across = k_.stride(name + "_across");
  return k_.input(name, DType::f32, std::move(shape), {.strides = {apart, down, across}});
}

std::vector<Value> Fp8Parts::ids_around(const Value& row, std::vector<Value>& exist) {
  // Each lane looks at four rows, so the 128 ids cost the latency of one.
  return ids_from(k_.let("first_of_group", row / kRowsOfGroup * kRowsOfGroup), kRowsOfGroup, exist);
}

std::vector<Value> Fp8Parts::ids_from(const Value& first, int32_t count,
                                      std::vector<Value>& exist) {
  std::vector<Value> ids;
  for (int32_t i = 0; i < count; i += kLanes) {
    auto at = k_.let("row_of_id", first + i + k_.lane());
    exist.push_back(at < m_);
    ids.push_back(k_.let("id", select(exist.back(), (*m_indices_)(at), -1)));
  }
  return ids;
}

Value Fp8Parts::of_all_ids(size_t ids, const std::function<Value(size_t i)>& holds) {
  Value of_lane = holds(0);
  for (size_t i = 1; i < ids; ++i) of_lane = of_lane && holds(i);
  return k_.uniform(k_.warp_all(of_lane));
}

Fp8Parts::RowGroup Fp8Parts::group_of(const Value& row) {
  std::vector<Value> exist;
  const std::vector<Value> ids = ids_around(row, exist);
  Value largest = ids.front();
  for (const Value& id : ids) largest = max(largest, id);
  auto group = k_.let("group", k_.uniform(k_.warp_max(largest)));
  const auto is_id = [&](size_t i) { return ids[i] >= -1; };
  const auto is_same = [&](size_t i) { return ids[i] < 0 || ids[i] == group; };
  auto in_range = k_.let("in_range", group < groups_ && of_all_ids(ids.size(), is_id));
  auto is_one = k_.let("is_one", of_all_ids(ids.size(), is_same));
  k_.report_unless(in_range, out_of_range("m_indices"));
  k_.report_unless(is_one, kSeveralGroups);
  return {group, in_range && is_one && group >= 0};
}

Value Fp8Parts::is_whole(const GroupTile& at) {
  if (!has_ids()) return at.row + s_.tile.rows <= at.end;
  std::vector<Value> exist;
  if (s_.groups == Groups::by_ids) {
    const std::vector<Value> ids = ids_from(at.row, s_.tile.rows, exist);
    return of_all_ids(ids.size(), [&](size_t i) { return ids[i] == at.group || !exist[i]; });
  }
  const std::vector<Value> ids = ids_around(at.row, exist);
  return of_all_ids(ids.size(), [&](size_t i) { return ids[i] >= 0 || !exist[i]; });
}

void Fp8Parts::each_tile_of_ids(const std::function<void(const GroupTile&)>& body) {
  const auto tile = [&](const Value& down, const Value& across) {
    auto row = k_.let("first_row", down * s_.tile.rows);
    auto before = k_.var(DType::i32, -1, "group_before");
    k_.loop([&] {
      std::vector<Value> exist;
      const std::vector<Value> ids = ids_from(row, s_.tile.rows, exist);
      k_.report_unless(
          of_all_ids(ids.size(), [&](size_t i) { return ids[i] >= -1 && ids[i] < groups_; }),
          out_of_range("m_indices"));
      Value least = groups_;
      for (const Value& id : ids) least = min(least, select(id > before, id, groups_));
      auto group = k_.let("group", k_.uniform(k_.warp_min(least)));
      k_.break_if(group >= groups_);
      body({dsl::i32(0), row, m_, group, across});
      before = group;
    });
  };
  k_.persistent({tiles_down(), tiles_across()}, tile, {.group = 8, .share = 0});
}

void Fp8Parts::each_tile(const std::function<void(const GroupTile&)>& body) {
  if (s_.groups == Groups::by_ids) return each_tile_of_ids(body);
  if (group_tiles_) {
    return group_tiles_->each(block_, blocks_, s_.tile.rows, tiles_across(), body);
  }
  const int32_t rows_of_tile = s_.tile.rows;
  const auto tile = [&](const Value& down, const Value& across) {
    auto row = down * rows_of_tile;
    if (s_.groups == Groups::one) return body({dsl::i32(0), row, m_, dsl::i32(0), across});
    const RowGroup found = group_of(row);
    k_.if_(found.exists, [&] { body({dsl::i32(0), row, m_, found.group, across}); });
  };
  k_.persistent({tiles_down(), tiles_across()}, tile, {.group = 8, .share = 0});
}

StepTiles Fp8Parts::tiles(const MakeTile& make) const {
  const Tile& t = s_.tile;
  return {make(DType::e4m3, {t.rows, t.step}, "a_tile"),
          make(DType::e4m3, {t.columns, t.step}, "b_tile"), make(DType::f32, {t.rows}, "a_scales"),
          make(DType::f32, {1}, "b_scale")};
}

void Fp8Parts::load(const GroupTile& at, const Value& step, const StepTiles& tiles) {
  const Tile& t = s_.tile;
  dsl::CopyOptions by;
  if (t.by_roles != 0) by.engine = ir::Engine::tensor;
  auto first = step * t.step;
  k_.copy(a_->tile({at.slab, at.row, first}, {1, t.rows, t.step}), tiles.a, by);
  k_.copy(b_->tile({at.group, at.across * t.columns, first}, {1, t.columns, t.step}), tiles.b, by);
  k_.copy(a_sf_->tile({at.slab, at.row, step}, {1, t.rows, 1}), tiles.a_scales);
  auto part = at.across / (kScaledColumns / t.columns);
  k_.copy(b_sf_->tile({at.group, part, step}, {1, 1, 1}), tiles.b_scale);
}

std::optional<Ref> Fp8Parts::staging() {
  if (s_.is_f32 != 0) return std::nullopt;
  return k_.shared(DType::bf16, {s_.tile.rows, s_.tile.columns}, "out_tile");
}

void Fp8Parts::write(const GroupTile& at, const Ref& sum, const std::optional<Ref>& through) {
  const int64_t rows = s_.tile.rows, columns = s_.tile.columns;
  auto column = at.across * columns;
  if (through) k_.copy(sum, *through);
  const Ref from = through ? *through : sum;
  const auto whole = [&] {
    k_.copy(from, out_->tile({at.slab, at.row, column}, {1, rows, columns}),
            {.engine = s_.by_engine != 0 ? ir::Engine::tensor : ir::Engine::automatic});
  };
  if (s_.groups == Groups::one) return whole();
  k_.if_else(is_whole(at), whole, [&] {
    k_.parallel({rows, columns}, [&](Value r, Value c) {
      const auto id = [&] { return (*m_indices_)(at.row + r); };
      const Value counts = s_.groups == Groups::by_rows  ? id() >= 0
                           : s_.groups == Groups::by_ids ? id() == at.group
                                                         : at.row + r < at.end;
      k_.if_(counts, [&] { (*out_)(at.slab, at.row + r, column + c) = from(r, c); });
    });
  });
}

}  // namespace tessera::kernels::gemm
