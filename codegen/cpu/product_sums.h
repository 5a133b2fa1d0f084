#pragma once
// The sums of matrix instructions in the executor: decodes operands and computes one element of the
// product at a time.

#include <bit>
#include <cstddef>
#include <cstring>

#include "codegen/cpu/executor.h"
#include "codegen/cpu/formats.h"
#include "codegen/cpu/matrix_sums.h"
#include "dsl/base/error.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen::cpu {

inline constexpr int kMaxDepth = 32;  // of a product of bytes

template <class T>
T read_raw(const std::byte* at) {
  T raw;
  std::memcpy(&raw, at, sizeof raw);
  return raw;
}

/// An element of an operand.
inline double operand_value(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32:  // tf32: 19 of the 32 bits
      return std::bit_cast<float>(read_raw<uint32_t>(at) & ~0x1FFFu);
    case DType::bf16:
      return Bf16::decode(read_raw<uint16_t>(at));
    case DType::f16:
      return F16::decode(read_raw<uint16_t>(at));
    case DType::e4m3:
      return E4m3::decode(read_raw<uint8_t>(at));
    case DType::e5m2:
      return E5m2::decode(read_raw<uint8_t>(at));
    case DType::i8:
      return read_raw<int8_t>(at);
    default:
      internal_error("a product of operands that no instruction takes");
  }
}

/// The sum of Builder::gemm: c and the exact products in f64, in ascending k, one rounding. Integers wrap.
class ExactSum {
 public:
  using Operand = double;
  ExactSum(DType a, DType b) : a_(a), b_(b) {}

  Operand left(const std::byte* at) const { return operand_value(a_, at); }
  Operand right(const std::byte* at) const { return operand_value(b_, at); }
  /// Adds to the 32 bits at `c`.
  void operator()(std::byte* c, const Operand* row, const Operand* column, int depth) const {
    const auto before = read_raw<uint32_t>(c);
    const bool integers = a_ == DType::i8;
    double total = integers ? static_cast<double>(static_cast<int32_t>(before))
                            : static_cast<double>(std::bit_cast<float>(before));
    for (int k = 0; k < depth; ++k) total += row[k] * column[k];
    const uint32_t after = integers
                               ? static_cast<uint32_t>(static_cast<int64_t>(total))
                               : std::bit_cast<uint32_t>(F32::encode(static_cast<float>(total)));
    std::memcpy(c, &after, sizeof after);
  }

 private:
  DType a_, b_;
};

/// The sum of the tensor cores of sm_90, of floats.
class HardwareSum {
 public:
  using Operand = Factor;
  HardwareSum(DType a, DType b, ir::Instruction instruction)
      : a_(a), b_(b), is_8_bit_(bits(a) == 8), by_mma_(instruction == ir::Instruction::mma) {}

  Operand left(const std::byte* at) const { return factor(a_, at); }
  Operand right(const std::byte* at) const { return factor(b_, at); }
  void operator()(std::byte* c, const Operand* row, const Operand* column, int depth) const {
    const auto before = read_raw<uint32_t>(c);
    const uint32_t after =
        is_8_bit_ && by_mma_
            ? emulated_sum(before, row, column, depth)
            : sum_of_products(before, row, column, depth, is_8_bit_ ? kShortSums : kLongSums);
    std::memcpy(c, &after, sizeof after);
  }

 private:
  Operand factor(DType dtype, const std::byte* at) const {
    if (is_8_bit_) {
      const auto raw = read_raw<uint8_t>(at);
      return by_mma_ ? widened_factor_of(dtype, raw) : factor_of(dtype, raw);
    }
    return factor_of(dtype, bits(dtype) == 16 ? read_raw<uint16_t>(at) : read_raw<uint32_t>(at));
  }

  DType a_, b_;
  bool is_8_bit_, by_mma_;
};

/// Calls f(const Sum&) with the sum for the operands of an instruction.
template <class F>
void with_sum(Arithmetic arithmetic, DType a, DType b, ir::Instruction instruction, const F& f) {
  if (arithmetic == Arithmetic::target && a != DType::i8) return f(HardwareSum(a, b, instruction));
  f(ExactSum(a, b));
}

}  // namespace tessera::codegen::cpu
