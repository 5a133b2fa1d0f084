#pragma once
// The tiles of a matrix operand in a kernel.

#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/gemm/parts/operand.h"

namespace tessera::kernels::gemm {

/// An operand [rows, depth] of a product, declared with its contiguous dimension last.
///
/// Example: const OperandTiles a(k, "a", DType::bf16, s.a, m, depth, 128, 64);
///          k.copy(a.at(row, step), a_tile);    // a_tile: k.shared(DType::bf16, a.shape())
///          k.gemm(a.left(a_tile), b.right(b_tile), sum);
class OperandTiles {
 public:
  OperandTiles(dsl::Builder& k, const std::string& name, DType dtype, const Operand& operand,
               const dsl::Value& rows, const dsl::Value& depth, int64_t tile_rows, int64_t step)
      : by_column_(operand.by_column != 0),
        tile_rows_(tile_rows),
        step_(step),
        tensor_(declare(k, name, dtype, operand, rows, depth)) {}

  /// Extents of a tile, as it is stored.
  std::vector<int64_t> shape() const {
    if (by_column_) return {step_, tile_rows_};
    return {tile_rows_, step_};
  }
  /// The tile from row `row` on, of step number `step` of k.
  dsl::Ref at(const dsl::Value& row, const dsl::Value& step) const {
    auto first = step * step_;
    if (by_column_) return tensor_.tile({first, row}, shape());
    return tensor_.tile({row, first}, shape());
  }
  /// A stored tile as the left operand [rows, k] and as the right one [k, rows].
  dsl::Ref left(const dsl::Ref& tile) const { return by_column_ ? tile.transposed() : tile; }
  dsl::Ref right(const dsl::Ref& tile) const { return by_column_ ? tile : tile.transposed(); }

 private:
  static dsl::Ref declare(dsl::Builder& k, const std::string& name, DType dtype,
                          const Operand& operand, const dsl::Value& rows, const dsl::Value& depth) {
    auto stride = k.stride(name + "_stride", {.multiple_of = operand.vector});
    const bool by_column = operand.by_column != 0;
    return k.input(name, dtype, {by_column ? depth : rows, by_column ? rows : depth},
                   {.strides = {stride, 1}, .align = operand.vector * bytes(dtype)});
  }

  bool by_column_;
  int64_t tile_rows_, step_;
  dsl::Ref tensor_;
};

}  // namespace tessera::kernels::gemm
