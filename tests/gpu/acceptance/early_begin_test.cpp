// The runtime's acceptance list on a real GPU, 17: kernels that begin before the one before them
// has ended.

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "runtime/surroundings.h"
#include "tests/gpu/acceptance/graphs.h"
#include "tests/gpu/acceptance/vectors.h"
#include "tests/runtime/long_tests.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;

namespace {

constexpr int kCount = 100000;

/// y = x + 1; lets the next kernel begin at once and waits for the one before.
KernelSource add_one_late() {
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
  return source;
}

/// Three of them, one after the other, through buffers full of poison.
struct Chain {
  explicit Chain(bool begins_early) {
    Options options = options_from(process_environment());
    options.cache = CacheMode::off;
    options.cache_roots.clear();
    options.pdl = begins_early;
    runtime = std::make_unique<Runtime>(options, Surroundings{});
    kernel = runtime->load({"add_one_late", {}, add_one_late}, 0);
    for (int i = 0; i < 4; ++i) buffers.emplace_back(0, kCount * 4);
  }
  void launch_on(StreamHandle stream) {
    for (size_t i = 1; i < 4; ++i) fill_async(0, buffers[i].data(), 0xAA, kCount * 4, stream);
    for (size_t i = 0; i < 3; ++i) {
      void* x = buffers[i].data();
      void* y = buffers[i + 1].data();
      int count = kCount;
      void* arguments[] = {&x, &y, &count};
      launch(*kernel, {(kCount + 127) / 128, 1, 1}, arguments, stream);
    }
  }
  void set_input(int value) {
    const std::vector<int> values(kCount, value);
    buffers[0].upload(values.data(), kCount * 4);
  }
  bool ends_with(int value) const {
    std::vector<int> values(kCount);
    buffers[3].download(values.data(), kCount * 4);
    return std::all_of(values.begin(), values.end(), [&](int v) { return v == value; });
  }
  std::unique_ptr<Runtime> runtime;
  std::shared_ptr<const LoadedKernel> kernel;
  std::vector<DeviceBuffer> buffers;
};

}  // namespace

TEST_CASE(
    "a chain of kernels that begin early reads no poison, with the switch on and off (R22.17)",
    "[gpu]") {
  REQUIRE_GPU();
  if (device_info(0).major < 9) TESSERA_SKIP("programmatic launches need sm_90");
  const bool begins_early = GENERATE(true, false);
  Chain chain(begins_early);
  CHECK(std::ranges::count(chain.kernel->attributes, cu::kProgrammaticStreamSerialization,
                           &cu::LaunchAttribute::id) == (begins_early ? 1 : 0));
  const OwnedStream stream(0);
  int wrong = 0;
  for (int round = 0; round < test::rounds(200, 10000); ++round) {
    if (round % 50 == 0) chain.set_input(round);
    chain.launch_on(stream.handle());
    wrong += chain.ends_with(round / 50 * 50 + 3) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the chain in a graph keeps its early beginnings and reads no poison (R22.16, R22.17)",
          "[gpu]") {
  REQUIRE_GPU();
  if (device_info(0).major < 9) TESSERA_SKIP("programmatic launches need sm_90");
  Chain chain(true);
  const test::Graphs graphs;
  const OwnedStream stream(0);
  const ContextScope context(0);
  const auto exec = graphs.captured(stream.handle(), [&] { chain.launch_on(stream.handle()); });
  int wrong = 0;
  for (int round = 0; round < test::rounds(200, 10000); ++round) {
    if (round % 50 == 0) chain.set_input(round);
    REQUIRE(graphs.launch(exec, stream.handle()) == 0);
    wrong += chain.ends_with(round / 50 * 50 + 3) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(graphs.destroy_exec(exec) == 0);
}
