#pragma once
// Internal to kernels/jit: a kernel that can run on one device, and a launch of it that is noted instead of made.

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/cpu/executor.h"
#include "kernels/jit/argument_binder.h"
#include "kernels/jit/marked_warps.h"
#include "kernels/op_arguments.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {

/// One kernel on one device.
struct ReadyKernel {
  std::string op;
  std::string spec;
  Device device;
  ArgumentBinder binder;
  std::vector<DType> slot_types;                           // of dims and scalars
  std::optional<codegen::cpu::Executable> program;         // CPU
  std::shared_ptr<const runtime::LoadedKernel> on_device;  // GPU
  std::vector<std::string> reports;                        // ir::Kernel::reports
  std::vector<const KernelParam*> maps = {};               // of the image: those that are maps
  std::shared_ptr<std::atomic<int>> reported = {};         // CPU: 1 + the last one made
  std::optional<MarkedProgram> marked = {};                // of a TimelineScope
};

/// The tensor of a map; an empty view if it has none.
inline TensorView mapped(const TensorMapParam& map, std::span<const TensorView> tensors) {
  return map.tensor == TensorMapParam::kNoTensor ? TensorView()
                                                 : tensors[static_cast<size_t>(map.tensor)];
}

/// A launch of a call, with all that it needs to be made again on other memory.
struct NotedLaunch {
  const ReadyKernel* ready;  // lives as long as the process
  Binding binding;
  std::vector<TensorView> tensors;
  Author author;
};

/// Makes a launch again, on tensors of the same extents, strides, alignments and device.
void launch_noted(const NotedLaunch& launch, std::span<const TensorView> tensors, Stream stream);

}  // namespace tessera::kernels::jit
