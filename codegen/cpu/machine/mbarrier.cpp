// Machine: mbarriers.

#include "codegen/cpu/machine/mbarrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int64_t kMbarrierBytes = 8;

int64_t value_at(const std::byte* column, DType type, int lane) {
  if (type == DType::i64 || type == DType::u64) {
    return reinterpret_cast<const int64_t*>(column)[lane];
  }
  if (type == DType::u32) return reinterpret_cast<const uint32_t*>(column)[lane];
  return reinterpret_cast<const int32_t*>(column)[lane];
}

}  // namespace

/// Traps unless its initialisation is ordered before.
Mbarrier& Machine::mbarrier_of(const Instr& instr, int lane, Machine& owner) const {
  const Transfer& at = code_.mbarriers[static_cast<size_t>(instr.index)].at;
  const int64_t byte = mbarrier_byte(at, lane);
  const auto found = owner.mbarriers_.find(byte);
  if (found == owner.mbarriers_.end()) {
    trap_init(instr, lane, "is used before it is initialised", 0);
  }
  if (shadow_) {
    const auto conflict = owner.shadow_->atomic(byte, number(lane), instr.statement);
    if (conflict) {
      trap_init(instr, lane, "is used while another thread initialises it: no barrier is between",
                conflict->statement);
    }
  }
  return found->second;
}

int64_t Machine::mbarrier_byte(const Transfer& at, int lane) const {
  return storage(at.storage).array->shared_offset +
         column<int64_t>(at.offset)[lane] * kMbarrierBytes;
}

void Machine::trap_init(const Instr& instr, int lane, const char* what, int32_t related) const {
  const Transfer& at = code_.mbarriers[static_cast<size_t>(instr.index)].at;
  trap(instr, lane,
       {.code = "SIGNAL_INIT",
        .what = fmt::format("{} {}", element_name(at, lane, 0, 1), what),
        .argument = authors_name(*storage(at.storage).array),
        .expected = "an initialisation by one thread, then a barrier",
        .related = related});
}

void Machine::check_mbarrier(const Instr& instr) {
  const MbarrierStep& step = code_.mbarriers[static_cast<size_t>(instr.index)];
  check_bounds(instr, step.at);
  check_span(instr, step.at, shared_ + storage(step.at.storage).array->shared_offset);
}

void Machine::mbarrier_init(const Instr& instr) {
  const Transfer& at = code_.mbarriers[static_cast<size_t>(instr.index)].at;
  if (code_.checked) check_bounds(instr, at);
  const int arrivals = storage(at.storage).array->arrivals;
  for_each_lane(mask(), [&](int lane) {
    for (int i = 0; i < at.width; ++i) {
      const int64_t byte = mbarrier_byte(at, lane) + i * kMbarrierBytes;
      Mbarrier& mbarrier = mbarriers_[byte];
      if (mbarrier.init.statement != 0) {
        trap_init(instr, lane, "is initialised twice", mbarrier.init.statement);
      }
      mbarrier.init = {instr.statement, number(lane)};
      mbarrier.ring_part = storage(at.storage).array->ring_part;
      const int place = rank_ * num_mbarriers(program_) + static_cast<int>(mbarriers_.size()) - 1;
      mbarrier.signal = kFirstSignal + std::min(place, kMostSignals - 1);
      mbarrier.arrivals = mbarrier.pending = arrivals;
      if (shadow_) shadow_->write(byte, number(lane), instr.statement);
    }
  });
}

void Machine::mbarrier_arrive(const Instr& instr) {
  const MbarrierStep& step = code_.mbarriers[static_cast<size_t>(instr.index)];
  if (code_.checked) check_mbarrier(instr);
  for_each_lane(mask(), [&](int lane) {
    const std::string name = element_name(step.at, lane, 0, 1);
    Machine& owner = step.rank ? visit(instr, lane, column<int32_t>(step.rank)[lane],
                                       *storage(step.at.storage).array, name)
                               : *this;
    Mbarrier& mbarrier = mbarrier_of(instr, lane, owner);
    if (step.after_copies) land_in_ring(lane);
    if (mbarrier.pending == 0) {
      trap(instr, lane,
           {.code = "SIGNAL_COUNT",
            .what = fmt::format("{} gets more arrivals than its phase {} has pending", name,
                                mbarrier.phase),
            .expected = fmt::format("{} arrivals", mbarrier.arrivals),
            .got = "one more",
            .related = mbarrier.arrival.statement});
    }
    if (mbarrier.awaited < mbarrier.phase - 1) {
      trap(
          instr, lane,
          {.code = "SIGNAL_PHASE",
           .what = fmt::format("an arrival at phase {} of {}, whose phase {} no thread has awaited",
                               mbarrier.phase, name, mbarrier.phase - 1),
           .expected = "a wait for each phase before the next arrival",
           .got = "none",
           .related = mbarrier.arrival.statement});
    }
    --mbarrier.pending;
    if (steps_.are_counted()) mbarrier.step = std::max(mbarrier.step, steps_.of(lane / kWarpSize));
    mbarrier.arrival = {instr.statement, number(lane)};
    if (shadow_) neighbours_.clocks.release(number(lane) / kWarpSize, mbarrier.current);
    check_bytes(instr, lane, mbarrier, name);
    if (mbarrier.may_end() && mbarrier.copies.empty()) mbarrier.begin_next_phase();
  });
}

/// Traps if more bytes are in flight in the current phase than its threads expect.
void Machine::check_bytes(const Instr& instr, int lane, const Mbarrier& mbarrier,
                          const std::string& name) const {
  if (mbarrier.pending > 0 || mbarrier.copied() <= mbarrier.expected) return;
  const int32_t copy = mbarrier.copies.back().statement;
  trap(instr, lane,
       {.code = "SIGNAL_COUNT",
        .what = fmt::format("phase {} of {} ends with {} bytes in flight that no thread expects",
                            mbarrier.phase, name, mbarrier.copied() - mbarrier.expected),
        .expected = fmt::format("{} bytes", mbarrier.copied()),
        .got = fmt::format("{} bytes", mbarrier.expected),
        .related = copy != instr.statement ? copy : mbarrier.expectation.statement});
}

bool Machine::mbarrier_wait(const Instr& instr) {
  const MbarrierStep& step = code_.mbarriers[static_cast<size_t>(instr.index)];
  if (code_.checked) check_mbarrier(instr);
  bool passes = true;
  for_each_lane(mask(), [&](int lane) {
    Mbarrier& mbarrier = mbarrier_of(instr, lane, *this);
    const int64_t phase = value_at(at(step.phase), step.phase.type, lane);
    if (phase > mbarrier.phase || phase + 2 <= mbarrier.phase) {
      trap_phase(instr, lane, phase, mbarrier);
    }
    if (phase == mbarrier.phase) {
      if (!mbarrier.may_end()) {
        passes = false;
        return;
      }
      for (const Mbarrier::Copy& copy : mbarrier.copies) land(copy, mbarrier);
      mbarrier.begin_next_phase();
    }
    mbarrier.awaited = std::max(mbarrier.awaited, phase);
    if (steps_.are_counted()) steps_.go_on_at(lane / kWarpSize, mbarrier.ended_at);
    if (shadow_) neighbours_.clocks.acquire(number(lane) / kWarpSize, mbarrier.ended);
  });
  return passes;
}

void Machine::trap_phase(const Instr& instr, int lane, int64_t phase,
                         const Mbarrier& mbarrier) const {
  const Transfer& at = code_.mbarriers[static_cast<size_t>(instr.index)].at;
  trap(instr, lane,
       {.code = "SIGNAL_PHASE",
        .what =
            fmt::format("a wait for phase {} of {}, which is in phase {}: the hardware knows the "
                        "parity alone and takes it for another",
                        phase, element_name(at, lane, 0, 1), mbarrier.phase),
        .expected = fmt::format("phase {} or {}", mbarrier.phase - 1, mbarrier.phase),
        .got = fmt::format("phase {}", phase),
        .related = mbarrier.arrival.statement});
}

/// Names the first waiting thread of the block and what it waits for.
void Machine::trap_endless_phase(const Instr& instr) {
  const MbarrierStep& step = code_.mbarriers[static_cast<size_t>(instr.index)];
  for_each_lane(mask(), [&](int lane) {
    const Mbarrier& mbarrier = mbarriers_.at(mbarrier_byte(step.at, lane));
    const int64_t phase = value_at(at(step.phase), step.phase.type, lane);
    if (phase != mbarrier.phase || mbarrier.may_end()) return;
    const bool any = mbarrier.arrival.statement != 0;
    const Mbarrier::Event last = any ? mbarrier.arrival : mbarrier.init;
    trap(instr, lane,
         {.code = "DEADLOCK",
          .what = fmt::format(
              "{} of {} threads wait for phase {} of {}, which never ends: {} of {} "
              "arrivals and {} bytes are pending; {} {} last",
              mask().count, code_.threads - left_, phase, element_name(step.at, lane, 0, 1),
              mbarrier.pending, mbarrier.arrivals, mbarrier.expected - mbarrier.copied(),
              thread_name(last.thread), any ? "arrived" : "initialised it"),
          .expected = "as many arrivals and bytes as the phase waits for",
          .got = fmt::format("{} arrivals, {} bytes", mbarrier.arrivals - mbarrier.pending,
                             mbarrier.copied()),
          .related = last.statement});
  });
}

std::string Machine::awaited_phase(const Instr& instr, const Mask& waiting) const {
  const MbarrierStep& step = code_.mbarriers[static_cast<size_t>(instr.index)];
  std::string text;
  for_each_lane(waiting, [&](int lane) {
    const Mbarrier& mbarrier = mbarriers_.at(mbarrier_byte(step.at, lane));
    const int64_t phase = value_at(at(step.phase), step.phase.type, lane);
    if (!text.empty() || phase != mbarrier.phase || mbarrier.may_end()) return;
    text = fmt::format("waits for phase {} of {}, with {} of {} arrivals and {} bytes pending",
                       phase, element_name(step.at, lane, 0, 1), mbarrier.pending,
                       mbarrier.arrivals, mbarrier.expected - mbarrier.copied());
  });
  return text;
}

/// Traps if a bulk copy outlives the block, or expected bytes are never copied.
void Machine::check_mbarriers_at_end() const {
  for (const auto& [byte, mbarrier] : mbarriers_) {
    if (mbarrier.ring_part == Array::RingPart::full) check_ring_at_end(byte, mbarrier);
    if (mbarrier.expected == 0 && mbarrier.copies.empty()) continue;
    const bool in_flight = !mbarrier.copies.empty();
    const Mbarrier::Event first = in_flight ? Mbarrier::Event{mbarrier.copies.front().statement,
                                                              mbarrier.copies.front().thread}
                                            : mbarrier.expectation;
    const Mbarrier::Event last = mbarrier.arrival.statement != 0 ? mbarrier.arrival : mbarrier.init;
    Instr at{};
    at.statement = first.statement;
    trap(at, first.thread % kThreadsPerBlock,
         {.code = "SIGNAL_LEFT",
          .what = in_flight ? "the block ends while a bulk copy is in flight"
                            : fmt::format("the block ends while {} bytes are expected",
                                          mbarrier.expected),
          .expected = fmt::format("a wait for phase {} of the mbarrier", mbarrier.phase),
          .got = "none",
          .related = last.statement});
  }
}

/// Traps where a fill of a ring was not taken.
void Machine::check_ring_at_end(int64_t byte, const Mbarrier& mbarrier) const {
  const bool has_begun = mbarrier.pending < mbarrier.arrivals || mbarrier.may_end();
  if (mbarrier.awaited >= mbarrier.phase - 1 && !has_begun) return;
  const auto full =
      std::find_if(program_.shared.begin(), program_.shared.end(), [&](const ArrayRef& array) {
        return array->ring_part == Array::RingPart::full && array->shared_offset <= byte &&
               byte < array->shared_offset + array->size * kMbarrierBytes;
      });
  const int64_t stage = (byte - (*full)->shared_offset) / kMbarrierBytes;
  Instr at{};
  at.statement = mbarrier.arrival.statement;
  trap(at, mbarrier.arrival.thread % kThreadsPerBlock,
       {.code = "RING_LEFT",
        .what = fmt::format("the block ends, and a fill of stage {} of ring {} is not taken", stage,
                            (*full)->ring),
        .expected = "as many takes as fills",
        .got = fmt::format("{} takes of {} fills of the stage", mbarrier.awaited + 1,
                           mbarrier.phase + (has_begun ? 1 : 0)),
        .related = mbarrier.init.statement});
}

/// Forgets the mbarriers of the block before.
void Machine::drop_mbarriers() {
  for (const auto& [byte, mbarrier] : mbarriers_) {
    for (const Mbarrier::Copy& copy : mbarrier.copies) mark_in_flight(copy, 0);
  }
  mbarriers_.clear();
  std::fill(stores_.begin(), stores_.end(), GenericStore());
}

}  // namespace tessera::codegen::cpu
