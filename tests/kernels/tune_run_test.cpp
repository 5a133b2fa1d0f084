// Tuning of any call (T13), on the executor with scripted times, and of first calls (T5), on a fake GPU.

#include "kernels/jit/tune_run.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/jit/count_scope.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "kernels/op.h"
#include "kernels/ops.h"
#include "kernels/views/dry_call.h"
#include "runtime/cache/tuned.h"
#include "tests/kernels/on_fakes.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/counted_calls.h"
#include "tools/lib/tune/tuner.h"

namespace tessera {
namespace {

using kernels::jit::TuneChoice;
using kernels::jit::TuneReport;
using kernels::jit::TuneSpace;

constexpr int64_t kRows = 16, kCols = 128;

/// A user's own kernel, y += x + 1, of which a block computes `rows` rows. Two rows are wrong, and 16 fail.
struct Spec {
  int32_t rows;
};

ir::Kernel build(const Spec& s) {
  if (s.rows == 16) throw std::runtime_error("too many registers");
  dsl::Builder k(fmt::format("own_sum_{}", s.rows));
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, kCols});
  auto y = k.output("y", DType::f32, {rows, kCols});
  auto at = k.launch({ceil_div(rows, s.rows)}, {.threads = 32});
  auto tile = k.fragment(DType::f32, {s.rows, kCols});
  auto sum = k.fragment(DType::f32, {s.rows, kCols});
  k.copy(x.tile({at.x * s.rows, 0}, {s.rows, kCols}), tile);
  k.copy(y.tile({at.x * s.rows, 0}, {s.rows, kCols}), sum);
  const float one = s.rows == 2 ? 2.0f : 1.0f;
  k.parallel({s.rows, kCols}, [&](auto r, auto c) { sum(r, c) = sum(r, c) + tile(r, c) + one; });
  k.copy(sum, y.tile({at.x * s.rows, 0}, {s.rows, kCols}));
  return k.finish();
}

TuneSpace own_space() {
  return {.fields = {{"rows", {1, 2, 4, 8, 16}}},
          .standard = [](const auto&) { return TuneChoice{4}; },
          .is_legal = [](const auto&, const auto&) { return true; }};
}

/// One call of the kernel, with the memory that it uses.
struct OwnCall {
  explicit OwnCall(const TuneSpace& space_) : space(space_) {}
  void operator()() {
    const TensorView tensors[] = {{x.data(), DType::f32, {kRows, kCols}},
                                  {y.data(), DType::f32, {kRows, kCols}}};
    const TuneChoice choice =
        kernels::jit::choose("own_sum", space, {.spec = {{"cols", kCols}}}, Device::cpu());
    chosen.push_back(choice.at(0));
    kernels::jit::run("own_sum", Spec{static_cast<int32_t>(choice.at(0))}, build, tensors, {},
                      nullptr);
  }
  const TuneSpace& space;
  std::vector<float> x = std::vector<float>(kRows * kCols, 0.5f);
  std::vector<float> y = std::vector<float>(kRows * kCols, 3.0f);
  std::vector<int64_t> chosen;
};

/// The time that a GPU would take for one call, in us, by the rows of a block.
class ScriptedTimer final : public kernels::jit::CallTimer {
 public:
  explicit ScriptedTimer(std::map<int64_t, double> us_of) : us_of_(std::move(us_of)) {}
  double us(const std::function<void()>& call, kernels::Stream) override {
    const kernels::jit::CountScope scope;
    call();
    const std::string name = scope.kernels().at(0).kernel;
    return us_of_.at(std::stoll(name.substr(name.rfind('_') + 1)));
  }
  std::string method() const override { return "a script"; }

 private:
  std::map<int64_t, double> us_of_;
};

std::string dropped(const TuneReport& report, const std::string& choice) {
  for (const runtime::TunedCandidate& one : report.entries.at(0).candidates) {
    if (one.choice == choice) return one.dropped;
  }
  return "no such candidate";
}

}  // namespace

TEST_CASE("a user's own kernel is tuned on copies of its tensors (T13)", "[tune]") {
  const TuneSpace space = own_space();
  OwnCall call(space);
  ScriptedTimer timer({{1, 300}, {4, 100}, {8, 80}});
  const kernels::jit::TimerScope scope(timer);
  const TuneReport report = kernels::jit::tune::run(std::ref(call));
  REQUIRE(report.entries.size() == 1);
  const runtime::TunedEntry& entry = report.entries[0];
  CHECK(entry.key.op == "own_sum");
  CHECK(entry.key.spec == runtime::NamedValues{{"cols", kCols}});
  CHECK(entry.choice == runtime::NamedValues{{"rows", 8}});
  CHECK(entry.us == 80);
  CHECK(entry.standard_us == 100);
  CHECK(entry.method == "a script");
  CHECK(entry.candidates.size() == 5);
  CHECK(entry.candidates[0].choice == "rows=4");
  CHECK(call.x == std::vector<float>(kRows * kCols, 0.5f));
  CHECK(call.y == std::vector<float>(kRows * kCols, 3.0f));  // the kernel adds to it
  call();
  CHECK(call.y == std::vector<float>(kRows * kCols, 4.5f));
}

TEST_CASE("a candidate that changes a bit is dropped and reported, one that fails dropped (T6)",
          "[tune]") {
  const TuneSpace space = own_space();
  OwnCall call(space);
  ScriptedTimer timer({{1, 300}, {4, 100}, {8, 100}});  // none of 2 and 16: they are not measured
  const kernels::jit::TimerScope scope(timer);
  const TuneReport report = kernels::jit::tune::run(std::ref(call));
  CHECK(report.differing == std::vector<std::string>{"own_sum: rows=2"});
  CHECK(dropped(report, "rows=2") == "its results differ from the standard choice's");
  CHECK(dropped(report, "rows=16") == "too many registers");
  CHECK(dropped(report, "rows=1") == "slower after 5 rounds");
  CHECK(report.entries[0].choice == runtime::NamedValues{{"rows", 4}});
}

TEST_CASE("a candidate that the caller skips is neither run nor measured (T9)", "[tune]") {
  const TuneSpace space = own_space();
  OwnCall call(space);
  ScriptedTimer timer({{1, 300}, {4, 100}});
  const kernels::jit::TimerScope scope(timer);
  const TuneReport report = kernels::jit::tune::run(
      std::ref(call), {.skip = [](const kernels::jit::TuneAsk&, const TuneChoice& choice) {
        return choice[0] == 1 ? "" : fmt::format("{} rows", choice[0]);
      }});
  CHECK(report.differing.empty());  // two rows are not compared
  CHECK(dropped(report, "rows=8") == "8 rows");
  CHECK(dropped(report, "rows=4").empty());
  CHECK(call.chosen == std::vector<int64_t>{4, 4, 1});
}

TEST_CASE("a space whose choices change bits is measured as it is (T2)", "[tune]") {
  TuneSpace space = own_space();
  space.changes_bits = true;
  OwnCall call(space);
  ScriptedTimer timer({{1, 300}, {2, 50}, {4, 100}, {8, 100}});
  const kernels::jit::TimerScope scope(timer);
  const TuneReport report = kernels::jit::tune::run(std::ref(call));
  CHECK(report.differing.empty());
  CHECK(report.entries.at(0).choice == runtime::NamedValues{{"rows", 2}});
}

TEST_CASE("candidates that use other memory than the standard one are dropped", "[tune]") {
  const TuneSpace space = own_space();
  std::vector<float> x(kRows * kCols, 0.5f), y(kRows * kCols, 3.0f);
  const auto call = [&] {
    const TuneChoice choice = kernels::jit::choose("own_sum", space, {}, Device::cpu());
    const int64_t rows = choice.at(0) == 8 ? kRows / 2 : kRows;
    const TensorView tensors[] = {{x.data(), DType::f32, {rows, kCols}},
                                  {y.data(), DType::f32, {rows, kCols}}};
    kernels::jit::run("own_sum", Spec{static_cast<int32_t>(choice.at(0))}, build, tensors, {},
                      nullptr);
  };
  ScriptedTimer timer({{1, 100}, {4, 100}});
  const kernels::jit::TimerScope scope(timer);
  CHECK(dropped(kernels::jit::tune::run(call), "rows=8") ==
        "tessera: with this choice the call uses other memory\n"
        "  expected  tensors of 8192, 8192 bytes\n"
        "  got       tensors of 4096, 4096 bytes");
}

TEST_CASE("the case of an op is tuned on random values", "[tune]") {
  class Flat final : public kernels::jit::CallTimer {
   public:
    double us(const std::function<void()>& call, kernels::Stream) override {
      if (num_calls++ == 0) call();
      return 100;
    }
    std::string method() const override { return "a script"; }
    int num_calls = 0;
  } timer;
  const kernels::jit::TimerScope scope(timer);
  for (const char* name : {"transpose", "post_fwd", "expand_to_mhc_fwd"}) {
    const kernels::OpInfo& op = kernels::find_op(name);
    const TuneReport report = tools::tune_case(op, op.examples.at(0), Device::cpu());
    REQUIRE(report.entries.size() == 1);
    CHECK(report.differing.empty());
    CHECK(report.entries[0].key.op == name);
    CHECK(report.entries[0].candidates.size() > 1);
    CHECK(runtime::to_string(report.entries[0].choice) == report.entries[0].candidates[0].choice);
    for (const runtime::TunedCandidate& one : report.entries[0].candidates) {
      CHECK(one.us == 100);
    }
  }
  CHECK(timer.num_calls > 3);
}

TEST_CASE("without a GPU tuning says what it needs", "[tune]") {
  const TuneSpace space = own_space();
  OwnCall call(space);
  CHECK(test::error_of([&] { kernels::jit::tune::run(std::ref(call)); }) ==
        "tessera: own_sum: tile sizes are measured on a GPU\n"
        "  expected  CUDA tensors\n"
        "  got       tensors on cpu");
  CHECK(kernels::jit::tune::run([] {}).entries.empty());  // nothing is open
}

namespace {

/// Measures nothing: the fewer blocks, the faster.
class CountingTimer final : public kernels::jit::CallTimer {
 public:
  explicit CountingTimer(test::FakeCuda& fake) : fake_(fake) {}
  double us(const std::function<void()>& call, kernels::Stream) override {
    call();
    ++num_samples;
    return 100 + static_cast<double>(fake_.state().grid[0]);  // of the last launch
  }
  std::string method() const override {
    ++num_tunings;  // asked once for each
    return "a script";
  }
  int num_samples = 0;
  mutable std::atomic<int> num_tunings = 0;

 private:
  test::FakeCuda& fake_;
};

struct OnGpu {
  explicit OnGpu(runtime::TuneMode mode, bool seals = false)
      : on([&] {
          runtime::Options options;
          options.tune_dir = scratch.path() + "/tuned";
          options.tune = mode;
          return options;
        }()),
        timer(on.fake),
        scope(timer) {
    if (seals) on.process.runtime->seal();
  }
  /// An op's call without memory, in a stream that a graph may capture.
  void call_post_fwd(int64_t tokens, int64_t hidden) {
    const kernels::OpInfo& info = kernels::find_op("post_fwd");
    const kernels::BenchCase one = info.case_of(fmt::format("T={} n=4 H={}", tokens, hidden));
    int stream = 0;
    info.run(
        kernels::placed_nowhere(
            kernels::views_with_outputs(info, kernels::views_of(one), one.params), Device::cuda(0)),
        one.params, &stream);
  }
  std::vector<runtime::TunedEntry> stored() const {
    return read_tuned(on.process.runtime->options(), "Fake GPU", 132).entries;
  }
  test::ScratchFolder scratch;
  OnFakes on;
  CountingTimer timer;
  kernels::jit::TimerScope scope;
};

}  // namespace

// The table of prepared kernels outlives the fakes: each of these tests has an H of its own.

TEST_CASE("with TESSERA_TUNE=on the first call measures what is missing (T5)", "[tune]") {
  OnGpu gpu(runtime::TuneMode::on);
  gpu.call_post_fwd(4096, 12288);
  const int first = gpu.timer.num_samples;
  CHECK(first > 0);
  REQUIRE(gpu.stored().size() == 1);
  CHECK(gpu.stored()[0].key.op == "post_fwd");
  CHECK(gpu.stored()[0].candidates.size() > 1);
  CHECK(gpu.stored()[0].key.target == "sm_90a");
  gpu.call_post_fwd(4096, 12288);
  gpu.call_post_fwd(4095, 12288);  // the same bucket
  CHECK(gpu.timer.num_samples == first);
  gpu.call_post_fwd(1, 12288);
  CHECK(gpu.timer.num_samples > first);
  CHECK(gpu.stored().size() == 2);
  CHECK(gpu.on.process.lines.empty());
}

TEST_CASE("tune::run and the scopes of a tuner are no first calls", "[tune]") {
  OnGpu gpu(runtime::TuneMode::on);
  const kernels::jit::TuneScope scope([](const auto&) { return std::nullopt; });
  gpu.call_post_fwd(4096, 13312);
  CHECK(gpu.timer.num_samples == 0);
}

TEST_CASE("only TESSERA_TUNE=on measures (U44)", "[tune]") {
  OnGpu gpu(GENERATE(runtime::TuneMode::off, runtime::TuneMode::cached));
  gpu.call_post_fwd(4096, 14336);
  CHECK(gpu.timer.num_samples == 0);
  CHECK(gpu.stored().empty());
}

TEST_CASE("no call is tuned while its stream is captured or after seal() (T5, U44)", "[tune]") {
  const bool seals = GENERATE(false, true);
  OnGpu gpu(runtime::TuneMode::on, seals);
  if (!seals) {
    kernels::jit::prepare([&] { gpu.call_post_fwd(4096, 15360); });
    gpu.on.fake.state().capture_status = 1;
  }
  gpu.call_post_fwd(4096, 15360);
  gpu.call_post_fwd(4096, 15360);
  CHECK(gpu.timer.num_samples == 0);
  CHECK(gpu.stored().empty());
  CHECK(gpu.on.fake.state().num_launches == 2);
  REQUIRE(gpu.on.process.lines.size() == 1);
  CHECK(gpu.on.process.lines[0].find(
            seals ? "post_fwd: its tile sizes are not tuned now (TESSERA_TUNE=on): the program is "
                    "sealed"
                  : "post_fwd: its tile sizes are not tuned now (TESSERA_TUNE=on): the stream is "
                    "being captured") != std::string::npos);
}

TEST_CASE("a call like an earlier one knows nothing of tuning (U46)", "[tune]") {
  const auto mode =
      GENERATE(runtime::TuneMode::off, runtime::TuneMode::cached, runtime::TuneMode::on);
  OnGpu gpu(mode);
  const int64_t hidden = 17408 + 1024 * static_cast<int64_t>(mode);
  const kernels::OpInfo& info = kernels::find_op("post_fwd");
  const kernels::BenchCase one = info.case_of(fmt::format("T=64 n=4 H={}", hidden));
  const kernels::Tensors views = kernels::placed_nowhere(
      kernels::views_with_outputs(info, kernels::views_of(one), one.params), Device::cuda(0));
  const kernels::PostFwd call{.x = views.at("x"),
                              .residual = views.at("residual"),
                              .post_mix = views.at("post_mix"),
                              .comb_mix = views.at("comb_mix"),
                              .out = views.at("out")};
  kernels::post_fwd(call, nullptr);
  CHECK((gpu.timer.num_samples > 0) == (mode == runtime::TuneMode::on));
  const int num_samples = gpu.timer.num_samples;
  gpu.on.fake.state().pushed.reserve(1 << 20);  // the fake's own notes
  const int num_launches = gpu.on.fake.state().num_launches;
  const test::CallCounts before = test::counted_calls();
  for (int i = 0; i < 1000; ++i) kernels::post_fwd(call, nullptr);
  const test::CallCounts after = test::counted_calls();
  CHECK(gpu.on.fake.state().num_launches == num_launches + 1000);
  CHECK(after.allocations == before.allocations);
  CHECK(after.locks - before.locks == 2 * 1000);  // of the fake's push and pop of a context
  CHECK(gpu.timer.num_samples == num_samples);
}

TEST_CASE("of threads that call first at once, one tunes (T5)", "[tune]") {
  OnGpu gpu(runtime::TuneMode::on);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const kernels::jit::TimerScope scope(gpu.timer);
      gpu.call_post_fwd(4096, 20480);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(gpu.timer.num_tunings == 1);
  CHECK(gpu.stored().size() == 1);
  CHECK(gpu.on.process.lines.empty());
}

TEST_CASE("where the copies find no memory, the first call takes what is there (T5)", "[tune]") {
  OnGpu gpu(runtime::TuneMode::on);
  gpu.on.fake.state().allocate_result = 2;
  gpu.call_post_fwd(4096, 16384);
  CHECK(gpu.timer.num_samples == 0);
  CHECK(gpu.on.fake.state().num_launches == 1);
  REQUIRE(gpu.on.process.lines.size() == 1);
  CHECK(gpu.on.process.lines[0].find("post_fwd: its tile sizes are not tuned now") !=
        std::string::npos);
}

}  // namespace tessera
