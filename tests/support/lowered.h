#pragma once
// Lowered kernels in tests: what they consist of, and their results on the executor.

#include <string>
#include <variant>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "codegen/thread_ir/walk.h"
#include "tests/support/host_tensor.h"
#include "tests/support/product_kernel.h"

namespace tessera::test {

/// Statements of one kind, at any depth.
template <class Node>
int64_t count_in(const codegen::Program& program) {
  int64_t count = 0;
  codegen::walk(program.body, [&](const codegen::Stmt& stmt) {
    count += std::holds_alternative<Node>(stmt.node);
  });
  return count;
}

/// The section "copies" of what explain() says.
std::string copies_of(const ir::Kernel& kernel, Target target = kSm90a);

/// All traps; sm_90a multiplies by its own arithmetic.
codegen::cpu::Options all_traps(Target target, uint32_t schedule = 0,
                                codegen::cpu::Counts* counts = nullptr);

/// Runs the kernel as it is lowered for the target.
void run_lowered(const ir::Kernel& kernel, const std::vector<codegen::cpu::Argument>& arguments,
                 Target target, uint32_t schedule = 0, codegen::cpu::Counts* counts = nullptr);

/// A call of a kernel with the parameters a [m, depth], b [n, depth] and c [m, n]: a and b are random numbers in bf16,
/// the same for the same extents.
struct ProductCall {
  int64_t m = 0, n = 0, depth = 0;
  DType dtype = DType::f32;  // of c

  /// c, from the executor. Elements around it stay as they were.
  HostTensor run(const codegen::Program& program, const codegen::cpu::Options& options) const;
  HostTensor run(const ir::Kernel& kernel, Target target, uint32_t schedule = 0) const;
  /// c, from the first GPU.
  HostTensor run_on_gpu(const ir::Kernel& kernel) const;
  /// Both have the same bits for sm_90a.
  void check_on_gpu(const ir::Kernel& kernel) const;

 private:
  HostTensor operand(int64_t rows, uint64_t seed) const;
};

/// The call of a test kernel: StagedProduct, ClusterProduct.
template <class P>
ProductCall call_of(const P& p, DType dtype = DType::f32) {
  return {p.m, p.n, p.depth, dtype};
}

}  // namespace tessera::test
