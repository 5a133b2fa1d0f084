#include "tools/lib/bench/peer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "dsl/base/error.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/table.h"
#include "tools/lib/files/input_file.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFile = int64_t{256} << 20;

[[noreturn]] void fail(const std::string& path, std::string what, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("{}: {}", path, what),
               .argument = path,
               .expected = "JSON lines with op, case and time_us",
               .got = std::move(got)});
}

const kernels::Op* shipped(std::string_view name) {
  for (const kernels::Op* op : kernels::all_ops()) {
    if (op->name == name) return op;
  }
  return nullptr;
}

/// True unless the first line of a file, or the one behind its run, is about something else.
bool is_about_cases(const std::string& path) {
  std::istringstream text(read_text_file(path, kMaxFile));
  std::string line;
  Json json;
  do {
    if (!std::getline(text, line)) return false;
    json = Json::parse(line, nullptr, false);
  } while (json.is_object() && json.contains("run"));
  return !json.is_object() ||
         (json.contains("case") && json["case"].is_string() && !json.contains("peer_us"));
}

/// The copy rates of a record's first line.
std::map<int64_t, double> rates_of(const Json& run, const std::string& path) {
  std::map<int64_t, double> rates;
  if (!run.is_object() || !run.contains("copy_gbs")) return rates;
  for (const Json& point : run["copy_gbs"]) {
    const bool is_rate = point.is_array() && point.size() == 2 && point[0].is_number_integer() &&
                         point[0] > 0 && point[1].is_number() && point[1] > 0;
    if (!is_rate) fail(path, "line 1 has a copy rate that is none", point.dump().substr(0, 80));
    rates[point[0].get<int64_t>()] = point[1].get<double>();
  }
  return rates;
}

}  // namespace

std::string case_key(std::string_view op, const std::string& text) {
  const kernels::Op* known = shipped(op);
  if (known == nullptr) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "no shipped op has this name",
                 .argument = "op",
                 .expected = "a name of tessera list",
                 .got = std::string(op)});
  }
  return fmt::format("{} {}", op, kernels::Case(kernels::parsed(*known), text).canonical());
}

PeerTimes PeerTimes::load(const std::string& path) {
  PeerTimes times;
  if (!std::filesystem::is_directory(path)) {
    times.load_file(path);
    const auto readme = std::filesystem::path(path).parent_path() / "README.md";
    if (std::filesystem::exists(readme)) times.load_copy_rates(readme.string());
    return times;
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string file = entry.path().string();
    if (entry.path().extension() == ".jsonl" && is_about_cases(file)) files.push_back(file);
    if (entry.path().filename() == "README.md") times.load_copy_rates(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) times.load_file(file);
  return times;
}

void PeerTimes::load_file(const std::string& path) {
  std::istringstream text(read_text_file(path, kMaxFile));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json json = Json::parse(line, nullptr, false);
    if (number == 1 && json.is_object() && json.contains("run")) {
      for (const auto& [bytes, gbs] : rates_of(json["run"], path)) copy_rates_[bytes] = gbs;
      continue;
    }
    const auto is_text = [&](const char* key) {
      return json.contains(key) && json[key].is_string();
    };
    // In a record of several peers beside ours, time_us is ours.
    const bool is_beside_ours = json.is_object() && json.contains("peer_us");
    const char* time = is_beside_ours ? "peer_us" : "time_us";
    if (!json.is_object() || !is_text("op") || !is_text("case") || !json.contains(time) ||
        !json[time].is_number() || !(json[time].get<double>() > 0)) {
      fail(path, fmt::format("line {} is no time of a case", number), line.substr(0, 80));
    }
    const kernels::Op* op = shipped(json["op"].get<std::string>());
    if (op == nullptr) continue;
    try {
      const std::string key = case_key(op->name, json["case"].get<std::string>());
      const auto us = json[time].get<double>();
      const auto [known, is_new] = times_.try_emplace(key, us);
      if (!is_new) known->second = is_beside_ours ? std::min(known->second, us) : us;
    } catch (const Error& error) {
      unread_.push_back(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
}

void PeerTimes::load_copy_rates(const std::string& readme) {
  // "8 MiB 3310 GB/s, 32 MiB 3609, ..., 1 GiB 4242": a size, its unit, a rate.
  const std::string text = read_text_file(readme, kMaxFile);
  const std::regex pair(R"(\b([1-9]\d{0,5}) (MiB|GiB) (\d{3,5})\b)");
  for (std::sregex_iterator it(text.begin(), text.end(), pair), end; it != end; ++it) {
    const int shift = (*it)[2].str() == "GiB" ? 30 : 20;
    copy_rates_[std::stoll((*it)[1].str()) << shift] = std::stod((*it)[3].str());
  }
}

std::optional<double> PeerTimes::find(const kernels::OpInfo& op,
                                      const kernels::BenchCase& bench_case) const {
  if (shipped(op.name) == nullptr) return std::nullopt;
  const auto found = times_.find(case_key(op.name, bench_case.label));
  if (found == times_.end()) return std::nullopt;
  return found->second;
}

std::optional<double> PeerTimes::copy_gbs(int64_t one_side) const {
  if (copy_rates_.empty() || one_side < copy_rates_.begin()->first) return std::nullopt;
  const auto above = copy_rates_.lower_bound(one_side);
  if (above == copy_rates_.end()) return copy_rates_.rbegin()->second;
  if (above == copy_rates_.begin()) return above->second;
  const auto below = std::prev(above);
  const double position =
      std::log(static_cast<double>(one_side) / static_cast<double>(below->first)) /
      std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return below->second + position * (above->second - below->second);
}

}  // namespace tessera::tools
