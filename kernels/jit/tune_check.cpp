#include "kernels/jit/tune_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/jit/prepare.h"
#include "runtime/image.h"
#include "runtime/options.h"
#include "runtime/parallel.h"
#include "runtime/request.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {

TuneScope::Decide deciding(const TuneAsk& ask, TuneChoice choice) {
  return [ask, choice = std::move(choice)](const TuneAsk& other) {
    return is_same(ask, other) ? choice : other.space->standard(other.facts);
  };
}

TuneScope::Decide noting(std::vector<TuneAsk>& asked) {
  return [&asked](const TuneAsk& ask) {
    const bool is_known = std::any_of(asked.begin(), asked.end(),
                                      [&](const TuneAsk& known) { return is_same(known, ask); });
    if (!is_known) asked.push_back(ask);
    return ask.space->standard(ask.facts);
  };
}

std::vector<std::string> compile_problems(const std::function<void()>& call, const TuneAsk& ask,
                                          const std::vector<TuneChoice>& choices,
                                          runtime::Target target, const GpuModel& model) {
  std::vector<std::string> problems(choices.size());
  std::vector<std::vector<runtime::KernelRequest>> requests(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    const TargetScope on_target(target, model);
    const TuneScope scope(deciding(ask, choices[i]));
    try {
      requests[i] = kernels_needed(call);
    } catch (const std::exception& error) {
      problems[i] = error.what();
    }
  }
  runtime::Runtime& runtime = runtime::Runtime::instance();
  std::vector<int64_t> spilled(choices.size(), 0);
  const int jobs = runtime::num_jobs(runtime.options());
  runtime::run_in_parallel(choices.size(), jobs, {}, [&](size_t i) {
    try {
      for (const runtime::KernelRequest& request : requests[i]) {
        spilled[i] += runtime.image(request, target)->resources.spill_bytes;
      }
    } catch (const std::exception& error) {
      problems[i] = error.what();
    }
  });
  for (size_t i = 1; i < choices.size(); ++i) {
    if (problems[i].empty() && spilled[i] > spilled[0]) {
      problems[i] = fmt::format("spills {} bytes", spilled[i]);
    }
  }
  return problems;
}

std::vector<CheckedCandidate> check_candidates(const std::function<void()>& call,
                                               const TuneAsk& ask, CallCopy& copy,
                                               std::vector<std::string> problems) {
  CallCopy::Results want;
  std::vector<CheckedCandidate> checked;
  const std::vector<TuneChoice> all = candidates(*ask.space, ask.facts);
  problems.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_standard = i == 0;
    CheckedCandidate& candidate =
        checked.emplace_back(CheckedCandidate{all[i], std::move(problems[i])});
    if (!is_standard && !candidate.problem.empty()) continue;
    try {
      const TuneScope scope(deciding(ask, all[i]));
      candidate.launches = copy.launches_of(call);
      CallCopy::Results got = copy.results_of(candidate.launches);
      if (is_standard) {
        want = std::move(got);
      } else if (!ask.space->changes_bits && got != want) {
        candidate.differs = true;
        candidate.problem = "its results differ from the standard choice's";
      }
    } catch (const std::exception& error) {
      if (is_standard) throw;
      candidate.problem = error.what();
    }
  }
  return checked;
}

std::vector<CheckedCandidate> check_candidates(const std::function<void()>& call,
                                               const TuneAsk& ask) {
  const TuneScope scope(deciding(ask, ask.space->standard(ask.facts)));
  CallCopy copy(call);
  return check_candidates(call, ask, copy, {});
}

}  // namespace tessera::kernels::jit
