#include "tools/lib/peer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "dsl/base/error.h"
#include "tools/lib/input_file.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFile = int64_t{256} << 20;

[[noreturn]] void fail(const std::string& path, std::string what, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("{}: {}", path, what),
               .argument = path,
               .expected = "JSON lines with op or kernel, params and time_us",
               .got = std::move(got)});
}

/// A JSON value in the words of CaseFacts.
std::string fact(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const Json& element : value) text += (text.empty() ? "" : ",") + element.dump();
    return text;
  }
  if (value.is_number_float()) return kernels::to_string(value.get<double>());
  return value.dump();
}

std::string dtype_word(const std::string& peer) {
  return peer == "fp32" ? "f32" : peer;
}

/// One op of the peer: its parameter names and ours, "" for those that only say how inputs are made.
struct Renames {
  std::string op;
  std::map<std::string, std::string> names;
  bool casts_back = false;  // the layout flags are those of x
  CaseFacts always = {};    // what every line of the peer means and does not say
};

const std::map<std::string, Renames>& renames() {
  static const auto* table = new std::map<std::string, Renames>{
      {"topk_gate",
       {"topk_gate", {{"num_tokens", "T"}, {"num_experts", "E"}, {"num_topk", "num_topk"}}}},
      {"per_token_cast",
       {"per_token_cast",
        {{"num_tokens", "T"},
         {"hidden", "H"},
         {"in_dtype", "dtype"},
         {"fmt", "format"},
         {"num_per_channels", "num_per_channels"},
         {"x_block_size", "x_block_size"},
         {"round_sf", "round_sf"}}}},
      {"per_token_cast_to_e5m6",
       {"per_token_cast_to_e5m6",
        {{"num_tokens", "T"},
         {"hidden", "H"},
         {"in_dtype", "dtype"},
         {"num_per_channels", ""},
         {"round_sf", "round_sf"}}}},
      {"cast_back_e5m6",
       {"cast_back_e5m6",
        {{"num_tokens", "T"},
         {"hidden", "H"},
         {"out_dtype", "out_dtype"},
         {"num_per_channels", "block_cols"},
         {"round_sf", ""}},
        true}},
      {"per_channel_cast_and_transpose",
       {"per_channel_cast_and_transpose",
        {{"num_tokens", "T"},
         {"hidden", "H"},
         {"dtype", "dtype"},
         {"num_per_channels", "num_per_tokens"},
         {"round_sf", "round_sf"}}}},
      {"cast_back_per_token",
       {"per_token_cast_back",
        {{"num_tokens", "T"},
         {"hidden", "H"},
         {"fmt", "dtype"},
         {"out_dtype", "out_dtype"},
         {"num_per_channels", "num_per_channels"},
         {"round_sf", ""}},
        true}},
      {"cast_back",
       {"cast_back",
        {{"num_tokens", "T"},
         {"hidden", "H"},
         {"fmt", "dtype"},
         {"out_dtype", "out_dtype"},
         {"num_per_tokens", "block_rows"},
         {"num_per_channels", "block_cols"},
         {"round_sf", ""}},
        true}},
      {"get_fused_mapping",
       {"get_fused_mapping",
        {{"num_tokens", "T"},
         {"num_topk", "K"},
         {"num_experts", "num_experts"},
         {"alignment", "alignment"},
         {"num_ep_ranks", ""}}}},
      {"expand_to_fused_with_sf",
       {"expand_to_fused_with_sf",
        {{"num_tokens", "T"},
         {"num_topk", "K"},
         {"hidden", "H"},
         {"num_per_channels", "num_per_channels"},
         {"num_experts", ""},
         {"num_ep_ranks", ""},
         {"round_sf", ""}}}},
      {"reduce_fused",
       {"reduce_fused",
        {{"num_tokens", "T"},
         {"num_topk", "K"},
         {"hidden", "H"},
         {"in_dtype", "dtype"},
         {"out_dtype", "out_dtype"},
         {"with_sf", "x_sf given"},
         {"with_weights", "topk_weights given"},
         {"num_experts", ""},
         {"num_ep_ranks", ""}}}},
      {"swiglu_forward_and_per_token_cast",
       {"swiglu_forward_and_per_token_cast",
        {{"num_tokens", ""},  // before the expansion; P follows from the bytes
         {"hidden", "H"},
         {"num_per_channels", "num_per_channels"},
         {"round_sf", "round_sf"},
         {"swiglu_clamp_value", "swiglu_clamp_value"},
         {"enable_pos_to_expert", "pos_to_expert given"},
         {"with_weights", "topk_weights given"},
         {"num_topk", ""},
         {"num_experts", ""},
         {"num_ep_ranks", ""}}}},
      {"top2_sum_gate",
       {"top2_sum_gate",
        {{"num_routed_experts", "E"},
         {"num_topk", "num_topk"},
         {"num_groups", "num_groups"},
         {"num_topk_groups", "num_topk_groups"},
         {"num_shared_experts", "num_shared_experts"},
         {"scoring_func", "scoring_func"}},
        false,
        {{"T", "36"},
         {"routed_scaling_factor", "1.5"},
         {"num_ep_ranks", "4"},
         {"tp_rank", "1"},
         {"num_tp_ranks", "2"},
         {"unmapped_topk_idx given", "true"}}}},
      {"engram_hash",
       {"engram_hash", {{"num_tokens", "T"}, {"layers", "L"}, {"ngram", "N"}, {"tables", "J"}}}},
      {"engram_gate_fwd",
       {"engram_gate_fwd",
        {{"num_tokens", "T"}, {"hidden", "D"}, {"hc", "hc"}, {"save", "save_for_backward"}},
        false,
        {{"eps", "1e-20"}, {"clamp_value", "1e-06"}}}},
      {"transpose", {"transpose", {{"num_tokens", "R"}, {"hidden", "C"}, {"dtype", "dtype"}}}},
      {"batched_transpose",
       {"batched_transpose",
        {{"num_experts", "B"}, {"num_tokens", "R"}, {"hidden", "C"}, {"dtype", "dtype"}}}},
      {"pre_apply_mix", {"pre_apply_mix_fwd", {{"n", "T"}, {"h", "H"}}}},
      {"pre_split_mixes", {"pre_split_mixes_fwd", {{"n", "T"}, {"h", ""}}}},
      {"norm_fn_fwd", {"norm_fn_fwd", {{"n", "T"}, {"h", "H"}, {"n_splits", "n_splits"}}}},
      {"pre_big_fuse", {"pre_big_fuse", {{"n", "T"}, {"h", "H"}}}},
      {"post_fwd", {"post_fwd", {{"n", "T"}, {"h", "H"}}}},
      {"expand_fwd", {"expand_to_mhc_fwd", {{"n", "T"}, {"h", "H"}}}},
      {"sinkhorn_fwd", {"sinkhorn_fwd", {{"n", "T"}, {"h", ""}}}}};
  return *table;
}

/// The peer's two layout flags in one word.
std::string layout_word(bool col_major, bool packed) {
  if (packed) return "packed_ue8m0";
  return col_major ? "col_major_tma" : "row_major";
}

/// A count among the parameters of a line; throws std::out_of_range if it is none.
int64_t count_in(const Json& params, const char* key, int64_t lowest, int64_t otherwise) {
  if (!params.contains(key)) return otherwise;
  constexpr int64_t kHighest = int64_t{1} << 31;
  const Json& value = params[key];
  const int64_t count = value.is_number_integer() ? value.get<int64_t>() : -1;
  if (count >= lowest && count <= kHighest) return count;
  throw std::out_of_range(fmt::format("{} is {}", key, value.dump()));
}

/// Expanded rows of a swiglu line, which names tokens only: what the bytes that it moved make of a
/// multiple of the alignment, 16. Those are x, out and its scales.
int64_t expanded_rows(const Json& line) {
  const Json& params = line["params"];
  const int64_t hidden = count_in(params, "hidden", 1, 1);
  const int64_t group = count_in(params, "num_per_channels", 1, 1);
  const int64_t groups = (hidden + group - 1) / group;
  const bool packed = params.value("use_packed_ue8m0", false);
  const int64_t row_bytes = 5 * hidden + 4 * (packed ? (groups + 3) / 4 : groups);
  const double bytes = line["time_us"].get<double>() * line.value("bandwidth_gbs", 0.0) * 1e3;
  constexpr double kMostBytes = 1e18;
  if (!(std::abs(bytes) <= kMostBytes)) throw std::out_of_range(fmt::format("{} bytes", bytes));
  return 16 * std::llround(bytes / static_cast<double>(16 * row_bytes));
}

/// The facts of a line in the peer's names; nothing for a parameter that we cannot translate. Throws
/// Json::exception or std::out_of_range for values that mean nothing.
std::optional<CaseFacts> translate(const Renames& rename, const Json& line) {
  const Json& params = line["params"];
  CaseFacts facts = rename.always;
  for (const auto& [key, value] : params.items()) {
    if (key == "use_tma_aligned_col_major_sf" || key == "use_packed_ue8m0") continue;
    const auto ours = rename.names.find(key);
    if (ours == rename.names.end()) return std::nullopt;
    if (ours->second.empty()) continue;
    const std::string text = fact(value);
    const bool is_dtype = ours->second == "dtype" || ours->second == "out_dtype";
    facts[ours->second] = is_dtype ? dtype_word(text) : text;
  }
  if (facts.contains("block_cols")) {
    facts.emplace("block_rows", "1");
    facts["x_block_size"] = facts["block_rows"] + "," + facts["block_cols"];
    facts.erase("block_rows");
    facts.erase("block_cols");
  }
  if (rename.op == "reduce_fused") {  // the peer's words for our format
    facts["format"] = facts["out_dtype"] == "e4m3" ? "e4m3" : "none";
    facts.erase("out_dtype");
  }
  if (rename.op == "swiglu_forward_and_per_token_cast") {
    facts["P"] = std::to_string(expanded_rows(line));
    const bool counts =
        facts["swiglu_clamp_value"] != "none" && facts["num_per_channels"] != facts["H"];
    facts["clamped_count given"] = counts ? "true" : "false";
  }
  if (rename.op == "top2_sum_gate") {
    const int64_t topk = count_in(params, "num_topk", 1, 1);
    const int64_t shared = count_in(params, "num_shared_experts", 0, 1);
    const bool fits = shared > 0 && topk % shared == 0 &&
                      count_in(params, "num_routed_experts", 0, 0) % (topk / shared) == 0;
    facts["use_shared_as_routed"] = fits ? "true" : "false";
  }
  if (params.contains("use_packed_ue8m0")) {
    const std::string word = layout_word(params.value("use_tma_aligned_col_major_sf", false),
                                         params.value("use_packed_ue8m0", false));
    if (!rename.casts_back) facts["sf_layout"] = word;
    const auto dtype = facts.find("dtype");
    const bool quantised =
        dtype != facts.end() && (dtype->second == "e4m3" || dtype->second == "e2m1");
    if (quantised || rename.casts_back) facts["x_sf_layout"] = word;
  }
  return facts;
}

bool is_symbol(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  });
}

/// An extent of an op's table, "T" or "2H".
struct TableExtent {
  int64_t factor = 1;
  std::string symbol;
};
TableExtent table_extent(const std::string& text) {
  const size_t digits = text.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos) return {1, text};
  return {std::stoll(text.substr(0, digits)), text.substr(digits)};
}

}  // namespace

CaseFacts facts_of(const kernels::OpInfo& op, const kernels::BenchCase& bench_case) {
  CaseFacts facts;
  for (const auto& [name, value] : check_params(op, bench_case.params)) {
    facts[name] = kernels::to_string(value);
  }
  if (!bench_case.inputs.empty()) facts["dtype"] = name(bench_case.inputs.front().dtype);
  // In ops that take e2m1, i8 means two of its codes; three bytes hold two codes of e5m6.
  const auto codes_in = [](const kernels::BenchCase::Input& input,
                           const kernels::TensorInfo& info) -> std::string {
    const auto lists = [&](const char* word) {
      return std::find(info.dtypes.begin(), info.dtypes.end(), word) != info.dtypes.end();
    };
    if (input.dtype == DType::i8 && lists("e2m1")) return "e2m1";
    return input.dtype == DType::u8 && lists("e5m6") ? "e5m6" : "";
  };
  for (const kernels::TensorInfo& info : op.tensors) {
    if (!info.optional || info.role == kernels::Role::out) continue;
    const bool given = std::any_of(
        bench_case.inputs.begin(), bench_case.inputs.end(),
        [&](const kernels::BenchCase::Input& input) { return input.name == info.name; });
    facts[info.name + " given"] = given ? "true" : "false";
  }
  for (const kernels::BenchCase::Input& input : bench_case.inputs) {
    for (const kernels::TensorInfo& info : op.tensors) {
      if (info.name != input.name || info.shape.size() != static_cast<size_t>(input.shape.rank)) {
        continue;
      }
      const std::string codes = codes_in(input, info);
      for (int i = 0; i < input.shape.rank; ++i) {
        const TableExtent table = table_extent(info.shape[static_cast<size_t>(i)]);
        const bool packed = i + 1 == input.shape.rank && !codes.empty();
        const int64_t extent = input.shape[i];
        const int64_t columns = !packed ? extent : codes == "e2m1" ? extent * 2 : extent / 3 * 2;
        if (is_symbol(table.symbol)) {
          facts[table.symbol] = fmt::format("{}", columns / table.factor);
        }
      }
      if (&input == &bench_case.inputs.front() && !codes.empty()) facts["dtype"] = codes;
    }
  }
  return facts;
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
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
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
    const std::string where = fmt::format("line {}", number);
    if (!json.is_object() || !json.contains("params") || !json["params"].is_object() ||
        !json.contains("time_us") || !json["time_us"].is_number()) {
      fail(path, where + " is no peer time", line.substr(0, 80));
    }
    const auto us = json["time_us"].get<double>();
    if (json.contains("op")) {
      CaseFacts facts;
      for (const auto& [key, value] : json["params"].items()) facts[key] = fact(value);
      lines_.push_back({fact(json["op"]), std::move(facts), us});
    } else if (json.contains("kernel")) {
      const auto known = renames().find(fact(json["kernel"]));
      if (known == renames().end()) continue;
      std::optional<CaseFacts> facts;
      try {
        facts = translate(known->second, json);
      } catch (const std::exception& error) {
        fail(path, where + " is no peer time", error.what());
      }
      if (facts) lines_.push_back({known->second.op, std::move(*facts), us});
    } else {
      fail(path, where + " names neither op nor kernel", line.substr(0, 80));
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
  CaseFacts ours = facts_of(op, bench_case);
  for (const Line& line : lines_) {
    if (line.op != op.name) continue;
    CaseFacts theirs = line.facts;
    // What a line leaves out stands at its default; the dtype at bf16, as in a model that serves, or
    // at the first that the op lists.
    for (const kernels::ParamInfo& param : op.params) {
      if (param.def.has_value()) theirs.emplace(param.name, kernels::to_string(*param.def));
    }
    if (!op.tensors.empty() && !op.tensors.front().dtypes.empty()) {
      const std::vector<std::string>& dtypes = op.tensors.front().dtypes;
      const bool takes_bf16 = std::find(dtypes.begin(), dtypes.end(), "bf16") != dtypes.end();
      theirs.emplace("dtype", takes_bf16 ? "bf16" : dtypes.front());
    }
    if (std::all_of(theirs.begin(), theirs.end(), [&](const auto& item) {
          const auto found = ours.find(item.first);
          return found != ours.end() && found->second == item.second;
        })) {
      return line.us;
    }
  }
  return std::nullopt;
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
