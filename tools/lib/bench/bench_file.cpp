#include "tools/lib/bench/bench_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "dsl/base/error.h"
#include "tools/lib/files/input_file.h"
#include "tools/lib/files/json_scan.h"
#include "tools/lib/own_kernel.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFile = int64_t{64} << 20;

[[noreturn]] void fail(const std::string& path, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = path + ": holds no benchmark",
               .expected = "a file written by tessera bench --json or --record",
               .got = std::move(got)});
}

std::optional<double> optional(const Json& json, const char* name) {
  const Json& value = json.at(name);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

BenchResult result_of(const Json& json) {
  BenchResult result;
  json.at("op").get_to(result.op);
  json.at("case").get_to(result.label);
  json.at("bytes").get_to(result.bytes);
  json.at("written_bytes").get_to(result.written);
  json.at("time_us").get_to(result.timing.us);
  json.at("spread").get_to(result.timing.spread);
  json.at("samples").get_to(result.timing.samples);
  json.at("bandwidth_gbs").get_to(result.gbs);
  json.at("copy_gbs").get_to(result.copy_gbs);
  json.at("stream_us").get_to(result.stream_us);
  result.peer_us = optional(json, "peer_us");
  result.peer_scaled_us = optional(json, "peer_scaled_us");
  return result;
}

LaunchCost launch_of(const Json& json) {
  LaunchCost cost;
  json.at("op").get_to(cost.op);
  json.at("case").get_to(cost.label);
  json.at("tensors").get_to(cost.num_tensors);
  json.at("kernels").get_to(cost.num_kernels);
  json.at("bare_ns").get_to(cost.bare_ns);
  json.at("plan_ns").get_to(cost.plan_ns);
  json.at("call_ns").get_to(cost.call_ns);
  return cost;
}

/// The first line of a file of --record, if this is one: {"run": {..}}, or a case in a file of before 0.2.
std::optional<Json> first_line_of_record(const std::string& text) {
  Json first = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  const bool is_case = first.is_object() && first.contains("time_us") && first.contains("op");
  if (is_case || (first.is_object() && first.contains("run"))) return first;
  return std::nullopt;
}

BenchFile read_record(const std::string& path, const Json& first) {
  const PeerTimes times = PeerTimes::load(path);
  BenchFile file;
  const Json run = first.value("run", Json::object());
  file.machine.device = run.value("card", path.substr(path.rfind('/') + 1));
  file.machine.date = run.value("date", "");
  file.machine.method = "a record, which says no more of the machine";
  for (const kernels::OpInfo& op : program_ops()) {
    for (const kernels::BenchCase& one : op.bench) {
      if (auto result = recorded_result(op, one, times)) file.results.push_back(*std::move(result));
    }
  }
  if (file.results.empty()) fail(path, "a record without a case of ours");
  return file;
}

BenchFile read_run(const std::string& path, const std::string& text) {
  BenchFile file;
  const Json json = Json::parse(text);
  for (const char* other : {"compile", "cold"}) {
    if (!json.is_object() || !json.contains(other)) continue;
    fail(path, fmt::format("a file of bench --{}, which has no GPU times to draw", other));
  }
  const Json& machine = json.at("machine");
  machine.at("device").get_to(file.machine.device);
  machine.at("driver").get_to(file.machine.driver);
  machine.at("nvrtc").get_to(file.machine.nvrtc);
  machine.at("method").get_to(file.machine.method);
  file.machine.date = machine.value("date", "");  // since 0.2
  file.machine.code = machine.value("code", "");
  for (const Json& one : json.at("cases")) file.results.push_back(result_of(one));
  for (const Json& one : json.at("launch")) file.launches.push_back(launch_of(one));
  for (const BenchResult& r : file.results) {
    const bool times =
        r.timing.us > 0 && r.gbs > 0 && r.copy_gbs > 0 && r.stream_us > 0 && r.bytes > 0;
    if (!times || (r.peer_scaled_us && !(*r.peer_scaled_us > 0))) {
      fail(path, fmt::format("{}, {}: times, bytes and rates that are not above 0", r.op, r.label));
    }
  }
  return file;
}

}  // namespace

std::optional<BenchResult> recorded_result(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                           const PeerTimes& times) {
  const std::optional<double> us = times.find(op, one);
  if (!us || one.bytes == 0) return std::nullopt;
  BenchResult result;
  result.op = op.name;
  result.label = one.label;
  result.bytes = one.bytes;
  result.timing.us = *us;
  result.gbs = static_cast<double>(one.bytes) / *us / 1e3;
  result.copy_gbs = times.copy_gbs(one.bytes / 2).value_or(0);
  return result;
}

BenchFile read_bench(const std::string& path) {
  const std::string text = read_text_file(path, kMaxFile);
  try {
    const std::optional<Json> first = first_line_of_record(text);
    return first ? read_record(path, *first) : read_run(path, text);
  } catch (const Json::exception& error) {
    fail(path, json_problem(error));
  }
}

void set_peer_times(BenchFile& file, const PeerTimes& peer) {
  for (BenchResult& result : file.results) {
    for (const kernels::OpInfo& op : program_ops()) {
      if (op.name != result.op) continue;
      for (const kernels::BenchCase& one : op.bench) {
        if (one.label != result.label) continue;
        if (const std::optional<double> us = peer.find(op, one)) scale_peer(result, *us, peer);
      }
    }
  }
}

double peer_ratio(const BenchResult& result) {
  return result.timing.us / result.peer_scaled_us.value();
}

bool keeps_up(const BenchResult& result) {
  const double theirs = result.peer_scaled_us.value();
  const double leeway = theirs < 10 ? std::max(0.02 * theirs, 0.15) : 0.02 * theirs;
  return result.timing.us <= theirs + leeway;
}

std::vector<OpRatio> op_ratios(const BenchFile& file) {
  std::vector<OpRatio> ratios;
  for (const BenchResult& result : file.results) {
    if (!result.peer_scaled_us) continue;
    auto found = std::find_if(ratios.begin(), ratios.end(),
                              [&](const OpRatio& r) { return r.op == result.op; });
    if (found == ratios.end()) found = ratios.insert(ratios.end(), {result.op, 0, {}});
    found->cases.push_back(&result);
  }
  for (OpRatio& op : ratios) {
    double sum = 0;
    for (const BenchResult* one : op.cases) sum += std::log(peer_ratio(*one));
    op.ratio = std::exp(sum / static_cast<double>(op.cases.size()));
  }
  return ratios;
}

double mean_ratio(const std::vector<OpRatio>& ratios) {
  if (ratios.empty()) return 0;
  double sum = 0;
  for (const OpRatio& op : ratios) sum += std::log(op.ratio);
  return std::exp(sum / static_cast<double>(ratios.size()));
}

}  // namespace tessera::tools
