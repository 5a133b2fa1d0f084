// Tensor-core instructions: matrix loads and products of whole warps.

#include <cstring>

#include "codegen/cpu/formats.h"
#include "codegen/cpu/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kRows = 16;      // of a product
constexpr int kColumns = 8;    // of a product
constexpr int kMaxDepth = 32;  // of a product of bytes

/// Calls f(first thread) for each warp with an active thread.
template <class F>
void for_each_first_thread(const Mask& mask, const F& f) {
  for (int first = mask.begin / kWarpSize * kWarpSize; first < mask.end; first += kWarpSize) {
    bool any = false;
    for (int lane = std::max(first, mask.begin); lane < std::min(first + kWarpSize, mask.end);
         ++lane) {
      any = any || mask.lanes[lane] != 0;
    }
    if (any) f(first);
  }
}

/// An element of an operand as the tensor cores see it.
double operand_value(DType dtype, const std::byte* at) {
  const auto read = [&](auto raw) {
    std::memcpy(&raw, at, sizeof raw);
    return raw;
  };
  switch (dtype) {
    case DType::f32:  // tf32: 19 of the 32 bits
      return std::bit_cast<float>(read(uint32_t{}) & ~0x1FFFu);
    case DType::bf16:
      return Bf16::decode(read(uint16_t{}));
    case DType::f16:
      return F16::decode(read(uint16_t{}));
    case DType::e4m3:
      return E4m3::decode(read(uint8_t{}));
    case DType::e5m2:
      return E5m2::decode(read(uint8_t{}));
    case DType::i8:
      return read(int8_t{});
    default:
      internal_error("a product of operands that no instruction takes");
  }
}

}  // namespace

int Machine::receiver(const Transfer& transfer, int lane, int64_t byte) {
  const int first = lane / kWarpSize * kWarpSize;
  const int row = lane % 8;
  if (transfer.transposed) return first + static_cast<int>(byte / 2) * 4 + row / 2;
  return first + row * 4 + static_cast<int>(byte / 4);
}

void Machine::load_matrices(const Transfer& transfer, const std::byte* base) {
  const Storage& into = storage(transfer.range.storage);
  const int size = bytes(into.array->dtype);
  const int per_register = 4 / size;
  const int64_t* offsets = column<int64_t>(transfer.offset);
  const int64_t first_element = uniform<int64_t>(transfer.range.base);
  for_each_first_thread(mask(), [&](int first) {
    for (int matrix = 0; matrix < transfer.matrices; ++matrix) {
      for (int lane = 0; lane < kWarpSize; ++lane) {
        for (int e = 0; e < per_register; ++e) {
          const int row = transfer.transposed ? lane % 4 * 2 + e : lane / 4;
          const int place = transfer.transposed ? lane / 4 : lane % 4 * per_register + e;
          const std::byte* from = base + (offsets[first + matrix * 8 + row] + place) * size;
          std::byte* to = frame_ + into.offset +
                          (first_element + matrix * per_register + e) * into.stride +
                          (first + lane) * size;
          std::memcpy(to, from, static_cast<size_t>(size));
        }
      }
    }
  });
  if (!code_.checked) return;
  for (int i = 0; i < transfer.matrices * per_register; ++i) {
    mark_initialised(into, first_element + i);
  }
}

/// The sum of Builder::gemm: c and the exact products in f64, in ascending k, rounded once.
void Machine::multiply(const Instr& instr) {
  if (code_.checked) check_whole_warps(instr, "a matrix product");
  const Product& product = code_.products[static_cast<size_t>(instr.index)];
  const Storage& left = storage(product.a.storage);
  const Storage& right = storage(product.b.storage);
  const Storage& sum = storage(product.c.storage);
  const int per_register = 4 / bytes(left.array->dtype);
  const int depth = 8 * per_register;
  const auto columns_of = [&](const SlotRange& range, const Storage& array, int count) {
    const int64_t first = uniform<int64_t>(range.base);
    for (int i = 0; i < count && code_.checked; ++i) check_initialised(instr, array, first + i);
    register_column(instr, array, first + count - 1);
    return register_column(instr, array, first);
  };
  const std::byte* a_columns = columns_of(product.a, left, 4 * per_register);
  const std::byte* b_columns = columns_of(product.b, right, 2 * per_register);
  std::byte* c_columns = columns_of(product.c, sum, 4);
  const bool integers = left.array->dtype == DType::i8;

  for_each_first_thread(mask(), [&](int first) {
    double a[kRows][kMaxDepth];
    double b[kColumns][kMaxDepth];
    for (int lane = 0; lane < kWarpSize; ++lane) {
      for (int element = 0; element < 4 * per_register; ++element) {
        const int reg = element / per_register;
        const int k = reg / 2 * 4 * per_register + lane % 4 * per_register + element % per_register;
        const std::byte* at =
            a_columns + element * left.stride + (first + lane) * bytes(left.array->dtype);
        a[lane / 4 + reg % 2 * 8][k] = operand_value(left.array->dtype, at);
      }
      for (int element = 0; element < 2 * per_register; ++element) {
        const int reg = element / per_register;
        const int k = reg * 4 * per_register + lane % 4 * per_register + element % per_register;
        const std::byte* at =
            b_columns + element * right.stride + (first + lane) * bytes(right.array->dtype);
        b[lane / 4][k] = operand_value(right.array->dtype, at);
      }
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
      for (int element = 0; element < 4; ++element) {
        const double* row = a[lane / 4 + element / 2 * 8];
        const double* column = b[lane % 4 * 2 + element % 2];
        std::byte* at = c_columns + element * sum.stride + (first + lane) * 4;
        uint32_t before = 0;
        std::memcpy(&before, at, sizeof before);
        double total = integers ? static_cast<double>(static_cast<int32_t>(before))
                                : static_cast<double>(std::bit_cast<float>(before));
        for (int k = 0; k < depth; ++k) total += row[k] * column[k];
        const uint32_t after =
            integers ? static_cast<uint32_t>(static_cast<int64_t>(total))
                     : std::bit_cast<uint32_t>(F32::encode(static_cast<float>(total)));
        std::memcpy(at, &after, sizeof after);
      }
    }
  });
}

}  // namespace tessera::codegen::cpu
