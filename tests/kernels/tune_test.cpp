// The tile sizes that measurement may choose: every candidate gives the bits of the standard one (U42), and where
// a choice comes from (T4).

#include "kernels/jit/tune.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/jit/tune_check.h"
#include "kernels/op.h"
#include "kernels/views/dry_call.h"
#include "kernels/warm_up.h"
#include "runtime/cache/tuned.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/runtime.h"
#include "tests/kernels/on_fakes.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/tune/tuner.h"

namespace tessera {
namespace {

using kernels::jit::TuneAsk;
using kernels::jit::TuneChoice;
using kernels::jit::TuneScope;
using kernels::jit::TuneSpace;

const kernels::OpInfo& op_named(const std::string& name) {
  return kernels::find_op(name);
}

/// A call without memory.
void call_dry(const kernels::OpInfo& info, const kernels::BenchCase& one) {
  const kernels::Params params = kernels::check_params(info, one.params);
  info.run(kernels::placed_nowhere(
               kernels::views_with_outputs(info, kernels::views_of(one), params), Device::cuda(0)),
           params, nullptr);
}

TuneSpace space_of_two() {
  return {.fields = {{"a", {1, 2, 3}}, {"b", {10, 20}}},
          .standard =
              [](const auto&) {
                return TuneChoice{2, 20};
              },
          .is_legal = [](const auto&, const TuneChoice& c) { return c[0] * c[1] <= 40; }};
}

runtime::TunedEntry entry_for(std::vector<int64_t> bucket, int64_t a, int64_t b) {
  runtime::TunedEntry entry;
  entry.key = {"x", 1, {{"bytes", 2}}, std::move(bucket), "NVIDIA T", 4, "sm_90a"};
  entry.choice = {{"a", a}, {"b", b}};
  entry.date = "2026-01-01";
  return entry;
}

}  // namespace

TEST_CASE("every candidate of every example gives the standard bits (U42)", "[tune][slow]") {
  std::map<std::string, size_t> num_candidates;  // of each op that leaves a choice open
  for (const kernels::OpInfo& op : kernels::ops()) {
    for (const kernels::BenchCase& example : op.examples) {
      for (const TuneAsk& ask : tools::open_choices(op, example, {9, 0, 'a'})) {
        tools::OpCall call(op, example, Device::cpu(), 1);
        const auto checked = kernels::jit::check_candidates([&] { call.run(); }, ask);
        num_candidates[ask.op] += checked.size();
        for (const kernels::jit::CheckedCandidate& one : checked) {
          INFO(op.name << " " << example.label << ": "
                       << runtime::to_string(named(*ask.space, one.choice)));
          CHECK(one.problem.empty());
          CHECK(!one.differs);
        }
      }
    }
  }
  for (const char* name :
       {"transpose", "batched_transpose", "post_fwd", "pre_apply_mix_fwd", "expand_to_mhc_fwd"}) {
    CHECK(num_candidates[name] > 2 * op_named(name).examples.size());
  }
}

TEST_CASE("every candidate of an example compiles without spills for five targets (U42)",
          "[tune][slow]") {
  try {
    static_cast<void>(runtime::Runtime::instance().nvrtc());
  } catch (const Error& error) {
    TESSERA_SKIP(error.what());
  }
  const std::string name = GENERATE("transpose", "post_fwd");
  const kernels::OpInfo& op = op_named(name);
  const kernels::BenchCase& example = op.examples.at(1);
  for (const char* word : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    const runtime::Target target = tools::target_of(word);
    for (const TuneAsk& ask : tools::open_choices(op, example, target)) {
      const std::vector<TuneChoice> all = candidates(*ask.space, ask.facts);
      const std::vector<std::string> problems =
          kernels::jit::compile_problems([&] { call_dry(op, example); }, ask, all, target);
      REQUIRE(problems.size() == all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        INFO(word << " " << runtime::to_string(named(*ask.space, all[i])));
        CHECK(problems[i] == "");
      }
    }
  }
}

TEST_CASE("candidates: the standard one first, then in order, legal ones only (T3)", "[tune]") {
  const std::vector<TuneChoice> all = candidates(space_of_two(), {});
  CHECK(all == std::vector<TuneChoice>{{2, 20}, {1, 10}, {1, 20}, {2, 10}, {3, 10}});
  TuneSpace large = space_of_two();
  large.fields[0].values.resize(200);
  for (size_t i = 0; i < 200; ++i) large.fields[0].values[i] = static_cast<int64_t>(i);
  large.is_legal = [](const auto&, const auto&) { return true; };
  CHECK(candidates(large, {}).size() == 64);
}

TEST_CASE("a choice is a scope's, else the standard one on the CPU (T4)", "[tune]") {
  static const TuneSpace space = space_of_two();
  CHECK(kernels::jit::choose("x", space, {}, Device::cpu()) == TuneChoice{2, 20});
  const uint64_t before = kernels::jit::tune_generation();
  {
    const TuneScope scope([](const TuneAsk& ask) {
      return ask.op == "x" ? std::optional<TuneChoice>({3, 10}) : std::nullopt;
    });
    CHECK(kernels::jit::tune_generation() != before);  // memos of calls miss
    CHECK(kernels::jit::choose("x", space, {}, Device::cpu()) == TuneChoice{3, 10});
    CHECK(kernels::jit::choose("y", space, {}, Device::cpu()) == TuneChoice{2, 20});
    {
      const TuneScope inner([](const TuneAsk&) { return std::nullopt; });
      CHECK(kernels::jit::choose("x", space, {}, Device::cpu()) == TuneChoice{3, 10});
    }
    const TuneScope wrong([](const TuneAsk&) { return TuneChoice{3, 20}; });
    CHECK_THROWS_AS(kernels::jit::choose("x", space, {}, Device::cpu()), Error);
  }
  CHECK(kernels::jit::tune_generation() == before);
  kernels::jit::reload_tuned();
  CHECK(kernels::jit::tune_generation() != before);
}

TEST_CASE("a choice comes from the user's database, the nearest bucket first (T4, T10)", "[tune]") {
  static const TuneSpace space = [] {
    TuneSpace made = space_of_two();
    made.bucket = [](const auto& facts) { return std::vector<int64_t>{facts.extents.at("T")}; };
    return made;
  }();
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  for (const runtime::TunedEntry& entry :
       {entry_for({1}, 1, 10), entry_for({9}, 3, 10), entry_for({5}, 3, 20),  // not legal
        entry_for({7}, 7, 10)}) {                                             // no value of a
    REQUIRE(publish_tuned(options, entry).empty());
  }
  const auto ask = [&](int64_t tokens, int64_t sms = 4) {
    TuneAsk made{"x", &space, {.spec = {{"bytes", 2}}, .extents = {{"T", tokens}}}};
    made.facts.device = "NVIDIA T";
    made.facts.num_sms = sms;
    return find_choice(made);
  };
  {
    const OnFakes process(options);
    CHECK(ask(1).choice == TuneChoice{1, 10});
    CHECK(ask(1).source == kernels::jit::TuneSource::user);
    CHECK(ask(4).choice == TuneChoice{1, 10});
    CHECK(ask(6).choice == TuneChoice{3, 10});
    CHECK(ask(1, 2).source == kernels::jit::TuneSource::standard);  // a slice of the GPU
    // Read once: later entries count after a reload.
    runtime::TunedEntry newer = entry_for({1}, 2, 10);
    newer.date = "2026-01-02";
    REQUIRE(publish_tuned(options, newer).empty());
    CHECK(ask(1).choice == TuneChoice{1, 10});
    kernels::jit::reload_tuned();
    CHECK(ask(1).choice == TuneChoice{2, 10});
    CHECK(process.process.lines.empty());
  }
  options.tune = runtime::TuneMode::off;
  const OnFakes process(options);
  CHECK(ask(1).source == kernels::jit::TuneSource::standard);
  CHECK(ask(1).choice == TuneChoice{2, 20});
}

namespace {

/// Stores two choices for post_fwd of n=4 and H, for few and for many tokens, on the fake GPU.
void store_two_choices(const runtime::Options& options, int64_t hidden) {
  for (const auto& [bucket, rows, cols] : {std::tuple{4, 1, 1024}, std::tuple{12, 2, 512}}) {
    runtime::TunedEntry entry;
    entry.key = {"post_fwd", 1,          {{"streams", 4}, {"hidden", hidden}, {"align", 16}},
                 {bucket},   "Fake GPU", 132,
                 "sm_90a"};
    entry.choice = {{"rows", rows}, {"cols", cols}, {"threads", 128}};
    entry.date = "2026-01-01";
    REQUIRE(publish_tuned(options, entry).empty());
  }
}

void call_post_fwd(int64_t tokens, int64_t hidden) {
  const kernels::OpInfo& info = op_named("post_fwd");
  call_dry(info, info.case_of(fmt::format("T={} n=4 H={}", tokens, hidden)));
}

}  // namespace

// The table of prepared kernels outlives the fakes: each of these tests has an H of its own.

TEST_CASE("10 000 calls of new lengths compile a kernel per stored choice (U44)", "[tune]") {
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  options.tune = GENERATE(runtime::TuneMode::cached, runtime::TuneMode::off);
  const bool is_off = options.tune == runtime::TuneMode::off;
  const int64_t hidden = is_off ? 9216 : 8192;
  store_two_choices(options, hidden);
  OnFakes on(options);
  for (int64_t tokens = 1; tokens <= 10000; ++tokens) call_post_fwd(tokens, hidden);
  CHECK(on.fake.state().num_compiles == (is_off ? 1 : 2));
  CHECK(on.fake.state().num_launches == 10000);
}

TEST_CASE("after warm_up no number of tokens compiles another stored choice", "[tune][warm_up]") {
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  options.jit = runtime::JitMode::error;
  store_two_choices(options, 10240);
  OnFakes on(options);
  kernels::warm_up("post_fwd", "T=13 n=4 H=10240", Device::cuda(0));
  CHECK(on.fake.state().num_compiles == 2);
  on.process.runtime->seal();
  for (const int64_t tokens : {0, 1, 13, 17, 300, 4096, 1 << 20}) call_post_fwd(tokens, 10240);
  CHECK(on.fake.state().num_compiles == 2);
}

TEST_CASE("a recording gets all stored choices of a kernel", "[tune]") {
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  options.record = scratch.path() + "/specs.jsonl";
  store_two_choices(options, 11264);
  OnFakes on(options);
  call_post_fwd(13, 11264);
  CHECK(tools::requests_in(options.record).size() == 2);
}

TEST_CASE("compiling for a GPU model takes its stored choices (T11)", "[tune]") {
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  store_two_choices(options, 7168);
  OnFakes on(options);
  const kernels::OpInfo& op = op_named("post_fwd");
  const kernels::BenchCase one = op.case_of("T=1 n=4 H=7168");
  const auto num = [&](const kernels::jit::GpuModel& model) {
    std::set<std::string> specs;
    for (const runtime::KernelRequest& request : tools::requests_of(op, one, {9, 0, 'a'}, model)) {
      specs.insert(request.spec.value());
    }
    return specs.size();
  };
  CHECK(num({}) == 1);  // the standard one
  CHECK(num({"Fake GPU", 132}) == 2);
  CHECK(num({"Fake GPU", 66}) == 1);
}

TEST_CASE("an entry of another revision is passed over, a new value keeps old entries (U45)",
          "[tune]") {
  TuneSpace space = space_of_two();
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  REQUIRE(publish_tuned(options, entry_for({}, 1, 10)).empty());
  const OnFakes process(options);
  const auto source = [&] {
    TuneAsk ask{"x", &space, {.spec = {{"bytes", 2}}}};
    ask.facts.device = "NVIDIA T";
    ask.facts.num_sms = 4;
    CHECK(has_entry(ask) == (find_choice(ask).source != kernels::jit::TuneSource::standard));
    return find_choice(ask).source;
  };
  CHECK(source() == kernels::jit::TuneSource::user);
  space.fields[0].values.push_back(4);
  CHECK(source() == kernels::jit::TuneSource::user);
  space.revision = 2;
  CHECK(source() == kernels::jit::TuneSource::standard);
}

TEST_CASE("choices that change bits count only where the program says so (T2)", "[tune]") {
  static const TuneSpace space = [] {
    TuneSpace made = space_of_two();
    made.changes_bits = true;
    return made;
  }();
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  options.tune_may_change_bits = GENERATE(false, true);
  REQUIRE(publish_tuned(options, entry_for({}, 1, 10)).empty());
  const OnFakes process(options);
  TuneAsk ask{"x", &space, {.spec = {{"bytes", 2}}}};
  ask.facts.device = "NVIDIA T";
  ask.facts.num_sms = 4;
  CHECK((find_choice(ask).source == kernels::jit::TuneSource::user) ==
        options.tune_may_change_bits);
}

TEST_CASE("a damaged database is warned of once and passed over (T10)", "[tune]") {
  static const TuneSpace space = space_of_two();
  const test::ScratchFolder scratch;
  runtime::Options options;
  options.tune_dir = scratch.path() + "/tuned";
  REQUIRE(publish_tuned(options, entry_for({}, 1, 10)).empty());
  std::ofstream(options.tune_dir + "/nvidia-t_4sm.json") << "[{";
  const OnFakes process(options);
  TuneAsk ask{"x", &space, {.spec = {{"bytes", 2}}}};
  ask.facts.device = "NVIDIA T";
  ask.facts.num_sms = 4;
  for (int i = 0; i < 3; ++i) {
    CHECK(find_choice(ask).source == kernels::jit::TuneSource::standard);
    kernels::jit::reload_tuned();
  }
  REQUIRE(process.process.lines.size() == 1);
  CHECK(process.process.lines[0].find("it is no JSON list of entries") != std::string::npos);
}

}  // namespace tessera
