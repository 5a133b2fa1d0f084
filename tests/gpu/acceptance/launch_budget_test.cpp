// The runtime's acceptance list on a real GPU, 18: what a launch costs above the driver.

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "runtime/launch.h"
#include "tests/gpu/acceptance/vectors.h"
#include "tests/runtime/long_tests.h"
#include "tests/support/catch.h"
#include "tests/support/counted_calls.h"

using namespace tessera;
using namespace tessera::runtime;
using test::sum_function;
using test::Vectors;
namespace jit = kernels::jit;

namespace {

/// Keeps the thread on the processor that it is on.
class PinnedThread {
 public:
  PinnedThread() {
    REQUIRE(sched_getaffinity(0, sizeof(before_), &before_) == 0);
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &here);
    REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  }
  ~PinnedThread() { sched_setaffinity(0, sizeof(before_), &before_); }
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  cpu_set_t before_ = {};
};

}  // namespace

TEST_CASE("launches within their budget, without allocation (R22.18, C07)", "[gpu]") {
  REQUIRE_GPU();
  const Vectors v(0);
  const OwnedStream own(0);
  const StreamHandle stream = GENERATE(0, 1) == 0 ? nullptr : own.handle();
  const jit::Function& function = sum_function();
  const jit::LaunchPlan plan = jit::plan(v.tensors, [&] { function(v.tensors, {}, stream); });
  test::call_sum_of_nine(function, v.tensors, stream);
  std::array<void*, 10> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = v.tensors[i].data;

  const jit::LaunchPlan::Launch& launch = plan.launches().at(0);
  cu::LaunchConfig config = {};
  config.grid_x = static_cast<unsigned>(launch.grid.x);
  config.grid_y = config.grid_z = 1;
  config.block_x = static_cast<unsigned>(launch.kernel->image->threads);
  config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(launch.kernel->image->shared_bytes);
  config.stream = static_cast<cu::Stream>(stream);
  std::array<void*, 11> arguments;
  for (size_t i = 0; i < data.size(); ++i) arguments[i] = &data[i];
  int64_t rows = launch.values.at(0);
  arguments[10] = &rows;
  auto* const handle = reinterpret_cast<cu::Function>(launch.kernel->hot.handle);
  const auto bare = [&] {
    driver().call.launch_kernel_ex(&config, handle, arguments.data(), nullptr);
  };
  const auto prepared = [&] { plan(data, stream); };
  const auto checked = [&] { test::call_sum_of_nine(function, v.tensors, stream); };

  const ContextScope context(0);
  const PinnedThread pinned;
  constexpr int kBatch = 200;
  std::array<std::vector<double>, 3> ns;
  const auto measure = [&](size_t which, const auto& call) {
    synchronize(0, stream);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kBatch; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    ns.at(which).push_back(took.count() / kBatch);
  };
  for (int done = 0; done < test::rounds(20000, 200000); done += kBatch) {
    measure(0, bare);
    measure(1, prepared);
    measure(2, checked);
  }
  const auto median = [&](size_t which) {
    std::vector<double>& values = ns.at(which);
    std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
  };
  const double bare_ns = median(0);
  const double prepared_ns = median(1);
  const double checked_ns = median(2);
  WARN((stream ? "a stream: bare " : "the default stream: bare ")
       << bare_ns << " ns, prepared " << prepared_ns << " ns, checked " << checked_ns << " ns");
  CHECK(prepared_ns - bare_ns <= 150);
  CHECK(checked_ns - bare_ns <= 500);

  // The driver's own work, asked for the current context too, is in all three.
  const auto cost = [&](const auto& call) {
    const test::CallCounts before = test::counted_calls();
    for (int i = 0; i < kBatch; ++i) call();
    const test::CallCounts after = test::counted_calls();
    synchronize(0);
    return test::CallCounts{after.allocations - before.allocations, after.locks - before.locks};
  };
  const test::CallCounts of_driver = cost([&] {
    const ContextScope again(0);
    bare();
  });
  const test::CallCounts of_prepared = cost(prepared);
  const test::CallCounts of_checked = cost(checked);
  CHECK(of_prepared.allocations <= of_driver.allocations);
  CHECK(of_checked.allocations <= of_driver.allocations);
  CHECK(of_prepared.locks <= of_driver.locks);
  CHECK(of_checked.locks <= of_driver.locks);
}
