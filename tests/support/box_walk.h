#pragma once
// Boxes of a tensor, one after the other, for tests of tensor copies and tensor stores.

#include <string>
#include <vector>

#include "dsl/builder.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

/// Neighbouring boxes along dimension 0 of a tensor. Their stack is a tensor [steps, box..], one box per step.
struct BoxWalk {
  DType dtype = DType::bf16;
  std::vector<int64_t> shape = {20, 64};  // of the tensor
  std::vector<int64_t> box = {8, 32};
  std::vector<int64_t> first = {0, 0};  // where the first box begins, perhaps outside
  int64_t steps = 3;

  std::string walk_text() const;

  /// Extents of the tensor as dims `name`0, `name`1, ...; the last one is a multiple of 16 bytes.
  std::vector<dsl::Arg> dims(dsl::Builder& k, const std::string& name) const;
  std::vector<dsl::Arg> stack_extents() const;  // [steps, box..]
  std::vector<int64_t> shape_in_stack() const;  // of one box: [1, box..]
  std::vector<int64_t> tile_shape() const;  // of a shared tile for one box: 4 dimensions at most
  /// Where the box of a step begins in the tensor; adds a `let` to the kernel.
  std::vector<dsl::Arg> place(dsl::Builder& k, const dsl::Value& step) const;
  std::vector<dsl::Arg> place_in_stack(const dsl::Value& step) const;

  /// A stack, and a tensor, whose element i is value(i).
  HostTensor stack(double (*value)(int64_t)) const;
  HostTensor tensor(double (*value)(int64_t)) const;
};

/// Walks of every dtype: inside of the tensor, over its edges, wholly outside.
std::vector<BoxWalk> walks_of_dtypes();
/// Walks of tensors of 1 to 5 dimensions.
std::vector<BoxWalk> walks_of_ranks();
/// Walks with boxes that begin before the tensor and end inside, which tensor stores cannot do.
std::vector<BoxWalk> walks_from_before();
/// Walks of tensors without elements.
std::vector<BoxWalk> walks_of_nothing();

}  // namespace tessera::test
