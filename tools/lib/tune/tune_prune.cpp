#include "tools/lib/tune/tune_prune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>

#include "dsl/base/error.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/count_scope.h"
#include "kernels/jit/ready_kernel.h"
#include "kernels/jit/target.h"
#include "runtime/cache/tuned.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/tune/tuner.h"

namespace tessera::tools {
namespace {

using kernels::jit::TuneAsk;
using kernels::jit::TuneChoice;
using kernels::jit::TuneScope;

constexpr uint64_t kSeed = 22;
constexpr int64_t kLeast = 64;  // the tiles of one block and more
constexpr int64_t kMost = 1024;

bool is_of_one_kernel(const TuneAsk& a, const TuneAsk& b) {
  return a.op == b.op && a.space == b.space && a.facts.spec == b.facts.spec;
}

bool have_same_kernels(const std::vector<TuneAsk>& a, const std::vector<TuneAsk>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_of_one_kernel);
}

/// "T=8192" as name and value; nothing for another word.
std::optional<std::pair<std::string, int64_t>> extent_in(const std::string& word) {
  const size_t at = word.find('=');
  if (at == std::string::npos || at + 1 == word.size() || word.size() > at + 16 ||
      !std::all_of(word.begin() + static_cast<std::ptrdiff_t>(at) + 1, word.end(),
                   [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::pair(word.substr(0, at), static_cast<int64_t>(std::stoll(word.substr(at + 1))));
}

CandidateWork work_of(OpCall& call, const TuneAsk& ask, const TuneChoice& choice) {
  CandidateWork work;
  std::vector<int64_t> threads;  // of a block, by launch
  const std::function<void(kernels::jit::NotedLaunch)> note =
      [&](const kernels::jit::NotedLaunch& launch) {
        const auto& grid = launch.binding.grid;
        threads.push_back(launch.ready->program->program().threads);
        work.threads += grid[0] * grid[1] * grid[2] * threads.back();
      };
  const TuneScope scope([&](const TuneAsk& other) {
    return is_of_one_kernel(ask, other) ? choice : other.space->standard(other.facts);
  });
  const kernels::jit::CountScope counted;
  const kernels::jit::CallModeScope noting({.note = &note});
  call.run();
  for (size_t i = 0; i < counted.kernels().size(); ++i) {
    const auto& c = counted.kernels()[i].counts;
    work.sectors += c.global_load_sectors + c.global_store_sectors;
    work.bank_conflicts += c.shared_wavefronts - c.shared_ideal_wavefronts;
    work.barrier_waits += (c.barriers + c.cluster_barriers) * ((threads.at(i) + 31) / 32);
  }
  return work;
}

}  // namespace

kernels::BenchCase small_case(const kernels::OpInfo& op, const kernels::BenchCase& one,
                              runtime::Target target) {
  const std::vector<TuneAsk> asked = open_choices(op, one, target);
  std::vector<std::string> words;
  std::istringstream text(one.label);
  for (std::string word; text >> word;) words.push_back(word);
  kernels::BenchCase small = one;
  for (std::string& word : words) {
    const auto extent = extent_in(word);
    if (!extent) continue;
    const std::string before = word;
    for (int64_t value = kLeast; value <= kMost && value < extent->second; value *= 2) {
      word = fmt::format("{}={}", extent->first, value);
      try {
        kernels::BenchCase tried = op.case_of(fmt::format("{}", fmt::join(words, " ")));
        if (!have_same_kernels(asked, open_choices(op, tried, target))) continue;
        small = std::move(tried);
        break;
      } catch (const Error&) {
        // Not an extent that may be so small, such as the number of columns of a quantized row.
      }
    }
    if (small.label.find(word) == std::string::npos) word = before;
  }
  return small;
}

std::vector<std::string> needless(const std::vector<CandidateWork>& work,
                                  const std::vector<std::string>& names) {
  const auto is_more = [](const CandidateWork& a, const CandidateWork& b) {
    const bool none_less = a.sectors >= b.sectors && a.bank_conflicts >= b.bank_conflicts &&
                           a.barrier_waits >= b.barrier_waits && a.threads <= b.threads;
    return none_less && (a.sectors > b.sectors || a.bank_conflicts > b.bank_conflicts ||
                         a.barrier_waits > b.barrier_waits);
  };
  std::vector<std::string> reasons(work.size());
  for (size_t i = 1; i < work.size(); ++i) {
    const auto better = std::find_if(work.begin(), work.end(), [&](const CandidateWork& other) {
      return is_more(work[i], other);
    });
    if (better == work.end()) continue;
    const CandidateWork& w = work[i];
    reasons[i] = fmt::format(
        "not measured: {} sectors, {} bank conflicts, {} barrier waits; {} has {}, {}, {}",
        w.sectors, w.bank_conflicts, w.barrier_waits,
        names[static_cast<size_t>(better - work.begin())], better->sectors, better->bank_conflicts,
        better->barrier_waits);
  }
  return reasons;
}

std::vector<std::string> needless_candidates(const kernels::OpInfo& op,
                                             const kernels::BenchCase& one, const TuneAsk& ask,
                                             runtime::Target target) {
  const kernels::jit::TargetScope on_target(target);
  OpCall call(op, small_case(op, one, target), Device::cpu(), kSeed);
  std::vector<CandidateWork> work;
  std::vector<std::string> names;
  for (const TuneChoice& choice : candidates(*ask.space, ask.facts)) {
    work.push_back(work_of(call, ask, choice));
    names.push_back(runtime::to_string(named(*ask.space, choice)));
  }
  return needless(work, names);
}

}  // namespace tessera::tools
