#pragma once
// One matrix instruction with the sums of the tensor cores of sm_90 (matrix_sums.h says by which rule), fast
// enough for whole models on the CPU.
//
// The rule needs, for each sum, the largest exponent of its terms; then each term, truncated to a multiple of a
// power of two; then an exact addition. Where no factor is extreme, f32 and i32 hold all of these exactly: a
// product of two factors has at most 22 bits, and scaled by that power of two it is below 2^27, so that the
// conversion to i32 is the truncation. Rows and blocks of columns with an infinite, NaN or extreme factor, and extreme
// sums, go through add_carefully(): infinities and NaN follow from a sum of the factors' signs, infinities and NaN in
// f32, where IEEE has the same rules; extreme numbers go through sum_of_products() one by one. Tests compare the two
// bit by bit.
//
// Eight columns are computed together. As the registers of an instruction hold them, those with even numbers fill one
// vector and those with odd numbers another, four f32 each. Their exponents are eight 16-bit lanes in the columns'
// order: the even columns are the low halves of four words, the odd columns the high halves, so that no lane has to
// move. Each left factor is stored as often as there are lanes.
//
// 8-bit floats by mma.sync are emulated on sm_90: the products of k % 4 < 2 are summed, then the others, both by
// the rule of f16 and from +0 on, and the sum before is added in f32.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codegen/cpu/arithmetic/matrix_sums.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen::cpu {

inline constexpr int kBiasOfF32 = 127;
/// The exponent of the leading place of a zero: less than that of any number, also twice.
inline constexpr int kLeadOfZero = -10000;

/// Columns of a product that are added together, as registers hold them: first the even ones, then the odd ones.
inline constexpr int kColumnsTogether = 8;
constexpr int lane_of_column(int column) {
  return column % 2 * 4 + column % kColumnsTogether / 2;
}

class HardwareProduct {
 public:
  /// Operands are floats: a [rows, depth], b [depth, columns].
  HardwareProduct(DType a, DType b, ir::Instruction instruction, int rows, int columns, int depth);

  bool is_for(DType a, DType b, ir::Instruction instruction, int rows, int columns,
              int depth) const {
    return a == a_dtype_ && b == b_dtype_ && instruction == instruction_ && rows == rows_ &&
           columns == columns_ && depth == depth_;
  }
  /// All elements are set after this, in any order.
  void clear() { is_decoded_ = false; }
  /// Sets `count` elements of a row, `step` apart in k, from as many consecutive elements in memory.
  void set_left(int row, int k, const std::byte* elements, int count = 1, int step = 1) {
    set(&a_.raw[static_cast<size_t>(row * depth_)], 1, k, elements, count, step);
  }
  void set_right(int column, int k, const std::byte* elements, int count = 1, int step = 1) {
    const int first = column / kColumnsTogether * depth_ * kColumnsTogether;
    set(&b_.raw[static_cast<size_t>(first + lane_of_column(column))], kColumnsTogether, k, elements,
        count, step);
  }
  /// Adds the product's columns [8 * block, 8 * block + 8) of a row to the f32 bits of their sums: four even
  /// columns and four odd ones.
  void add(int row, int block, uint32_t* even, uint32_t* odd);

 private:
  using Floats = float __attribute__((vector_size(16)));
  using Ints = int32_t __attribute__((vector_size(16)));
  using Words = uint32_t __attribute__((vector_size(16)));  // may wrap
  using Shorts = int16_t __attribute__((vector_size(16)));
  static constexpr uint32_t kExponent = 0x7F800000, kSignBit = 0x80000000;  // of an f32
  static constexpr int kExponentOfInfinity = 255;                           // biased
  static constexpr auto kInfinityBits = static_cast<int32_t>(kExponent);
  struct Decoding;
  struct Left {
    Floats value;  // the same in all lanes
    Shorts lead;   // biased by 127
  };
  struct Right {
    Floats even, odd;
    Shorts lead;
  };
  /// The sums of the columns of a block: their f32 bits.
  struct Sums {
    Words even, odd;
  };
  /// Facts of a row, or of a block of columns.
  struct Line {
    bool is_extreme = false;  // an element is a number that is extreme
    bool is_special = false;  // an element is infinite or NaN
    bool is_zero = false;     // all are zero
    bool has_nan = false;     // known after decode_kinds()
    bool is_plain() const { return !is_extreme && !is_special; }
  };
  /// An operand: the bits of each element, its value (0 if it is extreme) and the exponent of its leading place;
  /// `kind`, only where an operand has infinities or NaN: the sign of a number, as a f32, else the value.
  template <class Factors>
  struct Operand {
    std::vector<uint32_t> raw;
    std::vector<Factors> factors;
    std::vector<Line> lines;
    std::vector<float> kind;
    bool has_special = false;
  };

  template <class Vector>
  static bool any_lane(Vector lanes) {
    using Longs = uint64_t __attribute__((vector_size(16)));
    const Longs halves = std::bit_cast<Longs>(lanes);
    return (halves[0] | halves[1]) != 0;
  }
  void set(uint32_t* line, int lanes, int k, const std::byte* elements, int count, int step) const {
    if (element_bytes_ == 4) return set<uint32_t>(line, lanes, k, elements, count, step);
    if (element_bytes_ == 2) return set<uint16_t>(line, lanes, k, elements, count, step);
    set<uint8_t>(line, lanes, k, elements, count, step);
  }
  template <class T>
  void set(uint32_t* line, int lanes, int k, const std::byte* elements, int count, int step) const {
    for (int i = 0; i < count; ++i) {
      T element;
      std::memcpy(&element, elements + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      line[(sizeof(T) == 1 ? place_of(k + i * step) : k + i * step) * lanes] = element;
    }
  }
  /// The place of k in memory: the elements that are added first come first.
  int place_of(int k) const {
    if (!is_emulated_) return k;
    return k / 4 * 2 + k % 2 + (k % 4 < 2 ? 0 : depth_ / 2);
  }
  Factor factor(DType dtype, uint32_t raw) const;
  void decode();
  void decode_left();
  void decode_right();
  template <class Factors>
  void decode_kinds(DType dtype, Operand<Factors>& operand) const;
  /// Adds the products of `count` k from `first` on to the sums of a block of columns.
  void add(int row, int block, int first, int count, SumRule rule, Sums& sums) const;
  template <int kCount>
  void add_quickly(const Left* left, const Right* right, SumRule rule, Sums& sums,
                   Sums& wrong) const;
  void add_carefully(int row, int block, int first, int count, SumRule rule, const Sums& before,
                     const Sums& wrong, Sums& sums) const;
  Sums add_specials(int row, int block, int first, int count) const;
  uint32_t add_slowly(int row, int block, int lane, int first, int count, SumRule rule,
                      uint32_t before) const;

  Operand<Left> a_;   // [rows, depth]
  Operand<Right> b_;  // [blocks of columns, depth], each with the lanes of the columns
  DType a_dtype_, b_dtype_;
  ir::Instruction instruction_;
  int rows_, columns_, depth_;
  int element_bytes_;
  bool is_8_bit_, is_emulated_, is_decoded_ = false;
};

}  // namespace tessera::codegen::cpu
