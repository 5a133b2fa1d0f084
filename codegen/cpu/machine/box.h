#pragma once
// Boxes of tensors in the executor: where their elements are in global and in shared memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codegen/cpu/compiler/bytecode.h"

namespace tessera::codegen::cpu {

inline constexpr int64_t kPieceBytes = 16;   // that the swizzle exchanges
inline constexpr int64_t kSectorBytes = 32;  // of global memory

/// Where the hardware puts the byte at `address` of a box: bits of the address itself exchange the pieces of a
/// row of the pattern.
inline int64_t swizzled(int64_t address, int64_t span) {
  constexpr int64_t kLineBytes = 128;
  const int64_t pieces = span / kPieceBytes;  // of a row; 0 = no swizzle
  return pieces == 0 ? address : address ^ (address / kLineBytes % pieces * kPieceBytes);
}

/// A box of a tensor, by dimension.
struct BoxPlace {
  std::vector<int64_t> box, first, extents, strides;
};

/// Calls fn(row, begin, end, element) for the rows of a box that have columns [begin, end) inside of the tensor;
/// `element` is where column `begin` is in it.
template <class Fn>
void for_each_row_inside(const BoxPlace& at, const Fn& fn) {
  const size_t last = at.box.size() - 1;
  int64_t rows = 1;
  for (size_t d = 0; d < last; ++d) rows *= at.box[d];
  const int64_t begin = std::clamp<int64_t>(-at.first[last], 0, at.box[last]);
  const int64_t end = std::clamp<int64_t>(at.extents[last] - at.first[last], begin, at.box[last]);
  if (begin == end) return;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, from = 0;
    bool is_inside = true;
    for (size_t d = last; d-- > 0;) {
      const int64_t index = at.first[d] + rest % at.box[d];
      rest /= at.box[d];
      is_inside = is_inside && index >= 0 && index < at.extents[d];
      from += index * at.strides[d];
    }
    if (is_inside) fn(row, begin, end, from + at.first[last] + begin);
  }
}

/// A tensor map in global memory.
struct WrittenMap {
  const std::byte* base = nullptr;
  std::vector<int64_t> extents, strides;
  int32_t statement = 0;
  int thread = 0;
};

/// A tensor store that a thread has started. Its source is read when a wait asks for it, and its elements are in memory
/// after a wait for them or when the block ends: as late as the program allows.
struct StoreInFlight {
  const Instr* instr = nullptr;
  int lane = 0;
  int64_t group = 0;           // of the thread
  BoxPlace place;              // in the tensor
  int64_t begin = 0, end = 0;  // bytes of the arena
  bool is_read = false;
  std::vector<std::byte> box = {};  // as it lay in shared memory, once it is read
};

}  // namespace tessera::codegen::cpu
