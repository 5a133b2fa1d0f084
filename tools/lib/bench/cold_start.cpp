#include "tools/lib/bench/cold_start.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "dsl/base/error.h"
#include "runtime/driver/memory.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/files/private_folder.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Sample {
  double context_ms = 0;
  double call_ms = 0;
};

Sample measure(const kernels::OpInfo& op, const kernels::BenchCase& example, bool on_gpu,
               runtime::Target target) {
  Sample sample;
  if (!on_gpu) {
    const std::vector<runtime::KernelRequest> requests = requests_of(op, example, target);
    const auto start = Clock::now();
    for (const runtime::KernelRequest& request : requests) {
      runtime::Runtime::instance().image(request, target);
    }
    sample.call_ms = ms_since(start);
    return sample;
  }
  const auto begin = Clock::now();
  OpCall call(op, example, Device::cuda(0), 1);
  runtime::synchronize(0);
  sample.context_ms = ms_since(begin);
  const auto start = Clock::now();
  call.run();
  runtime::synchronize(0);
  sample.call_ms = ms_since(start);
  return sample;
}

// In a process of its own, with its cache in `folder`.
Sample measure_in_child(const kernels::OpInfo& op, const kernels::BenchCase& example, bool on_gpu,
                        runtime::Target target, const std::string& folder) {
  std::array<int, 2> ends{};
  TESSERA_CHECK(pipe(ends.data()) == 0, "no pipe");
  const pid_t child = fork();
  TESSERA_CHECK(child >= 0, "no process");
  if (child == 0) {
    setenv("TESSERA_CACHE_DIR", folder.c_str(), 1);
    setenv("TESSERA_CACHE", "rw", 1);
    Sample sample;
    try {
      sample = measure(op, example, on_gpu, target);
    } catch (const Error& error) {
      const std::string text = fmt::format("{}\n", error.what());
      static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
      _exit(1);
    }
    const ssize_t written = write(ends[1], &sample, sizeof(sample));
    _exit(written == sizeof(sample) ? 0 : 1);
  }
  close(ends[1]);
  Sample sample;
  const ssize_t got = read(ends[0], &sample, sizeof(sample));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  if (status == 0 && got == sizeof(sample)) return sample;
  throw Error({.kind = ErrorKind::driver,
               .op = op.name,
               .what = "the process that measures its first call failed",
               .got = fmt::format("status {}", status)});
}

double median(std::array<double, 3> values) {
  std::sort(values.begin(), values.end());
  return values[1];
}

}  // namespace

ColdStart cold_start(const kernels::OpInfo& op, const kernels::BenchCase& example, bool on_gpu,
                     runtime::Target target) {
  std::array<double, 3> context{}, empty{}, warm{};
  for (size_t i = 0; i < empty.size(); ++i) {
    const PrivateFolder folder;
    const Sample first = measure_in_child(op, example, on_gpu, target, folder.path());
    const Sample second = measure_in_child(op, example, on_gpu, target, folder.path());
    context[i] = first.context_ms;
    empty[i] = first.call_ms;
    warm[i] = second.call_ms;
  }
  return {op.name, example.label, median(context), median(empty), median(warm)};
}

std::string cold_table(const std::vector<ColdStart>& costs) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"context ms", Align::right},
                   {"empty cache ms", Align::right},
                   {"warm cache ms", Align::right}});
  for (const ColdStart& c : costs) {
    table.row({c.op, c.label, fmt::format("{:.1f}", c.context_ms),
               fmt::format("{:.1f}", c.empty_ms), fmt::format("{:.1f}", c.warm_ms)});
  }
  return table.text();
}

std::string cold_json(const std::vector<ColdStart>& costs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ColdStart& c : costs) {
    list.push_back({{"op", c.op},
                    {"case", c.label},
                    {"context_ms", c.context_ms},
                    {"empty_cache_ms", c.empty_ms},
                    {"warm_cache_ms", c.warm_ms}});
  }
  return nlohmann::ordered_json{{"cold", std::move(list)}}.dump(2) + "\n";
}

}  // namespace tessera::tools
