#include "tools/lib/tune/tuner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "kernels/jit/tune_check.h"
#include "kernels/signature/param_grammar.h"
#include "kernels/views/dry_call.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/tune/tune_prune.h"

namespace tessera::tools {
namespace {

using kernels::jit::TuneAsk;
using kernels::jit::TuneScope;

constexpr uint64_t kSeed = 22;

/// True if a kernel that the case needs with some choice is among the recorded ones.
bool is_recorded(const kernels::OpInfo& op, const kernels::BenchCase& one, runtime::Target target,
                 const std::set<std::string>& specs) {
  for (const TuneAsk& ask : open_choices(op, one, target)) {
    for (const kernels::jit::TuneChoice& choice : candidates(*ask.space, ask.facts)) {
      const TuneScope scope(kernels::jit::deciding(ask, choice));
      for (const runtime::KernelRequest& request : requests_of(op, one, target)) {
        if (request.spec && specs.contains(*request.spec)) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::vector<TuneAsk> open_choices(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                  runtime::Target target) {
  return kernels::jit::open_choices([&] { static_cast<void>(requests_of(op, one, target)); });
}

std::vector<MadeChoice> made_choices(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                     runtime::Target target, const kernels::jit::GpuModel& model) {
  std::vector<TuneAsk> asked;
  {
    const TuneScope scope([&](const TuneAsk& ask) {
      if (std::none_of(asked.begin(), asked.end(),
                       [&](const TuneAsk& known) { return is_same(known, ask); })) {
        asked.push_back(ask);
      }
      return std::nullopt;
    });
    static_cast<void>(requests_of(op, one, target, model));
  }
  std::vector<MadeChoice> made;
  for (const TuneAsk& ask : asked) made.push_back({ask, find_choice(ask)});
  return made;
}

kernels::jit::TuneReport tune_case(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                   Device device, kernels::jit::TuneOptions options, Prune prune) {
  OpCall call(op, one, device, kSeed);
  for (const kernels::OutputInfo& output : op.outputs(kernels::views_of(one), call.params())) {
    const auto made = call.tensors().find(output.name);
    if (output.workspace && made != call.tensors().end()) {
      options.workspaces.push_back(made->second);
    }
  }
  std::vector<std::pair<TuneAsk, std::vector<std::string>>> known;
  if (prune == Prune::needless) {
    options.skip = [&](const TuneAsk& ask, const kernels::jit::TuneChoice& choice) {
      auto found = std::find_if(known.begin(), known.end(),
                                [&](const auto& pair) { return is_same(pair.first, ask); });
      if (found == known.end()) {
        const runtime::Target target = runtime::Runtime::instance().target_on(device.ordinal);
        found = known.insert(known.end(), {ask, needless_candidates(op, one, ask, target)});
      }
      const auto all = candidates(*ask.space, ask.facts);
      const auto place = std::find(all.begin(), all.end(), choice) - all.begin();
      return found->second.at(static_cast<size_t>(place));
    };
  }
  return kernels::jit::tune::run([&] { call.run(); }, options);
}

kernels::BenchCase with_params(const kernels::OpInfo& op, kernels::BenchCase one,
                               const std::vector<std::string>& assignments) {
  if (assignments.empty()) return one;
  std::vector<std::string> merged = assignments;
  for (const auto& [name, value] : check_params(op, one.params)) {
    const std::string prefix = name + "=";
    const bool is_given =
        std::any_of(assignments.begin(), assignments.end(),
                    [&](const std::string& given) { return given.starts_with(prefix); });
    if (!is_given) merged.push_back(prefix + kernels::to_string(value));
  }
  one.params = kernels::parse_params(op, merged);
  one.label += fmt::format(" {}", fmt::join(assignments, " "));
  return one;
}

std::vector<ChosenCase> cases_in(const std::string& path, const std::vector<kernels::OpInfo>& ops,
                                 runtime::Target target, std::vector<std::string>& unknown) {
  std::map<std::string, std::set<std::string>> recorded;  // the Specs of each op
  for (const runtime::KernelRequest& request : requests_in(path)) {
    if (request.spec) recorded[request.op].insert(*request.spec);
  }
  std::vector<ChosenCase> chosen;
  for (const kernels::OpInfo& op : ops) {
    const auto specs = recorded.find(op.name);
    if (specs == recorded.end()) continue;
    const std::vector<kernels::BenchCase> buckets = op.buckets();
    const size_t num_before = chosen.size();
    bool is_tunable = false;
    for (const auto* cases : {&op.examples, &op.bench, &buckets}) {
      for (const kernels::BenchCase& one : *cases) {
        if (open_choices(op, one, target).empty()) continue;
        is_tunable = true;
        if (is_recorded(op, one, target, specs->second)) chosen.push_back({&op, one});
      }
    }
    if (is_tunable && chosen.size() == num_before) {
      unknown.push_back(
          fmt::format("{}: its {} recorded kernels are of no listed case; name one with --case-of",
                      op.name, specs->second.size()));
    }
  }
  return chosen;
}

}  // namespace tessera::tools
