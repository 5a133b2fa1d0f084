#pragma once
// Kernels that store or add shared tiles to boxes of a tensor, for tests of tensor stores.

#include <string>

#include "dsl/builder.h"
#include "tests/support/box_walk.h"
#include "tests/support/host_tensor.h"
#include "tests/support/tensor_copy_kernel.h"

namespace tessera::test {

inline const dsl::CopyOptions kByTensor = {.engine = ir::Engine::tensor};

/// x is a stack: its boxes are stored to y, or added to y.
struct StoredBoxes : BoxWalk {
  int threads = 64;
  int64_t blocks = 1;  // each stores all boxes: for additions
  bool adds = false;
  bool by_columns = false;  // threads write columns of the tile, which asks for a swizzle
  bool is_async = false;    // copy_async
  ir::Engine engine = ir::Engine::tensor;

  std::string text() const;
};

ir::Kernel stored_boxes_kernel(const StoredBoxes& boxes);
HostTensor stored_boxes_input(const StoredBoxes& boxes);
HostTensor stored_boxes_output(const StoredBoxes& boxes);  // small numbers, before the kernel runs
/// Element i of y after the kernel.
double stored_boxes_value(const StoredBoxes& boxes, const HostTensor& x, int64_t i);

/// Sums of subnormal numbers: y += x by a tensor store, where the target has them.
struct SubnormalSums {
  explicit SubnormalSums(DType dtype);
  double sum(int64_t i) const;

  ir::Kernel kernel;
  HostTensor x, y;
};

/// c [m, n] = a * b transposed, as staged_product: a role of one warp fills a ring, another one multiplies, in a
/// persistent loop over the tiles of c, and stores its tile by copy_async. c is f32 or bf16.
ir::Kernel product_with_stores(const StagedProduct& product, DType dtype, int64_t blocks);

}  // namespace tessera::test
