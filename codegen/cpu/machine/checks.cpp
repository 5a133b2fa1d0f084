// Traps: operations that would be undefined, wrong or unrepeatable on the GPU stop the program and
// name the author's line.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "codegen/cpu/machine/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

/// False if an active lane fails the test, or possibly if an inactive one does. Branch-free, so that
/// the compiler vectorises it.
template <class F>
bool all_lanes_hold(const Mask& mask, const F& test) {
  unsigned failed = 0;
  for (int lane = mask.begin; lane < mask.end; ++lane) failed |= test(lane) ? 0U : 1U;
  return failed == 0;
}

}  // namespace

void Machine::trap(const Instr& instr, int lane, Fault fault) const {
  throw Error({.kind = ErrorKind::trap,
               .op = program_.name,
               .what = fmt::format("{} (thread {}, block ({}, {}, {}))", fault.what, lane,
                                   block_[0], block_[1], block_[2]),
               .argument = std::move(fault.argument),
               .expected = std::move(fault.expected),
               .got = std::move(fault.got),
               .hint = std::move(fault.hint),
               .code = fault.code,
               .loc = code_.locs[static_cast<size_t>(instr.statement)],
               .related = code_.locs[static_cast<size_t>(fault.related)]});
}

std::string Machine::element_name(const Array& array, const std::vector<Slot>& indices,
                                  int lane) const {
  std::vector<int64_t> values;
  for (const Slot& index : indices) values.push_back(column<int64_t>(index)[lane]);
  return fmt::format("{}[{}]", authors_name(array), fmt::join(values, ", "));
}

std::string Machine::register_name(const Array& array, int64_t element, int lane) {
  std::optional<std::vector<int64_t>> indices;
  if (array.layout) {
    indices = array.layout->element(lane, element);
  } else if (!array.shape.empty()) {
    indices.emplace(array.shape.size());
    int64_t rest = element;
    for (size_t d = array.shape.size(); d-- > 0;) {
      (*indices)[d] = rest % array.shape[d]->integer;
      rest /= array.shape[d]->integer;
    }
  }
  if (indices) return fmt::format("{}[{}]", authors_name(array), fmt::join(*indices, ", "));
  return array.size == 1 ? authors_name(array)
                         : fmt::format("{}[{}]", authors_name(array), element);
}

std::string Machine::element_name(const Transfer& transfer, int lane, int first, int width) const {
  const Array& array = *storage(transfer.storage).array;
  std::string text = authors_name(array) + "[";
  int64_t last_index = column<int64_t>(transfer.offset)[lane];
  if (!transfer.indices.empty()) {
    const auto hidden = static_cast<size_t>(array.num_version_dims);
    for (size_t i = hidden; i + 1 < transfer.indices.size(); ++i) {
      text += fmt::format("{}, ", column<int64_t>(transfer.indices[i])[lane]);
    }
    last_index = column<int64_t>(transfer.indices.back())[lane];
  }
  text += fmt::format("{}", last_index + first);
  if (width > 1) text += fmt::format("..{}", last_index + first + width - 1);
  return text + "]";
}

void Machine::check_overflow(const Instr& instr) const {
  const Expr& e = code_.expressions[static_cast<size_t>(instr.index)];
  const auto* a = column<int32_t>(instr.args[0]);
  const auto* b = column<int32_t>(instr.args[1]);
  const auto check = [&](int lane, int place, int64_t exact) {
    if (exact == static_cast<int32_t>(exact)) return;
    trap(instr, lane,
         {.code = "INDEX_OVERFLOW",
          .what =
              fmt::format("i32 overflow in {}: {}",
                          instr.target == 0 ? "an index" : "what cannot overflow, a bug in Tessera",
                          to_string(e)),
          .expected = "a value that fits i32",
          .got = fmt::format("{} of {} and {} = {}", name(e->op), a[place], b[place], exact)});
  };
  const auto check_all = [&](const auto& exact_of) {
    const auto exact = [&](int place) { return exact_of(int64_t{a[place]}, int64_t{b[place]}); };
    if (instr.out.uniform) return check(mask().begin, 0, exact(0));
    const auto fits = [&](int lane) { return exact(lane) == static_cast<int32_t>(exact(lane)); };
    if (all_lanes_hold(mask(), fits)) return;
    for_each_lane(mask(), [&](int lane) { check(lane, lane, exact(lane)); });
  };
  if (e->op == ir::Op::add) {
    check_all([](int64_t x, int64_t y) { return x + y; });
  } else if (e->op == ir::Op::sub) {
    check_all([](int64_t x, int64_t y) { return x - y; });
  } else {
    check_all([](int64_t x, int64_t y) { return x * y; });
  }
}

void Machine::check_divisor(const Instr& instr) const {
  const Slot divisor = instr.args[0];
  const int size = bytes(divisor.type);
  const auto check = [&](int lane, int place) {
    const std::byte* value = at(divisor) + place * size;
    if (std::any_of(value, value + size, [](std::byte b) { return b != std::byte{0}; })) return;
    trap(instr, lane,
         {.code = "DIV_BY_ZERO",
          .what = fmt::format("division by zero: {}",
                              to_string(code_.expressions[static_cast<size_t>(instr.index)])),
          .expected = "a divisor that is not 0",
          .got = "0"});
  };
  if (divisor.uniform) {
    check(mask().begin, 0);
  } else {
    for_each_lane(mask(), [&](int lane) { check(lane, lane); });
  }
}

void Machine::check_uniform(const Instr& instr) const {
  const Slot slot = instr.args[0];
  const auto size = static_cast<size_t>(bytes(slot.type));
  const auto value = [&](int lane) {
    uint64_t bits = 0;
    std::memcpy(&bits, at(slot) + static_cast<size_t>(lane) * size, size);
    return bits;
  };
  int first = mask().end;
  for_each_lane(mask(), [&](int lane) { first = std::min(first, lane); });
  for_each_lane(mask(), [&](int lane) {
    if (value(lane) == value(first)) return;
    trap(instr, lane,
         {.code = "UNIFORM",
          .what = fmt::format("'{}' differs between threads of the block",
                              to_string(code_.expressions[static_cast<size_t>(instr.index)])),
          .expected = fmt::format("the bits {:#x}, as in thread {}", value(first), first),
          .got = fmt::format("{:#x}", value(lane))});
  });
}

void Machine::check_indices(const Instr& instr) const {
  const IndexCheck& check = code_.index_checks[static_cast<size_t>(instr.index)];
  for (const IndexCheck::Range& range : check.ranges) {
    const int64_t* index = column<int64_t>(range.index);
    const int64_t* begin = column<int64_t>(range.begin);
    const int64_t* extent = column<int64_t>(range.extent);
    if (all_lanes_hold(mask(), [&](int lane) {
          return (index[lane] >= begin[lane]) & (index[lane] - begin[lane] < extent[lane]);
        })) {
      continue;
    }
    for_each_lane(mask(), [&](int lane) {
      if (index[lane] >= begin[lane] && index[lane] - begin[lane] < extent[lane]) return;
      const std::string element = element_name(*check.array, check.indices, lane);
      const bool is_tile = range.dim < 0;
      const std::string which =
          is_tile ? "an index of the tile" : fmt::format("index {}", range.dim);
      trap(instr, lane,
           {.code = "OOB",
            .what = is_tile ? element + " is outside of the tile that is indexed"
                            : fmt::format("{} is out of bounds: extent {}", element, extent[lane]),
            .argument = authors_name(*check.array),
            .expected = fmt::format("{} in [0, {}]", which, extent[lane] - 1),
            .got = fmt::format("{}", index[lane] - begin[lane])});
    });
  }
}

void Machine::check_transfer(const Instr& instr, const Transfer& transfer, const std::byte* base) {
  const Array& array = *storage(transfer.storage).array;
  if (array.read_only && (!transfer.is_load || transfer.atomic >= 0)) {
    trap(instr, mask().begin,
         {.code = "WRITE_READ_ONLY",
          .what = authors_name(array) + " is written, but declared read-only",
          .argument = authors_name(array)});
  }
  const bool adds_run = transfer.atomic >= 0 && transfer.width > 1;
  if (adds_run || (!transfer.is_load && !transfer.value)) {
    const SlotRange& from =
        adds_run ? code_.atomics[static_cast<size_t>(transfer.atomic)].from : transfer.range;
    const int64_t first = uniform<int64_t>(from.base);
    for (int i = 0; i < transfer.width; ++i) {
      check_initialised(instr, storage(from.storage), first + i);
    }
  }
  check_bounds(instr, transfer);
  check_span(instr, transfer, base);
  if (array.space == ArraySpace::global) check_global(instr, transfer, base);
  if (array.space == ArraySpace::shared) check_shared(instr, transfer);
  if (array.space == ArraySpace::cluster) check_cluster_access(instr, transfer);
}

/// Checks logical indices against the declared shape. A vector runs along the last dimension.
void Machine::check_bounds(const Instr& instr, const Transfer& transfer) const {
  const Storage& memory = storage(transfer.storage);
  const size_t rank = std::min(transfer.indices.size(), memory.extents.size());
  for (size_t i = 0; i < rank; ++i) {
    const int64_t* indices = column<int64_t>(transfer.indices[i]);
    const int64_t extent = uniform<int64_t>(memory.extents[i]);
    const int64_t highest = extent - (i + 1 == transfer.indices.size() ? transfer.width : 1);
    if (all_lanes_hold(
            mask(), [&](int lane) { return (indices[lane] >= 0) & (indices[lane] <= highest); })) {
      continue;
    }
    for_each_lane(mask(), [&](int lane) {
      if (indices[lane] >= 0 && indices[lane] <= highest) return;
      trap(instr, lane,
           {.code = "OOB",
            .what = fmt::format("{} is out of bounds: extent {}",
                                element_name(transfer, lane, 0, transfer.width), extent),
            .argument = authors_name(*memory.array),
            .expected = fmt::format("index {} in [0, {}]",
                                    static_cast<int>(i) - memory.array->num_version_dims, highest),
            .got = fmt::format("{}", indices[lane])});
    });
  }
}

/// Checks addresses against the memory of the array, independently of logical indices, and against
/// the alignment of the access size.
void Machine::check_span(const Instr& instr, const Transfer& transfer,
                         const std::byte* base) const {
  const Storage& memory = storage(transfer.storage);
  const Array& array = *memory.array;
  const int64_t element_bits = bits(array.dtype);
  const int64_t access_bits = transfer.width * element_bits;
  const int64_t align_bits = transfer.is_bulk ? 128 : access_bits;
  const bool is_global = array.space == ArraySpace::global;
  const bool unknown = is_global && memory.base;  // its size is not known
  const int64_t span_bits = unknown ? 0
                            : is_global
                                ? launch_.memory[static_cast<size_t>(memory.param)].bytes * 8
                                : array.size * element_bits;
  const int64_t last_element = (span_bits - access_bits) / element_bits;
  // The position of `base` in bits, modulo any access size.
  const auto base_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(base) % 4096) * 8;
  const int64_t* offsets = column<int64_t>(transfer.in_owner ? transfer.in_owner : transfer.offset);
  const int64_t low_bits = align_bits - 1;
  if ((align_bits & low_bits) == 0 && all_lanes_hold(mask(), [&](int lane) {
        const int64_t element = offsets[lane];
        const bool inside = (element >= 0) & (access_bits <= span_bits) & (element <= last_element);
        return (unknown | inside) & (((base_bits + element * element_bits) & low_bits) == 0);
      })) {
    return;
  }
  for_each_lane(mask(), [&](int lane) {
    const int64_t element = offsets[lane];
    if (!unknown && (element < 0 || access_bits > span_bits || element > last_element)) {
      trap(instr, lane,
           {.code = "OOB",
            .what =
                fmt::format("{} is outside the memory of {}",
                            element_name(transfer, lane, 0, transfer.width), authors_name(array)),
            .argument = authors_name(array),
            .expected = fmt::format("{} of {} elements", transfer.width, span_bits / element_bits),
            .got = fmt::format("element offset {}", element)});
    }
    const int64_t misplaced = (base_bits + element * element_bits) % align_bits;
    if (misplaced == 0) return;
    const std::string size = access_bits % 8 == 0 ? fmt::format("{}-byte", access_bits / 8)
                                                  : fmt::format("{}-bit", access_bits);
    trap(instr, lane,
         {.code = "MISALIGNED",
          .what = fmt::format("{} is not aligned for a {} access",
                              element_name(transfer, lane, 0, transfer.width), size),
          .argument = authors_name(array),
          .expected = fmt::format("an address that is a multiple of {} bytes", align_bits / 8),
          .got = fmt::format("a remainder of {} bytes", misplaced / 8)});
  });
}

void Machine::check_initialised(const Instr& instr, const Storage& storage, int64_t element) const {
  register_column(instr, storage, element);  // bounds
  const uint8_t* flags = initialised_column(storage, element);
  const Mask& active = mask();
  const auto count = static_cast<size_t>(active.end - active.begin);
  if (std::memchr(flags + active.begin, 0, count) == nullptr) return;
  for_each_lane(active, [&](int lane) {
    if (flags[lane] != 0) return;
    trap(instr, lane,
         {.code = "UNINITIALISED",
          .what = register_name(*storage.array, element, lane) + " is read before it is written",
          .argument = authors_name(*storage.array)});
  });
}

uint8_t* Machine::initialised_column(const Storage& storage, int64_t element) const {
  const int64_t stride = (code_.threads + 63) / 64 * 64;
  return reinterpret_cast<uint8_t*>(frame_ + storage.initialised + element * stride);
}

void Machine::mark_initialised(const Storage& storage, int64_t element) {
  uint8_t* flags = initialised_column(storage, element);
  const Mask& active = mask();
  if (active.dense()) {
    std::memset(flags + active.begin, 1, static_cast<size_t>(active.count));
  } else {
    for_each_lane(active, [&](int lane) { flags[lane] = 1; });
  }
}

/// Traps unless every warp with an active thread is complete; then orders its threads.
void Machine::check_whole_warps(const Instr& instr, const char* what) const {
  const Mask& active = mask();
  for (int warp = active.begin / kWarpSize; warp * kWarpSize < active.end; ++warp) {
    const int first = warp * kWarpSize;
    const int last = std::min(first + kWarpSize, code_.threads);
    int count = 0;
    int missing = first;
    for (int lane = first; lane < last; ++lane) {
      const bool on = lane >= active.begin && lane < active.end && active.lanes[lane] != 0;
      count += on;
      if (!on) missing = lane;
    }
    if (count == 0) continue;
    if (count != last - first) {
      trap(instr, missing,
           {.code = "DIVERGENT_BARRIER",
            .what = fmt::format("{} is reached by {} of {} threads of warp {}; missing", what,
                                count, last - first, warp),
            .expected = fmt::format("all {} threads of the warp", last - first),
            .got = fmt::format("{} threads", count)});
    }
    neighbours_.clocks.warp_barrier(number(first) / kWarpSize);
  }
}

}  // namespace tessera::codegen::cpu
