#include "kernels/jit/tune_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>

#include "dsl/base/callbacks.h"
#include "dsl/base/error.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/fastest.h"
#include "kernels/jit/prepare.h"
#include "kernels/jit/tune_check.h"
#include "runtime/build_info.h"
#include "runtime/driver/device_timer.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

class GpuCallTimer final : public CallTimer {
 public:
  explicit GpuCallTimer(int device) : timer_(device) {}
  double us(const std::function<void()>& call, Stream stream) override {
    return timer_.mean_us(call, 1, stream);
  }
  std::string method() const override { return timer_.method(); }

 private:
  runtime::DeviceTimer timer_;
};

/// The candidates of one choice, to be sampled.
class CandidateTimer final : public TuneTimer {
 public:
  CandidateTimer(CallTimer& timer, const CallCopy& copy,
                 std::vector<const CallCopy::Launches*> candidates)
      : timer_(timer), copy_(copy), candidates_(std::move(candidates)) {}

  double sample_us(size_t candidate) override {
    return timer_.us([&] { copy_.start(*candidates_[candidate]); }, copy_.stream());
  }
  double elapsed_s() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  CallTimer& timer_;
  const CallCopy& copy_;
  std::vector<const CallCopy::Launches*> candidates_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string nvrtc_version() {
  try {
    return runtime::cuda_version_text(runtime::Runtime::instance().nvrtc().version);
  } catch (const Error&) {
    return "";  // all kernels came from bundles
  }
}

runtime::TunedEntry entry_for(const TuneAsk& ask, const CallCopy& copy, const CallTimer& timer) {
  const runtime::BuildInfo build = runtime::build_info();
  runtime::TunedEntry entry;
  entry.key = {ask.op,
               ask.space->revision,
               ask.facts.spec,
               ask.space->bucket_of(ask.facts),
               ask.facts.device,
               ask.facts.num_sms,
               ""};
  if (copy.driver() != nullptr) {
    const int ordinal = copy.device().ordinal;
    entry.key.target = to_string(runtime::Runtime::instance().target_on(ordinal));
    entry.driver = runtime::cuda_version_text(copy.driver()->version);
    entry.nvrtc = nvrtc_version();
  }
  entry.method = timer.method();
  entry.version = build.version;
  entry.stamp = build.stamp;
  entry.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return entry;
}

std::vector<CheckedCandidate> usable_candidates(const std::function<void()>& call,
                                                const TuneAsk& ask, CallCopy& copy,
                                                const TuneOptions& options) {
  const std::vector<TuneChoice> all = candidates(*ask.space, ask.facts);
  std::vector<std::string> problems(all.size());
  std::vector<TuneChoice> kept;
  std::vector<size_t> places;  // of the kept among all
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && options.skip) problems[i] = options.skip(ask, all[i]);
    if (!problems[i].empty()) continue;
    kept.push_back(all[i]);
    places.push_back(i);
  }
  if (copy.driver() != nullptr) {
    const runtime::Target target = runtime::Runtime::instance().target_on(copy.device().ordinal);
    const std::vector<std::string> found =
        compile_problems(call, ask, kept, target, gpu_model(copy.device()));
    for (size_t i = 1; i < kept.size(); ++i) problems[places[i]] = found[i];
  }
  return check_candidates(call, ask, copy, std::move(problems));
}

void tune_choice(const std::function<void()>& call, const TuneAsk& ask, CallCopy& copy,
                 CallTimer& timer, const TuneOptions& options, TuneReport& report) {
  runtime::TunedEntry entry = entry_for(ask, copy, timer);
  const std::vector<CheckedCandidate> checked = usable_candidates(call, ask, copy, options);
  std::vector<const CallCopy::Launches*> living;
  std::vector<size_t> places;  // of the living among all
  for (const CheckedCandidate& one : checked) {
    const std::string text = runtime::to_string(named(*ask.space, one.choice));
    entry.candidates.push_back({text, 0, 0, 0, one.problem});
    if (one.differs) report.differing.push_back(fmt::format("{}: {}", ask.op, text));
    if (!one.problem.empty()) continue;
    living.push_back(&one.launches);
    places.push_back(entry.candidates.size() - 1);
  }
  CandidateTimer times(timer, copy, living);
  const Fastest found = find_fastest(times, living.size(), {.budget_s = options.budget_s});
  for (size_t i = 0; i < living.size(); ++i) {
    const TimedCandidate& timed = found.candidates[i];
    runtime::TunedCandidate& candidate = entry.candidates[places[i]];
    candidate = {candidate.choice, timed.us, timed.spread, timed.samples, timed.dropped};
  }
  entry.choice = named(*ask.space, checked[places[found.winner]].choice);
  entry.us = found.candidates[found.winner].us;
  entry.spread = found.candidates[found.winner].spread;
  entry.standard_us = found.candidates[0].us;
  entry.standard_spread = found.candidates[0].spread;
  report.entries.push_back(std::move(entry));
}

void store(TuneReport& report) {
  for (const runtime::TunedEntry& entry : report.entries) {
    if (entry.key.device.empty()) continue;  // of the CPU
    const std::string problem = publish_tuned(runtime::Runtime::instance().options(), entry);
    if (!problem.empty()) report.not_stored.push_back(entry.key.op + ": " + problem);
    add_tuned(entry);
  }
}

/// Tunes those of the open choices that `is_wanted` accepts.
TuneReport run_some(const std::function<void()>& call, const TuneOptions& options,
                    const std::function<bool(const TuneAsk&)>& is_wanted) {
  TuneReport report;
  std::vector<TuneAsk> asked;
  std::optional<CallCopy> copy;
  {
    const TuneScope scope(noting(asked));
    copy.emplace(call, options.workspaces);
  }
  asked.erase(std::remove_if(asked.begin(), asked.end(),
                             [&](const TuneAsk& ask) { return !is_wanted(ask); }),
              asked.end());
  if (asked.empty() || copy->is_empty()) return report;
  std::unique_ptr<CallTimer> own;
  CallTimer* const given = call_context().timer;
  if (given == nullptr) {
    if (copy->driver() == nullptr) {
      throw Error({.kind = ErrorKind::unsupported,
                   .op = asked.front().op,
                   .what = "tile sizes are measured on a GPU",
                   .expected = "CUDA tensors",
                   .got = "tensors on " + to_string(copy->device())});
    }
    own = gpu_timer(copy->device().ordinal);
  }
  CallTimer& timer = own ? *own : *given;
  for (const TuneAsk& ask : asked) tune_choice(call, ask, *copy, timer, options, report);
  if (options.store) store(report);
  return report;
}

/// Why a first call is not tuned; empty: it is.
std::string why_not_now(Device device, Stream stream) {
  const runtime::Runtime& runtime = runtime::Runtime::instance();
  if (runtime.is_sealed()) return "the program is sealed";
  if (runtime.options().jit == runtime::JitMode::off) return "compiling is switched off";
  return runtime.is_capturing(device.ordinal, stream) ? "the stream is being captured" : "";
}

/// The entries that the databases lack for the call; compiles nothing.
std::vector<TuneAsk> missing_choices(Device device, const std::function<void()>& call) {
  std::vector<TuneAsk> asked;
  const TargetScope target(runtime::Runtime::instance().target_on(device.ordinal),
                           gpu_model(device));
  const TuneScope scope(noting(asked));
  static_cast<void>(kernels_needed(call));
  std::erase_if(asked, [](const TuneAsk& ask) {
    return has_entry(ask) || candidates(*ask.space, ask.facts).size() < 2;
  });
  return asked;
}

}  // namespace

std::vector<TuneAsk> open_choices(const std::function<void()>& call) {
  std::vector<TuneAsk> asked;
  const TuneScope scope(noting(asked));
  call();
  return asked;
}

TuneReport tune::run(const std::function<void()>& call, const TuneOptions& options) {
  return run_some(call, options, [](const TuneAsk&) { return true; });
}

std::unique_ptr<CallTimer> gpu_timer(int device) {
  return std::make_unique<GpuCallTimer>(device);
}

TimerScope::TimerScope(CallTimer& timer) : before_(std::exchange(call_context().timer, &timer)) {}
TimerScope::~TimerScope() {
  call_context().timer = before_;
}

bool tunes_first_calls(Device device) {
  return device.is_cuda() && call_context().mode.until == CallMode::Until::done &&
         runtime::Runtime::instance().options().tune == runtime::TuneMode::on &&
         !TuneScope::is_active();
}

void tune_first_call(const std::string& op, Device device, Stream stream,
                     const std::vector<TensorView>& workspaces, const std::function<void()>& call) {
  static auto* const one_at_a_time = new std::mutex;  // never destroyed: calls may come late
  runtime::Runtime& runtime = runtime::Runtime::instance();
  const auto leave = [&](const std::string& why) {
    runtime.warn_once("tune " + op, fmt::format("{}: its tile sizes are not tuned now "
                                                "(TESSERA_TUNE=on): {}",
                                                op, why));
  };
  try {
    if (missing_choices(device, call).empty()) return;
    if (const std::string why = why_not_now(device, stream); !why.empty()) {
      return leave(why);
    }
    const DeferCallbacks defer;
    const std::lock_guard lock(*one_at_a_time);
    const TuneReport report = run_some(call, {.workspaces = workspaces}, [](const TuneAsk& ask) {
      return !has_entry(ask) && candidates(*ask.space, ask.facts).size() > 1;
    });
    for (const std::string& line : report.differing) {
      runtime.warn_once("tune " + line, line + ": its results differ from the standard choice's");
    }
    for (const std::string& line : report.not_stored) leave("not stored: " + line);
  } catch (const std::exception& error) {
    leave(error.what());
  }
}

}  // namespace tessera::kernels::jit
