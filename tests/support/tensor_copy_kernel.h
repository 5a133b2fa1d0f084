#pragma once
// Kernels whose pipelined loops copy boxes of tensors to shared tiles, for tests of tensor copies.

#include <string>

#include "dsl/builder.h"
#include "tests/support/box_walk.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

/// y = the stack of the boxes of x.
struct Boxes : BoxWalk {
  int stages = 3;
  int threads = 64;
  ir::Engine engine = ir::Engine::tensor;

  std::string text() const;
};

ir::Kernel boxes_kernel(const Boxes& boxes);
HostTensor boxes_input(const Boxes& boxes);
HostTensor boxes_output(const Boxes& boxes);  // all ones
/// The element of y that belongs to x, or 0 outside of x.
double boxes_value(const Boxes& boxes, const HostTensor& x, int64_t i);

/// c [m, n] = a [m, depth] * b [n, depth] transposed, bf16: a pipelined loop as a program would have it.
struct StagedProduct {
  int64_t m = 128, n = 128, depth = 128;  // of the call
  int64_t tile_rows = 64, tile_columns = 64, step = 32;
  int stages = 3;
  int threads = 128;
  ir::Engine engine = ir::Engine::tensor;
  ir::Instruction instruction = ir::Instruction::automatic;
  bool is_ragged = false;  // m and n are any numbers

  std::string text() const;
};
ir::Kernel staged_product(const StagedProduct& product);
/// The same by a role of one warp that fills a ring, and a role of `threads` that multiplies.
ir::Kernel product_by_roles(const StagedProduct& product);

}  // namespace tessera::test
