// C10 of the acceptance list: many threads that compile and launch at once. Worth most under the
// thread sanitizer (TESSERA_SANITIZE=thread).

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/builder.h"
#include "kernels/jit/run_op.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/long_tests.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/named_tensors.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

constexpr int kKernels = 200;
constexpr int kThreads = 64;
constexpr int64_t kRows = 100;

/// out[i] = x[i] * number + the sum of the block's x
ir::Kernel numbered_kernel(int number) {
  dsl::Builder k("numbered");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {64});
  auto sum = k.fragment(DType::f32, {1});
  k.copy(x.tile({at.x * 64}, {64}), tile);  // zeros beyond the rows
  k.reduce_sum(tile.reshape({1, 64}), sum, dsl::Axis(1));
  k.parallel({64}, [&](dsl::Value i) { tile(i) = tile(i) * static_cast<float>(number) + sum(0); });
  k.copy(tile, out.tile({at.x * 64}, {64}));
  return k.finish();
}

// True for the result of a vector of ones.
bool is_right(const std::vector<float>& out, int number) {
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] != static_cast<float>(number + (i < 64 ? 64 : kRows - 64))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("64 threads compile 200 kernels and launch them on the executor (C10)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process process(fake, scratch / "cache");
  std::atomic<int> wrong = 0;
  std::atomic<int> ready = 0;
  const auto work = [&](int thread) {
    ++ready;
    while (ready < kThreads) std::this_thread::yield();
    std::vector<float> x(kRows, 1.0f);
    std::vector<float> out(kRows);
    const NamedTensors tensors = {{"x", TensorView(x.data(), DType::f32, {kRows})},
                                  {"out", TensorView(out.data(), DType::f32, {kRows})}};
    for (int step = 0; step < rounds(40, kKernels); ++step) {
      const int number = (step * 7 + thread * 13) % kKernels;
      const std::string spec = std::to_string(number);
      const auto image = process.runtime->image(
          {"numbered", spec,
           [&] { return codegen::cuda::emit(codegen::lower(numbered_kernel(number))); }},
          kTarget);
      jit::run_op(
          "C10 numbered", spec, [&] { return numbered_kernel(number); }, tensors, nullptr);
      if (image->op != "numbered" || !is_right(out, number)) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(fake.state().num_compiles == kKernels);
  CHECK(process.lines.empty());
}
