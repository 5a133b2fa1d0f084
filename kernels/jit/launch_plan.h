#pragma once
// A call that was checked once and can be launched again on other memory: kernels, grids and scalar
// values are fixed, only addresses and the stream change.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/kernel_source.h"
#include "dsl/base/tensor_view.h"
#include "kernels/op_arguments.h"
#include "runtime/launch.h"

namespace tessera::kernels::jit {

/// Launches a checked call again. Made by jit::plan.
class TESSERA_API LaunchPlan {
 public:
  /// Where a kernel's pointer comes from: a byte offset into a tensor of the call, or, without a
  /// tensor, the address `offset`: null for an absent tensor, kEmpty for one without elements.
  struct Source {
    int tensor = -1;
    int64_t offset = 0;

    char* address(std::span<void* const> data) const {
      if (tensor < 0) return reinterpret_cast<char*>(static_cast<uintptr_t>(offset));
      return static_cast<char*>(data[static_cast<size_t>(tensor)]) + offset;
    }
  };
  /// The address that kernels get for a given tensor without elements, which they do not access.
  /// The address of the tensor may be null, which tells a kernel that an optional tensor is absent.
  static constexpr int64_t kEmpty = 256;
  /// A tensor map of a kernel.
  struct Map {
    const KernelParam* param = nullptr;  // of the kernel's image
    TensorView view;                     // of the call; its address is that of the pointer
  };
  /// One kernel of the call.
  struct Launch {
    const runtime::LoadedKernel* kernel = nullptr;  // lives as long as the process
    runtime::Grid grid;
    std::vector<Source> pointers;
    std::vector<int64_t> values;  // dims and scalars, after the pointers
    std::vector<Map> maps;        // after the values
    runtime::Streamed streamed;
  };

  LaunchPlan(size_t num_tensors, std::vector<Launch> launches)
      : num_tensors_(num_tensors), launches_(std::move(launches)) {}

  /// Launches on `data`, one address per tensor in the order of plan(). Checks nothing: the caller
  /// promises extents, strides, device and alignment of the call it was made from, and outputs that
  /// do not overlap. No allocation, no lock. A call that had nothing to do stays that.
  ///
  /// Errors: driver, as runtime::launch.
  void operator()(std::span<void* const> data, Stream stream) const;

  size_t num_tensors() const { return num_tensors_; }
  const std::vector<Launch>& launches() const { return launches_; }

 private:
  size_t num_tensors_;
  std::vector<Launch> launches_;
};

}  // namespace tessera::kernels::jit
