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

inline constexpr Target kSm80{8, 0, 0}, kSm90{9, 0, 0}, kSm120a{12, 0, 'a'};

/// Statements of one kind, at any depth.
template <class Node>
int64_t count_in(const codegen::Program& program) {
  int64_t count = 0;
  codegen::walk(program.body, [&](const codegen::Stmt& stmt) {
    count += std::holds_alternative<Node>(stmt.node);
  });
  return count;
}
template <class Node>
int64_t count_in(const ir::Kernel& kernel, Target target = kSm90a) {
  return count_in<Node>(codegen::lower(kernel, target));
}

/// True for a fence that shows what threads have written to the tensor cores and the copy engine.
inline bool is_proxy_fence(const codegen::Stmt& stmt) {
  const auto* fence = std::get_if<codegen::Fence>(&stmt.node);
  return fence != nullptr && fence->of != codegen::Fence::Of::registers;
}

/// True for a matrix instruction of four warps, whose operands the tensor cores read in shared memory.
inline bool is_group_product(const codegen::Stmt& stmt) {
  const auto* mma = std::get_if<codegen::Mma>(&stmt.node);
  return mma != nullptr && mma->is_of_group();
}

/// The section "copies" of what explain() says.
std::string copies_of(const ir::Kernel& kernel, Target target = kSm90a);

/// Options with all traps. Products for sm_90a have the arithmetic of its tensor cores, others are exact.
codegen::cpu::Options all_traps(Target target, uint32_t schedule = 0,
                                codegen::cpu::Counts* counts = nullptr);

/// Lowers the kernel for the target and runs it on the executor with all traps.
void run_lowered(const ir::Kernel& kernel, const std::vector<codegen::cpu::Argument>& arguments,
                 Target target, uint32_t schedule = 0, codegen::cpu::Counts* counts = nullptr);

/// A call of a kernel with the parameters a bf16 [m, depth], b bf16 [n, depth] and c [m, n]. a and b are random
/// numbers, the same in every call of these extents.
struct ProductCall {
  int64_t m = 0, n = 0, depth = 0;
  DType dtype = DType::f32;  // of c

  /// c as the executor computes it. Checks that nothing around c has changed.
  HostTensor run(const codegen::Program& program, const codegen::cpu::Options& options) const;
  HostTensor run(const ir::Kernel& kernel, Target target, uint32_t schedule = 0) const;
  /// c as the first GPU computes it, with the same check.
  HostTensor run_on_gpu(const ir::Kernel& kernel) const;
  /// Checks that the GPU computes the bits of the executor for sm_90a, which runs with all traps.
  void check_on_gpu(const ir::Kernel& kernel) const;

 private:
  HostTensor operand(int64_t rows, uint64_t seed) const;
};

/// The call of a StagedProduct or a ClusterProduct.
template <class P>
ProductCall call_of(const P& p, DType dtype = DType::f32) {
  return {p.m, p.n, p.depth, dtype};
}

}  // namespace tessera::test
