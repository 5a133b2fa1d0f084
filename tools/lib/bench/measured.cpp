#include "tools/lib/bench/measured.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dsl/base/error.h"
#include "tools/lib/bench/peer_times.h"
#include "tools/lib/files/input_file.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostBytes = 1 << 24;

[[noreturn]] void fail(const std::string& path, size_t number, std::string expected,
                       const std::string& line) {
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("{}: line {} is none of this record", path, number),
               .argument = path,
               .expected = std::move(expected),
               .got = line.substr(0, 80)});
}

/// Calls read(line) for each line behind the first, and returns what the first says.
template <class Read>
RecordedRun read_lines(const std::string& path, const char* expected, const Read& read) {
  std::istringstream text(read_text_file(path, kMostBytes));
  RecordedRun run;
  size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    try {
      const Json json = Json::parse(line);
      if (number > 1) {
        read(json);
        continue;
      }
      const Json& first = json.at("run");
      run = {first.at("card"), first.at("date"), first.value("commit", ""),
             first.value("command", ""), first.value("peers", "")};
    } catch (const Json::exception&) {
      fail(path, number, number > 1 ? expected : "{\"run\": {\"card\", \"date\", ..}}", line);
    }
  }
  if (number == 0) fail(path, 1, "{\"run\": {\"card\", \"date\", ..}}", "an empty file");
  return run;
}

}  // namespace

RecordedRun read_run(const std::string& path) {
  return read_lines(path, "", [](const Json&) {});
}

PeerRecord read_peers(const std::string& path) {
  PeerRecord record;
  record.run = read_lines(path, "op, case, peer and peer_us", [&](const Json& json) {
    PeerCase one;
    one.op = json.at("op").get<std::string>();
    one.text = json.at("case").get<std::string>();
    one.key = case_key(one.op, one.text);
    one.peer = json.at("peer").get<std::string>();
    one.peer_us = json.at("peer_us").get<double>();
    if (json.contains("time_us")) one.us = json["time_us"].get<double>();
    record.cases.push_back(std::move(one));
  });
  return record;
}

LanguageRecord read_languages(const std::string& path) {
  LanguageRecord record;
  record.run = read_lines(path, "kernel, language and time_us", [&](const Json& json) {
    LanguageTime one;
    one.kernel = json.at("kernel").get<std::string>();
    one.language = json.at("language").get<std::string>();
    one.example = json.value("example", "");
    if (json.contains("lines")) one.lines = json["lines"].get<int>();
    one.us = json.at("time_us").get<double>();
    if (json.contains("flops")) one.tflops = json["flops"].get<double>() / one.us / 1e6;
    record.times.push_back(std::move(one));
  });
  return record;
}

std::string run_line(const std::string& card, const std::string& command,
                     const std::vector<BenchResult>& results) {
  std::map<int64_t, double> rates;  // bytes of one side -> GB/s
  for (const BenchResult& r : results) {
    if (r.bytes >= 2 << 20 && r.copy_gbs > 0) rates[r.bytes / 2] = r.copy_gbs;
  }
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  int64_t last = 0;
  for (const auto& [bytes, gbs] : rates) {
    if (bytes < last + last / 4) continue;  // between points the rate is interpolated
    points.push_back({bytes, std::round(gbs)});
    last = bytes;
  }
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  nlohmann::ordered_json run = {
      {"card", card},
      {"date", fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday)},
      {"command", command}};
  if (!points.empty()) run["copy_gbs"] = points;
  return nlohmann::ordered_json{{"run", run}}.dump() + "\n";
}

namespace {

/// Both products of attention, of all queries with all keys, or with half of them.
double attention_flops(const kernels::BenchCase& one) {
  double queries = 0, keys = 0, widths = 0;
  for (const kernels::BenchCase::Input& input : one.inputs) {
    const auto extent = [&](int d) { return static_cast<double>(input.shape[d]); };
    if (input.name == "q") queries = extent(0) * extent(1) * extent(2), widths += extent(3);
    if (input.name == "k") keys = extent(1);
    if (input.name == "v") widths += extent(3);
  }
  const auto causal = one.params.find("causal");
  const bool is_half = causal != one.params.end() && causal->second == kernels::ParamValue(true);
  return (is_half ? 1 : 2) * queries * keys * widths;
}

}  // namespace

double product_flops(const kernels::OpInfo& op, const kernels::BenchCase& one) {
  if (op.name == "attention_fwd") return attention_flops(one);
  if (op.family != "gemm") return 0;
  const kernels::BenchCase::Input *a = nullptr, *b = nullptr, *counts = nullptr, *b_sf = nullptr;
  bool has_tiles = false;  // of codes: their extents are not those of the matrix
  for (const kernels::BenchCase::Input& input : one.inputs) {
    if (input.name == "a") a = &input;
    if (input.name == "b") b = &input;
    if (input.name == "masked_m") counts = &input;
    if (input.name == "b_sf") b_sf = &input;
    has_tiles = has_tiles || input.name == "b_shift";
  }
  if (a == nullptr || b == nullptr) return 0;
  double rows = 1;
  for (int d = 0; d + 1 < a->shape.rank; ++d) rows *= static_cast<double>(a->shape[d]);
  if (counts != nullptr) {
    if (!counts->values) return 0;
    rows = 0;
    for (int64_t g = 0; g < counts->shape[0]; ++g) rows += static_cast<double>(counts->values(g));
  }
  const int64_t columns = has_tiles ? b_sf->shape[b->shape.rank - 3] : b->shape[b->shape.rank - 2];
  return 2 * rows * static_cast<double>(columns) * static_cast<double>(a->shape[a->shape.rank - 1]);
}

}  // namespace tessera::tools
