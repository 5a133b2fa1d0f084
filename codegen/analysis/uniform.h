#pragma once
// Which values are the same for all threads of a block, or of the whole grid.

#include <set>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Computed from parameters, block indices (unless over the grid) and loop indices alone, or read
/// from memory that nobody writes at an address that is.
class UniformValues {
 public:
  enum class Over : uint8_t { block, grid };
  explicit UniformValues(const Program& program, Over over = Over::block);
  bool operator()(const Expr& e) const;

 private:
  Over over_;
  std::set<const ir::Var*> values_;
  std::set<const ir::Var*> varying_loops_;  // with bounds that differ between threads
};

}  // namespace tessera::codegen
