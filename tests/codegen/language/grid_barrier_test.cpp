// Tile programs with barriers of the grid.

#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// y[b] = the sum over all rows of x, added up by every block from what every block has left in
/// `parts`.
ir::Kernel sum_of_grid(bool meets = true) {
  Builder k("sum_of_grid");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::i32, {rows, 64});
  auto parts = k.output("parts", DType::i32, {rows});
  auto y = k.output("y", DType::i32, {rows});
  const dsl::BlockIndex at = k.launch({rows}, {.threads = 64});
  const Value own = k.warp_sum(x(at.x, k.thread()));
  auto halves = k.shared(DType::i32, {2}, "halves");
  k.if_(k.lane() == 0, [&] { halves(k.warp()) = own; });
  k.if_(k.thread() == 0, [&] { parts(at.x) = halves(0) + halves(1); });
  if (meets) {
    k.sync_grid();
  } else {
    k.sync();
  }
  auto sum = k.var(DType::i32, 0, "sum");
  k.serial(0, rows, [&](Value r) { sum += parts(r); });
  k.if_(k.thread() == 0, [&] { y(at.x) = sum; });
  return k.finish();
}

}  // namespace

TEST_CASE("blocks of a grid meet and read what all of them wrote (S14)", "[language][grid]") {
  const ir::Kernel kernel = sum_of_grid();
  const KernelSource source = codegen::cuda::emit(codegen::lower(kernel));
  CHECK(source.cooperative);
  CHECK(source.params.size() == 4);  // the counter of the barrier is the launch's affair
  CHECK(count(cuda_text(kernel), "sync_grid(grid_barrier);") == 1);
  const int64_t rows = GENERATE(1, 7, 100);
  const HostTensor x = iota(DType::i32, {rows, 64});
  const HostTensor parts(DType::i32, {rows});
  const HostTensor y(DType::i32, {rows});
  for (int launch = 0; launch < 3; ++launch) {  // they share the counter
    run_kernel(kernel, {&x, &parts, &y});
    CHECK_THAT(y, HasValues([&](int64_t) { return rows * 64 * (rows * 64 - 1) / 2; }));
  }
}

TEST_CASE("blocks that read each other's results without a meeting are reported (S14)",
          "[language][grid]") {
  const HostTensor x = iota(DType::i32, {7, 64}), parts(DType::i32, {7}), y(DType::i32, {7});
  const std::string error = error_of([&] { run_kernel(sum_of_grid(false), {&x, &parts, &y}); });
  CAPTURE(error);
  CHECK(error.find("race on parts[0]: written by block (0, 0, 0) and read by block (6, 0, 0) with "
                   "no barrier of the grid between") != std::string::npos);
  // In the second round a block overwrites what its neighbour may still read.
  Builder k("rotate_in_place");
  auto now = k.output("now", DType::i32, {12});
  const dsl::BlockIndex at = k.launch({12}, {.threads = 32});
  k.if_(k.thread() == 0, [&] { now(at.x) = at.x; });
  k.sync_grid();
  k.if_(k.thread() == 0, [&] { now(at.x) = now((at.x + 1) % 12); });
  const HostTensor result(DType::i32, {12});
  CHECK(error_of([&] {
          run_kernel(k.finish(), {&result});
        }).find("race on now[0]: written by block (0, 0, 0) and read by block (11, 0, 0)") !=
        std::string::npos);
}

TEST_CASE("a grid meets in every round of a loop (S14)", "[language][grid]") {
  Builder k("rotate");
  auto rounds = k.dim("rounds");
  auto clock = k.input("clock", DType::i32, {rounds});
  auto now = k.output("now", DType::i32, {2, 12});
  const dsl::BlockIndex at = k.launch({12}, {.threads = 32});
  k.if_(k.thread() == 0, [&] { now(0, at.x) = at.x; });
  k.serial(0, rounds, [&](Value r) {
    k.sync_grid();
    k.if_(k.thread() == 0,
          [&] { now((r + 1) % 2, at.x) = now(r % 2, (at.x + 1) % 12) + clock(r); });
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor clock_values = iota(DType::i32, {7});
  const HostTensor result(DType::i32, {2, 12});
  run_kernel(kernel, {&clock_values, &result});
  for (int64_t b = 0; b < 12; ++b) {
    CHECK(result.value(12 + b) == static_cast<double>((b + 7) % 12 + 21));
  }
}

TEST_CASE("a barrier of the grid is one of the block, too (S14)", "[language][grid]") {
  Builder k("swap_all");
  auto y = k.output("y", DType::i32, {3, 64});
  const dsl::BlockIndex at = k.launch({3}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  k.parallel({64}, [&](Value i) { tile(i) = at.x * 100 + i; });
  k.sync_grid();
  k.parallel({64}, [&](Value i) { y(at.x, i) = tile(63 - i); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text.substr(text.find("extern \"C\"")), "__syncthreads();") == 0);
  const HostTensor result(DType::i32, {3, 64});
  run_kernel(kernel, {&result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i / 64 * 100 + 63 - i % 64; }));
}

TEST_CASE("a barrier of the grid that some blocks never reach is refused (S14)",
          "[language][grid]") {
  Builder k("some_blocks");
  auto y = k.output("y", DType::i32, {8});
  const dsl::BlockIndex at = k.launch({8}, {.threads = 32});
  const bool by_return = GENERATE(false, true);
  if (by_return) {
    k.return_if(at.x > 3);
    k.sync_grid();
  } else {
    k.if_(at.x < 4, [&] { k.sync_grid(); });
  }
  y(at.x) = 1;
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { codegen::lower(kernel); });
  CHECK(text.find(by_return ? "RETURN_BEFORE_BARRIER" : "SYNC_DIVERGENT") != std::string::npos);
  CHECK(text.find(by_return ? "some threads have left the kernel before this barrier of the grid"
                            : "a barrier of the grid that some blocks may never reach") !=
        std::string::npos);
  CHECK(text.find("put the work under if_ and keep the barrier outside") != std::string::npos);
}

TEST_CASE("a grid larger than what runs at once is a launch error with the maximum (S14)",
          "[language][grid]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) return note_skip(reason);
  const ir::Kernel kernel = sum_of_grid();
  constexpr int64_t kRows = 100000;
  const HostTensor x = iota(DType::i32, {kRows, 64});
  const HostTensor one(DType::i32, {kRows});
  const DeviceTensor tensors[] = {DeviceTensor(x, Device::cuda(0)),
                                  DeviceTensor(one, Device::cuda(0)),
                                  DeviceTensor(one, Device::cuda(0))};
  std::vector<TensorView> views;
  for (const DeviceTensor& tensor : tensors) views.push_back(tensor.view());
  const std::string text = error_of([&] { kernels::jit::run(kernel, views, {}, nullptr); });
  CHECK(text.find(
            "the blocks of the grid wait for each other, and do not fit on the device at once") !=
        std::string::npos);
  CHECK(text.find("blocks on cuda:0") != std::string::npos);
  CHECK(text.find("(100000, 1, 1)") != std::string::npos);
}
