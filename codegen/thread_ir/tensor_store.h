#pragma once
// Tensor stores: the statements of the thread IR by which the copy engine writes boxes of a tensor. From sm_90 on.

#include <vector>

#include "codegen/thread_ir/access.h"

namespace tessera::codegen {

/// Starts storing a box of a tensor from shared memory, where its rows follow each other with the swizzle of the
/// map; what is outside of the tensor is dropped. With `adds` the engine adds each element to that of the tensor,
/// each by itself indivisible. All lanes of the warp name the same box; lane 0 starts the store, in a group that
/// its next Commit of stores closes.
///
/// Nothing may write the elements of `from` until an Await for their group; those of the tensor are in memory
/// after one that awaits more than reads. Until lower_bulk_copies the box is a whole tile, in the layout of its
/// array.
struct TensorStore {
  TensorMapRef map;
  std::vector<Expr> coordinates;  // i32, of the first element of the box
  Access from;                    // its first 16 bytes
  Access to;                      // the tensor: `coordinates` say where
  bool adds = false;
};

}  // namespace tessera::codegen
