// Asynchronous copies. Starting a copy only records it; the bytes move at the last wait that may
// complete it. So a read that comes too early sees old data, and traps if traps are on.

#include <algorithm>
#include <cstring>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

std::byte* element_address(std::byte* base, DType dtype, int64_t element) {
  return base + element * bits(dtype) / 8;
}

}  // namespace

void Machine::async_read(const Instr& instr) {
  const Transfer& from = code_.asyncs[static_cast<size_t>(instr.index)].from;
  const std::byte* const base = memory_of(instr, from);
  if (code_.checked) {
    check_bounds(instr, from);
    check_span(instr, from, base);
    check_global(instr, from, base);
  }
  if (launch_.count) count_transfer(instr, from);
}

void Machine::async_copy(const Instr& instr) {
  const AsyncMove& move = code_.asyncs[static_cast<size_t>(instr.index)];
  const Array& target = *storage(move.to.storage).array;
  std::byte* const from = memory_of(instr, move.from);
  std::byte* to = shared_ + target.shared_offset;
  const bool guarded = static_cast<bool>(instr.args[0]);
  if (code_.checked) {
    check_bounds(instr, move.to);
    check_span(instr, move.to, to);
    check_shared(instr, move.to);
  }
  if (launch_.count) {
    count_transfer(instr, move.to);
    if (guarded) counts_.guards += active_warps();
  }
  const int count = move.to.width * bits(target.dtype) / 8;
  const int64_t* from_offsets = column<int64_t>(move.from.offset);
  const int64_t* to_offsets = column<int64_t>(move.to.offset);
  for_each_lane(mask(), [&](int lane) {
    const auto thread = static_cast<size_t>(lane);
    const bool inside = !guarded || column<uint8_t>(instr.args[0])[lane] != 0;
    Landing landing;
    landing.to = element_address(to, target.dtype, to_offsets[lane]);
    if (inside) landing.from = element_address(from, target.dtype, from_offsets[lane]);
    landing.bytes = count;
    landing.group = groups_[thread];
    landing.statement = instr.statement;
    landing.fills_ring = target.ring >= 0;
    if (shadow_) {
      const int64_t first = landing.to - shared_;
      for (int64_t byte = first; byte < first + count; byte += shadow_->granule()) {
        shadow_->set_in_flight(byte, instr.statement);
      }
    }
    in_flight_[thread].push_back(landing);
  });
}

void Machine::land(const Landing& landing, int lane) {
  const auto size = static_cast<size_t>(landing.bytes);
  if (landing.from != nullptr) {
    std::memcpy(landing.to, landing.from, size);
  } else {
    std::memset(landing.to, 0, size);
  }
  if (!shadow_) return;
  // The data is written now, by this thread: others need an order after the wait.
  const int64_t first = landing.to - shared_;
  for (int64_t byte = first; byte < first + landing.bytes; byte += shadow_->granule()) {
    shadow_->set_in_flight(byte, 0);
    shadow_->write(byte, number(lane), landing.statement);
    note_store(byte, number(lane), landing.statement);
  }
}

/// The copies of a thread into rings: it arrives for them now.
void Machine::land_in_ring(int lane) {
  if (in_flight_.empty()) return;  // no thread has started a copy
  std::deque<Landing>& copies = in_flight_[static_cast<size_t>(lane)];
  for (const Landing& landing : copies) {
    if (landing.fills_ring) land(landing, lane);
  }
  std::erase_if(copies, [](const Landing& landing) { return landing.fills_ring; });
}

void Machine::async_commit() {
  for_each_lane(mask(), [&](int lane) { ++groups_[static_cast<size_t>(lane)]; });
}

void Machine::async_wait(const Instr& instr) {
  if (in_flight_.empty()) return;  // no copies in flight
  for_each_lane(mask(), [&](int lane) {
    const auto thread = static_cast<size_t>(lane);
    std::deque<Landing>& copies = in_flight_[thread];
    while (!copies.empty() && copies.front().group < groups_[thread] - instr.index) {
      land(copies.front(), lane);
      copies.pop_front();
    }
  });
}

/// Drops copies that the block never waited for.
void Machine::drop_copies() {
  for (std::deque<Landing>& copies : in_flight_) {
    for (const Landing& landing : copies) {
      const int64_t first = landing.to - shared_;
      for (int64_t byte = first; shadow_ && byte < first + landing.bytes;
           byte += shadow_->granule()) {
        shadow_->set_in_flight(byte, 0);
      }
    }
    copies.clear();
  }
}

}  // namespace tessera::codegen::cpu
