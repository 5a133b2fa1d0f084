#include "tools/lib/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "kernels/jit/prepare.h"
#include "kernels/op_call.h"
#include "runtime/build_info.h"
#include "runtime/driver/device.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/runtime.h"
#include "tools/lib/bench/bare_launches.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {
namespace {

constexpr uint64_t kSeed = 1;
constexpr const char* kWorkspace = "workspace";
constexpr int kLaunches = 200000;  // of each way
constexpr int kBatch = 200;        // between two waits for the GPU: less than its queue holds

/// Nanoseconds of host time of one batch, per call.
template <class Call>
double batch_ns(int device, Call&& call) {
  runtime::synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kBatch; ++i) call();
  const auto spent = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration<double, std::nano>(spent).count() / kBatch;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The call that the C++ function of an op makes: every tensor and option of its signature.
class FunctionCall {
 public:
  explicit FunctionCall(const OpCall& call) : op_(call.op()) {
    const kernels::Tensors& given = call.tensors();
    views_.reserve(given.size() + op_.tensors.size());
    for (const kernels::TensorInfo& tensor : op_.tensors) {
      if (tensor.list) {
        const size_t first = views_.size();
        for (auto item = given.end();
             (item = given.find(fmt::format("{}.{}", tensor.name, views_.size() - first))) !=
             given.end();) {
          views_.push_back(item->second);
        }
        lists_.emplace_back(tensor.name.c_str(), std::span(views_).subspan(first));
      } else {
        add(tensor.name.c_str(), given);
      }
    }
    if (given.contains(kWorkspace)) add(kWorkspace, given);
    for (const auto& [name, value] : call.params()) options_.emplace_back(name.c_str(), value);
  }
  FunctionCall(const FunctionCall&) = delete;
  FunctionCall& operator=(const FunctionCall&) = delete;

  void operator()() { call_op(op_, tensors_, lists_, options_, nullptr); }

 private:
  void add(const char* name, const kernels::Tensors& given) {
    const auto found = given.find(name);
    views_.push_back(found == given.end() ? TensorView() : found->second);
    tensors_.emplace_back(name, views_.back());
  }

  const kernels::OpInfo& op_;
  std::vector<TensorView> views_;  // what the others point to
  std::vector<kernels::NamedTensor> tensors_;
  std::vector<kernels::NamedList> lists_;
  std::vector<kernels::CallOption> options_;
};

std::string us_text(std::optional<double> us) {
  return us ? fmt::format("{:.2f}", *us) : "-";
}

}  // namespace

BenchResult bench_case(const kernels::OpInfo& op, const kernels::BenchCase& bench_case,
                       runtime::DeviceTimer& timer, CopyRate& copy, StreamTime& stream,
                       const PeerTimes& peer) {
  BenchResult result;
  result.op = op.name;
  result.label = bench_case.label;
  {
    OpCall call(op, bench_case, Device::cuda(timer.device()), kSeed);
    result.bytes = bench_case.bytes > 0 ? bench_case.bytes : call.bytes();
    result.timing = timer.measure([&] { call.run(); }, [&] { call.move_elsewhere(); });
    result.written = std::min(call.result_bytes(), result.bytes);
  }  // its memory is free again when the copy is measured
  result.gbs = static_cast<double>(result.bytes) / result.timing.us / 1e3;
  result.copy_gbs = copy.gbs(result.bytes / 2);
  result.stream_us = stream.us(result.bytes - result.written, result.written);
  const std::optional<double> peer_us = peer.find(op, bench_case);
  if (peer_us) scale_peer(result, *peer_us, peer);
  return result;
}

void scale_peer(BenchResult& result, double peer_us, const PeerTimes& peer) {
  const std::optional<double> theirs = peer.copy_gbs(result.bytes / 2);
  result.peer_us = peer_us;
  const bool has_rates = theirs && result.copy_gbs > 0;  // a record may have none
  result.peer_scaled_us = peer_us * (has_rates ? *theirs / result.copy_gbs : 1.0);
}

LaunchCost launch_cost(const kernels::OpInfo& op, const kernels::BenchCase& example, int device) {
  OpCall call(op, example, Device::cuda(device), kSeed);
  std::vector<TensorView> tensors;
  std::vector<void*> data;
  for (const auto& [name, view] : call.tensors()) {
    tensors.push_back(view);
    data.push_back(view.data);
  }
  const kernels::jit::LaunchPlan plan = kernels::jit::plan(tensors, [&] { call.run(); });
  LaunchCost cost;
  cost.op = op.name;
  cost.label = example.label;
  cost.num_tensors = tensors.size();
  cost.num_kernels = plan.launches().size();
  const runtime::ContextScope context(device);  // current, as a caller that works on a GPU has it
  BareLaunches bare(plan, data);
  FunctionCall checked(call);
  std::vector<double> bare_ns, plan_ns, call_ns;
  for (int done = 0; done < kLaunches; done += kBatch) {
    bare_ns.push_back(batch_ns(device, bare));
    plan_ns.push_back(batch_ns(device, [&] { plan(data, nullptr); }));
    call_ns.push_back(batch_ns(device, checked));
  }
  runtime::synchronize(device);
  cost.bare_ns = median(bare_ns);
  cost.plan_ns = median(plan_ns);
  cost.call_ns = median(call_ns);
  return cost;
}

BenchMachine bench_machine(const runtime::DeviceTimer& timer) {
  BenchMachine machine;
  machine.device = runtime::device_info(timer.device()).name;
  machine.driver = runtime::cuda_version_text(runtime::driver().version);
  machine.nvrtc = runtime::cuda_version_text(runtime::Runtime::instance().nvrtc().version);
  machine.method = timer.method();
  std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  machine.date = fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
  const runtime::BuildInfo build = runtime::build_info();
  machine.code = build.version + ", code " + build.stamp.substr(0, 12);
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
                   {"% of stream", Align::right},
                   {"peer us", Align::right},
                   {"scaled", Align::right},
                   {"peer/us", Align::right}});
  for (const BenchResult& r : results) {
    table.row({r.op, r.label, us_text(r.timing.us), fmt::format("{:.1f} %", 100 * r.timing.spread),
               fmt::format("{:.0f}", r.gbs), fmt::format("{:.0f}", r.copy_gbs),
               fmt::format("{:.1f}", r.percent_of_copy()),
               fmt::format("{:.1f}", r.percent_of_stream()), us_text(r.peer_us),
               us_text(r.peer_scaled_us),
               r.peer_scaled_us ? fmt::format("{:.2f}", *r.peer_scaled_us / r.timing.us) : "-"});
  }
  return table.text();
}

std::string launch_table(const std::vector<LaunchCost>& costs) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"tensors", Align::right},
                   {"kernels", Align::right},
                   {"bare ns", Align::right},
                   {"plan ns", Align::right},
                   {"call ns", Align::right},
                   {"plan above", Align::right},
                   {"call above", Align::right}});
  for (const LaunchCost& c : costs) {
    table.row({c.op, c.label, fmt::format("{}", c.num_tensors), fmt::format("{}", c.num_kernels),
               fmt::format("{:.0f}", c.bare_ns), fmt::format("{:.0f}", c.plan_ns),
               fmt::format("{:.0f}", c.call_ns), fmt::format("{:.0f}", c.plan_ns - c.bare_ns),
               fmt::format("{:.0f}", c.call_ns - c.bare_ns)});
  }
  return table.text();
}

std::string bench_record(const std::vector<BenchResult>& results) {
  std::string lines;
  for (const BenchResult& r : results) {
    const nlohmann::ordered_json line = {
        {"op", r.op}, {"case", r.label}, {"time_us", std::round(1000 * r.timing.us) / 1000}};
    lines += line.dump() + "\n";
  }
  return lines;
}

std::string slower_text(const std::vector<BenchResult>& results) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"before us", Align::right},
                   {"us", Align::right},
                   {"us/before", Align::right}});
  size_t slower = 0, fresh = 0;
  for (const BenchResult& r : results) {
    fresh += r.before_us ? 0 : 1;
    if (!r.is_slower()) continue;
    ++slower;
    table.row({r.op, r.label, us_text(r.before_us), us_text(r.timing.us),
               fmt::format("{:.2f}", r.timing.us / *r.before_us)});
  }
  return fmt::format("{} of {} cases got slower, {} are not in the record\n{}", slower,
                     results.size(), fresh, slower > 0 ? "\n" + table.text() : std::string());
}

std::string bench_json(const BenchMachine& machine, const std::vector<BenchResult>& results,
                       const std::vector<LaunchCost>& costs) {
  using Json = nlohmann::ordered_json;
  const auto optional = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  Json json;
  json["machine"] = {{"device", machine.device}, {"driver", machine.driver},
                     {"nvrtc", machine.nvrtc},   {"method", machine.method},
                     {"date", machine.date},     {"code", machine.code}};
  json["cases"] = Json::array();
  for (const BenchResult& r : results) {
    json["cases"].push_back({{"op", r.op},
                             {"case", r.label},
                             {"bytes", r.bytes},
                             {"written_bytes", r.written},
                             {"time_us", r.timing.us},
                             {"spread", r.timing.spread},
                             {"samples", r.timing.samples},
                             {"bandwidth_gbs", r.gbs},
                             {"copy_gbs", r.copy_gbs},
                             {"percent_of_copy", r.percent_of_copy()},
                             {"stream_us", r.stream_us},
                             {"percent_of_stream", r.percent_of_stream()},
                             {"peer_us", optional(r.peer_us)},
                             {"peer_scaled_us", optional(r.peer_scaled_us)}});
  }
  json["launch"] = Json::array();
  for (const LaunchCost& c : costs) {
    json["launch"].push_back({{"op", c.op},
                              {"case", c.label},
                              {"tensors", c.num_tensors},
                              {"kernels", c.num_kernels},
                              {"bare_ns", c.bare_ns},
                              {"plan_ns", c.plan_ns},
                              {"call_ns", c.call_ns}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
