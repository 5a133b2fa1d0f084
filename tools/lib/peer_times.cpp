#include "tools/lib/peer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "dsl/base/error.h"
#include "kernels/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/table.h"
#include "tools/lib/input_file.h"

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

/// True unless the first line of a file is about something else.
bool is_about_cases(const std::string& path) {
  std::istringstream text(read_text_file(path, kMaxFile));
  std::string line;
  std::getline(text, line);
  const Json json = Json::parse(line, nullptr, false);
  return !json.is_object() ||
         (json.contains("case") && json["case"].is_string() && !json.contains("peer_us"));
}

/// The same for every text of a case.
std::string key_of(std::string_view op, const std::string& text) {
  return fmt::format("{} {}", op, kernels::Case(kernels::parsed(*shipped(op)), text).canonical());
}

}  // namespace

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
    const auto is_text = [&](const char* key) {
      return json.contains(key) && json[key].is_string();
    };
    if (!json.is_object() || !is_text("op") || !is_text("case") || !json.contains("time_us") ||
        !json["time_us"].is_number() || !(json["time_us"].get<double>() > 0)) {
      fail(path, fmt::format("line {} is no time of a case", number), line.substr(0, 80));
    }
    const kernels::Op* op = shipped(json["op"].get<std::string>());
    if (op == nullptr) continue;
    try {
      const std::string key = key_of(op->name, json["case"].get<std::string>());
      times_[key] = json["time_us"].get<double>();
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
  const auto found = times_.find(key_of(op.name, bench_case.label));
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
