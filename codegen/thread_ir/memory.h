#pragma once
// The thread IR: arrays, tensor maps, and accesses to them.

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "dsl/ir/expr.h"
#include "dsl/ir/tile.h"
#include "dsl/layout/layout.h"
#include "dsl/layout/swizzle.h"

namespace tessera::codegen {

using ir::Expr;
using ir::VarRef;

enum class ArraySpace : uint8_t {
  global,
  shared,
  cluster,  // shared memory of a block of the same cluster
  registers
};

/// Memory that an access names. Identity is the object.
struct Array {
  std::string name;
  DType dtype = DType::f32;
  ArraySpace space = ArraySpace::registers;
  int64_t size = 0;           // registers, shared: elements. global: unknown here
  int64_t shared_offset = 0;  // shared: byte offset in the arena
  std::vector<Expr> shape;    // logical extents, for checks and messages; empty: flat
  bool read_only = false;     // global: this kernel never writes to it by this name
  bool may_alias = false;     // global: other arrays may be the same memory, and be written
  // For messages: the author's name if it is another, leading dimensions that he does not know, and, for
  // the registers of a fragment, where its elements are.
  std::string stands_for = {};
  int num_version_dims = 0;
  std::shared_ptr<const layout::Layout> layout = {};
  Expr address;  // global: of the first element, where a Declare binds it; null = a parameter
  // Bytes: of the address of a global array that has one, of the offset in the arena.
  int64_t align = 1;
  // shared: how rows (the leading dimensions together) and columns become offsets; arrange_shared chooses
  // one where none is given.
  std::optional<layout::Swizzle> swizzle = {};
  // cluster: the rank of the owner, where a Declare binds it, and what stands in the same place of this
  // block's memory.
  Expr block;
  std::shared_ptr<const Array> mine;
  // shared: of mbarriers (u64), how many arrivals end a phase; 0 = data.
  int arrivals = 0;
  SourceLoc loc;

  /// True if the elements are mbarriers. Only the mbarrier statements and bulk copies name them.
  bool is_mbarriers() const { return arrivals > 0; }
  /// Global memory that this kernel never writes.
  bool is_constant() const { return space == ArraySpace::global && read_only && !may_alias; }
};
using ArrayRef = std::shared_ptr<const Array>;
inline const std::string& authors_name(const Array& array) {
  return array.stands_for.empty() ? array.name : array.stands_for;
}

/// `width` consecutive elements of a register array from `base` on. `base` is a constant once the
/// loops around it are unrolled.
struct Slice {
  ArrayRef array;
  Expr base;
};

/// How the copy engine sees a tensor of the call: boxes of it go to shared memory. The host makes the map.
struct TensorMap {
  std::string name;
  ArrayRef tensor;            // a parameter, which the kernel does not write
  std::vector<Expr> strides;  // in elements, one per dimension of the tensor, the last is 1
  std::vector<int64_t> box;   // extents, one per dimension
  int64_t swizzle = 0;  // bytes of a row of the pattern in shared memory: 0 = none, 32, 64, 128

  int64_t elements() const {  // of the box
    return std::accumulate(box.begin(), box.end(), int64_t{1}, std::multiplies<>());
  }
};
using TensorMapRef = std::shared_ptr<const TensorMap>;

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
