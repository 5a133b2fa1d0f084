#include "tools/lib/calls/op_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

#include "dsl/base/error.h"
#include "dsl/base/nearest_name.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;
using kernels::OpInfo;
using kernels::ParamInfo;
using kernels::ParamValue;
using kernels::TensorInfo;

std::string_view role_word(kernels::Role role) {
  switch (role) {
    case kernels::Role::in:
      return "in";
    case kernels::Role::out:
      return "out";
    case kernels::Role::inout:
      return "inout";
  }
  return "in";
}

Json json_of(const ParamValue& value) {
  return std::visit(
      [](const auto& v) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          return nullptr;
        } else {
          return v;
        }
      },
      value);
}

Json allowed_json(const ParamInfo& param) {
  if (!param.allowed.empty()) {
    Json list = Json::array();
    for (const std::string& word : param.allowed) {
      int64_t number = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
      const bool is_number = error == std::errc() && end == word.data() + word.size();
      list.push_back(is_number ? Json(number) : Json(word));
    }
    return list;
  }
  if (!param.allowed_text.empty()) return param.allowed_text;
  if (param.min.has_value()) return fmt::format(">= {}", *param.min);
  return nullptr;
}

Json json_of(const OpInfo& op) {
  Json json = {{"name", op.name}, {"family", op.family}, {"purpose", op.purpose}};
  json["tensors"] = Json::array();
  for (const TensorInfo& t : op.tensors) {
    json["tensors"].push_back({{"name", t.name},
                               {"role", role_word(t.role)},
                               {"optional", t.optional},
                               {"accumulate", t.accumulate},
                               {"list", t.list},
                               {"dtypes", t.dtypes},
                               {"shape", t.shape},
                               {"layout", t.layout},
                               {"presence", t.presence}});
  }
  json["params"] = Json::array();
  for (const ParamInfo& p : op.params) {
    Json param = {{"name", p.name}, {"type", name(p.type)}};
    if (p.def.has_value()) param["default"] = json_of(*p.def);
    param["allowed"] = allowed_json(p);
    json["params"].push_back(std::move(param));
  }
  return json;
}

std::vector<const OpInfo*> of_family(const std::vector<OpInfo>& ops, const std::string& family) {
  std::vector<const OpInfo*> chosen;
  std::vector<std::string> families;
  for (const OpInfo& op : ops) {
    if (family.empty() || op.family == family) chosen.push_back(&op);
    if (std::find(families.begin(), families.end(), op.family) == families.end()) {
      families.push_back(op.family);
    }
  }
  if (chosen.empty() && !family.empty()) {
    ErrorFields fields;
    fields.kind = ErrorKind::argument;
    fields.what = fmt::format("unknown family '{}'", family);
    fields.argument = "family";
    fields.expected = fmt::format("{}", fmt::join(families, ", "));
    fields.got = family;
    fields.hint = did_you_mean(family, families);
    throw Error(std::move(fields));
  }
  return chosen;
}

/// "ceil(T / 32)", "T" or "1": how many blocks of `block` an extent has.
std::string num_blocks(const std::string& extent, const std::string& block) {
  if (block == "1") return extent;
  return block == extent ? "1" : fmt::format("ceil({} / {})", extent, block);
}

/// The extents of the matrix that scales belong to, as its signature names it.
std::vector<std::string> matrix_of(const OpInfo& op, const TensorInfo& scales) {
  for (const kernels::Op* one : kernels::all_ops()) {
    if (one->name != op.name) continue;
    const kernels::Signature& signature = kernels::parsed(*one).signature;
    const kernels::TensorRule& rule = *signature.find_tensor(scales.name);
    std::vector<std::string> shape;
    for (const kernels::Expression& extent : signature.find_tensor(rule.scales->matrix)->shape) {
      shape.push_back(extent.text());
    }
    return shape;
  }
  return op.tensors.front().shape;  // of an op that is not ours
}

/// The shape of scales, which the table gives as "SF(rows of a block,columns of a block) layout" or
/// "SF(parameter) layout".
std::string shape_of_scales(const OpInfo& op, const TensorInfo& scales) {
  const std::vector<std::string> matrix = matrix_of(op, scales);
  const size_t end = scales.layout.find(')');
  const std::string block = scales.layout.substr(3, end - 3);  // after "SF("
  const size_t comma = block.find(',');
  const bool is_param = comma == std::string::npos;
  return fmt::format("{}, {}",
                     num_blocks(matrix.front(), is_param ? block + "[0]" : block.substr(0, comma)),
                     num_blocks(matrix.back(), is_param ? block + "[1]" : block.substr(comma + 1)));
}

std::string tensor_text(const OpInfo& op, const TensorInfo& t) {
  const TensorWords words = words_of(op, t);
  return fmt::format("{} {} {}{}{}", words.dtypes, words.shape, words.layout,
                     t.accumulate ? ", accumulates" : "", t.list ? ", list" : "");
}

/// "`x`, `y`? bf16 [T, H], `out` [T]": tensors of one type stand together.
std::string tensors_text(const OpInfo& op, bool is_result) {
  std::string text;
  std::string type_before;
  for (const TensorInfo& t : op.tensors) {
    const bool is_written = t.role != kernels::Role::in;
    if (is_written != is_result) continue;
    std::string type = tensor_text(op, t);
    if (const size_t at = type.find(" row_major"); at != std::string::npos) type.erase(at, 10);
    if (!text.empty()) text += type == type_before ? ", " : " " + type_before + ", ";
    text += fmt::format("`{}`{}", t.name, t.optional ? "?" : "");
    type_before = std::move(type);
  }
  return text.empty() ? text : text + " " + type_before;
}

/// A user's word and the beginning of a word in the name, family or purpose of the ops that he means. Rows of one
/// word stand together.
struct Synonym {
  std::string_view word, part;
};
constexpr Synonym kSynonyms[] = {
    {"quantize", "cast"},
    {"quantise", "cast"},
    {"quantization", "cast"},
    {"quantisation", "cast"},
    {"dequantize", "cast_back"},
    {"dequantise", "cast_back"},
    {"dequantization", "cast_back"},
    {"dequant", "cast_back"},
    {"fp8", "8-bit"},
    {"fp8", "gemm_fp8"},
    {"e4m3", "8-bit"},
    {"e4m3", "e4m3"},
    {"fp4", "4-bit"},
    {"fp4", "mxfp4"},
    {"e2m1", "4-bit"},
    {"e5m6", "12-bit"},
    {"matmul", "gemm"},
    {"linear", "gemm"},
    {"mm", "gemm"},
    {"softmax", "sum_gate"},
    {"softmax", "hash_gate"},
    {"routing", "topk_gate"},
    {"routing", "sum_gate"},
    {"routing", "hash_gate"},
    {"router", "topk_gate"},
    {"router", "sum_gate"},
    {"router", "hash_gate"},
    {"dispatch", "expand_to_fused"},
    {"permute", "expand_to_fused"},
    {"scatter", "expand_to_fused"},
    {"combine", "reduce_fused"},
    {"unpermute", "reduce_fused"},
    {"rmsnorm", "norm_fn"},
    {"rmsnorm", "engram"},
    {"rmsnorm", "mean square norm"},
    {"rope", "apply_rotary"},
    {"rms_norm", "norm_fn"},
    {"rms_norm", "engram"},
    {"rms_norm", "mean square norm"},
    {"layernorm", "norm_fn"},
    {"normalize", "normalis"},
    {"normalise", "normalis"},
    {"silu", "swiglu"},
    {"activation", "swiglu"},
    {"backward", "gradient"},
    {"grad", "gradient"},
    {"attention", "kv "},
    {"kv_cache", "kv "},
    {"kv-cache", "kv "},
    {"top-k", "topk"},
    {"top_k", "topk"},
    {"hyper-connections", "mhc"},
    {"hyperconnections", "mhc"},
    {"residual", "mhc"},
    {"embedding", "engram"},
    {"ngram", "engram"},
    {"bincount", "group_count"},
    {"histogram", "group_count"},
    {"load_balance", "aux_fi"},
};

std::string lower_case(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// "cast" begins a word of "per_token_cast"; "mm" none of "summed".
bool has_word_that_begins(std::string_view text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    if (at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0) return true;
  }
  return false;
}

}  // namespace

TensorWords words_of(const OpInfo& op, const TensorInfo& t) {
  const bool is_scale =
      t.dtypes.empty() && t.layout.starts_with("SF(") && !op.tensors.front().shape.empty();
  if (!is_scale) {
    return {fmt::format("{}", fmt::join(t.dtypes, "/")),
            fmt::format("[{}]", fmt::join(t.shape, ", ")), t.layout};
  }
  const std::string shape = fmt::format("[{}]", shape_of_scales(op, t));
  const size_t space = t.layout.find(' ');
  if (space == std::string::npos) {
    return {"f32", shape, t.role == kernels::Role::in ? "rows" : "row_major"};
  }
  const std::string param = t.layout.substr(space + 1);
  const bool may_be_packed =
      std::any_of(op.params.begin(), op.params.end(), [&](const kernels::ParamInfo& info) {
        return info.name == param && std::count(info.allowed.begin(), info.allowed.end(),
                                                std::string("packed_ue8m0")) > 0;
      });
  return {may_be_packed ? "f32, packed i32" : "f32", shape, "as " + param};
}

std::string list_table(const std::vector<OpInfo>& ops) {
  std::string text = "| op | does | tensors |\n|---|---|---|\n";
  for (const OpInfo& op : ops) {
    const std::string inputs = tensors_text(op, false), results = tensors_text(op, true);
    text += fmt::format("| [`{0}`](#{0}) | {1} | {2}{3}{4} |\n", op.name, op.purpose, inputs,
                        inputs.empty() ? "" : " to ", results);
  }
  return text;
}

std::string list_json(const std::vector<OpInfo>& ops, const std::string& family) {
  Json list = Json::array();
  for (const OpInfo* op : of_family(ops, family)) list.push_back(json_of(*op));
  return Json{{"ops", std::move(list)}}.dump(2) + "\n";
}

std::vector<OpInfo> find_ops(const std::vector<OpInfo>& ops, std::string_view word) {
  const std::string wanted = lower_case(word);
  std::vector<std::string_view> parts = {wanted};
  for (const Synonym& one : kSynonyms) {
    if (one.word == wanted) parts.push_back(one.part);
  }
  std::vector<OpInfo> found;
  for (const OpInfo& op : ops) {
    const std::string text = lower_case(op.name + " " + op.family + " " + op.purpose);
    const bool has_one = std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
      return has_word_that_begins(text, part);
    });
    if (has_one && !wanted.empty()) found.push_back(op);
  }
  return found;
}

std::string synonyms_text(const std::vector<OpInfo>& ops) {
  constexpr size_t kMost = 4;
  struct Row {
    std::vector<std::string_view> words;  // that find the same
    std::string found;
  };
  std::vector<Row> rows;
  for (const Synonym& one : kSynonyms) {
    if (!rows.empty() && rows.back().words.back() == one.word) continue;
    const std::vector<OpInfo> found = find_ops(ops, one.word);
    std::string text;
    for (size_t i = 0; i < std::min(found.size(), kMost); ++i) {
      text += fmt::format("{}[`{}`]({}/README.md#{})", i > 0 ? ", " : "", found[i].name,
                          found[i].family, found[i].name);
    }
    if (found.size() > kMost) text += fmt::format(", {} more", found.size() - kMost);
    const auto same =
        std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.found == text; });
    if (same != rows.end()) {
      same->words.push_back(one.word);
    } else {
      rows.push_back({{one.word}, text});
    }
  }
  std::string text = "| word | finds |\n|---|---|\n";
  for (const Row& row : rows) {
    text += fmt::format("| {} | {} |\n", fmt::join(row.words, ", "), row.found);
  }
  return text;
}

std::string list_lines(const std::vector<OpInfo>& ops) {
  TextTable table({{"op", Align::left}, {"family", Align::left}, {"does", Align::left}});
  for (const OpInfo& op : ops) table.row({op.name, op.family, op.purpose});
  return table.text();
}

std::string list_text(const std::vector<OpInfo>& ops, const std::string& family) {
  std::string text;
  for (const OpInfo* op : of_family(ops, family)) {
    if (!text.empty()) text += "\n";
    text += fmt::format("{} ({}): {}\n", op->name, op->family, op->purpose);
    for (const TensorInfo& t : op->tensors) {
      text += fmt::format("  {:<5}  {}{}: {}\n", role_word(t.role), t.name, t.optional ? "?" : "",
                          tensor_text(*op, t));
    }
    for (const ParamInfo& p : op->params) {
      text += fmt::format("  -p     {}: {}{}\n", p.name, allowed_values(p),
                          p.def.has_value() ? " = " + kernels::to_string(*p.def) : "");
    }
  }
  return text;
}

}  // namespace tessera::tools
