// Machine: tensor copies. A box is read when the copy starts, since the kernel does not write its tensor, and lands
// when a thread waits for its phase.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "codegen/cpu/machine/box.h"
#include "codegen/cpu/machine/machine.h"
#include "codegen/cpu/machine/mbarrier.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int64_t kLineBytes = 128;  // that a target is aligned to

}  // namespace

void Machine::tensor_copy(const Instr& instr) {
  const BoxMove& move = code_.boxes[static_cast<size_t>(instr.index)];
  const Array& target = *storage(move.to.storage).array;
  Instr signal = instr;
  signal.index = move.mbarrier;
  if (code_.checked) {
    check_span(instr, move.to, shared_ + target.shared_offset);
    check_shared(instr, move.to);
    check_mbarrier(signal);
  }
  if (launch_.count) count_transfer(instr, move.to);
  const int64_t bytes = move.map->elements() * bits(target.dtype) / 8;
  for_each_lane(mask(), [&](int lane) {
    if (move.tensor < 0) check_map(instr, move, lane);
    if (code_.checked) check_box(instr, move, lane);
    if (move.expects) {
      Mbarrier& mbarrier = mbarrier_of(signal, lane, *this);
      mbarrier.expected += move.multicast ? program_.cluster * bytes : bytes;
      mbarrier.expectation = {instr.statement, number(lane)};
    }
    const std::vector<std::byte> box = read_box(instr, move, lane);
    if (!move.multicast) return start_box(instr, move, lane, *this, box);
    for (int rank = 0; rank < program_.cluster; ++rank) {
      Machine& owner = visit(instr, lane, rank, target, authors_name(target));
      if (&owner != this && shadow_) check_shared(instr, move.to, lane, owner);
      start_box(instr, move, lane, owner, box);
    }
  });
}

/// `box` begins its way to the memory of `owner`.
void Machine::start_box(const Instr& instr, const BoxMove& move, int lane, Machine& owner,
                        const std::vector<std::byte>& box) {
  const Array& target = *storage(move.to.storage).array;
  const int64_t to = column<int64_t>(move.to.offset)[lane] * bits(target.dtype) / 8;
  Instr signal = instr;
  signal.index = move.mbarrier;
  Mbarrier& mbarrier = mbarrier_of(signal, lane, owner);
  Mbarrier::Copy& copy = mbarrier.copies.emplace_back();
  copy.to = owner.shared_ + target.shared_offset + to;
  copy.bytes = static_cast<int64_t>(box.size());
  copy.statement = instr.statement;
  copy.thread = number(lane);
  copy.box = box;
  if (move.tensor < 0) copy.map = place_of_map(move.map_at, lane);
  if (move.multicast) {
    for (const Slot& coordinate : move.coordinates) {
      copy.first.push_back(column<int64_t>(coordinate)[lane]);
    }
    if (code_.checked) check_part(instr, move, lane, mbarrier);
    if (launch_.count && &owner != this) {
      ++counts_.cluster_requests;
      counts_.cluster_bytes += copy.bytes;
    }
  }
  owner.mark_in_flight(copy, instr.statement);
  if (shadow_) check_overwritten(instr, move.to, lane, owner);
  const Transfer& at = code_.mbarriers[static_cast<size_t>(move.mbarrier)].at;
  check_bytes(instr, lane, mbarrier, element_name(at, lane, 0, 1));
}

/// Traps if the last copy into `mbarrier`'s block is of another tile than the parts of other blocks there.
void Machine::check_part(const Instr& instr, const BoxMove& move, int lane,
                         const Mbarrier& mbarrier) const {
  const Mbarrier::Copy& mine = mbarrier.copies.back();
  for (const Mbarrier::Copy& other : mbarrier.copies) {
    const int64_t apart = mine.thread / kThreadsPerBlock - other.thread / kThreadsPerBlock;
    const bool is_part = other.statement == instr.statement && apart != 0 &&
                         mine.to - other.to == apart * mine.bytes;
    if (!is_part) continue;
    int differ = 0, wrong = 0;  // coordinates
    for (size_t d = 0; d < mine.first.size(); ++d) {
      const int64_t distance = mine.first[d] - other.first[d];
      differ += distance != 0 ? 1 : 0;
      wrong += distance != 0 && distance != apart * move.map->box[d] ? 1 : 0;
    }
    if (differ == 1 && wrong == 0) continue;
    const Array& tensor = *move.map->tensor;
    trap(instr, lane,
         {.code = "MULTICAST",
          .what = fmt::format("the blocks of the cluster copy parts of different tiles of '{}' to "
                              "'{}': this one from [{}], block {} from [{}]",
                              tensor.name, authors_name(*storage(move.to.storage).array),
                              fmt::join(mine.first, ", "), other.thread / kThreadsPerBlock,
                              fmt::join(other.first, ", ")),
          .argument = tensor.name,
          .expected = "neighbouring parts of one tile",
          .got = "others"});
  }
}

/// Traps where the hardware would fault.
void Machine::check_box(const Instr& instr, const BoxMove& move, int lane) const {
  const Array& tensor = *move.map->tensor;
  const Array& target = *storage(move.to.storage).array;
  const int64_t size = bits(tensor.dtype) / 8;
  const auto refuse = [&](std::string what, std::string expected, int64_t got) {
    trap(instr, lane,
         {.code = "TENSOR_MAP",
          .what = fmt::format(
              "{}: {}",
              move.to.is_load
                  ? fmt::format("a tensor store of '{}' to '{}'", authors_name(target), tensor.name)
                  : fmt::format("a tensor copy of '{}' to '{}'", tensor.name, authors_name(target)),
              what),
          .argument = tensor.name,
          .expected = std::move(expected),
          .got = fmt::format("{}", got)});
  };
  const int64_t align = move.map->swizzle > 0 ? 8 * move.map->swizzle : kLineBytes;
  const int64_t address = target.shared_offset + column<int64_t>(move.to.offset)[lane] * size;
  const bool has_whole_pattern = move.map->elements() / move.map->box.back() % 8 == 0;
  const int64_t wanted = has_whole_pattern ? align : kLineBytes;
  if (address % wanted != 0) {
    refuse(move.to.is_load ? "a source in the middle of its pattern"
                           : "a target in the middle of its pattern",
           fmt::format("a multiple of {} bytes", wanted), address);
  }
  for (const auto& coordinate : move.coordinates) {
    const int64_t first = column<int64_t>(coordinate)[lane];
    if (move.to.is_load && first < 0) refuse("a place before the tensor", "0 or more", first);
  }
  const int64_t inner = column<int64_t>(move.coordinates.back())[lane] * size;
  if (inner % kPieceBytes != 0) {
    refuse("the first column", "a multiple of 16 bytes", inner);
  }
  const std::vector<int64_t> strides = place_of(move, lane).strides;
  for (size_t d = 0; d + 1 < strides.size(); ++d) {
    const int64_t stride = strides[d] * size;
    if (stride % kPieceBytes == 0) continue;
    refuse(fmt::format("the stride of dimension {}", d), "a multiple of 16 bytes", stride);
  }
}

BoxPlace Machine::place_of(const BoxMove& move, int lane) const {
  BoxPlace place;
  place.box = move.map->box;
  for (const Slot& first : move.coordinates) place.first.push_back(column<int64_t>(first)[lane]);
  if (move.tensor < 0) {
    const WrittenMap& map = written_maps_.at(place_of_map(move.map_at, lane));
    place.extents = map.extents;
    place.strides = map.strides;
    return place;
  }
  for (const Slot& extent : move.extents) place.extents.push_back(uniform<int64_t>(extent));
  for (const Slot& stride : move.strides) place.strides.push_back(uniform<int64_t>(stride));
  return place;
}

/// The box of a thread as it lies in shared memory; zeros outside of the tensor.
std::vector<std::byte> Machine::read_box(const Instr& instr, const BoxMove& move, int lane) {
  const Counts before = counts_;
  const Array& tensor = *move.map->tensor;
  const Array& target = *storage(move.to.storage).array;
  const TensorMap& map = *move.map;
  const auto size = static_cast<int64_t>(bits(tensor.dtype) / 8);
  const std::byte* const base =
      move.tensor < 0 ? written_maps_.at(place_of_map(move.map_at, lane)).base
                      : launch_.memory[static_cast<size_t>(storage(move.tensor).param)].data;
  const int64_t start = target.shared_offset + column<int64_t>(move.to.offset)[lane] * size;
  std::vector<std::byte> box(static_cast<size_t>(map.elements() * size));
  int64_t read = 0;
  const auto read_row = [&](int64_t row, int64_t begin, int64_t end, int64_t element) {
    if (base == nullptr) return;
    for (int64_t c = begin; c < end; ++c) {
      const int64_t to = swizzled(start + (row * map.box.back() + c) * size, map.swizzle) - start;
      std::memcpy(box.data() + to, base + (element + c - begin) * size, static_cast<size_t>(size));
    }
    const int64_t first_byte = element * size, end_byte = first_byte + (end - begin) * size;
    counts_.global_load_sectors += (end_byte - 1) / kSectorBytes - first_byte / kSectorBytes + 1;
    read += end_byte - first_byte;
  };
  for_each_row_inside(place_of(move, lane), read_row);
  ++counts_.global_load_requests;
  counts_.global_load_least_sectors += (read + kSectorBytes - 1) / kSectorBytes;
  counts_.global_load_bytes += read;
  note_access(instr, move.global, before);
  return box;
}

}  // namespace tessera::codegen::cpu
