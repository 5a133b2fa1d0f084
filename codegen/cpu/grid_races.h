#pragma once
// Races between the blocks of a grid: what to look at, and the error.

#include <array>
#include <optional>
#include <span>

#include "codegen/cpu/machine.h"

namespace tessera::codegen::cpu {

/// Of one launch. Found when all blocks have come to a barrier of the grid, or to their end, so that
/// the error does not depend on which of them ran first.
class GridRaces {
 public:
  GridRaces(const Program& program, const Bytecode& bytecode, std::span<const Argument> arguments,
            const Launch& launch, const std::array<int64_t, 3>& grid);

  GridShadow* shadow() { return &shadow_; }
  /// Null: no atomics order blocks.
  BlockOrder* order() { return order_ ? &*order_ : nullptr; }
  /// All blocks have come. Throws Error of kind trap, code RACE.
  void meet();

 private:
  std::string block_name(int64_t block) const;
  std::string element_name(const GridConflict& conflict) const;

  const Program& program_;
  const Bytecode& code_;
  std::span<const Argument> arguments_;
  std::array<int64_t, 3> grid_;
  std::optional<BlockOrder> order_;
  GridShadow shadow_;
};

}  // namespace tessera::codegen::cpu
