#pragma once
// Detects races between the blocks of a grid and reports them.

#include <array>
#include <optional>
#include <span>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {

/// The races of one launch. Found when all blocks have reached a grid barrier or their end, so that
/// the error does not depend on which ran first.
class GridRaces {
 public:
  GridRaces(const Program& program, const Bytecode& bytecode, std::span<const Argument> arguments,
            const Launch& launch, const std::array<int64_t, 3>& grid);

  GridShadow* shadow() { return &shadow_; }
  /// Null: no atomics order blocks.
  BlockOrder* order() { return order_ ? &*order_ : nullptr; }
  /// All blocks have arrived. Throws Error of kind trap, code RACE.
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
