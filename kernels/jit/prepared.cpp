#include "kernels/jit/prepared.h"

#include <algorithm>
#include <utility>

namespace tessera::kernels::jit {

CallMode& call_mode() {
  thread_local CallMode mode;
  return mode;
}

std::optional<LaunchPlan::Source> LaunchRecorder::source_of(const TensorView& view) const {
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(tensors_[i]->data);
    if (begin == 0 || address < begin) continue;
    const auto offset = static_cast<int64_t>(address - begin);
    if (offset < tensors_[i]->span_bytes()) return LaunchPlan::Source{static_cast<int>(i), offset};
  }
  if (address == 0 || view.size() == 0) return LaunchPlan::Source{};
  return std::nullopt;
}

void LaunchRecorder::add(const Prepared& prepared, const Binding& binding,
                         std::span<const TensorView> tensors) {
  if (!prepared.on_device) {
    is_complete_ = false;
    return;
  }
  LaunchPlan::Launch launch;
  launch.kernel = prepared.on_device.get();
  launch.grid = {binding.grid[0], binding.grid[1], binding.grid[2]};
  for (const TensorView& view : tensors) {
    const auto source = source_of(view);
    is_complete_ = is_complete_ && source.has_value();
    launch.pointers.push_back(source.value_or(LaunchPlan::Source{}));
  }
  const auto num_values = static_cast<std::ptrdiff_t>(prepared.slot_types.size());
  launch.values.assign(binding.slots.begin(), binding.slots.begin() + num_values);
  launch.streamed = prepared.plan.streamed(tensors);
  launches_.push_back(std::move(launch));
}

std::optional<LaunchPlan> LaunchRecorder::plan() && {
  if (!is_complete_) return std::nullopt;
  return LaunchPlan(tensors_.size(), std::move(launches_));
}

}  // namespace tessera::kernels::jit
