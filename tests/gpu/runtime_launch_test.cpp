// Hand-written CUDA on a real GPU: compile, load, launch, and the promises about contexts, streams
// and caches.

#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "dsl/base/error.h"
#include "runtime/driver/memory.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "runtime/surroundings.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using test::ScratchFolder;

#define REQUIRE_GPU() \
  if (num_devices() == 0) TESSERA_SKIP(why_no_device())

namespace {

constexpr int kCount = 1000;

KernelSource add_source(int64_t shared_bytes = 0) {
  KernelSource source;
  source.op = "add_one";
  source.entry = "add_one_kernel";
  source.text =
      "extern \"C\" __global__ void add_one_kernel(int* x, int amount, int count) {\n"
      "  extern __shared__ int scratch[];\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (i < count) {\n"
      "    scratch[threadIdx.x] = x[i];\n"
      "    x[i] = scratch[threadIdx.x] + amount;\n"
      "  }\n"
      "}\n";
  source.params = {{"x", true, DType::i32}, {"amount"}, {"count"}};
  source.threads = 128;
  source.shared_bytes = shared_bytes == 0 ? 512 : shared_bytes;
  return source;
}

KernelRequest request_for(const KernelSource& source) {
  return {source.op, {}, [source] { return source; }};
}

std::unique_ptr<Runtime> runtime_on(const std::string& cache) {
  Options options = options_from(process_environment());
  options.cache_roots = {cache};
  options.cache = CacheMode::read_write;
  return std::make_unique<Runtime>(std::move(options), Surroundings{});
}

std::vector<int> numbers() {
  std::vector<int> values(kCount);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

DeviceBuffer on_device(const std::vector<int>& values, int device = 0) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(int));
  DeviceBuffer buffer(device, bytes);
  buffer.upload(values.data(), bytes);
  return buffer;
}

void add(const LoadedKernel& kernel, const DeviceBuffer& x, int amount, StreamHandle stream,
         int64_t blocks = (kCount + 127) / 128) {
  void* pointer = x.data();
  int count = kCount;
  void* arguments[] = {&pointer, &amount, &count};
  launch(kernel, {blocks, 1, 1}, arguments, stream);
}

bool holds(const DeviceBuffer& x, int amount) {
  std::vector<int> values(kCount);
  x.download(values.data(), x.bytes());
  for (int i = 0; i < kCount; ++i) {
    if (values[static_cast<size_t>(i)] != i + amount) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a hand-written kernel runs, cold and from a warm cache", "[gpu]") {
  REQUIRE_GPU();
  const ScratchFolder scratch;
  for (const bool warm : {false, true}) {
    const auto runtime = runtime_on(scratch / "cache");
    const auto kernel = runtime->load(request_for(add_source()), 0);
    const DeviceBuffer x = on_device(numbers());
    add(*kernel, x, 5, nullptr);
    CHECK(holds(x, 5));
    CHECK(kernel->registers > 0);
    CHECK(runtime->counters().compiles == (warm ? 0 : 1));
    CHECK(runtime->counters().disk_hits == (warm ? 1 : 0));
  }
}

TEST_CASE("work goes into the caller's stream, in order", "[gpu]") {
  REQUIRE_GPU();
  const ScratchFolder scratch;
  const auto runtime = runtime_on(scratch / "cache");
  const auto kernel = runtime->load(request_for(add_source()), 0);
  const DeviceBuffer x = on_device(numbers());
  const OwnedStream stream(0);
  Event start(0);
  Event end(0);
  start.record(stream.handle());
  for (int i = 0; i < 100; ++i) add(*kernel, x, 1, stream.handle());
  end.record(stream.handle());
  end.wait();
  CHECK(end.ms_since(start) > 0);
  CHECK(holds(x, 100));
}

TEST_CASE("an empty grid launches nothing", "[gpu]") {
  REQUIRE_GPU();
  const ScratchFolder scratch;
  const auto runtime = runtime_on(scratch / "cache");
  const auto kernel = runtime->load(request_for(add_source()), 0);
  const DeviceBuffer x = on_device(numbers());
  add(*kernel, x, 1, nullptr, 0);
  CHECK(holds(x, 0));
}

TEST_CASE("a block may have more than 48 KB of shared memory", "[gpu]") {
  REQUIRE_GPU();
  const ScratchFolder scratch;
  const auto runtime = runtime_on(scratch / "cache");
  const int64_t most = device_info(0).shared_optin;
  const DeviceBuffer x = on_device(numbers());
  add(*runtime->load(request_for(add_source(most)), 0), x, 2, nullptr);
  CHECK(holds(x, 2));
  CHECK_THROWS_AS(runtime->load(request_for(add_source(most + 16)), 0), Error);
}

TEST_CASE("threads that never saw CUDA launch, and nothing stays current", "[gpu]") {
  REQUIRE_GPU();
  const ScratchFolder scratch;
  const auto runtime = runtime_on(scratch / "cache");
  const DeviceBuffer x = on_device(numbers());
  bool left_alone = false;
  std::thread([&] {
    add(*runtime->load(request_for(add_source()), 0), x, 3, nullptr);
    cu::Context current = nullptr;
    driver().check(driver().call.ctx_get_current(&current), "cuCtxGetCurrent");
    left_alone = current == nullptr;
  }).join();
  CHECK(left_alone);
  CHECK(holds(x, 3));
}

TEST_CASE("many threads load and launch one kernel", "[gpu]") {
  REQUIRE_GPU();
  const ScratchFolder scratch;
  const auto runtime = runtime_on(scratch / "cache");
  const DeviceBuffer x = on_device(numbers());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto kernel = runtime->load(request_for(add_source()), 0);
      for (int j = 0; j < 10; ++j) add(*kernel, x, 1, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(holds(x, 80));
  CHECK(runtime->counters().compiles == 1);
}

TEST_CASE("a second device has its own copy", "[gpu][multigpu]") {
  if (num_devices() < 2) TESSERA_SKIP("needs two CUDA devices");
  const ScratchFolder scratch;
  const auto runtime = runtime_on(scratch / "cache");
  const ContextScope first(0);  // current while the tensors are on the other device
  const int64_t most = device_info(1).shared_optin;
  const DeviceBuffer x = on_device(numbers(), 1);
  const DeviceBuffer y = on_device(numbers(), 0);
  add(*runtime->load(request_for(add_source(most)), 1), x, 4, nullptr);
  add(*runtime->load(request_for(add_source(most)), 0), y, 6, nullptr);
  CHECK(holds(x, 4));
  CHECK(holds(y, 6));
}

TEST_CASE("buffers check their range and copy in parts", "[gpu]") {
  REQUIRE_GPU();
  DeviceBuffer x = on_device(numbers());
  x.fill(0xFF);
  int value = 0;
  x.download(&value, 4, 400);
  CHECK(value == -1);
  value = 77;
  x.upload(&value, 4, 400);
  value = 0;
  x.download(&value, 4, 400);
  CHECK(value == 77);
  try {
    x.download(&value, 4, x.bytes() - 3);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: a copy outside its device buffer\n"
          "  expected  bytes within [0, 4000)\n"
          "  got       4 bytes from byte 3997 on");
  }
  CHECK(DeviceBuffer(0, 0).data() == nullptr);
  CHECK_THROWS_AS(DeviceBuffer(0, int64_t{1} << 50), Error);
}

TEST_CASE("an image for another device is refused before the driver sees it", "[gpu]") {
  REQUIRE_GPU();
  Options options = options_from(process_environment());
  options.cache = CacheMode::off;
  options.cache_roots.clear();
  options.arch = device_info(0).major == 8 ? "sm_90a" : "sm_80";
  Runtime runtime(std::move(options), Surroundings{});
  CHECK_THROWS_AS(runtime.load(request_for(add_source()), 0), Error);
}
