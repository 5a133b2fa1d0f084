// Tensor-core instructions: matrix loads and products of whole warps.

#include <array>
#include <cstring>

#include "codegen/cpu/arithmetic/product_sums.h"
#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kMmaRows = 16;  // of a product

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

uint32_t* sum_words(std::byte* column) {
  return reinterpret_cast<uint32_t*>(column);
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

/// The columns of registers that an instruction reads or writes.
std::byte* Machine::product_columns(const Instr& instr, const SlotRange& range, int count) {
  const Storage& array = storage(range.storage);
  const int64_t first = uniform<int64_t>(range.base);
  for (int i = 0; i < count && code_.checked; ++i) check_initialised(instr, array, first + i);
  register_column(instr, array, first + count - 1);
  return register_column(instr, array, first);
}

void Machine::multiply(const Instr& instr) {
  if (code_.checked) check_whole_warps(instr, "a matrix product");
  const Product& product = code_.products[static_cast<size_t>(instr.index)];
  const DType a = storage(product.a.storage).array->dtype;
  const DType b = storage(product.b.storage).array->dtype;
  const int depth = 32 / bytes(a);
  product_sums_.with(launch_.arithmetic, a, b, ir::Instruction::mma, kMmaRows, kColumnsTogether,
                     depth, [&](auto& sums) { multiply(instr, product, sums); });
}

template <class Sums>
void Machine::multiply(const Instr& instr, const Product& product, Sums& sums) {
  const Storage& left = storage(product.a.storage);
  const Storage& right = storage(product.b.storage);
  const Storage& sum = storage(product.c.storage);
  const int left_bytes = bytes(left.array->dtype), right_bytes = bytes(right.array->dtype);
  const int per_register = 4 / left_bytes;
  const std::byte* a_columns = product_columns(instr, product.a, 4 * per_register);
  const std::byte* b_columns = product_columns(instr, product.b, 2 * per_register);
  std::byte* c_columns = product_columns(instr, product.c, 4);

  for_each_first_thread(mask(), [&](int first) {
    sums.clear();
    // Four threads hold a row of the left operand, a column of the right one, a row of the sums.
    for (int lane = 0; lane < kWarpSize; lane += 4) {
      for (int element = 0; element < 4 * per_register; ++element) {
        const int reg = element / per_register;
        const int k = reg / 2 * 4 * per_register + element % per_register;
        sums.set_left(lane / 4 + reg % 2 * 8, k,
                      a_columns + element * left.stride + (first + lane) * left_bytes, 4,
                      per_register);
      }
      for (int element = 0; element < 2 * per_register; ++element) {
        const int k = element / per_register * 4 * per_register + element % per_register;
        sums.set_right(lane / 4, k,
                       b_columns + element * right.stride + (first + lane) * right_bytes, 4,
                       per_register);
      }
    }
    for (int row = 0; row < kMmaRows; ++row) {
      std::byte* const even =
          c_columns + row / 8 * 2 * sum.stride + (first + row % 8 * 4) * int64_t{4};
      sums.add(row, 0, sum_words(even), sum_words(even + sum.stride));
    }
  });
}

}  // namespace tessera::codegen::cpu
