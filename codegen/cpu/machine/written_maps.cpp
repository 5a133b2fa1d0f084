// Machine: tensor maps that the kernel writes to global memory, and their use by tensor copies.

#include <fmt/format.h>

#include "codegen/cpu/machine/box.h"
#include "codegen/cpu/machine/machine.h"
#include "codegen/cpu/machine/mbarrier.h"

namespace tessera::codegen::cpu {

const std::byte* Machine::place_of_map(const Transfer& at, int lane) const {
  const std::byte* const base = launch_.memory[static_cast<size_t>(storage(at.storage).param)].data;
  return base + column<int64_t>(at.offset)[lane] * bytes(storage(at.storage).array->dtype);
}

void Machine::write_map(const Instr& instr) {
  const MapStep& step = code_.map_steps[static_cast<size_t>(instr.index)];
  for_each_lane(mask(), [&](int lane) {
    const std::byte* const place = place_of_map(step.at, lane);
    for (const auto& [byte, mbarrier] : mbarriers_) {
      for (const Mbarrier::Copy& copy : mbarrier.copies) {
        if (copy.map != place) continue;
        trap(
            instr, lane,
            {.code = "TENSOR_MAP",
             .what = fmt::format("the map of '{}' is written while a tensor copy by the one before "
                                 "it is on its way",
                                 step.tensor->name),
             .argument = step.tensor->name,
             .expected = "another place, or a wait for the copy",
             .got = "a copy in flight",
             .related = copy.statement});
      }
    }
    WrittenMap map;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address is a value of the program
    map.base = reinterpret_cast<const std::byte*>(column<int64_t>(step.address)[lane]);
    for (const Slot& extent : step.extents) map.extents.push_back(column<int64_t>(extent)[lane]);
    for (const Slot& stride : step.strides) map.strides.push_back(column<int64_t>(stride)[lane]);
    map.statement = instr.statement;
    map.thread = number(lane);
    written_maps_[place] = std::move(map);
  });
}

/// Traps unless this thread has written the map of the copy.
void Machine::check_map(const Instr& instr, const BoxMove& move, int lane) const {
  const std::string& name = move.map->tensor->name;
  const auto found = written_maps_.find(place_of_map(move.map_at, lane));
  if (found == written_maps_.end()) {
    trap(instr, lane,
         {.code = "TENSOR_MAP",
          .what = fmt::format("a tensor copy of '{}' by a map that nothing has written", name),
          .argument = name,
          .expected = "a map that this thread has written",
          .got = "none"});
  }
  const WrittenMap& map = found->second;
  if (map.thread == number(lane)) return;
  trap(instr, lane,
       {.code = "TENSOR_MAP",
        .what = fmt::format("a tensor copy of '{}' by a map that another thread has written", name),
        .argument = name,
        .expected = "a map that this thread has written",
        .got = "a map of another thread",
        .related = map.statement});
}

}  // namespace tessera::codegen::cpu
