#pragma once
// Internal to kernels/jit: a kernel prepared for one device, and the call mode of a thread.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cpu/executor.h"
#include "kernels/jit/launch_plan.h"
#include "kernels/jit/plan.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {

/// One kernel on one device.
struct Prepared {
  std::string op;
  std::string spec;
  Device device;
  Plan plan;
  std::vector<DType> slot_types;                           // of dims and scalars
  std::optional<codegen::cpu::Executable> program;         // CPU
  std::shared_ptr<const runtime::LoadedKernel> on_device;  // GPU
  std::vector<std::string> reports;                        // ir::Kernel::reports
  std::vector<const KernelParam*> maps = {};               // of the image: those that are maps
  std::shared_ptr<std::atomic<int>> reported = {};         // CPU: 1 + the last one made
};

/// The tensor of a map; an empty view if it has none.
inline TensorView mapped(const TensorMapParam& map, std::span<const TensorView> tensors) {
  return map.tensor == TensorMapParam::kNoTensor ? TensorView()
                                                 : tensors[static_cast<size_t>(map.tensor)];
}

/// Records the launches of a thread's calls, relative to the tensors of the outermost call.
class LaunchRecorder {
 public:
  explicit LaunchRecorder(std::span<const TensorView* const> tensors);

  void add(const Prepared& prepared, const Binding& binding, std::span<const TensorView> tensors);
  /// Bytes of each tensor, with its padding that a kernel got.
  const std::vector<int64_t>& tensor_bytes() const { return tensor_bytes_; }
  /// Returns nothing if a kernel ran on the CPU, or got memory with no unique owner: of none of the
  /// tensors, or of several that share it.
  std::optional<LaunchPlan> plan() &&;

 private:
  std::optional<LaunchPlan::Source> source_of(const TensorView& view) const;

  std::span<const TensorView* const> tensors_;
  std::vector<int64_t> tensor_bytes_;
  std::vector<LaunchPlan::Launch> launches_;
  bool is_complete_ = true;
};

/// A launch of a call, with all that it needs to be made again on other memory.
struct NotedLaunch {
  const Prepared* prepared;  // lives as long as the process
  Binding binding;
  std::vector<TensorView> tensors;
  Author author;
};

/// Makes a launch again, on tensors of the same extents, strides, alignments and device.
void launch_noted(const NotedLaunch& launch, std::span<const TensorView> tensors, Stream stream);

/// How this thread's calls run.
struct CallMode {
  enum class Until {
    done,      // run
    prepared,  // compile and load, launch nothing
    named      // only list the kernels
  } until = Until::done;
  std::vector<runtime::KernelRequest>* named = nullptr;
  LaunchRecorder* recorder = nullptr;
  const std::function<void(NotedLaunch)>* note =
      nullptr;  // hears of every launch before it is made
  std::stop_token stop = {};
};
CallMode& call_mode();

/// Sets the mode of this thread while it lives.
class CallModeScope {
 public:
  explicit CallModeScope(CallMode mode) : before_(std::exchange(call_mode(), std::move(mode))) {}
  ~CallModeScope() { call_mode() = std::move(before_); }
  CallModeScope(const CallModeScope&) = delete;
  CallModeScope& operator=(const CallModeScope&) = delete;

 private:
  CallMode before_;
};

}  // namespace tessera::kernels::jit
