#pragma once
// Exact counts by the executor of what the kernels of CPU calls did, for tools.

#include <string>
#include <vector>

#include "codegen/cpu/executor.h"

namespace tessera::kernels::jit {

struct KernelCounts {
  std::string kernel;
  codegen::cpu::Counts counts;
  std::vector<codegen::cpu::AccessCounts> accesses;  // in program order
};

/// While it lives, CPU calls made by this thread are counted: one entry per kernel run, in order.
/// Scopes nest; the innermost gets the counts.
///
/// Example: CountScope scope; per_token_cast(...); scope.kernels().front().counts.barriers
class CountScope {
 public:
  CountScope();
  ~CountScope();
  CountScope(const CountScope&) = delete;
  CountScope& operator=(const CountScope&) = delete;

  const std::vector<KernelCounts>& kernels() const { return kernels_; }

  void add(KernelCounts counts) { kernels_.push_back(std::move(counts)); }

 private:
  CountScope* outer_;
  std::vector<KernelCounts> kernels_;
};

}  // namespace tessera::kernels::jit
