#include "kernels/jit/repeatable_call.h"

#include <algorithm>
#include <bit>

#include "kernels/call_types.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/plan_builder.h"

namespace tessera::kernels::jit {
namespace {

uintptr_t address_of(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

bool is_run() {
  const CallContext& context = call_context();
  return context.mode.until == CallMode::Until::done && context.mode.plan == nullptr &&
         context.timeline == nullptr;
}

bool is_absent_or_on_gpu(const TensorView* view) {
  return is_absent(*view) || view->device.is_cuda();
}

}  // namespace

uint64_t alignment_of(const void* address) {
  constexpr uint64_t kLargest = 256;
  if (address == nullptr) return 0;
  return uint64_t{1} << std::countr_zero(address_of(address) | kLargest);
}

std::optional<RepeatableCall> RepeatableCall::learn(std::span<const TensorView* const> tensors,
                                                    const std::function<void()>& call) {
  if (!is_run() || !std::all_of(tensors.begin(), tensors.end(), is_absent_or_on_gpu)) {
    call();
    return std::nullopt;
  }
  PlanBuilder launches(tensors);
  {
    const CallModeScope scope({.plan = &launches});
    call();
  }
  const std::vector<int64_t> bytes = launches.tensor_bytes();
  std::optional<LaunchPlan> plan = std::move(launches).plan();
  if (!plan) return std::nullopt;
  std::vector<Memory> memories;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_absent(*tensors[i]) && bytes[i] > 0) memories.push_back({i, bytes[i]});
  }
  std::sort(memories.begin(), memories.end(), [&](const Memory& a, const Memory& b) {
    return address_of(tensors[a.tensor]->data) < address_of(tensors[b.tensor]->data);
  });
  return RepeatableCall(*std::move(plan), std::move(memories));
}

bool RepeatableCall::launch_again(std::span<void* const> data, Stream stream) const {
  if (generation_ != tune_generation() || !is_run() || any_overlap(data)) return false;
  plan_(data, stream);
  return true;
}

// Buffers usually keep their address order. Then it is enough to compare neighbours.
bool RepeatableCall::any_overlap(std::span<void* const> data) const {
  const auto begin_of = [&](const Memory& m) { return address_of(data[m.tensor]); };
  const auto end_of = [&](const Memory& m) {
    return begin_of(m) + static_cast<uintptr_t>(m.bytes);
  };
  bool in_order = true;
  uintptr_t last_end = 0;
  for (const Memory& memory : memories_) {
    in_order &= begin_of(memory) >= last_end;
    last_end = end_of(memory);
  }
  if (in_order) return false;
  for (size_t i = 0; i < memories_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (begin_of(memories_[i]) < end_of(memories_[j]) &&
          begin_of(memories_[j]) < end_of(memories_[i])) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace tessera::kernels::jit
