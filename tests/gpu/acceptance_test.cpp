// The runtime's acceptance list on a real GPU, 14 to 20.

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "runtime/runtime.h"
#include "tests/runtime/long_tests.h"
#include "tests/support/catch.h"
#include "tests/support/counted_calls.h"
#include "tests/support/ten_tensors.h"

using namespace tessera;
using namespace tessera::runtime;
namespace jit = kernels::jit;

#define REQUIRE_GPU() \
  if (num_devices() == 0) TESSERA_SKIP(why_no_device())

namespace {

constexpr int64_t kRows = 1000;

// The graph calls of the driver, which the library itself has no use for.
struct Graphs {
  using Handle = void*;
  int (*begin_capture)(Handle stream, int mode) = nullptr;
  int (*end_capture)(Handle stream, Handle* graph) = nullptr;
  int (*instantiate)(Handle* exec, Handle graph, unsigned long long flags) = nullptr;
  int (*launch)(Handle exec, Handle stream) = nullptr;

  Graphs() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      REQUIRE(function != nullptr);
    };
    find(begin_capture, "cuStreamBeginCapture_v2");
    find(end_capture, "cuStreamEndCapture");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(launch, "cuGraphLaunch");
  }
};

// Ten vectors on a device: nine inputs of ones, two, three... and the sum.
struct Vectors {
  explicit Vectors(int device) : memory(device, 10 * 4096) {
    for (int i = 0; i < 9; ++i) fill(i, static_cast<float>(i + 1));
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = TensorView(static_cast<char*>(memory.data()) + 4096 * i, DType::f32, {kRows},
                              Device::cuda(device));
    }
  }
  void fill(int tensor, float value) {
    const std::vector<float> values(kRows, value);
    memory.upload(values.data(), kRows * 4, tensor * 4096);
  }
  bool holds(float sum) const {
    std::vector<float> values(kRows);
    memory.download(values.data(), kRows * 4, 9 * 4096);
    return std::all_of(values.begin(), values.end(), [&](float v) { return v == sum; });
  }
  DeviceBuffer memory;
  test::TenTensors tensors;
};

const jit::Function& sum_function() {
  static const auto* function = new jit::Function(test::sum_of_nine());
  return *function;
}

/// out = x + 1 through more than 48 KB of shared memory.
jit::Function large_kernel(const std::string& name, int64_t kilobytes) {
  const int64_t elements = kilobytes * 256;
  dsl::Builder k(name);
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, elements)}, {.threads = 128});
  auto tile = k.shared(DType::f32, {elements});
  k.copy(x.tile({at.x * elements}, {elements}), tile);
  k.parallel({elements}, [&](dsl::Value i) { tile(i) = tile(i) + 1.0f; });
  k.copy(tile, out.tile({at.x * elements}, {elements}));
  return jit::Function(k.finish());
}

cu::Context current_context() {
  cu::Context current = nullptr;
  driver().check(driver().call.ctx_get_current(&current), "cuCtxGetCurrent");
  return current;
}

}  // namespace

TEST_CASE("R22.14 a thread without a context launches and is left without", "[gpu]") {
  REQUIRE_GPU();
  const Vectors v(0);
  bool left_alone = false;
  std::thread([&] {
    test::call_sum_of_nine(sum_function(), v.tensors, nullptr);
    test::call_sum_of_nine(sum_function(), v.tensors, nullptr);  // by the shorter way
    left_alone = current_context() == nullptr;
  }).join();
  CHECK(left_alone);
  CHECK(v.holds(45));
}

TEST_CASE("R22.14 tensors decide the device, whatever is current", "[gpu][multigpu]") {
  if (num_devices() < 2) TESSERA_SKIP("needs two CUDA devices");
  const Vectors v(0);
  const ContextScope other(1);
  const cu::Context before = current_context();
  for (int i = 0; i < 2; ++i) test::call_sum_of_nine(sum_function(), v.tensors, nullptr);
  CHECK(current_context() == before);
  CHECK(v.holds(45));
}

TEST_CASE("R22.14 a context that the caller pushed is used and stays", "[gpu]") {
  REQUIRE_GPU();
  const Vectors v(0);
  cu::Device device = 0;
  cu::Context primary = nullptr;
  driver().check(driver().call.device_get(&device, 0), "cuDeviceGet");
  driver().check(driver().call.device_primary_ctx_retain(&primary, device),
                 "cuDevicePrimaryCtxRetain");
  driver().check(driver().call.ctx_push_current(primary), "cuCtxPushCurrent");
  const OwnedStream stream(0);
  test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
  CHECK(current_context() == primary);
  cu::Context popped = nullptr;
  driver().check(driver().call.ctx_pop_current(&popped), "cuCtxPopCurrent");
  CHECK(popped == primary);
  synchronize(0);
  CHECK(v.holds(45));
}

TEST_CASE("R22.15 kernels with much shared memory, on every device, side by side", "[gpu]") {
  REQUIRE_GPU();
  const int devices = std::min(num_devices(), 2);
  if (devices < 2) WARN("one CUDA device: the second half of R22.15 is not tested");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int device = 0; device < devices; ++device) {
    for (const int64_t kilobytes : {64, 96}) {
      threads.emplace_back([&, device, kilobytes] {
        const jit::Function function = large_kernel("large" + std::to_string(kilobytes), kilobytes);
        const int64_t rows = kilobytes * 256 * 3 + 5;
        std::vector<float> values(static_cast<size_t>(rows), 1.0f);
        DeviceBuffer x(device, rows * 4);
        DeviceBuffer out(device, rows * 4);
        x.upload(values.data(), rows * 4);
        const std::vector<TensorView> tensors = {
            TensorView(x.data(), DType::f32, {rows}, Device::cuda(device)),
            TensorView(out.data(), DType::f32, {rows}, Device::cuda(device))};
        const OwnedStream stream(device);
        for (int i = 0; i < 50; ++i) function(tensors, {}, stream.handle());
        synchronize(device, stream.handle());
        out.download(values.data(), rows * 4);
        if (!std::all_of(values.begin(), values.end(), [](float v) { return v == 2.0f; })) ++wrong;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("R22.16 C09 a prepared op is captured and replayed on new contents", "[gpu]") {
  REQUIRE_GPU();
  const Graphs graphs;
  Vectors v(0);
  const OwnedStream stream(0);
  const ContextScope context(0);
  jit::prepare([&] { sum_function()(v.tensors, {}, stream.handle()); });
  jit::Function late = large_kernel("late_in_capture", 50);
  REQUIRE(graphs.begin_capture(stream.handle(), 0) == 0);  // global mode: the strictest
  test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
  const std::vector<TensorView> two = {v.tensors[0], v.tensors[1]};
  std::string refused;
  try {
    late(two, {}, stream.handle());
  } catch (const Error& error) {
    refused = error.what();
  }
  Graphs::Handle graph = nullptr;
  REQUIRE(graphs.end_capture(stream.handle(), &graph) == 0);  // the refusal did not spoil it
  CHECK(refused.find("tessera: late_in_capture: the kernel is not loaded yet and the stream is "
                     "being captured") == 0);
  Graphs::Handle exec = nullptr;
  REQUIRE(graphs.instantiate(&exec, graph, 0) == 0);
  for (int round = 0; round < 3; ++round) {
    v.fill(0, static_cast<float>(round));
    REQUIRE(graphs.launch(exec, stream.handle()) == 0);
    synchronize(0, stream.handle());
    CHECK(v.holds(44 + static_cast<float>(round)));
  }
}

TEST_CASE("R22.17 a chain of kernels that begin early reads no poison, with the switch on and off",
          "[gpu]") {
  REQUIRE_GPU();
  if (device_info(0).major < 9) TESSERA_SKIP("programmatic launches need sm_90");
  KernelSource source;
  source.op = "add_one_late";
  source.entry = "add_one_late";
  source.text =
      "extern \"C\" __global__ void add_one_late(const int* x, int* y, int count) {\n"
      "  asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
      "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (i < count) y[i] = x[i] + 1;\n"
      "}\n";
  source.params = {{"x", true, DType::i32}, {"y", true, DType::i32}, {"count"}};
  source.threads = 128;
  source.waits_for_previous = true;
  constexpr int kCount = 100000;
  const bool pdl = GENERATE(true, false);
  Options options = options_from(process_environment());
  options.cache = CacheMode::off;
  options.cache_roots.clear();
  options.pdl = pdl;
  Runtime own(options, Surroundings{});
  const auto kernel = own.load({source.op, {}, [&] { return source; }}, 0);
  CHECK(kernel->begins_early == pdl);
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 4; ++i) buffers.emplace_back(0, kCount * 4);
  std::vector<int> values(kCount, 5);
  buffers[0].upload(values.data(), kCount * 4);
  const OwnedStream stream(0);
  int wrong = 0;
  for (int round = 0; round < test::rounds(200, 10000); ++round) {
    for (size_t i = 1; i < 4; ++i) {
      fill_async(0, buffers[i].data(), 0xAA, kCount * 4, stream.handle());
    }
    for (size_t i = 0; i < 3; ++i) {
      void* x = buffers[i].data();
      void* y = buffers[i + 1].data();
      int count = kCount;
      void* arguments[] = {&x, &y, &count};
      launch(*kernel, {(kCount + 127) / 128, 1, 1}, arguments, stream.handle());
    }
    buffers[3].download(values.data(), kCount * 4);
    wrong += std::all_of(values.begin(), values.end(), [](int v) { return v == 8; }) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("R22.18 C07 launches within their budget, without allocation", "[gpu]") {
  REQUIRE_GPU();
  const Vectors v(0);
  const jit::Function& function = sum_function();
  const jit::LaunchPlan plan = jit::plan(v.tensors, [&] { function(v.tensors, {}, nullptr); });
  test::call_sum_of_nine(function, v.tensors, nullptr);
  std::array<void*, 10> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = v.tensors[i].data;

  const jit::LaunchPlan::Launch& launch = plan.launches().at(0);
  cu::LaunchConfig config = {};
  config.grid_x = static_cast<unsigned>(launch.grid.x);
  config.grid_y = config.grid_z = 1;
  config.block_x = static_cast<unsigned>(launch.kernel->image->threads);
  config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(launch.kernel->image->shared_bytes);
  std::array<void*, 11> arguments;
  for (size_t i = 0; i < data.size(); ++i) arguments[i] = &data[i];
  int64_t rows = launch.values.at(0);
  arguments[10] = &rows;
  auto* const handle = reinterpret_cast<cu::Function>(launch.kernel->handle);
  const auto bare = [&] {
    driver().call.launch_kernel_ex(&config, handle, arguments.data(), nullptr);
  };
  const auto prepared = [&] { plan(data, nullptr); };
  const auto checked = [&] { test::call_sum_of_nine(function, v.tensors, nullptr); };

  const ContextScope context(0);
  constexpr int kBatch = 200;
  std::array<std::vector<double>, 3> ns;
  const auto measure = [&](size_t which, const auto& call) {
    synchronize(0);
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
  WARN("bare " << bare_ns << " ns, prepared " << prepared_ns << " ns, checked " << checked_ns
               << " ns");
  CHECK(prepared_ns - bare_ns <= 150);
  CHECK(checked_ns - bare_ns <= 500);

  // What the driver itself does is in both.
  const auto cost = [&](const auto& call) {
    const test::CallCounts before = test::counted_calls();
    for (int i = 0; i < kBatch; ++i) call();
    const test::CallCounts after = test::counted_calls();
    return test::CallCounts{after.allocations - before.allocations, after.locks - before.locks};
  };
  synchronize(0);
  const test::CallCounts of_driver = cost(bare);
  CHECK(cost(prepared).allocations <= of_driver.allocations);
  CHECK(cost(checked).allocations <= of_driver.allocations);
}

TEST_CASE("R22.20 compute-sanitizer finds nothing in the shipped kernels", "[gpu][slow]") {
  REQUIRE_GPU();
  if (!test::long_tests()) TESSERA_SKIP("takes minutes; set TESSERA_LONG_TESTS=1");
  const std::string tool = GENERATE(as<std::string>(), "memcheck", "racecheck");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    execlp("compute-sanitizer", "compute-sanitizer", "--tool", tool.c_str(), "--error-exitcode",
           "9", TESSERA_BINARY_DIR "/test_gpu", "ops equal their references on the GPU", nullptr);
    _exit(127);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) TESSERA_SKIP("no compute-sanitizer");
  CHECK(status == 0);
}
