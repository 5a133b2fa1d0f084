#include "kernels/jit/plan_builder.h"

#include <algorithm>
#include <utility>

#include "kernels/call_types.h"

namespace tessera::kernels::jit {

PlanBuilder::PlanBuilder(std::span<const TensorView* const> tensors) : tensors_(tensors) {
  for (const TensorView* tensor : tensors) tensor_bytes_.push_back(tensor->span_bytes());
}

// The tensor that begins at the address, else the only tensor that contains it.
std::optional<LaunchPlan::Source> PlanBuilder::source_of(const TensorView& view) const {
  if (is_absent(view)) return LaunchPlan::Source{};
  if (view.size() == 0) return LaunchPlan::Source{-1, LaunchPlan::kEmpty};
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  for (const bool at_begin : {true, false}) {
    std::optional<LaunchPlan::Source> found;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto begin = reinterpret_cast<uintptr_t>(tensors_[i]->data);
      if (begin == 0 || address < begin) continue;
      const auto offset = static_cast<int64_t>(address - begin);
      if (offset >= tensors_[i]->span_bytes() || (at_begin && offset > 0)) continue;
      if (found) return std::nullopt;
      found = LaunchPlan::Source{static_cast<int>(i), offset};
    }
    if (found) return found;
  }
  return std::nullopt;
}

void PlanBuilder::add(const ReadyKernel& ready, const Binding& binding,
                      std::span<const TensorView> tensors) {
  if (!ready.on_device) {
    is_complete_ = false;
    return;
  }
  LaunchPlan::Launch launch;
  launch.kernel = ready.on_device.get();
  launch.grid = {binding.grid[0], binding.grid[1], binding.grid[2]};
  for (const TensorView& view : tensors) {
    const auto source = source_of(view);
    is_complete_ = is_complete_ && source.has_value();
    launch.pointers.push_back(source.value_or(LaunchPlan::Source{}));
    if (source && source->tensor >= 0) {
      int64_t& bytes = tensor_bytes_[static_cast<size_t>(source->tensor)];
      bytes = std::max(bytes, source->offset + view.span_bytes());
    }
  }
  const auto num_values = static_cast<std::ptrdiff_t>(ready.slot_types.size());
  launch.values.assign(binding.slots.begin(), binding.slots.begin() + num_values);
  for (const KernelParam* param : ready.maps) {
    launch.maps.push_back({param, mapped(*param->map, tensors)});
  }
  launch.streamed = ready.binder.streamed(tensors);
  launches_.push_back(std::move(launch));
}

std::optional<LaunchPlan> PlanBuilder::plan() && {
  if (!is_complete_) return std::nullopt;
  return LaunchPlan(tensors_.size(), std::move(launches_));
}

}  // namespace tessera::kernels::jit
