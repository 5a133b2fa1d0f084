// Machine: the timeline of a block, in steps of its warps.
//
// Each warp counts its steps: a step is an access to memory, an exchange, a barrier, an operation on floats of all lanes,
// or 8 columns of a matrix product. Registers, indices and conditions are free. The threads of a group run in lockstep
// here, but a warp that a condition leaves out counts nothing. Where warps wait for each other, each goes on at the step
// of the last one to arrive, as Lamport's clocks do: at barriers, at mbarriers (an arrival leaves its step there, a wait
// takes it), and so at the stages of rings. The steps depend on the program and its data alone, not on the order in which
// roles take turns.
//
// They are no time: copies and products in the background are there at once, and blocks of other clusters cost nothing.

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

int64_t steps_of(const Bytecode& code, const Instr& instr) {
  switch (instr.code) {
    case Code::compute:
      return !instr.out.uniform && is_float(instr.out.type) ? 1 : 0;
    case Code::start_product:
      return code.group_products[static_cast<size_t>(instr.index)].node.columns() / 8;
    case Code::load:
    case Code::store: {
      const int array = code.transfers[static_cast<size_t>(instr.index)].storage;
      return code.arrays[static_cast<size_t>(array)].array->space == ArraySpace::registers ? 0 : 1;
    }
    case Code::atomic:
    case Code::extern_call:
    case Code::lanewise:
    case Code::multiply:
    case Code::await_products:
    case Code::async_copy:
    case Code::async_wait:
    case Code::mbarrier_arrive:
    case Code::mbarrier_wait:
    case Code::bulk_copy:
    case Code::tensor_copy:
    case Code::write_map:
    case Code::tensor_store:
    case Code::await_stores:
    case Code::barrier:
    case Code::named_barrier:
    case Code::warp_barrier:
    case Code::collective:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

void Machine::mark(const Instr& instr) const {
  if (launch_.marks == nullptr || program_.marked_block != block_number_) return;
  for_each_lane(mask(), [&](int lane) {
    if (lane % kWarpSize != 0) return;
    const auto warp = static_cast<size_t>(lane / kWarpSize);
    WarpMarks& noted = (*launch_.marks)[warp];
    if (noted.marks.size() < WarpMarks::kMost) {
      noted.marks.push_back({instr.index, steps_.of(lane / kWarpSize)});
    } else {
      ++noted.dropped;
    }
  });
}

void Machine::count_steps(const Instr& instr) {
  const int64_t cost = steps_of(code_, instr);
  if (cost == 0) return;
  steps_.add(mask(), cost);
  if (instr.code == Code::barrier) steps_.go_on_at(mask(), last_step());
}

}  // namespace tessera::codegen::cpu
