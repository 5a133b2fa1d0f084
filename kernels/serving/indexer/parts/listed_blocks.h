#pragma once
// Lists of blocks of keys: in order, each block once.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

struct ListedSpec {
  int32_t blocks;  // of a row
};

/// Tensors: blocks i32 [rows, blocks], row stride blocks_stride; listed i32 [rows, blocks]. A row of `listed` has the ids
/// of `blocks` in ascending order, with -1 among them for numbers below 0 and for those that stand there already.
ir::Kernel build_listed(const ListedSpec& s);

struct PadSpec {
  int32_t columns;
};

/// Tensor: indices i32 [rows, columns], which become -1.
ir::Kernel build_no_indices(const PadSpec& s);
/// Tensor: values f32 [rows, columns], which become -inf.
ir::Kernel build_no_values(const PadSpec& s);

}  // namespace tessera::kernels::serving
