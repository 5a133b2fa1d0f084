// Machine: bulk copies, which complete on mbarriers, and the fences between threads and the async proxy.

#include <fmt/format.h>

#include <cstring>

#include "codegen/cpu/machine/machine.h"
#include "codegen/cpu/machine/mbarrier.h"

namespace tessera::codegen::cpu {

void Machine::bulk_copy(const Instr& instr) {
  const AsyncMove& move = code_.asyncs[static_cast<size_t>(instr.index)];
  const Array& target = *storage(move.to.storage).array;
  Instr signal = instr;
  signal.index = move.mbarrier;
  if (code_.checked) {
    check_bounds(instr, move.to);
    check_span(instr, move.to, shared_ + target.shared_offset);
    check_shared(instr, move.to);
    check_mbarrier(signal);
  }
  if (launch_.count) count_transfer(instr, move.to);
  const std::byte* const source = memory_of(instr, move.from);
  const int64_t* from = column<int64_t>(move.from.offset);
  const int64_t* to = column<int64_t>(move.to.offset);
  const auto bytes_of = [&](int64_t elements) { return elements * bits(target.dtype) / 8; };
  for_each_lane(mask(), [&](int lane) {
    Mbarrier& mbarrier = mbarrier_of(signal, lane, *this);
    if (move.expects) {
      mbarrier.expected += bytes_of(move.to.width);
      mbarrier.expectation = {instr.statement, number(lane)};
    }
    mbarrier.copies.push_back({.to = shared_ + target.shared_offset + bytes_of(to[lane]),
                               .from = source + bytes_of(from[lane]),
                               .bytes = bytes_of(move.to.width),
                               .statement = instr.statement,
                               .thread = number(lane)});
    mark_in_flight(mbarrier.copies.back(), instr.statement);
    if (shadow_) check_overwritten(instr, move.to, lane, *this);
    const Transfer& at = code_.mbarriers[static_cast<size_t>(move.mbarrier)].at;
    check_bytes(instr, lane, mbarrier, element_name(at, lane, 0, 1));
  });
}

void Machine::proxy_fence() {
  if (fences_.empty()) return;
  int last = -1;
  for_each_lane(mask(), [&](int lane) {
    ++fences_[static_cast<size_t>(lane)];
    if (lane / kWarpSize == last) return;
    last = lane / kWarpSize;
    neighbours_.clocks.copy_clock(number(lane) / kWarpSize, fenced_[static_cast<size_t>(last)]);
  });
}

void Machine::note_store(int64_t byte, int thread, int32_t statement) {
  if (stores_.empty()) return;
  const Machine& writer = *neighbours_.blocks[static_cast<size_t>(thread / kThreadsPerBlock)];
  stores_[static_cast<size_t>(byte / shadow_->granule())] = {
      thread, statement, writer.fences_[static_cast<size_t>(thread % kThreadsPerBlock)],
      neighbours_.clocks.time(thread / kWarpSize)};
}

const GenericStore* Machine::unfenced(const Machine& owner, int64_t byte, int lane) const {
  const GenericStore& store = owner.stores_[static_cast<size_t>(byte / shadow_->granule())];
  if (store.thread < 0) return nullptr;
  const Machine& writer = *neighbours_.blocks[static_cast<size_t>(store.thread / kThreadsPerBlock)];
  const uint32_t passed = writer.fences_[static_cast<size_t>(store.thread % kThreadsPerBlock)];
  if (passed != store.fences) return nullptr;
  const int of_store = store.thread / kWarpSize;
  const WarpClocks::VectorClock& before = fenced_[static_cast<size_t>(lane / kWarpSize)];
  const bool is_before = of_store != number(lane) / kWarpSize &&
                         neighbours_.clocks.is_covered(of_store, store.time, before);
  return is_before ? nullptr : &store;
}

/// Traps if a bulk copy overwrites a thread's store without a proxy fence in between.
void Machine::check_overwritten(const Instr& instr, const Transfer& to, int lane,
                                const Machine& owner) const {
  const Array& array = *storage(to.storage).array;
  const int64_t first = shared_start(array) + offset_in_owner(to, lane) * bits(array.dtype) / 8;
  const int64_t end = first + to.width * bits(array.dtype) / 8;
  for (int64_t byte = first; byte < end; byte += shadow_->granule()) {
    const GenericStore* const store = unfenced(owner, byte, lane);
    if (store == nullptr) continue;
    trap(instr, lane,
         {.code = "PROXY",
          .what = fmt::format("a bulk copy overwrites {}, which {} has stored",
                              shared_element_name(to, lane, byte), thread_name(store->thread)),
          .argument = authors_name(array),
          .expected = "a proxy fence of that thread between the two",
          .got = "none",
          .related = store->statement});
  }
}

/// `statement` is that of the copy; 0 marks its completion.
void Machine::mark_in_flight(const Mbarrier::Copy& copy, int32_t statement) {
  if (!shadow_) return;
  const int64_t first = copy.to - shared_;
  for (int64_t byte = first; byte < first + copy.bytes; byte += shadow_->granule()) {
    shadow_->set_in_flight(byte, statement);
  }
}

void Machine::land(const Mbarrier::Copy& copy, Mbarrier& mbarrier) {
  std::memcpy(copy.to, copy.from != nullptr ? copy.from : copy.box.data(),
              static_cast<size_t>(copy.bytes));
  mark_in_flight(copy, 0);
  if (!shadow_) return;
  const uint32_t time = neighbours_.clocks.land(mbarrier.signal, mbarrier.current);
  const int64_t first = copy.to - shared_;
  for (int64_t byte = first; byte < first + copy.bytes; byte += shadow_->granule()) {
    if (code_.has_pieces && mbarrier.ring_part == Array::RingPart::tile) {
      // GPUs without bulk copies: as if the warp wrote the bytes now, others need a barrier after the wait.
      shadow_->write(byte, copy.thread, copy.statement, kWarpSize);
    } else {
      shadow_->land(byte, mbarrier.signal, time, copy.statement);
    }
  }
}

}  // namespace tessera::codegen::cpu
