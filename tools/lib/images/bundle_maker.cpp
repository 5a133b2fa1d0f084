#include "tools/lib/images/bundle_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "kernels/jit/tune.h"
#include "kernels/views/dry_call.h"
#include "runtime/cache/folder.h"
#include "runtime/parallel.h"
#include "runtime/record.h"
#include "runtime/request.h"
#include "runtime/runtime.h"

namespace tessera::tools {

std::vector<runtime::KernelRequest> requests_of(const kernels::OpInfo& op,
                                                const kernels::BenchCase& example,
                                                runtime::Target target,
                                                const kernels::jit::GpuModel& model) {
  const kernels::jit::TargetScope scope(target, model);
  kernels::BenchCase complete = example;
  complete.params = kernels::check_params(op, example.params);
  const kernels::Tensors tensors = kernels::placed_nowhere(
      kernels::views_with_outputs(op, views_of(complete), complete.params), Device::cuda(0));
  return kernels::jit::kernels_needed(
      [&] { kernels::jit::for_each_choice([&] { op.run(tensors, complete.params, nullptr); }); });
}

std::vector<runtime::KernelRequest> requests_of(const kernels::OpInfo& op, runtime::Target target,
                                                const kernels::jit::GpuModel& model) {
  std::vector<runtime::KernelRequest> requests;
  std::set<std::string> specs;
  const std::vector<kernels::BenchCase> buckets = op.buckets();
  for (const auto* cases : {&op.examples, &op.bench, &buckets}) {
    for (const kernels::BenchCase& example : *cases) {
      for (runtime::KernelRequest& request : requests_of(op, example, target, model)) {
        if (specs.insert(request.spec.value_or("")).second) requests.push_back(std::move(request));
      }
    }
  }
  return requests;
}

std::vector<runtime::KernelRequest> requests_in(const std::string& path) {
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  const auto refuse = [&](const std::string& got) {
    throw Error({.kind = ErrorKind::argument,
                 .what = fmt::format("{} holds no recorded kernels", path),
                 .argument = "specs",
                 .expected = "a file written by TESSERA_RECORD",
                 .got = got});
  };
  const runtime::FileBytes file = runtime::read_named_file(path, kMaxBytes);
  if (!file.bytes) refuse("a file that " + file.problem);
  std::vector<runtime::KernelRequest> requests;
  std::string_view rest = *file.bytes;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.empty()) continue;
    requests.push_back(runtime::parse_record(line, fmt::format("{}:{}", path, number)));
  }
  if (requests.empty()) refuse("an empty file");
  return requests;
}

runtime::Target target_of(const std::string& word) {
  if (const std::optional<runtime::Target> target = runtime::parse_target(word)) {
    runtime::check_supported(*target);
    return *target;
  }
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("unknown target '{}'", word),
               .argument = "arch",
               .expected = "sm_80, sm_89, sm_90a, ...",
               .got = word});
}

std::vector<runtime::Target> parse_targets(const std::string& list) {
  std::vector<runtime::Target> targets;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto target = runtime::parse_target(word);
    if (!target) {
      throw Error({.kind = ErrorKind::argument,
                   .what = fmt::format("unknown target '{}'", word),
                   .argument = "arch",
                   .expected = "targets with commas between, such as sm_90a,sm_100a",
                   .got = list});
    }
    runtime::check_supported(*target);
    if (std::find(targets.begin(), targets.end(), *target) == targets.end()) {
      targets.push_back(*target);
    }
  }
  if (!targets.empty()) return targets;
  throw Error({.kind = ErrorKind::argument,
               .what = "no target",
               .argument = "arch",
               .expected = "targets with commas between, such as sm_90a,sm_100a",
               .got = "an empty list"});
}

Compiled compile_all(const std::vector<Wanted>& wanted, int jobs,
                     const std::function<void(size_t, size_t)>& progress) {
  runtime::Runtime& runtime = runtime::Runtime::instance();
  std::vector<std::optional<runtime::BundleItem>> items(wanted.size());
  std::vector<std::string> problems(wanted.size());
  std::atomic<size_t> done = 0;
  runtime::run_in_parallel(items.size(), jobs, {}, [&](size_t i) {
    try {
      items[i] = runtime.bundle_item(wanted[i].request, wanted[i].target);
    } catch (const Error& error) {
      if (error.code() != "CLUSTER_TARGET") throw;
      problems[i] = error.what();
    }
    progress(++done, items.size());
  });
  Compiled compiled;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i]) {
      compiled.items.push_back(*std::move(items[i]));
    } else {
      compiled.left_out.push_back(std::move(problems[i]));
    }
  }
  return compiled;
}

}  // namespace tessera::tools
