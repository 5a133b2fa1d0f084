#pragma once
// A checked call that was made in full once and is launched again on other addresses.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/jit/launch_plan.h"

namespace tessera::kernels::jit {

/// What a call of an op launched. A later call with the same op, options, dtypes, shapes, strides,
/// devices and alignments passes the same checks and launches the same kernels; who keeps such calls
/// tells them apart by that. Memory that overlaps is looked for at each launch.
class TESSERA_API RepeatableCall {
 public:
  /// Makes `call`, which is all of a call on `tensors` (absent ones included), and keeps what it
  /// launches. Nothing if that cannot be launched again: on the CPU, while a plan is made or nothing
  /// is launched, or where a kernel gets memory of none or of several of the tensors.
  ///
  /// Errors: those of `call`.
  static std::optional<RepeatableCall> learn(std::span<const TensorView* const> tensors,
                                             const std::function<void()>& call);

  /// Launches it on `data`, one address per tensor in the order of learn(). False, with nothing
  /// launched, if memory overlaps or this thread makes calls in another mode: then the call has to be
  /// made in full. No allocation, no lock.
  ///
  /// Errors: driver, as runtime::launch.
  bool launch_again(std::span<void* const> data, Stream stream) const;

 private:
  struct Memory {
    size_t tensor = 0;
    int64_t bytes = 0;
  };

  RepeatableCall(LaunchPlan plan, std::vector<Memory> memories)
      : plan_(std::move(plan)), memories_(std::move(memories)) {}
  bool any_overlap(std::span<void* const> data) const;

  LaunchPlan plan_;
  std::vector<Memory> memories_;  // by address, when the call was made in full
};

/// The largest power of two, 256 at most, that divides an address; 0 for no address. No kernel asks
/// for more.
uint64_t alignment_of(const void* address);

}  // namespace tessera::kernels::jit
