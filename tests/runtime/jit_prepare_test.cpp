// Calls on CUDA tensors, on a fake driver: kernels that are prepared ahead, named, or already known.

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "kernels/jit/prepare.h"
#include "kernels/jit/run_op.h"
#include "kernels/jit/target.h"
#include "tests/runtime/failing_files.h"
#include "tests/runtime/fake_calls.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/named_tensors.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace jit = kernels::jit;

TEST_CASE("a prepared call launches during capture, another is refused by name (R22.16)") {
  OnFakes on;
  const Pair pair(0x10000000, 100);
  int stream = 0;
  const jit::Function ready = copy_function("capture_ready");
  const jit::Function late = copy_function("capture_late");
  jit::prepare([&] { ready(pair.views(), {}, &stream); });
  CHECK(on.fake.state().num_launches == 0);
  CHECK(on.fake.state().num_loads == 1);
  on.fake.state().capture_status = 1;
  ready(pair.views(), {}, &stream);
  CHECK(on.fake.state().num_launches == 1);
  CHECK(error_of([&] { late(pair.views(), {}, &stream); }) ==
        "tessera: capture_late: the kernel is not loaded yet and the stream is being captured\n"
        "  got       Spec (the text itself)\n"
        "  hint      before the capture begins make the call once, or let jit::prepare() have it");
  CHECK(on.fake.state().num_loads == 1);
}

TEST_CASE("many calls are prepared side by side, and all of them although one fails") {
  OnFakes on;
  const Pair pair(0x10000000, 100);
  const Pair wrong(0x10000002, 100);
  std::vector<jit::Function> functions;
  for (int i = 0; i < 6; ++i) functions.push_back(copy_function("ahead" + std::to_string(i)));
  std::vector<std::function<void()>> calls;
  for (size_t i = 0; i < functions.size(); ++i) {
    calls.emplace_back(
        [&, i] { functions[i](i == 2 ? wrong.views() : pair.views(), {}, nullptr); });
  }
  on.fake.state().num_to_meet = 3;
  const std::string text = error_of([&] { jit::prepare_all(calls, {.jobs = 3}); });
  CHECK(text.find("tessera: ahead2: argument 'x' is not aligned") == 0);
  CHECK(on.fake.state().num_compiles == 5);
  CHECK(on.fake.state().most_at_once == 3);
  CHECK(on.fake.state().num_launches == 0);
}

TEST_CASE("a warm-up that is stopped ends its compiles, whoever else wants the kernel gets it") {
  OnFakes on;
  const Pair pair(0x10000000, 100);
  const jit::Function function = copy_function("stopped");
  const std::vector<std::function<void()>> calls = {[&] { function(pair.views(), {}, nullptr); }};
  on.fake.state().compile_ms = 20000;
  std::stop_source stop;
  std::string text;
  std::thread warm_up([&] {
    text = error_of([&] { jit::prepare_all(calls, {.jobs = 1, .stop = stop.get_token()}); });
  });
  while (on.fake.state().num_compiles == 0) std::this_thread::yield();
  std::thread other([&] { function(pair.views(), {}, nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stop.request_stop();
  warm_up.join();
  on.fake.state().compile_ms = 0;
  other.join();
  CHECK(text == "tessera: stopped: the compile was cancelled [CANCELLED]");
  CHECK(on.fake.state().num_launches == 1);
}

TEST_CASE("a plan is made of calls on its own CUDA tensors only") {
  OnFakes on;
  const Pair pair(0x10000000, 100);
  const jit::Function function = copy_function("planned");
  const std::vector<TensorView> one = {pair.x};
  CHECK(
      error_of([&] { jit::plan(one, [&] { function(pair.views(), {}, nullptr); }); }) ==
      "tessera: this call cannot become a launch plan\n"
      "  expected  a call whose kernels use the given CUDA tensors only, each with its own memory\n"
      "  got       a kernel on the CPU, on other memory, or on memory of several tensors");
  // A part of a tensor is that tensor at an offset.
  const std::vector<TensorView> whole = {
      TensorView(pair.x.data, DType::f32, {1 << 20}, Device::cuda(0))};
  const jit::LaunchPlan plan = jit::plan(whole, [&] { function(pair.views(), {}, nullptr); });
  REQUIRE(plan.launches().size() == 1);
  CHECK(plan.launches()[0].pointers[1].offset == 0x100000);
}

TEST_CASE("the kernels a call needs are named without a device") {
  OnFakes on;
  on.fake.state().num_devices = 0;
  const Pair pair(0x10000000, 100);
  const jit::Function function = copy_function("named");
  const std::vector<KernelRequest> requests =
      jit::kernels_needed([&] { function(pair.views(), {}, nullptr); });
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].op == "named");
  CHECK(requests[0].emit().op == "named");
  CHECK(on.fake.state().num_compiles == 0);
}

TEST_CASE("a kernel whose load fails again and again is one kernel") {
  OnFakes on;
  const Pair pair(0x10000000, 100);
  const jit::Function function = copy_function("refused");
  on.fake.state().load_result = 1;
  on.fake.state().num_refused_loads = 70;
  for (int i = 0; i < 70; ++i) {
    CHECK(error_of([&] { function(pair.views(), {}, nullptr); }).find("failed") !=
          std::string::npos);
  }
  function(pair.views(), {}, nullptr);
  CHECK(on.process.lines.empty());
}

TEST_CASE("an op that is compiled again and again is pointed out once") {
  OnFakes on;
  const Pair pair(0x10000000, 100);
  for (int i = 0; i < 70; ++i) {
    dsl::Builder k("varies");
    auto rows = k.dim("rows");
    auto x = k.input("x", DType::f32, {rows}, {.align = 4});
    auto out = k.output("out", DType::f32, {rows}, {.align = 4});
    auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
    k.parallel(
        {64}, [&](dsl::Value j) { out(at.x * 64 + j) = x(at.x * 64 + j) + static_cast<float>(i); });
    const ir::Kernel kernel = k.finish();
    jit::run_op(
        "varies", std::to_string(i), [&] { return kernel; },
        NamedTensors{{"x", pair.x}, {"out", pair.out}}, nullptr);
  }
  REQUIRE(on.process.lines.size() == 1);
  CHECK(on.process.lines[0] ==
        "varies: 64 different kernels in this process; something that varies from call to call is "
        "part of its Spec");
}

TEST_CASE("a first call launches before its kernel goes to disk") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process process(fake, scratch / "cache");
  Runtime::replace_instance(process.runtime.get());
  std::vector<int> launches;
  const FailingFiles files(FileCall::sync, [&] { launches.push_back(fake.state().num_launches); });
  copy_function("stored_late")(Pair(0x10000000, 100).views(), {}, nullptr);
  Runtime::replace_instance(nullptr);
  CHECK(launches == std::vector<int>{1, 1, 1, 1});  // the marker, the kernel, and their folders
  CHECK(process.runtime->counters().published_bytes > 0);
}

TEST_CASE("a warm hit reads no text and compiles nothing (C05)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  { Process(fake, scratch / "cache").runtime->image(Process::with_text("a"), kTarget); }
  Process first(fake, scratch / "cache");
  first.runtime->image(first.with_spec("a"), kTarget);
  Process warm(fake, scratch / "cache");
  const int compiles = fake.state().num_compiles;
  fake.state().opened.clear();
  warm.runtime->image(warm.with_spec("a"), kTarget);
  warm.runtime->load(warm.with_spec("a"), 0);
  CHECK(fake.state().opened.empty());
  CHECK(warm.num_emits == 0);
  CHECK(fake.state().num_compiles == compiles);
  std::vector<double> ms;
  for (int i = 0; i < 21; ++i) {
    Process again(fake, scratch / "cache");
    const auto start = std::chrono::steady_clock::now();
    again.runtime->image(again.with_spec("a"), kTarget);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  std::sort(ms.begin(), ms.end());
// Sanitizers are slow; of the rest the best counts, other programs of the machine only ever add.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(ms.front() < 1);
#endif
}

TEST_CASE("a part of a GPU that is too small for the cluster gets the kernel without") {
  OnFakes on;
  const bool is_part = GENERATE(false, true);
  on.fake.state().max_clusters = is_part ? 0 : 1;
  const auto in_clusters = [&](int cluster) {
    dsl::Builder k(is_part ? "part" : "whole");
    auto out = k.output("out", DType::i32, {64});
    auto at = k.launch({64}, {.threads = 32, .cluster = cluster});
    out(at.x) = at.x;
    return jit::Function(k.finish());
  };
  const TensorView out(reinterpret_cast<void*>(0x10000000), DType::i32, {64}, Device::cuda(0));
  std::vector<int> limits;
  jit::launch_in_clusters(Device::cuda(0), [&](int limit) {
    limits.push_back(limit);
    in_clusters(limit)(std::array{out}, {}, nullptr);
  });
  CHECK(limits == (is_part ? std::vector<int>{16, 1} : std::vector<int>{16}));
  CHECK(on.fake.state().num_launches == 1);
  CHECK(on.fake.state().cluster == (is_part ? 0 : 16));
  const auto fail_otherwise = [&] {
    jit::launch_in_clusters(Device::cuda(0), [](int) {
      throw Error({.kind = ErrorKind::driver, .what = "something else"});
    });
  };
  CHECK(error_of(fail_otherwise) == "tessera: something else");
}
