// Calls on CUDA tensors, on a fake driver: what is checked once, prepared ahead, launched again.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/jit/prepare.h"
#include "kernels/jit/run_op.h"
#include "kernels/jit/target.h"
#include "tests/runtime/failing_files.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/counted_calls.h"
#include "tests/support/named_tensors.h"
#include "tests/support/ten_tensors.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

// The process's runtime is this one while it lives.
struct OnFakes {
  OnFakes() : process(fake, Options{}) { Runtime::replace_instance(process.runtime.get()); }
  ~OnFakes() { Runtime::replace_instance(nullptr); }
  FakeCuda fake;
  Process process;
};

TenTensors tensors_at(uintptr_t address, int64_t rows) {
  TenTensors tensors;
  for (TensorView& view : tensors) {
    view = TensorView(reinterpret_cast<void*>(address), DType::f32, {rows}, Device::cuda(0));
    address += 0x100000;
  }
  return tensors;
}

// A kernel of its own per test: the table of prepared kernels outlives the fakes.
jit::Function copy_function(const std::string& name) {
  dsl::Builder k(name);
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) { out(at.x * 64 + i) = x(at.x * 64 + i); });
  return jit::Function(k.finish());
}

struct Pair {
  TensorView x, out;
  Pair(uintptr_t address, int64_t rows)
      : x(reinterpret_cast<void*>(address), DType::f32, {rows}, Device::cuda(0)),
        out(reinterpret_cast<void*>(address + 0x100000), DType::f32, {rows}, Device::cuda(0)) {}
  std::vector<TensorView> views() const { return {x, out}; }
};

/// A call with these tensors; `checked` is the call in full.
template <class Checked>
void call_with_two(std::string_view op, const Pair& pair,
                   std::initializer_list<jit::OptionValue> options, const Checked& checked) {
  jit::CallMemo memo(op);
  memo.add_tensor(pair.x);
  memo.add_tensor(pair.out);
  for (const jit::OptionValue& option : options) memo.add_option(option);
  if (!memo.launch_again(nullptr)) memo.learn(checked);
}

}  // namespace

TEST_CASE("a call that was checked before allocates nothing and takes no lock (R22.18, C07)") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  const TenTensors tensors = tensors_at(0x10000000, 1000);
  call_sum_of_nine(function, tensors, nullptr);
  const jit::LaunchPlan plan = jit::plan(tensors, [&] { function(tensors, {}, nullptr); });
  std::array<void*, 10> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = tensors[i].data;
  on.fake.state().pushed.reserve(10000);  // the fake's own notes
  const CallCounts before = counted_calls();
  for (int i = 0; i < 1000; ++i) {
    call_sum_of_nine(function, tensors, nullptr);
    plan(data, nullptr);
  }
  const CallCounts after = counted_calls();
  CHECK(on.fake.state().num_launches == 2001);
  CHECK(after.allocations == before.allocations);
  // The fake's push and pop of a context lock twice per launch; ours adds none.
  CHECK(after.locks - before.locks == 2 * 2000);
  CHECK(on.fake.state().num_attribute_calls == 0);
}

TEST_CASE("a call like an earlier one is launched on its own addresses") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  call_sum_of_nine(function, tensors_at(0x10000000, 1000), nullptr);
  CHECK(on.fake.state().first_argument == 0x10000000);
  CHECK(on.fake.state().grid[0] == 16);
  call_sum_of_nine(function, tensors_at(0x20000000, 1000), nullptr);
  CHECK(on.fake.state().first_argument == 0x20000000);
  call_sum_of_nine(function, tensors_at(0x20000000, 64), nullptr);  // other extents
  CHECK(on.fake.state().grid[0] == 1);
  call_sum_of_nine(function, tensors_at(0x20000000, 0), nullptr);  // nothing to do, twice
  call_sum_of_nine(function, tensors_at(0x20000000, 0), nullptr);
  CHECK(on.fake.state().num_launches == 3);
}

TEST_CASE("a call that differs from an earlier one only where it is wrong is refused (C08)") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  const TenTensors good = tensors_at(0x10000000, 1000);
  call_sum_of_nine(function, good, nullptr);
  call_sum_of_nine(function, good, nullptr);
  const int launches = on.fake.state().num_launches;
  TenTensors bad = good;
  std::string text;
  SECTION("dtype") {
    bad[3].dtype = DType::i32;
    text = "argument 'x3' has the wrong dtype";
  }
  SECTION("rank") {
    bad[3] = TensorView(bad[3].data, DType::f32, {1000, 1}, Device::cuda(0));
    text = "argument 'x3' has the wrong rank";
  }
  SECTION("extent") {
    bad[3].shape = {999};
    text = "argument 'x3' has the wrong shape";
  }
  SECTION("stride") {
    bad[3].strides = {2};
    text = "argument 'x3' has the wrong strides";
  }
  SECTION("device") {
    bad[3].device = Device::cuda(1);
    text = "the tensors are on different devices";
  }
  SECTION("null") {
    bad[3].data = nullptr;
    text = "argument 'x3' has no data";
  }
  SECTION("misaligned") {
    bad[3].data = static_cast<char*>(bad[3].data) + 2;
    text = "argument 'x3' is not aligned";
  }
  if (text.empty()) return;
  for (int i = 0; i < 2; ++i) {
    const std::string said = error_of([&] { call_sum_of_nine(function, bad, nullptr); });
    CAPTURE(said);
    CHECK(said.find("tessera: sum_of_nine: " + text) == 0);
  }
  CHECK(on.fake.state().num_launches == launches);
}

TEST_CASE("memory that overlaps is looked for on every call") {
  OnFakes on;
  const jit::Function function = copy_function("overlap_test");
  int full_calls = 0;
  const auto call = [&](const Pair& pair) {
    call_with_two("overlap_test", pair, {}, [&] {
      ++full_calls;
      function(pair.views(), {}, nullptr);
    });
  };
  Pair pair(0x10000000, 1024);  // 4096 bytes each
  for (int i = 0; i < 2; ++i) call(pair);
  CHECK(full_calls == 1);
  std::swap(pair.x.data, pair.out.data);  // another order
  call(pair);
  for (const int64_t bytes : {4096, -4096}) {  // side by side
    pair.out.data = static_cast<char*>(pair.x.data) + bytes;
    call(pair);
  }
  CHECK(full_calls == 1);
  for (const int64_t bytes : {3840, -3840, 0}) {
    pair.out.data = static_cast<char*>(pair.x.data) + bytes;
    CHECK(error_of([&] { call(pair); }).find("'out' shares memory with 'x'") != std::string::npos);
  }
  CHECK(full_calls == 4);
}

TEST_CASE("a thread remembers the calls of a model") {
  OnFakes on;
  const jit::Function function = copy_function("many_calls");
  int full_calls = 0;
  for (int round = 0; round < 3; ++round) {
    for (int64_t layer = 0; layer < 200; ++layer) {
      const Pair pair(0x10000000, 64 + 64 * layer);
      call_with_two("many_calls", pair, {layer % 7}, [&] {
        ++full_calls;
        function(pair.views(), {}, nullptr);
      });
    }
  }
  CHECK(full_calls == 200);
}

TEST_CASE("calls with other options are other calls") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  const TenTensors t = tensors_at(0x10000000, 1000);
  int full_calls = 0;
  const auto call = [&](bool flag, const jit::OptionValue& limit, std::string_view word,
                        std::span<const int64_t> block = {}) {
    call_with_ten("options_test", t, {flag, limit, word, block}, nullptr, [&] {
      ++full_calls;
      function(t, {}, nullptr);
    });
  };
  for (int i = 0; i < 2; ++i) {
    call(false, {}, "sqrtsoftplus");
    call(true, {}, "sqrtsoftplus");
    call(false, 0.0, "sqrtsoftplus");  // zero is not the same as absent
    call(false, 1.0, "sqrtsoftplus");
    call(false, int64_t{0}, "sqrtsoftplus");
    call(false, {}, "sqrtsoftmax");
    call(false, {}, "");
    call(false, {}, "", std::array<int64_t, 2>{1, 128});
    call(false, {}, "", std::array<int64_t, 2>{128, 1});
  }
  CHECK(full_calls == 9);
}

TEST_CASE("a call with one tensor twice says nothing of a call with two") {
  OnFakes on;
  const jit::Function copy = copy_function("twice");
  Pair pair(0x10000000, 100);
  TensorView other = pair.x;
  int full_calls = 0;
  const auto call = [&] {  // copies `other`
    jit::CallMemo memo("twice");
    for (const TensorView* view : {&pair.x, &other, &pair.out}) memo.add_tensor(*view);
    const auto in_full = [&] {
      ++full_calls;
      copy(std::array{other, pair.out}, {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
  };
  call();
  CHECK(on.fake.state().first_argument == 0x10000000);
  for (const uintptr_t address : {0x20000000u, 0x30000000u, 0x40000000u}) {
    other.data = reinterpret_cast<void*>(address);
    call();
    CHECK(on.fake.state().first_argument == static_cast<int64_t>(address));
  }
  CHECK(full_calls == 2);  // with two tensors, one is enough
  other.data = pair.x.data;
  const std::array views{pair.x, other, pair.out};
  CHECK(error_of([&] {
          jit::plan(views, [&] { copy(std::array{other, pair.out}, {}, nullptr); });
        }).find("tessera: this call cannot become a launch plan") == 0);
}

TEST_CASE("columns of one buffer are remembered apart") {
  OnFakes on;
  const jit::Function copy = copy_function("columns");
  // k and v [8, 2] as columns of one buffer [8, 4].
  const auto columns = [](uintptr_t address) {
    return TensorView(reinterpret_cast<void*>(address), DType::f32, {8, 2}, {4, 1},
                      Device::cuda(0));
  };
  const TensorView k = columns(0x10000000);
  TensorView v = columns(0x10000008);
  const Pair out(0x20000000, 8);
  for (const uintptr_t address : {0x10000008u, 0x30000008u, 0x40000008u}) {
    v.data = reinterpret_cast<void*>(address);
    jit::CallMemo memo("columns");
    memo.add_tensor(k);
    memo.add_tensor(v);
    memo.add_tensor(out.out);
    const auto in_full = [&] {
      const TensorView row(v.data, DType::f32, {8}, {1}, v.device);
      copy(std::array{row, out.out}, {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
    CHECK(on.fake.state().first_argument == static_cast<int64_t>(address));
  }
}

TEST_CASE("a call that leaves tensors out is remembered") {
  OnFakes on;
  const jit::Function copy = copy_function("left_out");
  const Pair pair(0x10000000, 100);
  const TensorView none;
  int full_calls = 0;
  for (int i = 0; i < 3; ++i) {
    jit::CallMemo memo("left_out");
    for (const TensorView* view : {&pair.x, &none, &none, &pair.out}) memo.add_tensor(*view);
    const auto in_full = [&] {
      ++full_calls;
      copy(pair.views(), {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
  }
  CHECK(full_calls == 1);
  CHECK(on.fake.state().num_launches == 3);
}

TEST_CASE("the padding that a kernel writes is memory of its tensor") {
  OnFakes on;
  const jit::Function copy = copy_function("padded");
  Pair pair(0x10000000, 100);
  const TensorView first(pair.out.data, DType::f32, {97},
                         Device::cuda(0));  // as the caller sees it
  int full_calls = 0;
  const auto call = [&](const TensorView& neighbour) {
    jit::CallMemo memo("padded");
    memo.add_tensor(pair.x);
    memo.add_tensor(first);
    memo.add_tensor(neighbour);
    const auto in_full = [&] {
      ++full_calls;
      copy(pair.views(), {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
  };
  const auto behind = [&](int64_t bytes) {
    return TensorView(static_cast<char*>(pair.out.data) + bytes, DType::f32, {64}, Device::cuda(0));
  };
  call(behind(4096));
  call(behind(8192));
  CHECK(full_calls == 1);
  call(behind(384 + 16));  // behind the padding; 256 divides 4096 and 8192, so this is another call
  call(behind(384 + 16));
  CHECK(full_calls == 2);
  call(behind(384 + 8));  // in it
  call(behind(384 + 8));
  CHECK(full_calls == 4);
}

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

namespace {

/// Runs a kernel of its own per op and number on the executor; true if it did what it should.
bool run_filled(const std::string& op, int number) {
  std::vector<float> memory(64);
  const TensorView view(memory.data(), DType::f32, {64});
  const auto build = [&] {
    dsl::Builder k("filled");
    auto out = k.output("out", DType::f32, {64});
    k.launch({1}, {.threads = 64});
    out(k.thread()) = static_cast<float>(number);
    return k.finish();
  };
  jit::run_op(op, std::to_string(number), build, NamedTensors{{"out", view}}, nullptr);
  return memory[63] == static_cast<float>(number);
}

/// The status of a child that runs a kernel; 0 if that was right. One that waits for a thread of its
/// parent would wait for ever.
int status_of_child(int number) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(run_filled("fork_child", number) ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace

TEST_CASE("children of fork prepare kernels although another thread was at it") {
#ifdef __SANITIZE_THREAD__
  TESSERA_SKIP("ThreadSanitizer may wait for ever in a child that was forked beside other threads");
#endif
  std::atomic<bool> done = false;
  std::thread busy([&] {
    for (int number = 0; !done; ++number) run_filled("fork_parent", number);
  });
  int failures = 0;
  for (int i = 0; i < 40; ++i) failures += status_of_child(i) == 0 ? 0 : 1;
  done = true;
  busy.join();
  CHECK(failures == 0);
}

TEST_CASE("a child of fork does not wait for the first call that its parent's thread was in") {
#ifdef __SANITIZE_THREAD__
  TESSERA_SKIP("ThreadSanitizer may wait for ever in a child that was forked beside other threads");
#endif
  for (int delay = 0; delay < 150;
       ++delay) {  // microseconds, the time that a runtime takes to make
    const pid_t process = fork();
    if (process == 0) {
      std::thread first_call([] { run_filled("fork_parent", 0); });
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      const int status = status_of_child(1);
      first_call.join();
      _exit(status == 0 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(process, &status, 0) == process);
    CAPTURE(delay);
    REQUIRE(status == 0);
  }
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
