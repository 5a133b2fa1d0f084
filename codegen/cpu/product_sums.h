#pragma once
// The sums of matrix instructions in the executor: one object per instruction decodes the operands and adds a
// row of the product at a time.

#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/cpu/formats.h"
#include "codegen/cpu/hardware_product.h"
#include "dsl/base/error.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen::cpu {

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

/// One matrix instruction with the sums of Builder::gemm: c and the exact products in f64, in ascending k, one
/// rounding. Integers wrap. The members are those of HardwareProduct.
class ExactProduct {
 public:
  ExactProduct(DType a, DType b, int rows, int columns, int depth)
      : a_dtype_(a),
        b_dtype_(b),
        columns_(columns),
        depth_(depth),
        a_(static_cast<size_t>(rows * depth)),
        b_(static_cast<size_t>(columns * depth)),
        totals_(static_cast<size_t>(columns)) {}

  void clear() {}
  void set_left(int row, int k, const std::byte* element) {
    a_[static_cast<size_t>(row * depth_ + k)] = operand_value(a_dtype_, element);
  }
  void set_right(int column, int k, const std::byte* element) {
    b_[static_cast<size_t>(k * columns_ + column)] = operand_value(b_dtype_, element);
  }
  void add_row(int row, uint32_t* sums) {
    const bool integers = a_dtype_ == DType::i8;
    double* const totals = totals_.data();
    for (int j = 0; j < columns_; ++j) {
      totals[j] = integers ? static_cast<double>(static_cast<int32_t>(sums[j]))
                           : static_cast<double>(std::bit_cast<float>(sums[j]));
    }
    for (int k = 0; k < depth_; ++k) {
      const double left = a_[static_cast<size_t>(row * depth_ + k)];
      const double* const right = &b_[static_cast<size_t>(k * columns_)];
      for (int j = 0; j < columns_; ++j) totals[j] += left * right[j];
    }
    for (int j = 0; j < columns_; ++j) {
      sums[j] = integers ? static_cast<uint32_t>(static_cast<int64_t>(totals[j]))
                         : std::bit_cast<uint32_t>(F32::encode(static_cast<float>(totals[j])));
    }
  }

 private:
  DType a_dtype_, b_dtype_;
  int columns_, depth_;
  std::vector<double> a_, b_, totals_;  // a [rows, depth], b [depth, columns]
};

/// Calls f(product) with an instruction of the given sums.
template <class F>
void with_product(Arithmetic arithmetic, DType a, DType b, ir::Instruction instruction, int rows,
                  int columns, int depth, const F& f) {
  if (arithmetic == Arithmetic::target && a != DType::i8) {
    HardwareProduct product(a, b, instruction, rows, columns, depth);
    return f(product);
  }
  ExactProduct product(a, b, rows, columns, depth);
  f(product);
}

}  // namespace tessera::codegen::cpu
