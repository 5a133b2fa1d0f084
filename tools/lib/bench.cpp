#include "tools/lib/bench.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "runtime/driver/device.h"
#include "runtime/launch.h"
#include "runtime/runtime.h"
#include "tools/lib/op_call.h"
#include "tools/lib/text_table.h"

namespace tessera::tools {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int kLaunches =
    2000;  // per measurement: below the depth where the driver makes the host wait
constexpr int kBatch = 200;  // launches between two waits for the GPU
constexpr int kRepeats = 5;

KernelSource empty_kernel() {
  KernelSource source;
  source.op = "empty";
  source.entry = "empty";
  source.threads = 32;
  source.text = "extern \"C\" __global__ void empty() {}\n";
  return source;
}

/// Nanoseconds of host time per call, the best of some repeats: what disturbs only ever adds.
template <class Call>
double host_ns(int device, const Call& call) {
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::chrono::steady_clock::duration spent{};
    for (int done = 0; done < kLaunches; done += kBatch) {
      runtime::synchronize(device);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kBatch; ++i) call();
      spent += std::chrono::steady_clock::now() - begin;
    }
    const double ns = std::chrono::duration<double, std::nano>(spent).count() / kLaunches;
    best = repeat == 0 ? ns : std::min(best, ns);
  }
  runtime::synchronize(device);
  return best;
}

std::string us_text(std::optional<double> us) {
  return us ? fmt::format("{:.2f}", *us) : "-";
}

}  // namespace

BenchResult bench_case(const kernels::OpInfo& op, const kernels::BenchCase& bench_case,
                       DeviceTimer& timer, CopyRate& copy, const PeerTimes& peer) {
  BenchResult result;
  result.op = op.name;
  result.label = bench_case.label;
  {
    OpCall call(op, bench_case, Device::cuda(timer.device()), kSeed);
    result.bytes = bench_case.bytes > 0 ? bench_case.bytes : call.bytes();
    result.timing = timer.measure([&] { call.run(); });
  }  // its memory is free again when the copy is measured
  result.gbs = static_cast<double>(result.bytes) / result.timing.us / 1e3;
  result.copy_gbs = copy.gbs(result.bytes / 2);
  result.peer_us = bench_case.peer_us ? bench_case.peer_us : peer.find(op, bench_case);
  if (result.peer_us) {
    const std::optional<double> theirs = peer.copy_gbs(result.bytes / 2);
    result.peer_scaled_us = *result.peer_us * (theirs ? *theirs / result.copy_gbs : 1.0);
  }
  return result;
}

LaunchCost launch_cost(const kernels::OpInfo& op, const kernels::BenchCase& example, int device) {
  LaunchCost cost;
  cost.op = op.name;
  cost.label = example.label;
  OpCall call(op, example, Device::cuda(device), kSeed);
  call.run();
  cost.call_ns = host_ns(device, [&] { call.run(); });
  const auto kernel = runtime::Runtime::instance().load({"empty", {}, empty_kernel}, device);
  cost.driver_ns = host_ns(device, [&] { runtime::launch(*kernel, {1, 1, 1}, nullptr, nullptr); });
  return cost;
}

BenchMachine bench_machine(const DeviceTimer& timer) {
  BenchMachine machine;
  machine.device = runtime::device_info(timer.device()).name;
  machine.driver = runtime::cuda_version_text(runtime::driver().version);
  machine.nvrtc = runtime::cuda_version_text(runtime::Runtime::instance().nvrtc().version);
  machine.method = timer.method();
  return machine;
}

std::string bench_table(const std::vector<BenchResult>& results) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"us", Align::right},
                   {"spread", Align::right},
                   {"GB/s", Align::right},
                   {"copy", Align::right},
                   {"% of copy", Align::right},
                   {"peer us", Align::right},
                   {"scaled", Align::right},
                   {"peer/us", Align::right}});
  for (const BenchResult& r : results) {
    table.row({r.op, r.label, us_text(r.timing.us), fmt::format("{:.1f} %", 100 * r.timing.spread),
               fmt::format("{:.0f}", r.gbs), fmt::format("{:.0f}", r.copy_gbs),
               fmt::format("{:.1f}", r.percent_of_copy()), us_text(r.peer_us),
               us_text(r.peer_scaled_us),
               r.peer_scaled_us ? fmt::format("{:.2f}", *r.peer_scaled_us / r.timing.us) : "-"});
  }
  return table.text();
}

std::string launch_table(const std::vector<LaunchCost>& costs) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"call ns", Align::right},
                   {"bare launch ns", Align::right},
                   {"above ns", Align::right}});
  for (const LaunchCost& c : costs) {
    table.row({c.op, c.label, fmt::format("{:.0f}", c.call_ns), fmt::format("{:.0f}", c.driver_ns),
               fmt::format("{:.0f}", c.call_ns - c.driver_ns)});
  }
  return table.text();
}

std::string bench_json(const BenchMachine& machine, const std::vector<BenchResult>& results,
                       const std::vector<LaunchCost>& costs) {
  using Json = nlohmann::ordered_json;
  const auto optional = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  Json json;
  json["machine"] = {{"device", machine.device},
                     {"driver", machine.driver},
                     {"nvrtc", machine.nvrtc},
                     {"method", machine.method}};
  json["cases"] = Json::array();
  for (const BenchResult& r : results) {
    json["cases"].push_back({{"op", r.op},
                             {"case", r.label},
                             {"bytes", r.bytes},
                             {"time_us", r.timing.us},
                             {"spread", r.timing.spread},
                             {"samples", r.timing.samples},
                             {"bandwidth_gbs", r.gbs},
                             {"copy_gbs", r.copy_gbs},
                             {"percent_of_copy", r.percent_of_copy()},
                             {"peer_us", optional(r.peer_us)},
                             {"peer_scaled_us", optional(r.peer_scaled_us)}});
  }
  json["launch"] = Json::array();
  for (const LaunchCost& c : costs) {
    json["launch"].push_back(
        {{"op", c.op}, {"case", c.label}, {"call_ns", c.call_ns}, {"bare_launch_ns", c.driver_ns}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
