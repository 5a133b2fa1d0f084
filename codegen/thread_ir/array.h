#pragma once
// Memory that the statements of the thread IR name: tensors, shared memory, registers.

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/dtype.h"
#include "dsl/base/source_loc.h"
#include "dsl/ir/expr.h"
#include "dsl/layout/layout.h"
#include "dsl/layout/swizzle.h"

namespace tessera::codegen {

using ir::Expr;

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
  // shared: the ring whose mbarriers order all accesses of different roles, and of different rounds of one;
  // -1 = none. Its mbarriers are `full` and `empty`, one for each stage; `stage` are the registers that count
  // the stages in a role.
  int ring = -1;
  enum class RingPart : uint8_t { tile, full, empty, stage };
  RingPart ring_part = RingPart::tile;
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

/// How the copy engine sees a tensor of the call: boxes of it go to shared memory, or come from there. The host
/// makes the map.
struct TensorMap {
  std::string name;
  ArrayRef tensor;            // a parameter
  std::vector<Expr> strides;  // in elements, one per dimension of the tensor, the last is 1
  std::vector<int64_t> box;   // extents, one per dimension
  int64_t swizzle = 0;  // bytes of a row of the pattern in shared memory: 0 = none, 32, 64, 128

  /// The first dimension in which the box has more than one element, or the last one.
  size_t outermost() const {
    size_t d = 0;
    while (d + 1 < box.size() && box[d] == 1) ++d;
    return d;
  }
  int64_t elements() const {  // of the box
    return std::accumulate(box.begin(), box.end(), int64_t{1}, std::multiplies<>());
  }
};
using TensorMapRef = std::shared_ptr<const TensorMap>;

}  // namespace tessera::codegen
