#pragma once
// Where a statement of the thread IR accesses memory or registers.

#include <cstdint>
#include <string_view>
#include <vector>

#include "codegen/thread_ir/array.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// `width` consecutive elements of a register array from `base` on. `base` is a constant once the
/// loops around it are unrolled.
struct Slice {
  ArrayRef array;
  Expr base;
};

/// How an access was shown to be in bounds.
enum class Bounds : uint8_t { proved, guarded, unchecked };
std::string_view name(Bounds bounds);

/// `width` consecutive elements at element `offset`. The byte address is a multiple of width *
/// element size: proved from declared alignments, never assumed. `indices` are the logical indices
/// of the first element, the vector runs along the last dimension of `array->shape` with stride 1
/// (empty for register arrays).
struct Access {
  ArrayRef array;
  Expr offset;  // i64 for global arrays, i32 otherwise
  std::vector<Expr> indices;
  int width = 1;
  Bounds bounds = Bounds::proved;
  Expr guard;                                 // boolean; null = always
  ir::CacheHint cache = ir::CacheHint::none;  // global
};

}  // namespace tessera::codegen
