#pragma once
// Internal to kernels/jit: makes a LaunchPlan of the launches of a call.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/jit/launch_plan.h"
#include "kernels/jit/ready_kernel.h"

namespace tessera::kernels::jit {

/// Collects the launches of a thread's calls (CallMode::plan), relative to the tensors of the outermost call.
class PlanBuilder {
 public:
  explicit PlanBuilder(std::span<const TensorView* const> tensors);

  void add(const ReadyKernel& ready, const Binding& binding, std::span<const TensorView> tensors);
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

}  // namespace tessera::kernels::jit
