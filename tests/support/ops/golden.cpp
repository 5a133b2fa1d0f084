#include "tests/support/ops/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dsl/base/error.h"
#include "tests/support/places.h"
#include "tools/lib/safetensors.h"

namespace tessera::test {
namespace {

using nlohmann::json;

[[noreturn]] void bad_file(const std::string& what) {
  internal_error("golden folder: " + what);
}

kernels::ParamValue to_param(const json& value) {
  if (value.is_null()) return std::monostate{};
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return value.get<std::vector<int64_t>>();
  bad_file("a parameter value " + value.dump());
}

GoldenRule to_rule(const json& how) {
  GoldenRule rule;
  using Kind = GoldenRule::Kind;
  if (how == "bitwise") return rule;
  if (how == "sorted_rows") {
    rule.kind = Kind::sorted_rows;
  } else if (how == "q") {
    rule.kind = Kind::quantised;
  } else if (how.is_object() && how.contains("calc_diff")) {
    rule.kind = Kind::calc_diff;
    rule.limit = how["calc_diff"];
  } else if (how.is_object() && how.contains("allclose")) {
    rule.kind = Kind::allclose;
    rule.rtol = how["allclose"].at(0);
    rule.atol = how["allclose"].at(1);
  } else if (how.is_object() && how.contains("property")) {
    rule.kind = Kind::property;
    rule.text = how["property"];
    if (how.contains("rows")) rule.rows = how["rows"].get<std::vector<int64_t>>();
    if (how.contains("row_bytes")) rule.row_bytes = how["row_bytes"].get<int64_t>();
  } else {
    bad_file("a comparison " + how.dump());
  }
  return rule;
}

std::map<std::string, GoldenRule> to_rules(const json& entry, const char* key) {
  std::map<std::string, GoldenRule> rules;
  const json entries = entry.value(key, json::object());
  for (const auto& [name, how] : entries.items()) {
    rules[name] = to_rule(how);
  }
  return rules;
}

HostTensor load_tensor(const tools::Safetensors& file, const std::string& key,
                       const json& strides) {
  const tools::StoredTensor* stored = file.find(key);
  if (stored == nullptr) bad_file("no tensor " + key);
  Dims placed = row_major_strides(stored->shape);
  if (!strides.is_null())
    placed = Dims(std::span<const int64_t>(strides.get<std::vector<int64_t>>()));
  HostTensor tensor(stored->dtype, stored->shape, placed);
  const auto width = static_cast<size_t>(bytes(stored->dtype));
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, stored->data.data() + static_cast<size_t>(i) * width, width);
    tensor.set_bits(i, bits);
  }
  return tensor;
}

HostTensors load_tensors(const tools::Safetensors& file, const json& entry, const char* key) {
  HostTensors tensors;
  const json strides = entry.value("strides", json::object());
  const json entries = entry.value(key, json::object());
  for (const auto& [name, stored] : entries.items()) {
    tensors[name] = load_tensor(file, stored, strides.value(name, json()));
  }
  return tensors;
}

// The rows and bytes that a property lists. What they leave out is stored as zero; where the text
// says that it is zero here too, everything counts.
Comparison compare_property(const TensorView& got, const TensorView& want, const GoldenRule& rule) {
  if (rule.text.find("zero here") != std::string::npos) return compare_bits(got, want);
  if (!rule.rows && !rule.row_bytes) {
    return Comparison::failed("no test knows this property: " + rule.text);
  }
  if (got.dtype != want.dtype || !(got.shape == want.shape)) return compare_bits(got, want);
  const int64_t width = bytes(want.dtype);
  const int64_t num_rows = want.rank() == 0 ? 1 : want.shape[0];
  const int64_t row_size = num_rows == 0 ? 0 : want.size() / num_rows;
  const int64_t row_bytes = rule.row_bytes.value_or(row_size * width);
  for (int64_t row = 0; row < num_rows; ++row) {
    if (rule.rows && std::find(rule.rows->begin(), rule.rows->end(), row) == rule.rows->end()) {
      continue;
    }
    for (int64_t byte = 0; byte < row_bytes; ++byte) {
      const int64_t element = row * row_size + byte / width;
      const auto a = element_bits(got, element) >> (8 * (byte % width)) & 0xFF;
      const auto b = element_bits(want, element) >> (8 * (byte % width)) & 0xFF;
      if (a == b) continue;
      return Comparison::failed(
          fmt::format("byte {} of row {}: got {:#04x}, want {:#04x}", byte, row, a, b));
    }
  }
  return {};
}

// The property of get_fused_mapping, whose order inside an expert is free in the peer.
constexpr std::string_view kMappingProperty = "with n = pos_to_token_topk[p] >= 0";

Comparison compare_mapping(const HostTensors& inputs, const HostTensors& got) {
  const HostTensor &ids = inputs.at("topk_idx"), &to_pair = got.at("pos_to_token_topk");
  const auto at = [](const HostTensor& tensor, int64_t element) {
    return static_cast<int64_t>(tensor.value(element));
  };
  const int64_t topk = ids.shape()[1];
  int64_t placed = 0;
  for (int64_t p = 0; p < to_pair.size(); ++p) {
    const int64_t n = at(to_pair, p), expert = at(got.at("pos_to_expert"), p);
    const int64_t token = at(got.at("pos_to_token"), p);
    const bool padding = n < 0;
    const bool good = padding ? expert < 0 && token < 0
                              : n < ids.size() && at(got.at("token_topk_to_pos"), n) == p &&
                                    at(ids, n) == expert && n / topk == token;
    if (!good) return Comparison::failed(fmt::format("position {} of pair {} is wrong", p, n));
    placed += padding ? 0 : 1;
  }
  for (int64_t n = 0; n < ids.size(); ++n) {
    placed -= at(got.at("token_topk_to_pos"), n) < 0 ? 0 : 1;
  }
  return placed == 0 ? Comparison{} : Comparison::failed("positions that no pair is at");
}

Comparison compare_output(const TensorView& got, const TensorView& want, const GoldenRule& rule) {
  switch (rule.kind) {
    case GoldenRule::Kind::bitwise:
      return compare_bits(got, want);
    case GoldenRule::Kind::calc_diff:
      return compare_calc_diff(got, want, rule.limit);
    case GoldenRule::Kind::allclose:
      return compare_close(got, want, rule.rtol, rule.atol);
    case GoldenRule::Kind::sorted_rows:
      return compare_sorted_rows(got, want);
    case GoldenRule::Kind::quantised:
      return compare_quantised(got, want);
    case GoldenRule::Kind::property:
      return compare_property(got, want, rule);
  }
  return Comparison::failed("an unknown rule");
}

}  // namespace

std::filesystem::path golden_in_repository() {
  return in_source("tests/golden/recorded");
}

std::filesystem::path golden_beside_repository() {
  if (const char* given = std::getenv("TESSERA_GOLDEN_DIR"); given != nullptr && *given != '\0') {
    return given;
  }
  return in_source("../shared/golden");
}

std::string why_no_golden_beside() {
  const std::filesystem::path folder = golden_beside_repository();
  if (std::filesystem::is_directory(folder)) return "";
  return "no golden folder " + folder.string() + " (set TESSERA_GOLDEN_DIR)";
}

std::vector<std::string> golden_families(const std::filesystem::path& folder) {
  std::vector<std::string> families;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") families.push_back(entry.path().stem().string());
  }
  std::sort(families.begin(), families.end());
  return families;
}

std::vector<GoldenCase> read_golden(const std::filesystem::path& folder,
                                    const std::string& family) {
  const tools::Safetensors file =
      tools::read_safetensors((folder / (family + ".safetensors")).string());
  std::ifstream stream(folder / (family + ".json"));
  const json document = json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("cases")) bad_file(family + ".json has no cases");

  std::vector<GoldenCase> cases;
  for (const json& entry : document["cases"]) {
    GoldenCase golden;
    golden.id = entry.at("id");
    golden.op = entry.at("op");
    const json params = entry.value("params", json::object());
    for (const auto& [name, value] : params.items()) {
      golden.params[name] = to_param(value);
    }
    golden.inputs = load_tensors(file, entry, "inputs");
    golden.outputs = load_tensors(file, entry, "outputs");
    golden.rules = to_rules(entry, "compare");
    golden.cpu_rules = to_rules(entry, "compare_cpu");
    cases.push_back(std::move(golden));
  }
  return cases;
}

Comparison compare_golden(const GoldenCase& golden, const HostTensors& got, bool on_cpu) {
  Comparison all;
  const auto fail = [&](const std::string& output, const std::string& report) {
    all.ok = false;
    all.report += fmt::format("{}{}: {}", all.report.empty() ? "" : "\n", output, report);
  };
  for (const auto& [name, tensor] : got) {
    if (golden.outputs.count(name) == 0) fail(name, "an output that the case does not have");
  }
  for (const auto& [name, want] : golden.outputs) {
    const auto found = got.find(name);
    if (found == got.end()) {
      fail(name, "missing");
      continue;
    }
    const auto cpu_rule = golden.cpu_rules.find(name);
    const bool use_cpu_rule = on_cpu && cpu_rule != golden.cpu_rules.end();
    const auto rule = golden.rules.find(name);
    if (!use_cpu_rule && rule == golden.rules.end()) {
      fail(name, "the case does not say how to compare it");
      continue;
    }
    const GoldenRule& how = use_cpu_rule ? cpu_rule->second : rule->second;
    const bool is_mapping =
        how.kind == GoldenRule::Kind::property && how.text.starts_with(kMappingProperty);
    const Comparison result = is_mapping ? compare_mapping(golden.inputs, got)
                                         : compare_output(found->second.view(), want.view(), how);
    if (!result.ok) fail(name, result.report);
  }
  return all;
}

}  // namespace tessera::test
