// Loads and stores: between memory, one address per thread, and columns, one value per thread. Operations on
// registers, which are columns.

#include <cstring>

#include "codegen/cpu/machine/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

template <class T>
struct Tile {
  T* columns;
  int64_t stride;  // elements between columns
  int width;
};

template <class T>
void load_lanes(const Mask& mask, const T* base, const int64_t* offsets, Tile<T> to) {
  for_each_lane(mask, [&](int lane) {
    const T* from = base + offsets[lane];
    for (int i = 0; i < to.width; ++i) to.columns[i * to.stride + lane] = from[i];
  });
}

template <class T>
void store_lanes(const Mask& mask, T* base, const int64_t* offsets, Tile<T> from) {
  for_each_lane(mask, [&](int lane) {
    T* to = base + offsets[lane];
    for (int i = 0; i < from.width; ++i) to[i] = from.columns[i * from.stride + lane];
  });
}

/// e2m1: offsets count 4-bit elements, the even one is the low nibble.
void load_nibbles(const Mask& mask, const uint8_t* base, const int64_t* offsets, Tile<uint8_t> to) {
  for_each_lane(mask, [&](int lane) {
    for (int i = 0; i < to.width; ++i) {
      const int64_t element = offsets[lane] + i;
      const int shift = (element & 1) != 0 ? 4 : 0;
      to.columns[i * to.stride + lane] = static_cast<uint8_t>((base[element >> 1] >> shift) & 0xF);
    }
  });
}

void store_nibbles(const Mask& mask, uint8_t* base, const int64_t* offsets, Tile<uint8_t> from) {
  for_each_lane(mask, [&](int lane) {
    for (int i = 0; i < from.width; ++i) {
      const int64_t element = offsets[lane] + i;
      const int shift = (element & 1) != 0 ? 4 : 0;
      uint8_t& byte = base[element >> 1];
      const int code = from.columns[i * from.stride + lane] & 0xF;
      byte = static_cast<uint8_t>((byte & (0xF0 >> shift)) | (code << shift));
    }
  });
}

template <class T>
void move_elements(const Mask& mask, bool is_load, std::byte* base, const int64_t* offsets,
                   std::byte* columns, int64_t stride, int width) {
  auto* memory = reinterpret_cast<T*>(base);
  const Tile<T> tile{reinterpret_cast<T*>(columns), stride / static_cast<int64_t>(sizeof(T)),
                     width};
  if (is_load) {
    load_lanes<T>(mask, memory, offsets, tile);
  } else {
    store_lanes<T>(mask, memory, offsets, tile);
  }
}

}  // namespace

void Machine::transfer(const Instr& instr) {
  const Transfer& transfer = code_.transfers[static_cast<size_t>(instr.index)];
  const Storage& memory = storage(transfer.storage);
  const Array& array = *memory.array;
  if (array.space == ArraySpace::registers) {
    transfer_registers(instr, transfer);
    return;
  }
  std::byte* base = memory_of(instr, transfer);
  if (code_.checked) check_transfer(instr, transfer, base);
  if (launch_.count) count_transfer(instr, transfer);
  if (transfer.matrices > 0) {
    if (code_.checked) check_whole_warps(instr, "a matrix load");
    load_matrices(transfer, base);
    return;
  }

  const Columns values = columns(instr, transfer);
  const int64_t* offsets = column<int64_t>(transfer.offset);
  if (array.dtype == DType::e2m1) {
    auto* codes = reinterpret_cast<uint8_t*>(base);
    const Tile<uint8_t> tile{reinterpret_cast<uint8_t*>(values.data), values.stride,
                             transfer.width};
    transfer.is_load ? load_nibbles(mask(), codes, offsets, tile)
                     : store_nibbles(mask(), codes, offsets, tile);
  } else {
    const auto move = [&](auto element) {
      move_elements<decltype(element)>(mask(), transfer.is_load, base, offsets, values.data,
                                       values.stride, transfer.width);
    };
    switch (bytes(array.dtype)) {
      case 1:
        move(uint8_t{});
        break;
      case 2:
        move(uint16_t{});
        break;
      case 4:
        move(uint32_t{});
        break;
      default:
        move(uint64_t{});
        break;
    }
  }
  if (!code_.checked || transfer.value) return;
  const int64_t first = uniform<int64_t>(transfer.range.base);
  for (int i = 0; i < transfer.width && transfer.is_load; ++i) {
    mark_initialised(storage(transfer.range.storage), first + i);
  }
}

std::byte* Machine::memory_of(const Instr& instr, const Transfer& transfer) const {
  const Storage& memory = storage(transfer.storage);
  const Array& array = *memory.array;
  if (array.space != ArraySpace::global) return shared_ + shared_start(array);
  if (memory.base) return frame_;  // offsets count from here, see pointer()
  std::byte* base = launch_.memory[static_cast<size_t>(memory.param)].data;
  if (base == nullptr) {
    trap(instr, mask().begin,
         {.code = "NULL_TENSOR",
          .what = array.name + " is null and accessed",
          .argument = array.name,
          .expected = "memory",
          .got = "null"});
  }
  return base;
}

void Machine::transfer_registers(const Instr& instr, const Transfer& transfer) {
  const Storage& array = storage(transfer.storage);
  const Columns values = columns(instr, transfer);
  const int size = bytes(array.array->dtype);
  const bool to_slice = transfer.is_load && !transfer.value;
  const auto move = [&](int64_t element, int i, const auto& copy) {
    std::byte* registers = register_column(instr, array, element);
    std::byte* column = values.data + i * values.stride;
    if (code_.checked && transfer.is_load) check_initialised(instr, array, element);
    copy(transfer.is_load ? column : registers, transfer.is_load ? registers : column);
    if (!code_.checked) return;
    if (!transfer.is_load) mark_initialised(array, element);
    if (to_slice) {
      mark_initialised(storage(transfer.range.storage), uniform<int64_t>(transfer.range.base) + i);
    }
  };
  if (transfer.offset.uniform) {
    for (int i = 0; i < transfer.width; ++i) {
      move(uniform<int64_t>(transfer.offset) + i, i,
           [&](std::byte* to, const std::byte* from) { copy_column(to, from, size); });
    }
    return;
  }
  // Threads index the array differently, so each runs alone.
  const Mask all = mask();
  for_each_lane(all, [&](int lane) {
    Mask& alone = cursor_->mask();
    alone.begin = lane;
    alone.end = lane + 1;
    alone.count = 1;
    for (int i = 0; i < transfer.width; ++i) {
      move(column<int64_t>(transfer.offset)[lane] + i, i,
           [&](std::byte* to, const std::byte* from) { copy_column(to, from, size); });
    }
  });
  cursor_->mask() = all;
}

void Machine::copy_column(std::byte* to, const std::byte* from, int bytes) const {
  const Mask& active = mask();
  const auto size = static_cast<size_t>(bytes);
  if (active.dense()) {
    const auto first = static_cast<size_t>(active.begin) * size;
    std::memmove(to + first, from + first, static_cast<size_t>(active.count) * size);
    return;
  }
  for_each_lane(active, [&](int lane) {
    const auto place = static_cast<size_t>(lane) * size;
    std::memcpy(to + place, from + place, size);
  });
}

Machine::Columns Machine::columns(const Instr& instr, const Transfer& transfer) const {
  if (transfer.value) return {at(transfer.value), 0};
  return columns(instr, transfer.range, transfer.width);
}

Machine::Columns Machine::columns(const Instr& instr, const SlotRange& range, int width) const {
  const Storage& registers = storage(range.storage);
  const int64_t first = uniform<int64_t>(range.base);
  register_column(instr, registers, first + width - 1);
  return {register_column(instr, registers, first), registers.stride};
}

std::byte* Machine::register_column(const Instr& instr, const Storage& storage,
                                    int64_t element) const {
  const Array& array = *storage.array;
  if (element < 0 || element >= array.size) {
    trap(instr, mask().begin,
         {.code = "OOB",
          .what = array.name + "[" + std::to_string(element) + "] is out of bounds: extent " +
                  std::to_string(array.size),
          .argument = array.name,
          .expected = "an index below " + std::to_string(array.size),
          .got = std::to_string(element)});
  }
  return frame_ + storage.offset + element * storage.stride;
}

void Machine::declare(const Storage& storage) {
  const int64_t elements = storage.array->size;
  if (storage.zero) {
    std::memset(frame_ + storage.offset, 0, static_cast<size_t>(elements * storage.stride));
  }
  if (code_.checked && elements > 0) {
    const auto column_bytes = initialised_column(storage, 1) - initialised_column(storage, 0);
    std::memset(initialised_column(storage, 0), storage.zero ? 1 : 0,
                static_cast<size_t>(elements * column_bytes));
  }
}

void Machine::lanewise(const Instr& instr) {
  const Lanewise& step = code_.lanewise[static_cast<size_t>(instr.index)];
  const Storage& into = storage(step.into.storage);
  const int64_t into_base = uniform<int64_t>(step.into.base);
  const Mask& active = mask();
  const int into_size = bytes(into.array->dtype);
  bool direct = active.dense();
  for (const SlotRange& arg : step.args) direct = direct && arg.storage != step.into.storage;
  for (int i = 0; i < step.width; ++i) {
    std::byte* to = register_column(instr, into, into_base + i);
    const std::byte* values[3] = {};
    for (size_t k = 0; k < step.args.size(); ++k) {
      const Storage& from = storage(step.args[k].storage);
      const int64_t element = uniform<int64_t>(step.args[k].base) + i;
      values[k] = register_column(instr, from, element) + active.begin * bytes(from.array->dtype);
      if (code_.checked) check_initialised(instr, from, element);
    }
    std::byte* result = direct ? to : at(instr.out);
    step.op(result + active.begin * into_size, values[0], values[1], values[2],
            active.end - active.begin);
    if (!direct) copy_column(to, result, into_size);
    if (code_.checked) mark_initialised(into, into_base + i);
  }
}

}  // namespace tessera::codegen::cpu
