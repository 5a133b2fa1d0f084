#pragma once
// Which values are the same for all threads of a block.

#include <set>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Computed from parameters, block indices and loop indices alone, or read from memory that nobody
/// writes at an address that is.
class UniformValues {
 public:
  explicit UniformValues(const Program& program);
  bool operator()(const Expr& e) const;

 private:
  std::set<const ir::Var*> values_;
  std::set<const ir::Var*> varying_loops_;  // with bounds that differ between threads
};

}  // namespace tessera::codegen
