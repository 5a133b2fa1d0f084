#include "kernels/gemm/parts/bf16_kernel.h"

#include <optional>

#include "kernels/gemm/parts/operand_tiles.h"
#include "kernels/gemm/parts/roles.h"

namespace tessera::kernels::gemm {
namespace {

using dsl::Ref;
using dsl::Value;

/// Columns of a tile of out that are in shared memory at a time.
constexpr int64_t kMostStaged = 128;

class Bf16Kernel {
 public:
  explicit Bf16Kernel(const Bf16Spec& s) : s_(s), t_(s.tile), k_("gemm_bf16") {
    m_ = k_.dim("m", {.multiple_of = s.m_multiple});
    n_ = k_.dim("n", {.multiple_of = s.n_multiple});
    if (s.has_depth != 0) {
      depth_ = k_.dim("depth", {.multiple_of = s.k_multiple});
      a_.emplace(k_, "a", DType::bf16, s.a, m_, depth_, is_swapped() ? t_.columns : t_.rows,
                 t_.step);
      b_.emplace(k_, "b", DType::bf16, s.b, n_, depth_, is_swapped() ? t_.rows : t_.columns,
                 t_.step);
    }
    if (s.has_bias != 0) bias_ = k_.input("bias", DType::f32, {n_});
    auto stride = k_.stride("out_stride", {.multiple_of = s.out_vector});
    out_ = k_.output("out", out_dtype(), {m_, n_},
                     {.strides = {stride, 1}, .align = s.out_vector * bytes(out_dtype())});
  }

  ir::Kernel pipelined() {
    auto at = k_.launch({ceil_div(n_, t_.columns), ceil_div(m_, t_.rows)}, {.threads = 128});
    auto row = at.y * t_.rows, column = at.x * t_.columns;
    auto sum = k_.fragment(DType::f32, {t_.rows, t_.columns}, "sum");
    k_.fill(sum, 0.0f);
    if (s_.has_depth != 0) {
      auto a_tile = k_.shared(DType::bf16, a_->shape(), "a_tile");
      auto b_tile = k_.shared(DType::bf16, b_->shape(), "b_tile");
      k_.pipelined(0, ceil_div(depth_, t_.step), t_.stages, [&](Value step) {
        k_.copy(a_->at(row, step), a_tile);
        k_.copy(b_->at(column, step), b_tile);
        k_.gemm(a_->left(a_tile), b_->right(b_tile), sum);
      });
    }
    write(sum, row, column, staging());
    return k_.finish();
  }

  ir::Kernel by_roles() {
    const Value &rows = is_swapped() ? n_ : m_, &columns = is_swapped() ? m_ : n_;
    auto tiles_down = ceil_div(rows, t_.rows), tiles_across = ceil_div(columns, t_.columns);
    k_.launch({blocks_of_roles(k_, t_, tiles_down, tiles_across)},
              {.threads = threads_of_roles(t_), .cluster = t_.cluster});
    auto ring = k_.ring({.stages = t_.stages});
    auto a_tile = ring.shared(DType::bf16, a_->shape(), "a_tile");
    auto b_tile = ring.shared(DType::bf16, b_->shape(), "b_tile");
    const Ref left = is_swapped() ? b_->left(b_tile) : a_->left(a_tile);
    const Ref right = is_swapped() ? a_->right(a_tile) : b_->right(b_tile);
    const std::optional<Ref> through = staging();
    auto steps = ceil_div(depth_, t_.step);
    auto each_tile = [&](auto body) {
      k_.persistent({tiles_down, tiles_across}, body, {.group = 8, .share = 0});
    };
    auto load = [&] {
      each_tile([&](Value down, Value across) {
        k_.serial(0, steps, [&](Value step) {
          ring.fill([&] {
            const dsl::CopyOptions by_tensor = {.engine = ir::Engine::tensor};
            auto row = down * t_.rows, column = across * t_.columns;
            k_.copy(a_->at(is_swapped() ? column : row, step), a_tile, by_tensor);
            k_.copy(b_->at(is_swapped() ? row : column, step), b_tile, by_tensor);
          });
        });
      });
    };
    auto multiply_tiles = [&] {
      auto sum = k_.fragment(DType::f32, {t_.rows, t_.columns}, "sum");
      each_tile([&](Value down, Value across) {
        k_.fill(sum, 0.0f);
        k_.serial(0, steps, [&](Value) { ring.take([&] { k_.gemm(left, right, sum); }); });
        auto row = down * t_.rows, column = across * t_.columns;
        if (is_swapped()) return write_swapped(sum, row, column, through);
        write(sum, row, column, through);
      });
    };
    k_.roles({role_that_loads(load), role_that_multiplies(t_, multiply_tiles)});
    return k_.finish();
  }

 private:
  bool is_swapped() const { return t_.is_swapped != 0; }
  DType out_dtype() const { return s_.is_f32 != 0 ? DType::f32 : DType::bf16; }

  /// A tile in shared memory, so that whole rows are written; none for f32, whose threads write 8 bytes.
  std::optional<Ref> staging() {
    if (s_.is_f32 != 0) return std::nullopt;
    if (is_swapped()) return k_.shared(DType::bf16, {t_.columns, t_.rows}, "out_tile");
    return k_.shared(DType::bf16, {t_.rows, staged_columns()}, "out_tile");
  }
  int64_t staged_columns() const { return t_.columns <= kMostStaged ? t_.columns : t_.columns / 2; }
  void write(const Ref& sum, const Value& row, const Value& column,
             const std::optional<Ref>& through) {
    if (bias_) {
      k_.parallel({t_.rows, t_.columns}, [&](Value r, Value c) {
        Value before = sum(r, c), of_column = (*bias_)(column + c);
        sum(r, c) = before + of_column;
      });
    }
    if (!through) return k_.copy(sum, out_->tile({row, column}, {t_.rows, t_.columns}));
    const int64_t width = staged_columns();
    for (int64_t first = 0; first < t_.columns; first += width) {
      k_.copy(sum.tile({0, first}, {t_.rows, width}), *through);
      k_.copy(*through, out_->tile({row, column + first}, {t_.rows, width}),
              {.engine = s_.by_engine != 0 ? ir::Engine::tensor : ir::Engine::automatic});
    }
  }

  /// A row of the tile is one of b, a column one of a: the sum lies transposed.
  void write_swapped(const Ref& sum, const Value& row, const Value& column,
                     const std::optional<Ref>& through) {
    k_.parallel({t_.rows, t_.columns}, [&](Value r, Value c) {
      Value value = sum(r, c);
      if (bias_) value = value + (*bias_)(row + r);
      if (through) {
        (*through)(c, r) = cast(DType::bf16, value);
      } else {
        (*out_)(column + c, row + r) = value;
      }
    });
    if (through) k_.copy(*through, out_->tile({column, row}, {t_.columns, t_.rows}));
  }

  const Bf16Spec s_;
  const Tile t_;
  dsl::Builder k_;
  Value m_, n_, depth_;
  std::optional<OperandTiles> a_, b_;
  std::optional<Ref> bias_, out_;
};

}  // namespace

ir::Kernel build_bf16(const Bf16Spec& spec) {
  Bf16Kernel kernel(spec);
  return spec.tile.by_roles != 0 ? kernel.by_roles() : kernel.pipelined();
}

}  // namespace tessera::kernels::gemm
