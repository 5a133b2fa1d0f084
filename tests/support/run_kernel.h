#pragma once
// Small tile programs in tests: run on the executor with every trap on, on the GPU where there is
// one, and compiled for every target.

#include <functional>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "tests/support/host_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {

/// 0, 1, 2, ... in row-major order.
HostTensor iota(DType dtype, Dims shape);
std::vector<double> values_of(const HostTensor& tensor);

/// Runs `kernel` on CPU tensors (parameter order) with traps on, checks that nothing around the
/// tensors changed and that a GPU leaves the same bytes in every tensor. The tensors get the results of the program
/// for sm_90a; where the one for sm_80 is another, it runs too, and leaves the same bytes unless it adds products
/// of floats, whose sums are those of the target. With TESSERA_TEST_THOROUGH
/// set, as ctest does, NVRTC must also take its text for the oldest target that has what it uses and
/// for the newest one, and the watcher sees it.
void run_kernel(const ir::Kernel& kernel, const std::vector<const HostTensor*>& tensors);

/// Runs `kernel` on the executor alone, with traps on: for blocks whose order decides the result, and
/// for tensors that share memory.
void run_on_executor(const ir::Kernel& kernel, const std::vector<TensorView>& views);

/// A line that says how many runs of run_kernel were for two targets; empty if there was none.
std::string compared_programs();

/// Called with every kernel that a thorough run_kernel is given, before it runs.
void watch_kernels(std::function<void(const ir::Kernel&)> watcher);

/// The CUDA text of the kernel, for tests that count what was emitted.
std::string cuda_text(const ir::Kernel& kernel);
int count(const std::string& text, const std::string& word);

/// The text of the Error that `fn` throws, with its code; empty if it throws none.
template <class Fn>
std::string error_of(const Fn& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace tessera::test
