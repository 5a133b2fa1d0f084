// Atomics and waits for signals, one thread after the other, in thread order. Blocks that run concurrently on several CPU
// threads see each other's atomics as indivisible. A program whose result depends on the order of
// blocks runs them sequentially (Bytecode::in_block_order).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <bit>
#include <cstring>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

/// f32 sums in global memory: the instruction flushes subnormals; tensor stores do not.
float flushed(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool subnormal = (bits & 0x7F800000u) == 0;
  return subnormal ? std::bit_cast<float>(bits & 0x80000000u) : value;
}

template <class T>
T next(const AtomicStep& step, T old, T operand, T compare) {
  switch (step.op) {
    case ir::AtomicOp::exchange:
      return operand;
    case ir::AtomicOp::compare_exchange:
      return old == compare ? operand : old;
    default:
      break;
  }
  T result{};
  if constexpr (sizeof(T) == sizeof(float)) {
    if (step.flushes) {
      const float a = flushed(std::bit_cast<float>(old));
      const float b = flushed(std::bit_cast<float>(operand));
      float sum = 0;
      step.combine(&sum, &a, &b, nullptr, 1);
      return std::bit_cast<T>(flushed(sum));
    }
  }
  step.combine(&result, &old, &operand, nullptr, 1);
  return result;
}

}  // namespace

bool Machine::await_signal(const Instr& instr, bool again) {
  const uint8_t* holds = column<uint8_t>(instr.args[0]);
  bool all = true;
  for_each_lane(mask(), [&](int lane) { all = all && holds[lane] != 0; });
  if (!all && again) went_on_ = false;
  cursor_->awaits = all ? -1 : static_cast<int>(&instr - code_.block.data());
  return all;
}

void Machine::add_element(const AtomicStep& step, std::byte* element, const std::byte* value,
                          int bytes) {
  const auto add = [&](auto operand) {
    using T = decltype(operand);
    std::memcpy(&operand, value, sizeof operand);
    std::atomic_ref<T> sum(*reinterpret_cast<T*>(element));
    T old = sum.load(std::memory_order_relaxed);
    while (!sum.compare_exchange_weak(old, next(step, old, operand, operand),
                                      std::memory_order_relaxed)) {
    }
  };
  if (bytes == 2) return add(uint16_t{});
  if (bytes == 4) return add(uint32_t{});
  add(uint64_t{});
}

template <class T>
void Machine::atomic_lanes(const Instr& instr, const Transfer& transfer, std::byte* base) {
  const AtomicStep& step = code_.atomics[static_cast<size_t>(transfer.atomic)];
  const int64_t* offsets = column<int64_t>(transfer.offset);
  const bool loads = step.op == ir::AtomicOp::load, is_run = transfer.width > 1;
  const Columns from = is_run ? columns(instr, step.from, transfer.width)
                              : Columns{at(loads ? transfer.value : step.operand), 0};
  const T* compares =
      step.compare ? column<T>(step.compare) : reinterpret_cast<const T*>(from.data);
  T* found = column<T>(transfer.value);
  for_each_lane(mask(), [&](int lane) {
    for (int i = 0; i < transfer.width; ++i) {
      const T operand = reinterpret_cast<const T*>(from.data + i * from.stride)[lane];
      std::atomic_ref<T> element(reinterpret_cast<T*>(base)[offsets[lane] + i]);
      T old = element.load(std::memory_order_relaxed);
      while (!loads && !element.compare_exchange_weak(old, next(step, old, operand, compares[lane]),
                                                      std::memory_order_relaxed)) {
      }
      found[lane] = old;
    }
    if (!code_.checked || !(step.releases || step.acquires)) return;
    const bool wrote = step.releases &&
                       (step.op != ir::AtomicOp::compare_exchange || found[lane] == compares[lane]);
    const std::byte* const place = base + offsets[lane] * int64_t{sizeof(T)};
    if (launch_.block_order != nullptr) {
      launch_.block_order->atomic(current_thread(lane), place, step.acquires, wrote);
    }
    order_cluster(lane, place, step.acquires, wrote);
  });
}

/// Orders threads of one cluster by an acq_rel atomic on the element at `place`; BlockOrder orders clusters.
void Machine::order_cluster(int lane, const std::byte* place, bool acquires, bool releases) {
  WarpClocks::VectorClock& released = neighbours_.released[place];
  const int warp = number(lane) / kWarpSize;
  if (acquires) neighbours_.clocks.acquire(warp, released);
  if (releases) neighbours_.clocks.release(warp, released);
}

std::vector<SignalWait> Machine::signal_waits() const {
  std::vector<SignalWait> result;
  if (has_ended_) return result;
  const size_t first = are_roles_running_ ? 1 : 0, end = are_roles_running_ ? cursors_.size() : 1;
  for (size_t i = first; i < end; ++i) {
    const Cursor& cursor = cursors_[i];
    if (cursor.awaits < 0) continue;
    result.push_back({this, &cursor, code_.block[static_cast<size_t>(cursor.awaits)].statement});
  }
  return result;
}

std::string Machine::awaited_signal(const Cursor& cursor) const {
  const Instr& wait = code_.block[static_cast<size_t>(cursor.awaits)];
  std::string cell;
  for (int32_t i = wait.target; cell.empty(); ++i) {
    const Instr& load = code_.block[static_cast<size_t>(i)];
    if (load.code != Code::atomic) continue;
    const Transfer& transfer = code_.transfers[static_cast<size_t>(load.index)];
    cell = element_name(transfer, cursor.mask().begin, 0, 1);
  }
  const SourceLoc& loc = code_.locs[static_cast<size_t>(wait.statement)];
  return fmt::format("{}block ({}) waits for {}{}",
                     cursor.name.empty() ? "" : fmt::format("'{}' of ", cursor.name),
                     fmt::join(block_, ", "), cell,
                     loc.known() ? fmt::format(" ({})", to_string(loc)) : "");
}

void Machine::trap_no_signal(const Cursor& cursor, const std::string& states,
                             int32_t related) const {
  trap(code_.block[static_cast<size_t>(cursor.awaits)], cursor.mask().begin,
       {.code = "DEADLOCK",
        .what = fmt::format("no block of the grid can go on: {}", states),
        .expected = "a signal for each wait",
        .got = "none",
        .related = related});
}

void Machine::atomic(const Instr& instr) {
  const Transfer& transfer = code_.transfers[static_cast<size_t>(instr.index)];
  const Array& array = *storage(transfer.storage).array;
  std::byte* base = memory_of(instr, transfer);
  if (code_.checked) check_transfer(instr, transfer, base);
  if (launch_.count) counts_.atomics += active_warps();
  switch (bytes(array.dtype)) {
    case 2:
      return atomic_lanes<uint16_t>(instr, transfer, base);
    case 4:
      return atomic_lanes<uint32_t>(instr, transfer, base);
    default:
      return atomic_lanes<uint64_t>(instr, transfer, base);
  }
}

}  // namespace tessera::codegen::cpu
