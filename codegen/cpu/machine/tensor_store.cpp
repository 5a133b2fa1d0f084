// Machine: tensor stores. A source is read when a thread waits for it, as late as the program allows, so that early
// overwriting shows; the elements are in memory after a full wait, or when the block ends.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "codegen/cpu/machine/box.h"
#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {

void Machine::tensor_store(const Instr& instr) {
  const BoxStore& store = code_.box_stores[static_cast<size_t>(instr.index)];
  const Array& source = *storage(store.box.to.storage).array;
  if (code_.checked) check_span(instr, store.box.to, shared_ + source.shared_offset);
  if (launch_.count) count_transfer(instr, store.box.to);
  const int64_t* const from = column<int64_t>(store.box.to.offset);
  for_each_lane(mask(), [&](int lane) {
    StoreInFlight started;
    started.instr = &instr;
    started.lane = lane;
    started.group = store_groups_[static_cast<size_t>(lane)];
    started.place = place_of(store.box, lane);
    started.begin = source.shared_offset + from[lane] * bits(source.dtype) / 8;
    started.end = started.begin + store.box.map->elements() * bits(source.dtype) / 8;
    if (code_.checked) {
      check_box(instr, store.box, lane);
      check_source(store, started);
      check_target(store, started);
    }
    if (launch_.count) count_store(store, started);
    boxes_.push_back(std::move(started));
  });
}

void Machine::count_store(const BoxStore& store, const StoreInFlight& started) {
  const Counts before = counts_;
  const int64_t size = bits(storage(store.tensor.storage).array->dtype) / 8;
  int64_t written = 0;
  for_each_row_inside(started.place, [&](int64_t, int64_t begin, int64_t end, int64_t element) {
    const int64_t first = element * size, last = first + (end - begin) * size - 1;
    counts_.global_store_sectors += last / kSectorBytes - first / kSectorBytes + 1;
    written += last + 1 - first;
  });
  ++counts_.global_store_requests;
  counts_.global_store_least_sectors += (written + kSectorBytes - 1) / kSectorBytes;
  counts_.global_store_bytes += written;
  note_access(*started.instr, store.box.global, before);
}

/// Traps where what goes to the tensor is not written, not ordered before, or not visible to the async proxy.
void Machine::check_source(const BoxStore& store, const StoreInFlight& started) {
  const Array& array = *storage(store.chunk.storage).array;
  const int64_t size = bits(array.dtype) / 8;
  int64_t& offset = column<int64_t>(store.chunk.offset)[started.lane];
  for_each_row_inside(started.place, [&](int64_t row, int64_t begin, int64_t end, int64_t) {
    const int64_t row_byte = started.begin + row * started.place.box.back() * size;
    const int64_t first = begin * size / kPieceBytes * kPieceBytes;
    for (int64_t piece = first; piece < end * size; piece += kPieceBytes) {
      const int64_t at = swizzled(row_byte + piece, store.box.map->swizzle);
      offset = (at - array.shared_offset) / size;
      check_shared(*started.instr, store.chunk, started.lane, *this);
      for (int64_t byte = at; byte < at + kPieceBytes; byte += shadow_->granule()) {
        const GenericStore* const stored = unfenced(*this, byte, started.lane);
        if (stored == nullptr) continue;
        trap(*started.instr, started.lane,
             {.code = "PROXY",
              .what = fmt::format("a tensor store reads {}, which {} has stored",
                                  shared_element_name(store.chunk, started.lane, byte),
                                  thread_name(stored->thread)),
              .argument = authors_name(array),
              .expected = "a proxy fence of that thread between the two",
              .got = "none",
              .related = stored->statement});
      }
    }
  });
}

/// Traps where another store of the block to these elements is in flight: nothing orders the two.
void Machine::check_target(const BoxStore& store, const StoreInFlight& started) const {
  for (const StoreInFlight& other : boxes_) {
    const BoxStore& before = code_.box_stores[static_cast<size_t>(other.instr->index)];
    const bool both_add = store.tensor.atomic >= 0 && before.tensor.atomic >= 0;
    if (before.tensor.storage != store.tensor.storage || both_add) continue;
    std::vector<int64_t> shared;  // the first element of both
    const BoxPlace &a = started.place, &b = other.place;
    for (size_t d = 0; d < a.box.size(); ++d) {
      const int64_t first = std::max({a.first[d], b.first[d], int64_t{0}});
      if (first < std::min({a.first[d] + a.box[d], b.first[d] + b.box[d], a.extents[d]})) {
        shared.push_back(first);
      }
    }
    if (shared.size() < a.box.size()) continue;
    const Array& tensor = *storage(store.tensor.storage).array;
    trap(*started.instr, started.lane,
         {.code = "STORE_BUSY",
          .what = fmt::format("{}[{}] is stored while another tensor store to it is in flight",
                              tensor.name, fmt::join(shared, ", ")),
          .argument = tensor.name,
          .expected = "a wait for that store before this one",
          .got = "none",
          .related = other.instr->statement});
  }
}

void Machine::commit_stores() {
  if (store_groups_.empty()) return;
  for_each_lane(mask(), [&](int lane) { ++store_groups_[static_cast<size_t>(lane)]; });
}

void Machine::await_stores(const Instr& instr) {
  if (boxes_.empty()) return;
  const bool of_reads = instr.target != 0;
  for_each_lane(mask(), [&](int lane) {
    const int64_t end = store_groups_[static_cast<size_t>(lane)] - instr.index;
    const auto is_awaited = [&](const StoreInFlight& started) {
      return started.lane == lane && started.group < end;
    };
    for (StoreInFlight& started : boxes_) {
      if (!is_awaited(started)) continue;
      read_source(started);
      if (!of_reads) land(started);
    }
    if (!of_reads) std::erase_if(boxes_, is_awaited);
  });
}

void Machine::read_source(StoreInFlight& started) {
  if (std::exchange(started.is_read, true)) return;
  started.box.assign(shared_ + started.begin, shared_ + started.end);
  if (!shadow_) return;
  // Threads that write the source need an order after this wait.
  for (int64_t byte = started.begin; byte < started.end; byte += shadow_->granule()) {
    shadow_->read(byte, number(started.lane), started.instr->statement);
  }
}

void Machine::land(const StoreInFlight& started) {
  const BoxStore& store = code_.box_stores[static_cast<size_t>(started.instr->index)];
  const Storage& memory = storage(store.tensor.storage);
  std::byte* const base = launch_.memory[static_cast<size_t>(memory.param)].data;
  if (base == nullptr) return;
  const auto size = static_cast<int64_t>(bits(memory.array->dtype) / 8);
  const int64_t columns = started.place.box.back();
  for_each_row_inside(started.place, [&](int64_t row, int64_t begin, int64_t end, int64_t element) {
    if (code_.checked) note_stored(started, element, end - begin);
    for (int64_t c = begin; c < end; ++c) {
      const int64_t at =
          swizzled(started.begin + (row * columns + c) * size, store.box.map->swizzle);
      const std::byte* const value = started.box.data() + at - started.begin;
      std::byte* const to = base + (element + c - begin) * size;
      if (code_.checked && memory.ways.may_race()) {
        check_stored(started, element + c - begin, to, value);
      }
      if (store.tensor.atomic < 0) {
        std::memcpy(to, value, static_cast<size_t>(size));
      } else {
        add_element(code_.atomics[static_cast<size_t>(store.tensor.atomic)], to, value,
                    static_cast<int>(size));
      }
    }
  });
}

/// Tells GridShadow of the store of some elements, as that of the thread at this time.
void Machine::note_stored(const StoreInFlight& started, int64_t element, int64_t elements) const {
  if (launch_.grid_shadow == nullptr) return;
  const BoxStore& store = code_.box_stores[static_cast<size_t>(started.instr->index)];
  const Storage& memory = storage(store.tensor.storage);
  const int64_t size = bits(memory.array->dtype) / 8;
  launch_.grid_shadow->note(memory.param, element * size, elements * size, way_of(store.tensor),
                            block_number_, started.instr->statement, current_thread(started.lane));
}

/// Records the store of an element, as that of the thread at this time, and traps if it races.
void Machine::check_stored(const StoreInFlight& started, int64_t element, const std::byte* to,
                           const std::byte* value) {
  const BoxStore& store = code_.box_stores[static_cast<size_t>(started.instr->index)];
  const Array& tensor = *storage(store.tensor.storage).array;
  const int granule = neighbours_.global_shadow->granule();
  for (int byte = 0; byte < bits(tensor.dtype) / 8; byte += granule) {
    uint64_t stored = 0;
    std::memcpy(&stored, value + byte, static_cast<size_t>(granule));
    const auto conflict = note_global(to + byte, way_of(store.tensor), started.lane,
                                      started.instr->statement, stored);
    if (!conflict) continue;
    trap_race(*started.instr, store.tensor, started.lane,
              fmt::format("{} at element {}", tensor.name, element), *conflict);
  }
}

/// Traps where shared memory ends before a store has read it; what has been read lands.
void Machine::end_stores() {
  for (const StoreInFlight& started : boxes_) {
    if (!started.is_read) {
      const BoxStore& store = code_.box_stores[static_cast<size_t>(started.instr->index)];
      trap(*started.instr, started.lane,
           {.code = "STORE_LEFT",
            .what = fmt::format("the block ends while a tensor store reads '{}'",
                                authors_name(*storage(store.chunk.storage).array)),
            .argument = authors_name(*storage(store.chunk.storage).array),
            .expected = "a wait for the reads of the store",
            .got = "none"});
    }
    land(started);
  }
  boxes_.clear();
}

void Machine::check_not_stored(const Instr& instr, const Transfer& transfer, int lane,
                               int64_t byte) const {
  if (transfer.is_load && transfer.atomic < 0) return;
  for (const StoreInFlight& started : boxes_) {
    if (started.is_read || byte < started.begin || byte >= started.end) continue;
    trap(instr, lane,
         {.code = "STORE_BUSY",
          .what = fmt::format("{} is written while a tensor store that reads it is in flight",
                              shared_element_name(transfer, lane, byte)),
          .argument = authors_name(*storage(transfer.storage).array),
          .expected = "a wait for the reads of the store before this access",
          .got = "none",
          .related = started.instr->statement});
  }
}

void Machine::check_in_memory(const Instr& instr, const Transfer& transfer) const {
  const int64_t* const offsets = column<int64_t>(transfer.offset);
  for (const StoreInFlight& started : boxes_) {
    const BoxStore& store = code_.box_stores[static_cast<size_t>(started.instr->index)];
    const bool both_add = transfer.atomic >= 0 && store.tensor.atomic >= 0;
    if (store.tensor.storage != transfer.storage || both_add) continue;
    for_each_row_inside(started.place, [&](int64_t, int64_t begin, int64_t end, int64_t element) {
      for_each_lane(mask(), [&](int lane) {
        const int64_t first = std::max(offsets[lane], element);
        if (first >= std::min(offsets[lane] + transfer.width, element + end - begin)) return;
        trap(instr, lane,
             {.code = "STORE_BUSY",
              .what = fmt::format(
                  "{} is {} while a tensor store to it is in flight",
                  element_name(transfer, lane, static_cast<int>(first - offsets[lane]), 1),
                  name(way_of(transfer))),
              .argument = authors_name(*storage(transfer.storage).array),
              .expected = "a wait for the store before this access",
              .got = "none",
              .related = started.instr->statement});
      });
    });
  }
}

}  // namespace tessera::codegen::cpu
