#pragma once
// The state that the blocks of one cluster share in the executor.

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "codegen/cpu/compiler/bytecode.h"
#include "codegen/cpu/races/global_shadow.h"
#include "codegen/cpu/races/warp_clocks.h"

namespace tessera::codegen::cpu {

class Machine;

/// The number of mbarriers of a block.
int num_mbarriers(const Program& program);

struct Neighbours {
  Neighbours(const Program& program, const Bytecode& bytecode);

  /// Goes to the start of a cluster.
  void start();

  std::vector<Machine*> blocks;  // by rank
  WarpClocks clocks;
  bool have_met = false;  // at a cluster barrier: before, some may not have begun
  std::optional<GlobalShadow> global_shadow;  // checked programs
  /// By element: the accesses that acq_rel atomics released to threads of this cluster. Checked programs only.
  std::map<const std::byte*, WarpClocks::VectorClock> released;
};

}  // namespace tessera::codegen::cpu
