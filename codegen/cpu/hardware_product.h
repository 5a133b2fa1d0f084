#pragma once
// One matrix instruction with the sums of the tensor cores of sm_90 (matrix_sums.h says by which rule), fast
// enough for whole models on the CPU.
//
// The rule needs, for each sum, the largest exponent of its terms; then each term, truncated to a multiple of a
// power of two; then an exact addition. Where no factor is extreme, f32 and i32 hold all of these exactly: a
// product of two factors has at most 22 bits, and scaled by that power of two it is below 2^27, so that the
// conversion to i32 is the truncation. Infinities and NaN follow from a sum of the factors' signs, infinities and
// NaN in f32, where IEEE has the same rules. Four columns are computed together, one in each vector lane. Rows and
// columns with an extreme factor, and extreme sums, go through sum_of_products() one by one. Tests compare the two bit
// by bit.
//
// 8-bit floats by mma.sync are emulated on sm_90: the products of k % 4 < 2 are summed, then the others, both by
// the rule of f16 and from +0 on, and the sum before is added in f32.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codegen/cpu/matrix_sums.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen::cpu {

class HardwareProduct {
 public:
  /// Operands are floats: a [rows, depth], b [depth, columns].
  HardwareProduct(DType a, DType b, ir::Instruction instruction, int rows, int columns, int depth);

  /// All elements are set after this, in any order.
  void clear() { is_decoded_ = false; }
  void set_left(int row, int k, const std::byte* element) {
    a_.raw[static_cast<size_t>(row * depth_ + place_of(k))] = raw_of(element);
  }
  void set_right(int column, int k, const std::byte* element) {
    const int at = (column / kTogether * depth_ + place_of(k)) * kTogether + column % kTogether;
    b_.raw[static_cast<size_t>(at)] = raw_of(element);
  }
  /// Adds a row of the product to the f32 bits of its sums, one per column.
  void add_row(int row, uint32_t* sums);

 private:
  /// Columns that are computed together.
  static constexpr int kTogether = 4;

  /// An operand: for each element its bits, its value (0 if it is extreme), and the exponent of its leading place.
  /// By line, a row or a block of columns: whether an element is extreme, whether one is infinite or NaN, whether
  /// all are zero. `kind`, only where an
  /// operand has infinities or NaN: the sign of a number, else the value.
  struct Operand {
    DType dtype;
    std::vector<uint32_t> raw;
    std::vector<float> value, lead, kind;
    std::vector<char> is_extreme, is_special, is_zero;
    bool has_special = false;
  };

  uint32_t raw_of(const std::byte* element) const {  // little endian
    uint32_t raw = 0;
    if (element_bytes_ == 1) {
      std::memcpy(&raw, element, 1);
    } else if (element_bytes_ == 2) {
      std::memcpy(&raw, element, 2);
    } else {
      std::memcpy(&raw, element, 4);
    }
    return raw;
  }
  /// The place of k in memory: the elements that are added first come first.
  int place_of(int k) const {
    if (!is_emulated_) return k;
    return k / 4 * 2 + k % 2 + (k % 4 < 2 ? 0 : depth_ / 2);
  }
  Factor factor(DType dtype, uint32_t raw) const;
  void decode(Operand& operand) const;
  void decode_kinds(Operand& operand) const;
  /// Adds the products of `count` k from `first` on to the sums of a block of columns.
  void add(int row, int block, int first, int count, SumRule rule, uint32_t* sums) const;
  void add_specials(int row, int block, int first, int count, float* specials) const;
  uint32_t add_slowly(int row, int column, int first, int count, SumRule rule,
                      uint32_t before) const;

  Operand a_, b_;  // a [rows, depth], b [blocks of columns, depth, kTogether]
  int columns_, depth_;
  size_t element_bytes_;
  bool is_8_bit_, is_emulated_, is_decoded_ = false;
};

}  // namespace tessera::codegen::cpu
