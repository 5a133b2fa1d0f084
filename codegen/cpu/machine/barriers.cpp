// Machine: barriers of all threads of a block or of a warp.

#include <fmt/format.h>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {

void Machine::barrier(const Instr& instr) {
  if (launch_.count) ++counts_.barriers;
  if (!code_.checked) return;
  check_whole_block(instr, "a barrier");
  neighbours_.clocks.block_barrier(rank_);
  const bool is_whole_cluster = program_.cluster == 1 && launch_.block_order != nullptr;
  if (is_whole_cluster) launch_.block_order->barrier(block_number_);
}

void Machine::check_whole_block(const Instr& instr, const char* what) const {
  const Mask& active = mask();
  // A role that comes as a whole may multiply; barriers of the block do not stand in one.
  const bool is_role = are_roles_running_ && instr.code == Code::start_product;
  if (is_role && active.count == cursor_->threads.count) return;
  if (active.count != code_.threads) {
    int missing = 0;
    while (missing >= active.begin && missing < active.end && active.lanes[missing] != 0) ++missing;
    trap(instr, missing,
         {.code = "DIVERGENT_BARRIER",
          .what = fmt::format("{} is reached by {} of {} threads; missing", what, active.count,
                              code_.threads),
          .expected = fmt::format("all {} threads of the block", code_.threads),
          .got = fmt::format("{} threads", active.count)});
  }
}

void Machine::warp_barrier(const Instr& instr) {
  if (launch_.count) counts_.warp_barriers += active_warps();
  if (!code_.checked) return;
  check_whole_warps(instr, "a warp barrier");
}

}  // namespace tessera::codegen::cpu
