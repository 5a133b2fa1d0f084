// Traps on shared memory: races, and reads of bytes that are not written yet. The words of every race.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/machine/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

/// Checks for races and for reads of bytes that the block never wrote.
void Machine::check_shared(const Instr& instr, const Transfer& transfer) {
  for_each_lane(mask(), [&](int lane) { check_shared(instr, transfer, lane, *this); });
  if (transfer.is_load && transfer.atomic < 0) return;
  const int64_t element_bits = bits(storage(transfer.storage).array->dtype);
  for_each_lane(mask(), [&](int lane) {
    const int64_t first = offset_in_owner(transfer, lane) * element_bits;
    const int64_t start = shared_start(*storage(transfer.storage).array);
    for (int64_t byte = start + first / 8;
         byte < start + (first + transfer.width * element_bits + 7) / 8;
         byte += shadow_->granule()) {
      check_not_busy(instr, transfer, lane, byte);
    }
  });
}

void Machine::check_shared(const Instr& instr, const Transfer& transfer, int lane,
                           Machine& owner) const {
  const Array& array = *storage(transfer.storage).array;
  const Array& buffer = array.mine ? *array.mine : array;
  SharedShadow& shadow = *owner.shadow_;
  const int64_t element_bits = bits(array.dtype);
  const int64_t start = shared_start(array);
  const int64_t first_bit = offset_in_owner(transfer, lane) * element_bits;
  const int64_t begin = start + first_bit / 8;
  const int64_t end = start + (first_bit + transfer.width * element_bits + 7) / 8;
  if (begin < 0 || end > shadow.bytes()) {
    internal_error(fmt::format("shared array '{}' is outside the arena", array.name));
  }
  for (int64_t byte = begin; byte < end; byte += shadow.granule()) {
    check_landed(instr, transfer, lane, byte, shadow);
    if (!owner.boxes_.empty()) owner.check_not_stored(instr, transfer, lane, byte);
    if (transfer.is_load && !shadow.initialised(byte, buffer)) {
      trap(instr, lane,
           {.code = "UNINITIALISED",
            .what = shared_element_name(transfer, lane, byte) + " is read before it is written",
            .argument = authors_name(array)});
    }
    const int thread =
        number(transfer.matrices > 0 ? receiver(transfer, lane, byte - begin) : lane);
    const auto conflict = transfer.atomic >= 0 ? shadow.atomic(byte, thread, instr.statement)
                          : transfer.is_load   ? shadow.read(byte, thread, instr.statement)
                                               : shadow.write(byte, thread, instr.statement,
                                                            transfer.is_bulk ? kWarpSize : 1);
    if (shares_arena_ && !transfer.is_load) shadow.write_for(byte, buffer);
    const bool stores = (!transfer.is_load && !transfer.is_bulk) || transfer.atomic >= 0;
    if (stores) owner.note_store(byte, thread, instr.statement);
    if (!conflict) continue;
    trap_race(instr, transfer, lane, shared_element_name(transfer, lane, byte), *conflict);
  }
}

/// Names what a race between roles on a tile of a ring breaks.
const char* Machine::race_code(const Transfer& transfer, const Conflict& conflict) const {
  const Array& array = *storage(transfer.storage).array;
  const bool by_copy = conflict.thread / kWarpSize >= kFirstSignal;
  const int thread = conflict.thread % kThreadsPerBlock;
  const bool in_role =
      !by_copy && thread >= cursor_->threads.first && thread < cursor_->threads.end();
  if (array.ring < 0 || in_role) return "RACE";
  if (transfer.is_load) return "RING_EARLY";
  return conflict.how == std::string_view("read") ? "RING_LATE" : "RACE";
}

void Machine::trap_race(const Instr& instr, const Transfer& transfer, int lane,
                        const std::string& element, const Conflict& conflict) const {
  const bool by_copy = conflict.thread / kWarpSize >= kFirstSignal;
  const bool in_block = conflict.thread / kThreadsPerBlock == rank_;
  const Array& array = *storage(transfer.storage).array;
  const bool is_global = in_block && array.space == ArraySpace::global;
  const bool both_write =
      way_of(transfer) == Way::written && conflict.how == std::string_view("written");
  trap(instr, lane,
       {.code = race_code(transfer, conflict),
        .what = fmt::format("race on {}: {} here and {} by {} with no {} between", element,
                            name(way_of(transfer)), conflict.how,
                            by_copy ? "a bulk copy" : thread_name(conflict.thread),
                            by_copy    ? "wait"
                            : in_block ? "barrier"
                                       : "cluster barrier"),
        .argument = authors_name(array),
        .hint = !is_global ? ""
                : both_write
                    ? "let one thread write the element, or give it the same value in all; "
                      "k.sync() orders two writes"
                    // The author cannot see that copies of an iteration read what its first writes.
                    : "put k.sync() between the two; a parallel loop or copy of fewer "
                      "elements than threads reads each of them in several threads",
        .related = conflict.statement});
}

int64_t Machine::shared_start(const Array& array) {
  return array.mine ? array.mine->shared_offset : array.shared_offset;
}

int64_t Machine::offset_in_owner(const Transfer& transfer, int lane) const {
  return column<int64_t>(transfer.in_owner ? transfer.in_owner : transfer.offset)[lane];
}

std::string Machine::shared_element_name(const Transfer& transfer, int lane, int64_t byte) const {
  const Array& array = *storage(transfer.storage).array;
  const int64_t element =
      (byte - shared_start(array)) * 8 / bits(array.dtype) - offset_in_owner(transfer, lane);
  return element_name(transfer, lane, static_cast<int>(std::max<int64_t>(element, 0)), 1);
}

void Machine::check_landed(const Instr& instr, const Transfer& transfer, int lane, int64_t byte,
                           const SharedShadow& shadow) const {
  const int32_t statement = shadow.in_flight(byte);
  if (statement == 0) return;
  trap(instr, lane,
       {.code = storage(transfer.storage).array->ring < 0 ? "ASYNC_PENDING"
                : transfer.is_load                        ? "RING_EARLY"
                                                          : "RING_LATE",
        .what = fmt::format("{} is {} while an asynchronous copy into it is under way",
                            shared_element_name(transfer, lane, byte),
                            transfer.is_load ? "read" : "written"),
        .argument = authors_name(*storage(transfer.storage).array),
        .expected = "a wait between the copy and this access",
        .got = "none",
        .related = statement});
}

}  // namespace tessera::codegen::cpu
