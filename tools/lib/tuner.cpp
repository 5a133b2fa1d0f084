#include "tools/lib/tuner.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>

#include "kernels/jit/prepare.h"
#include "runtime/build_info.h"
#include "runtime/cache/folder.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "runtime/image.h"
#include "runtime/options.h"
#include "runtime/parallel.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "tools/lib/bench.h"
#include "tools/lib/bundle_maker.h"
#include "tools/lib/text_table.h"

namespace tessera::tools {
namespace {

using kernels::jit::TuneAsk;
using kernels::jit::TuneChoice;
using kernels::jit::TuneScope;

constexpr uint64_t kSeed = 22;

/// Answers `ask` with `choice` and every other question with the standard one.
TuneScope::Decide deciding(const TuneAsk& ask, TuneChoice choice) {
  return [ask, choice = std::move(choice)](const TuneAsk& other) {
    return is_same(ask, other) ? choice : other.space->standard(other.facts);
  };
}

TuneScope::Decide noting(std::vector<TuneAsk>& asked) {
  return [&asked](const TuneAsk& ask) {
    if (std::none_of(asked.begin(), asked.end(),
                     [&](const TuneAsk& known) { return is_same(known, ask); })) {
      asked.push_back(ask);
    }
    return ask.space->standard(ask.facts);
  };
}

Safetensors results_of(const kernels::OpInfo& op, const kernels::BenchCase& one, Device device,
                       const TuneAsk& ask, const TuneChoice& choice) {
  OpCall call(op, one, device, kSeed);
  const TuneScope scope(deciding(ask, choice));
  call.run();
  return call.results();
}

bool is_equal(const Safetensors& a, const Safetensors& b) {
  return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const StoredTensor& x, const StoredTensor& y) {
                      const auto left = x.data.bytes();
                      const auto right = y.data.bytes();
                      return x.name == y.name && x.shape == y.shape &&
                             std::equal(left.begin(), left.end(), right.begin(), right.end());
                    });
}

int64_t spilled_bytes(const kernels::OpInfo& op, const kernels::BenchCase& one, const TuneAsk& ask,
                      const TuneChoice& choice, runtime::Target target) {
  const TuneScope scope(deciding(ask, choice));
  int64_t bytes = 0;
  for (const runtime::KernelRequest& request : requests_of(op, one, target)) {
    bytes += runtime::Runtime::instance().image(request, target)->resources.spill_bytes;
  }
  return bytes;
}

/// Compiles all candidates side by side; what goes wrong is said when each is looked at.
void compile_candidates(const kernels::OpInfo& op, const kernels::BenchCase& one,
                        const TuneAsk& ask, const std::vector<TuneChoice>& choices,
                        runtime::Target target) {
  const int jobs = runtime::num_jobs(runtime::Runtime::instance().options());
  runtime::run_in_parallel(choices.size(), jobs, {}, [&](size_t i) {
    static_cast<void>(compile_problem(op, one, ask, choices[i], target));
  });
}

class GpuTimer final : public TuneTimer {
 public:
  GpuTimer(DeviceTimer& timer, OpCall& call, const TuneAsk& ask, std::vector<TuneChoice> choices)
      : timer_(timer), call_(call), ask_(ask), choices_(std::move(choices)) {}

  double sample_us(size_t candidate) override {
    const TuneScope scope(deciding(ask_, choices_[candidate]));
    return timer_.mean_us([&] { call_.run(); }, 1);
  }
  double elapsed_s() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  DeviceTimer& timer_;
  OpCall& call_;
  const TuneAsk& ask_;
  std::vector<TuneChoice> choices_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

runtime::TunedEntry entry_for(const TuneAsk& ask, const DeviceTimer& timer) {
  const runtime::BuildInfo build = runtime::build_info();
  const BenchMachine machine = bench_machine(timer);
  runtime::TunedEntry entry;
  entry.key = {ask.op,
               ask.space->revision,
               ask.facts.spec,
               ask.space->bucket_of(ask.facts),
               ask.facts.device,
               ask.facts.num_sms,
               to_string(runtime::Runtime::instance().target_on(timer.device()))};
  entry.method = machine.method;
  entry.version = build.version;
  entry.stamp = build.stamp;
  entry.nvrtc = machine.nvrtc;
  entry.driver = machine.driver;
  entry.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return entry;
}

void tune_choice(const kernels::OpInfo& op, const kernels::BenchCase& one, const TuneAsk& ask,
                 DeviceTimer& timer, const TuneRules& rules, TunedCase& tuned) {
  const runtime::Target target = runtime::Runtime::instance().target_on(timer.device());
  const std::vector<TuneChoice> all = candidates(*ask.space, ask.facts);
  compile_candidates(op, one, ask, all, target);
  runtime::TunedEntry entry = entry_for(ask, timer);
  std::vector<TuneChoice> living;
  std::vector<size_t> places;  // of the living in entry.candidates
  for (CheckedCandidate& checked : check_candidates(op, one, ask, Device::cuda(timer.device()))) {
    const std::string text = runtime::to_string(named(*ask.space, checked.choice));
    if (checked.problem.empty()) {
      checked.problem = compile_problem(op, one, ask, checked.choice, target);
    }
    entry.candidates.push_back({text, 0, 0, 0, checked.problem});
    if (checked.differs)
      tuned.differing.push_back(fmt::format("{} {}: {}", op.name, one.label, text));
    if (!checked.problem.empty()) continue;
    living.push_back(checked.choice);
    places.push_back(entry.candidates.size() - 1);
  }
  OpCall call(op, one, Device::cuda(timer.device()), kSeed);
  GpuTimer times(timer, call, ask, living);
  const Fastest found = find_fastest(times, living.size(), rules);
  for (size_t i = 0; i < living.size(); ++i) {
    const TimedCandidate& timed = found.candidates[i];
    runtime::TunedCandidate& candidate = entry.candidates[places[i]];
    candidate = {candidate.choice, timed.us, timed.spread, timed.samples, timed.dropped};
  }
  entry.choice = named(*ask.space, living[found.winner]);
  entry.us = found.candidates[found.winner].us;
  entry.spread = found.candidates[found.winner].spread;
  entry.standard_us = found.candidates[0].us;
  entry.standard_spread = found.candidates[0].spread;
  tuned.entries.push_back(std::move(entry));
}

}  // namespace

std::vector<TuneAsk> open_choices(OpCall& call) {
  std::vector<TuneAsk> asked;
  const TuneScope scope(noting(asked));
  call.run();
  return asked;
}

std::vector<TuneAsk> open_choices(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                  runtime::Target target) {
  std::vector<TuneAsk> asked;
  const TuneScope scope(noting(asked));
  static_cast<void>(requests_of(op, one, target));
  return asked;
}

std::vector<CheckedCandidate> check_candidates(const kernels::OpInfo& op,
                                               const kernels::BenchCase& one, const TuneAsk& ask,
                                               Device device) {
  const std::vector<TuneChoice> all = candidates(*ask.space, ask.facts);
  const Safetensors want = results_of(op, one, device, ask, all.front());
  std::vector<CheckedCandidate> checked = {{all.front(), "", false}};
  for (size_t i = 1; i < all.size(); ++i) {
    CheckedCandidate& candidate = checked.emplace_back(CheckedCandidate{all[i], "", false});
    try {
      candidate.differs = !is_equal(want, results_of(op, one, device, ask, all[i]));
      if (candidate.differs) candidate.problem = "its results differ from the standard choice's";
    } catch (const std::exception& error) {
      candidate.problem = error.what();
    }
  }
  return checked;
}

std::string compile_problem(const kernels::OpInfo& op, const kernels::BenchCase& one,
                            const TuneAsk& ask, const TuneChoice& choice, runtime::Target target) {
  try {
    const int64_t bytes = spilled_bytes(op, one, ask, choice, target);
    const TuneChoice standard = ask.space->standard(ask.facts);
    if (choice == standard || bytes == 0) return "";
    const int64_t allowed = spilled_bytes(op, one, ask, standard, target);
    return bytes <= allowed ? "" : fmt::format("spills {} bytes", bytes);
  } catch (const std::exception& error) {
    return error.what();
  }
}

TunedCase tune_case(const kernels::OpInfo& op, const kernels::BenchCase& one, DeviceTimer& timer,
                    const TuneRules& rules) {
  OpCall call(op, one, Device::cuda(timer.device()), kSeed);
  TunedCase tuned;
  for (const TuneAsk& ask : open_choices(call)) tune_choice(op, one, ask, timer, rules, tuned);
  return tuned;
}

std::string tuned_table(const std::vector<runtime::TunedEntry>& entries) {
  TextTable table({{"op", Align::left},
                   {"spec", Align::left},
                   {"device", Align::left},
                   {"choice", Align::left},
                   {"us", Align::right},
                   {"standard", Align::right}});
  for (const runtime::TunedEntry& entry : entries) {
    table.row({entry.key.op, runtime::to_string(entry.key.spec),
               fmt::format("{}, {} SMs", entry.key.device, entry.key.num_sms),
               runtime::to_string(entry.choice), fmt::format("{:.2f}", entry.us),
               fmt::format("{:.2f}", entry.standard_us)});
  }
  return table.text();
}

std::string tuned_text(const runtime::TunedEntry& entry) {
  std::string text = fmt::format(
      "{} {}\n{}, {} SMs, {}, driver {}, NVRTC {}, times from {}, {}\nchosen: {}\n\n", entry.key.op,
      runtime::to_string(entry.key.spec), entry.key.device, entry.key.num_sms, entry.key.target,
      entry.driver, entry.nvrtc, entry.method, entry.date, runtime::to_string(entry.choice));
  TextTable table({{"candidate", Align::left},
                   {"us", Align::right},
                   {"spread", Align::right},
                   {"samples", Align::right},
                   {"left", Align::left}});
  for (const runtime::TunedCandidate& one : entry.candidates) {
    table.row({one.choice, fmt::format("{:.2f}", one.us), fmt::format("{:.2f}", one.spread),
               fmt::format("{}", one.samples), one.dropped});
  }
  return text + table.text();
}

std::vector<runtime::TunedEntry> stored_entries(const runtime::Options& options) {
  std::vector<std::string> paths;
  std::error_code none;
  for (const auto& file :
       std::filesystem::directory_iterator(runtime::tuned_folder(options), none)) {
    if (file.path().extension() == ".json") paths.push_back(file.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<runtime::TunedEntry> entries;
  for (const std::string& path : paths) {
    constexpr int64_t kMostBytes = int64_t{16} << 20;
    const runtime::FileBytes file = runtime::read_named_file(path, kMostBytes);
    if (file.bytes) runtime::merge_tuned(entries, runtime::decode_tuned(*file.bytes).entries);
  }
  return entries;
}

}  // namespace tessera::tools
