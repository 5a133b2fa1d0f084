#include "kernels/gemm/parts/k_grouped_kernel.h"

#include <functional>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/gemm/parts/operand_tiles.h"
#include "kernels/gemm/parts/roles.h"

namespace tessera::kernels::gemm {
namespace {

using dsl::Ref;
using dsl::Value;

/// A tile of out, and the steps of k of its group.
struct Place {
  Value group, row, column, first, end;
};

class KGrouped {
 public:
  explicit KGrouped(const KGroupedSpec& s) : t_(s.tile), k_("gemm_fp8_k_grouped") {
    m_ = k_.dim("m", {.multiple_of = s.m_multiple});
    n_ = k_.dim("n", {.multiple_of = s.n_multiple});
    depth_ = k_.dim("depth", {.multiple_of = s.k_multiple});
    auto parts = k_.dim("parts"), bounds = k_.dim("bounds");  // of k that share scales; of groups
    a_.emplace(k_, "a", DType::e4m3, s.a, m_, depth_, t_.rows, t_.step);
    b_.emplace(k_, "b", DType::e4m3, s.b, n_, depth_, t_.columns, t_.step);
    a_sf_ = k_.input("a_sf", DType::f32, {parts, m_});
    b_sf_ = k_.input("b_sf", DType::f32, {parts, n_});
    k_offsets_ = k_.input("k_offsets", DType::i32, {bounds});
    groups_ = k_.dim("groups");
    out_ = k_.output("out", DType::f32, {groups_, m_, n_});
    tiles_down_ = ceil_div(m_, t_.rows);
    tiles_across_ = ceil_div(n_, t_.columns);
    k_.launch({min(groups_ * tiles_down_ * tiles_across_, k_.device_blocks())},
              {.threads = t_.by_roles != 0 ? threads_of_roles(t_) : 256});
  }

  ir::Kernel pipelined() {
    const StepTiles tiles = step_tiles(
        [&](DType dtype, Shape shape, const char* name) { return k_.shared(dtype, shape, name); });
    const Sums sums(k_, t_);
    each_tile([&](const Place& at) {
      k_.fill(sums.all, 0.0f);
      k_.pipelined(at.first, at.end, t_.stages, [&](Value step) {
        load(at, step, tiles);
        multiply(tiles, sums);
        promote(sums);
      });
      add_to_out(at, sums);
    });
    return k_.finish();
  }

  ir::Kernel by_roles() {
    auto ring = k_.ring({.stages = t_.stages});
    const StepTiles tiles = step_tiles([&](DType dtype, Shape shape, const char* name) {
      return ring.shared(dtype, shape, name);
    });
    auto load_tiles = [&] {
      each_tile([&](const Place& at) {
        const auto fill = [&](Value step) { ring.fill([&] { load(at, step, tiles); }); };
        k_.serial(at.first, at.end, fill);
      });
    };
    auto multiply_tiles = [&] {
      const Sums sums(k_, t_);
      each_tile([&](const Place& at) {
        k_.fill(sums.all, 0.0f);
        k_.serial(at.first, at.end, [&](Value) {
          ring.take([&] { multiply(tiles, sums); });
          promote(sums);
        });
        add_to_out(at, sums);
      });
    };
    k_.roles({role_that_loads(load_tiles), role_that_multiplies(t_, multiply_tiles)});
    return k_.finish();
  }

 private:
  struct Sums {
    Sums(dsl::Builder& k, const Tile& t)
        : part(k.fragment(DType::f32, {t.rows, t.columns}, "part")),
          all(k.fragment(DType::f32, {t.rows, t.columns}, "sum")),
          of_rows(k.fragment(DType::f32, {t.rows}, "of_rows")),
          of_columns(k.fragment(DType::f32, {t.columns}, "of_columns")) {}
    Ref part, all, of_rows, of_columns;
  };
  void each_tile(const std::function<void(const Place&)>& body) {
    k_.persistent({groups_ * tiles_down_, tiles_across_}, [&](Value down, Value across) {
      auto group = k_.let("group", down / tiles_down_);
      auto from = k_.let("from", (*k_offsets_)(group));
      auto to = k_.let("to", (*k_offsets_)(group + 1));
      auto holds = k_.let("holds", from >= 0 && to >= from && to <= depth_ && from % t_.step == 0 &&
                                       to % t_.step == 0);
      k_.report_unless(holds, out_of_range("k_offsets"));
      auto first = k_.let("first", select(holds, from / t_.step, 0));
      auto end = k_.let("end", select(holds, to / t_.step, 0));
      auto row = k_.let("row", down % tiles_down_ * t_.rows);
      k_.if_(first < end, [&] { body({group, row, across * t_.columns, first, end}); });
    });
  }
  using Shape = std::vector<int64_t>;
  /// The tiles that a step of k reads.
  struct StepTiles {
    Ref a, b, a_scales, b_scales;
  };
  using MakeTile = std::function<Ref(DType, Shape, const char*)>;
  StepTiles step_tiles(const MakeTile& make) const {
    return {make(DType::e4m3, a_->shape(), "a_tile"), make(DType::e4m3, b_->shape(), "b_tile"),
            make(DType::f32, {t_.rows}, "a_scales"), make(DType::f32, {t_.columns}, "b_scales")};
  }
  void load(const Place& at, const Value& step, const StepTiles& tiles) {
    dsl::CopyOptions by;
    if (t_.by_roles != 0) by.engine = ir::Engine::tensor;
    k_.copy(a_->at(at.row, step), tiles.a, by);
    k_.copy(b_->at(at.column, step), tiles.b, by);
    k_.copy(a_sf_->tile({step, at.row}, {1, t_.rows}), tiles.a_scales);
    k_.copy(b_sf_->tile({step, at.column}, {1, t_.columns}), tiles.b_scales);
  }
  void multiply(const StepTiles& tiles, const Sums& sums) {
    k_.copy(tiles.a_scales, sums.of_rows);
    k_.copy(tiles.b_scales, sums.of_columns);
    k_.fill(sums.part, 0.0f);
    k_.gemm(a_->left(tiles.a), b_->right(tiles.b), sums.part, {.promote = 0});
  }
  void promote(const Sums& sums) {
    k_.parallel({t_.rows, t_.columns}, [&](Value r, Value c) {
      Value part = sums.part(r, c), of_row = sums.of_rows(r), of_column = sums.of_columns(c);
      Value all = sums.all(r, c);
      sums.all(r, c) = fma(part, of_row * of_column, all);
    });
  }
  /// All elements are read before one is written: a load waits for no store then.
  void add_to_out(const Place& at, const Sums& sums) {
    const Ref tile = out_->tile({at.group, at.row, at.column}, {1, t_.rows, t_.columns});
    k_.copy(tile, sums.part);
    k_.parallel({t_.rows, t_.columns}, [&](Value r, Value c) {
      Value before = sums.part(r, c), sum = sums.all(r, c);
      sums.part(r, c) = before + sum;
    });
    k_.copy(sums.part, tile);
  }

  const Tile t_;
  dsl::Builder k_;
  Value m_, n_, depth_, groups_, tiles_down_, tiles_across_;
  std::optional<OperandTiles> a_, b_;
  std::optional<Ref> a_sf_, b_sf_, k_offsets_, out_;
};

}  // namespace

ir::Kernel build_k_grouped(const KGroupedSpec& spec) {
  KGrouped kernel(spec);
  return spec.tile.by_roles != 0 ? kernel.by_roles() : kernel.pipelined();
}

}  // namespace tessera::kernels::gemm
