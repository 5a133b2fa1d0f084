#pragma once
// The sums of matrix instructions in the executor: one object per kind of instruction decodes the operands and adds
// eight columns of a row at a time.

#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "codegen/cpu/arithmetic/formats.h"
#include "codegen/cpu/arithmetic/hardware_product.h"
#include "codegen/cpu/executor.h"
#include "dsl/base/error.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen::cpu {

template <class T>
T read_raw(const std::byte* at) {
  T raw;
  std::memcpy(&raw, at, sizeof raw);
  return raw;
}

/// Calls f(i, value) for elements that lie one after the other in memory.
template <class T, class Decode, class F>
void decode_each(const std::byte* elements, int count, const Decode& decode, const F& f) {
  for (int i = 0; i < count; ++i) {
    f(i, static_cast<double>(decode(read_raw<T>(elements + static_cast<size_t>(i) * sizeof(T)))));
  }
}

/// The same for elements of an operand.
template <class F>
void for_each_value(DType dtype, const std::byte* elements, int count, const F& f) {
  switch (dtype) {
    case DType::f32: {  // tf32: 19 of the 32 bits
      const auto decode = [](uint32_t raw) { return std::bit_cast<float>(raw & ~0x1FFFu); };
      return decode_each<uint32_t>(elements, count, decode, f);
    }
    case DType::bf16:
      return decode_each<uint16_t>(elements, count, Bf16::decode, f);
    case DType::f16:
      return decode_each<uint16_t>(elements, count, F16::decode, f);
    case DType::e4m3:
      return decode_each<uint8_t>(elements, count, E4m3::decode, f);
    case DType::e5m2:
      return decode_each<uint8_t>(elements, count, E5m2::decode, f);
    case DType::i8:
      return decode_each<int8_t>(
          elements, count, [](int8_t raw) { return raw; }, f);
    default:
      internal_error("a product of operands that no instruction takes");
  }
}

/// One matrix instruction with the sums of Builder::gemm: c and the exact products in f64, in ascending k, one
/// rounding. Integers wrap. The members are those of HardwareProduct.
class ExactProduct {
 public:
  ExactProduct(DType a, DType b, ir::Instruction /*any*/, int rows, int columns, int depth)
      : a_dtype_(a),
        b_dtype_(b),
        rows_(rows),
        columns_(columns),
        depth_(depth),
        a_(static_cast<size_t>(rows * depth)),
        b_(static_cast<size_t>(columns * depth)) {}

  bool is_for(DType a, DType b, ir::Instruction /*any*/, int rows, int columns, int depth) const {
    return a == a_dtype_ && b == b_dtype_ && rows == rows_ && columns == columns_ &&
           depth == depth_;
  }
  void clear() {}
  void set_left(int row, int k, const std::byte* elements, int count = 1, int step = 1) {
    double* const to = &a_[static_cast<size_t>(row * depth_ + k)];
    for_each_value(a_dtype_, elements, count, [&](int i, double value) { to[i * step] = value; });
  }
  void set_right(int column, int k, const std::byte* elements, int count = 1, int step = 1) {
    const int first = (column / kColumnsTogether * depth_ + k) * kColumnsTogether;
    double* const to = &b_[static_cast<size_t>(first + lane_of_column(column))];
    for_each_value(b_dtype_, elements, count,
                   [&](int i, double value) { to[i * step * kColumnsTogether] = value; });
  }
  void add(int row, int block, uint32_t* even, uint32_t* odd) {
    if (a_dtype_ == DType::i8) {
      add(
          row, block, even, odd, [](uint32_t sum) { return static_cast<int32_t>(sum); },
          [](double total) { return static_cast<uint32_t>(static_cast<int64_t>(total)); });
    } else {
      add(
          row, block, even, odd, [](uint32_t sum) { return std::bit_cast<float>(sum); },
          [](double total) {
            return std::bit_cast<uint32_t>(F32::encode(static_cast<float>(total)));
          });
    }
  }

 private:
  using Doubles = double __attribute__((vector_size(16)));

  template <class Decode, class Encode>
  void add(int row, int block, uint32_t* even, uint32_t* odd, const Decode& decode,
           const Encode& encode) {
    Doubles totals[kColumnsTogether / 2];  // two lanes each
    for (int j = 0; j < kColumnsTogether; ++j) {
      totals[j / 2][j % 2] = static_cast<double>(decode(j < 4 ? even[j] : odd[j - 4]));
    }
    const double* const left = &a_[static_cast<size_t>(row * depth_)];
    const double* right = &b_[static_cast<size_t>(block * depth_ * kColumnsTogether)];
    for (int k = 0; k < depth_; ++k) {
      for (Doubles& total : totals) {
        Doubles two;
        std::memcpy(&two, right, sizeof two);
        total += left[k] * two;
        right += 2;
      }
    }
    for (int j = 0; j < kColumnsTogether; ++j) {
      (j < 4 ? even[j] : odd[j - 4]) = encode(totals[j / 2][j % 2]);
    }
  }

  DType a_dtype_, b_dtype_;
  int rows_, columns_, depth_;
  std::vector<double> a_, b_;  // a [rows, depth], b [blocks of columns, depth, lanes]
};

/// The instructions that a machine has executed, one of each kind: the next one of the kind takes its memory.
class ProductSums {
 public:
  /// Calls f(product) with an instruction of the given sums.
  template <class F>
  void with(Arithmetic arithmetic, DType a, DType b, ir::Instruction instruction, int rows,
            int columns, int depth, const F& f) {
    if (arithmetic == Arithmetic::target && a != DType::i8) {
      return f(one_of(hardware_, a, b, instruction, rows, columns, depth));
    }
    f(one_of(exact_, a, b, instruction, rows, columns, depth));
  }

 private:
  template <class Product, class... Kind>
  static Product& one_of(std::vector<Product>& made, Kind... kind) {
    for (Product& product : made) {
      if (product.is_for(kind...)) return product;
    }
    return made.emplace_back(kind...);
  }

  std::vector<HardwareProduct> hardware_;
  std::vector<ExactProduct> exact_;
};

}  // namespace tessera::codegen::cpu
