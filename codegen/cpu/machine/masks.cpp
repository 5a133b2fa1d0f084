// Machine: active masks.

#include <cstring>
#include <vector>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

/// Sets `result` to the lanes of `parent` whose condition equals `wanted`.
void select_lanes(const Mask& parent, const uint8_t* condition, bool wanted, Mask& result) {
  const uint8_t flip = wanted ? 0 : 1;
  int count = 0;
  for (int lane = parent.begin; lane < parent.end; ++lane) {
    const auto on = static_cast<uint8_t>(parent.lanes[lane] & (condition[lane] ^ flip));
    result.lanes[lane] = on;
    count += on;
  }
  result.count = count;
  result.begin = parent.begin;
  result.end = parent.end;
  if (count == 0) {
    result.end = result.begin;
    return;
  }
  while (result.lanes[result.begin] == 0) ++result.begin;
  while (result.lanes[result.end - 1] == 0) --result.end;
}

}  // namespace

void Machine::push_mask(Slot condition) {
  const Mask& outer = mask();
  ++cursor_->depth;
  select_lanes(outer, column<uint8_t>(condition), true, cursor_->mask());
}

void Machine::flip_mask(Slot condition) {
  select_lanes(cursor_->outer(), column<uint8_t>(condition), false, cursor_->mask());
}

void Machine::narrow_mask(Slot condition) {
  select_lanes(Mask(mask()), column<uint8_t>(condition), true, cursor_->mask());
}

/// Removes the threads with the condition from every mask.
void Machine::leave(const Instr& instr) {
  const auto* condition = column<uint8_t>(instr.args[0]);
  std::vector<int> lanes;
  for_each_lane(mask(), [&](int lane) {
    if (condition[lane] != 0) lanes.push_back(lane);
  });
  left_ += static_cast<int>(lanes.size());
  for (int depth = 0; depth <= cursor_->depth; ++depth) {
    Mask& open = cursor_->masks[static_cast<size_t>(depth)];
    for (const int lane : lanes) {
      open.count -= open.lanes[lane];
      open.lanes[lane] = 0;
    }
    while (open.begin < open.end && open.lanes[open.begin] == 0) ++open.begin;
    while (open.end > open.begin && open.lanes[open.end - 1] == 0) --open.end;
  }
}

void Machine::guard(const Instr& instr) {
  if (launch_.count) counts_.guards += active_warps();
  push_mask(instr.args[0]);
  const Mask& outer = cursor_->outer();
  const Mask& inner = mask();
  const Transfer& guarded = code_.transfers[static_cast<size_t>(instr.index)];
  if (!guarded.is_load || inner.count == outer.count) return;
  // Threads that fail the guard read zero.
  const Columns to = columns(instr, guarded);
  const auto size = static_cast<size_t>(bytes(storage(guarded.storage).array->dtype));
  const uint8_t* passed = column<uint8_t>(instr.args[0]);
  for (int i = 0; i < guarded.width; ++i) {
    std::byte* data = to.data + i * to.stride;
    for_each_lane(outer, [&](int lane) {
      if (passed[lane] == 0) std::memset(data + static_cast<size_t>(lane) * size, 0, size);
    });
    if (!code_.checked || guarded.value) continue;
    const Storage& into = storage(guarded.range.storage);
    uint8_t* flags = initialised_column(into, uniform<int64_t>(guarded.range.base) + i);
    for_each_lane(outer, [&](int lane) {
      if (passed[lane] == 0) flags[lane] = 1;
    });
  }
}

int Machine::active_warps() const {
  const Mask& active = mask();
  if (active.dense()) {
    return active.count == 0 ? 0 : (active.end - 1) / kWarpSize - active.begin / kWarpSize + 1;
  }
  int warps = 0;
  int last = -1;
  for_each_lane(active, [&](int lane) {
    if (lane / kWarpSize != last) {
      last = lane / kWarpSize;
      ++warps;
    }
  });
  return warps;
}

}  // namespace tessera::codegen::cpu
