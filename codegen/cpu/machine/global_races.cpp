// Traps on global memory: races of the threads of one cluster. Tells GridShadow of the accesses of each block.

#include <cstring>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {

void Machine::check_global(const Instr& instr, const Transfer& transfer, const std::byte* base) {
  const Storage& memory = storage(transfer.storage);
  if (!boxes_.empty()) check_in_memory(instr, transfer);
  const Way way = way_of(transfer);
  const int64_t element_bits = bits(memory.array->dtype);
  const int64_t* offsets = column<int64_t>(transfer.offset);
  const bool has_param = !memory.base;  // GridShadow knows memory by its parameter
  if (launch_.grid_shadow != nullptr && has_param) {
    for_each_lane(mask(), [&](int lane) {
      const int64_t first = offsets[lane] * element_bits / 8;
      const int64_t end = ((offsets[lane] + transfer.width) * element_bits + 7) / 8;
      launch_.grid_shadow->note(memory.param, first, end - first, way, block_number_,
                                instr.statement, current_thread(lane));
    });
  }
  if (!memory.ways.may_race()) return;
  const int granule = neighbours_.global_shadow->granule();
  const Columns values = way == Way::written ? columns(instr, transfer) : Columns{};
  for_each_lane(mask(), [&](int lane) {
    const int64_t first_bit = offsets[lane] * element_bits;
    const int64_t end = (first_bit + transfer.width * element_bits + 7) / 8;
    for (int64_t byte = first_bit / 8; byte < end; byte += granule) {
      const int64_t bit = byte * 8 - first_bit;  // of the access
      const auto conflict = note_global(
          base + byte, way, lane, instr.statement,
          way == Way::written ? stored_bits(transfer, values, lane, bit) : std::nullopt);
      if (!conflict) continue;
      const auto element = static_cast<int>(std::max<int64_t>(bit / element_bits, 0));
      trap_race(instr, transfer, lane, element_name(transfer, lane, element, 1), *conflict);
    }
  });
}

std::optional<Conflict> Machine::note_global(const std::byte* at, Way way, int lane,
                                             int32_t statement, std::optional<uint64_t> value) {
  GlobalShadow& shadow = *neighbours_.global_shadow;
  if (way == Way::read) return shadow.read(at, number(lane), statement);
  if (way == Way::changed) return shadow.atomic(at, number(lane), statement);
  return shadow.write(at, number(lane), statement, value);
}

std::optional<uint64_t> Machine::stored_bits(const Transfer& transfer, const Columns& values,
                                             int lane, int64_t bit) const {
  const int64_t element_bits = bits(storage(transfer.storage).array->dtype);
  const int64_t element = bit / element_bits;
  uint64_t result = 0;
  if (element_bits >= 8) {
    const std::byte* const from =
        values.data + element * values.stride + lane * element_bits / 8 + bit % element_bits / 8;
    std::memcpy(&result, from, static_cast<size_t>(neighbours_.global_shadow->granule()));
    return result;
  }
  if (bit < 0 || element + 1 >= transfer.width) return std::nullopt;  // half of a byte
  const auto code = [&](int64_t i) {
    return static_cast<uint64_t>(values.data[i * values.stride + lane]) & 0xF;
  };
  return code(element) | code(element + 1) << 4;
}

}  // namespace tessera::codegen::cpu
