// Warp collectives. In lockstep they are plain loops over the lanes of a warp.

#include <algorithm>
#include <cstring>
#include <functional>

#include "codegen/cpu/machine/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

using ir::CollectiveKind;

/// One warp: `size` threads from `first` on, and its active lanes.
struct Warp {
  int first = 0;
  int size = 0;
  uint32_t active = 0;
};

/// The lane that `lane` reads, as the shuffle instruction defines it for segments of `width` lanes.
/// A lane whose source is outside its segment reads itself; shuffle_xor may read an earlier
/// segment.
int source_lane(CollectiveKind kind, int lane, uint32_t operand, int width) {
  const int segment = lane / width * width;
  const int last = segment + width - 1;
  const auto amount = static_cast<int>(operand % kWarpSize);
  switch (kind) {
    case CollectiveKind::shuffle:
      return segment + amount % width;
    case CollectiveKind::shuffle_xor:
      return (lane ^ amount) <= last ? lane ^ amount : lane;
    case CollectiveKind::shuffle_up:
      return lane - amount >= segment ? lane - amount : lane;
    default:  // shuffle_down
      return lane + amount <= last ? lane + amount : lane;
  }
}

template <class T, class F>
void reduce(const Warp& warp, const T* values, T* out, T start, const F& f) {
  T result = start;
  for (int lane = 0; lane < warp.size; ++lane) {
    if ((warp.active >> lane & 1u) != 0) result = f(result, values[warp.first + lane]);
  }
  std::fill_n(out + warp.first, warp.size, result);
}

/// T is u32, or i32 for a signed comparison.
template <class T>
void reduce(CollectiveKind kind, const Warp& warp, const T* values, T* out) {
  const T first = values[warp.first + std::countr_zero(warp.active)];
  const auto wrap = [](auto f) {
    return [f](T a, T b) {
      return static_cast<T>(f(static_cast<uint32_t>(a), static_cast<uint32_t>(b)));
    };
  };
  switch (kind) {
    case CollectiveKind::reduce_add:
      return reduce(warp, values, out, T{0}, wrap(std::plus<uint32_t>()));
    case CollectiveKind::reduce_and:
      return reduce(warp, values, out, first, wrap(std::bit_and<uint32_t>()));
    case CollectiveKind::reduce_or:
      return reduce(warp, values, out, T{0}, wrap(std::bit_or<uint32_t>()));
    case CollectiveKind::reduce_min:
      return reduce(warp, values, out, first, [](T a, T b) { return std::min(a, b); });
    default:  // reduce_max
      return reduce(warp, values, out, first, [](T a, T b) { return std::max(a, b); });
  }
}

/// Bit i is set if lane i is active and its boolean is true.
uint32_t ballot(const Warp& warp, const uint8_t* values) {
  uint32_t result = 0;
  for (int lane = 0; lane < warp.size; ++lane) {
    if (values[warp.first + lane] != 0) result |= 1u << lane;
  }
  return result & warp.active;
}

void match_any(const Warp& warp, const std::byte* values, int bytes, uint32_t* out) {
  const auto value = [&](int lane) { return values + (warp.first + lane) * bytes; };
  for (int lane = 0; lane < warp.size; ++lane) {
    uint32_t equal = 0;
    for (int other = 0; other < warp.size; ++other) {
      const bool same = std::memcmp(value(lane), value(other), static_cast<size_t>(bytes)) == 0;
      if (same) equal |= 1u << other;
    }
    out[warp.first + lane] = equal & warp.active;
  }
}

bool is_shuffle(CollectiveKind kind) {
  return kind == CollectiveKind::shuffle || kind == CollectiveKind::shuffle_xor ||
         kind == CollectiveKind::shuffle_up || kind == CollectiveKind::shuffle_down;
}

}  // namespace

void Machine::collective(const Instr& instr) {
  if (code_.checked) check_whole_warps(instr, "a warp collective");
  if (launch_.count) counts_.shuffles += active_warps();
  const CollectiveOp& op = code_.collectives[static_cast<size_t>(instr.index)];
  const Slot value = instr.args[0];
  const int size = bytes(value.type);
  const Mask& threads = mask();
  for (int first = threads.begin / kWarpSize * kWarpSize; first < threads.end; first += kWarpSize) {
    Warp warp{.first = first, .size = std::min(kWarpSize, code_.threads - first), .active = 0};
    for (int lane = std::max(threads.begin, first); lane < std::min(threads.end, first + warp.size);
         ++lane) {
      if (threads.lanes[lane] != 0) warp.active |= 1u << (lane - first);
    }
    if (warp.active == 0) continue;
    if (is_shuffle(op.kind)) {
      const auto* operands = column<uint32_t>(instr.args[1]);
      for (int lane = 0; lane < warp.size; ++lane) {
        const int source = source_lane(op.kind, lane, operands[first + lane], op.width);
        const int from = source < warp.size ? source : lane;
        std::memcpy(at(instr.out) + (first + lane) * size, at(value) + (first + from) * size,
                    static_cast<size_t>(size));
      }
      continue;
    }
    switch (op.kind) {
      case CollectiveKind::vote_any:
        std::fill_n(column<uint8_t>(instr.out) + first, warp.size,
                    static_cast<uint8_t>(ballot(warp, column<uint8_t>(value)) != 0));
        break;
      case CollectiveKind::vote_all:
        std::fill_n(column<uint8_t>(instr.out) + first, warp.size,
                    static_cast<uint8_t>(ballot(warp, column<uint8_t>(value)) == warp.active));
        break;
      case CollectiveKind::ballot:
        std::fill_n(column<uint32_t>(instr.out) + first, warp.size,
                    ballot(warp, column<uint8_t>(value)));
        break;
      case CollectiveKind::match_any:
        match_any(warp, at(value), size, column<uint32_t>(instr.out));
        break;
      default:
        if (value.type == DType::i32) {
          reduce(op.kind, warp, column<int32_t>(value), column<int32_t>(instr.out));
        } else {
          reduce(op.kind, warp, column<uint32_t>(value), column<uint32_t>(instr.out));
        }
        break;
    }
  }
}

}  // namespace tessera::codegen::cpu
