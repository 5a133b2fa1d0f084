#include "kernels/signature/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

#include "dsl/base/nearest_name.h"
#include "kernels/op.h"
#include "kernels/signature/param_grammar.h"
#include "kernels/signature/scale_blocks.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {
namespace {

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n\t"), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

[[noreturn]] void fail(const Op& op, const std::string& word, std::string what,
                       std::string expected, std::string got, std::string hint = {}) {
  throw Error({.kind = ErrorKind::argument,
               .op = std::string(op.name),
               .what = std::move(what),
               .argument = word,
               .expected = std::move(expected),
               .got = std::move(got),
               .hint = std::move(hint)});
}

DType stored_dtype(std::string_view word) {
  if (word == "e2m1") return DType::i8;
  if (word == "e5m6" || word == "bytes1") return DType::u8;
  if (word == "bytes2") return DType::u16;
  if (word == "bytes4") return DType::u32;
  return *dtype_named(word);
}

/// The dtype word of a tensor if its signature leaves a choice; else "given".
std::string word_of_dtype(const Call& call, const TensorRule& rule, const std::string& tensor) {
  if (rule.dtypes.size() < 2 && !(rule.dtypes.size() == 1 && rule.dtypes[0].starts_with("bytes"))) {
    return "given";
  }
  const std::string word = call.dtype_word(tensor);
  const auto is_listed = [&](std::string_view one) {
    return std::find(rule.dtypes.begin(), rule.dtypes.end(), one) != rule.dtypes.end();
  };
  if (is_listed(word) || rule.dtypes[0].starts_with("bytes")) return word;
  return word == "u8" && is_listed("e5m6") ? "e5m6" : "given";
}

}  // namespace

Case::Case(const ParsedOp& op, std::string_view text) : parsed_(&op) {
  Params given;
  std::set<std::string> named;
  const std::vector<std::string> words = words_of(text);
  text_ = fmt::format("{}", fmt::join(words, " "));
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (!named.insert(name).second) {
      fail(*op.op, name, fmt::format("'{}' is given twice", name), "each word once", text_);
    }
    const ParamRule* param = op.signature.find_param(name);
    if (param == nullptr) {
      read_word(word);
      continue;
    }
    if (word.size() == name.size()) {
      fail(*op.op, name, fmt::format("parameter '{}' has no value", name), name + "=value", word);
    }
    const OpInfo& table = table_of(op);
    for (const ParamInfo& info : table.params) {
      if (info.name == name) given[name] = parse_value(table, info, word.substr(name.size() + 1));
    }
  }
  params_ = check_params(table_of(op), given);
}

void Case::read_word(const std::string& word) {
  const Op& op = *parsed_->op;
  const size_t equals = std::min(word.find('='), word.size());
  const std::string name = word.substr(0, equals);
  const std::string value = equals < word.size() ? word.substr(equals + 1) : "given";
  const std::string tensor = name.substr(0, name.find('.'));
  const TensorRule* rule = parsed_->signature.find_tensor(tensor);
  if (rule != nullptr && rule->is_input() && name == tensor + ".strides") {
    Dims strides;
    for (std::string_view rest = value; !rest.empty();) {
      const size_t end = std::min(rest.find(','), rest.size());
      const auto stride = integer(rest.substr(0, end));
      if (!stride || strides.rank == kMaxRank) {
        fail(op, name, fmt::format("strides of '{}' cannot be read", tensor),
             "integers with commas", value);
      }
      strides.push_back(*stride);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    strides_[tensor] = strides;
    return;
  }
  if (rule != nullptr && rule->is_input() && name == tensor) {
    const bool is_known =
        value == "given" ||
        std::find(rule->dtypes.begin(), rule->dtypes.end(), value) != rule->dtypes.end() ||
        (rule->dtypes.size() > 0 && rule->dtypes[0].starts_with("bytes") && dtype_named(value));
    if (!is_known) {
      fail(op, name, fmt::format("'{}' has no such dtype", name),
           fmt::format("given, {}", fmt::join(rule->dtypes, ", ")), value);
    }
    dtypes_[name] = value;
    return;
  }
  std::vector<std::string> names;
  const auto add = [&](const std::string& one) {
    if (std::find(names.begin(), names.end(), one) == names.end()) names.push_back(one);
  };
  for (const TensorRule& input : parsed_->signature.tensors) {
    if (!input.is_input()) continue;
    if (!input.list.empty()) add(input.list);
    for (const Expression& extent : input.shape) {
      for (const std::string& symbol : extent.names()) add(symbol);
    }
  }
  for (const LetRule& let : parsed_->signature.lets) {
    for (const std::string& symbol : let.symbols) add(symbol);
  }
  for (const CaseWord& extra : op.case_words) add(std::string(extra.name));
  for (const TensorRule& input : parsed_->signature.tensors) {
    if (input.is_input() && (input.optional || input.dtypes.size() > 1)) add(input.name);
  }
  for (const ParamRule& param : parsed_->signature.params) add(param.name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    fail(op, name, fmt::format("unknown word '{}' in a case", name),
         fmt::format("{}", fmt::join(names, ", ")), word, did_you_mean(name, names));
  }
  const auto extent = integer(value);
  if (!extent || *extent < 0) {
    fail(op, name, fmt::format("'{}' is no extent", word), name + "=number, 0 or more", value);
  }
  extents_[name] = *extent;
}

std::optional<ParamValue> Case::find(std::string_view name) const {
  if (const auto extent = extents_.find(name); extent != extents_.end()) return extent->second;
  for (const CaseWord& word : parsed_->op->case_words) {
    if (word.name != name || word.standard == nullptr) continue;
    const int64_t value = word.standard(*this);
    return value == kNoExtent ? std::nullopt : std::optional<ParamValue>(value);
  }
  if (const auto param = params_.find(std::string(name)); param != params_.end()) {
    return param->second;
  }
  const LetRule* let = parsed_->signature.find_let(name);
  if (let != nullptr && let->trimmed_by.empty()) return let->value_of(name, *this);
  if (parsed_->signature.find_tensor(name) != nullptr) return ParamValue(is_named(name));
  return std::nullopt;
}

std::string Case::dtype_word(std::string_view tensor) const {
  if (!has(tensor)) return {};
  const auto named = dtypes_.find(tensor);
  if (named != dtypes_.end() && named->second != "given") return named->second;
  const TensorRule* rule = parsed_->signature.find_tensor(tensor);
  const std::string word = rule->dtypes.empty() ? "f32" : rule->dtypes.front();
  return word.starts_with("as ") ? dtype_word(word.substr(3)) : word;
}

int64_t Case::operator[](std::string_view name) const {
  const auto found = find(name);
  const auto* value = found ? std::get_if<int64_t>(&*found) : nullptr;
  if (value == nullptr) {
    fail(*parsed_->op, std::string(name), fmt::format("the case says nothing of '{}'", name),
         fmt::format("{}=number", name), text_);
  }
  return *value;
}

bool Case::is_named(std::string_view input) const {
  const TensorRule* rule = parsed_->signature.find_tensor(input);
  if (rule == nullptr || !rule->is_input()) return false;
  return dtypes_.count(std::string(input)) > 0 || (!rule->optional && !rule->accumulate);
}

bool Case::has(std::string_view input) const {
  if (is_named(input)) return true;
  const TensorRule* rule = parsed_->signature.find_tensor(input);
  return rule != nullptr && rule->role == Role::in && rule->presence &&
         rule->presence->holds(*this);
}

TensorView Case::view(const TensorRule& rule) const {
  if (rule.scales) {
    const SfLayout layout = scale_layout(rule, params_);
    const ScaleBlocks blocks = scale_blocks(parsed_->signature, rule, layout, *this);
    const OutputInfo scales = scale_output(rule.name, layout, blocks.rows, blocks.columns);
    return TensorView(nullptr, scales.dtype, scales.shape, scales.strides, Device::cpu());
  }
  const std::string word = dtype_word(rule.name);
  Dims shape;
  for (const Expression& extent : rule.shape) {
    // A case names an extent that may be absent.
    if (rule.may_lack_last && &extent == &rule.shape.back() && !find(extent.text())) break;
    for (const std::string& name : extent.names()) (void)(*this)[name];  // or an error
    shape.push_back(extent.integer(*this));
  }
  if (word == "e2m1") shape[shape.rank - 1] /= 2;
  if (word == "e5m6") shape[shape.rank - 1] = shape[shape.rank - 1] / 2 * 3;
  const auto strides = strides_.find(rule.name);
  if (strides != strides_.end() && strides->second.rank != shape.rank) {
    fail(*parsed_->op, rule.name, fmt::format("strides of '{}' have the wrong rank", rule.name),
         fmt::format("{} strides", shape.rank), to_string(strides->second));
  }
  return TensorView(nullptr, stored_dtype(word), shape,
                    strides == strides_.end() ? row_major_strides(shape) : strides->second,
                    Device::cpu());
}

Tensors Case::inputs() const {
  Tensors views;
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (!rule.is_input() || !has(rule.name)) continue;
    if (rule.list.empty()) {
      views[rule.name] = view(rule);
      continue;
    }
    for (int64_t i = 0; i < (*this)[rule.list]; ++i) {
      views[fmt::format("{}.{}", rule.name, i)] = view(rule);
    }
  }
  return views;
}

std::string Case::canonical() const {
  std::map<std::string, std::string> words;
  for (const auto& [name, value] : extents_) words[name] = fmt::format("{}", value);
  for (const CaseWord& word : parsed_->op->case_words) {
    if (word.standard != nullptr && !find(word.name)) continue;  // kNoExtent
    words[std::string(word.name)] = fmt::format("{}", (*this)[word.name]);
  }
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (rule.is_input() && has(rule.name)) words[rule.name] = dtype_word(rule.name);
  }
  for (const auto& [name, strides] : strides_) words[name + ".strides"] = to_string(strides);
  for (const auto& [name, value] : params_) words[name] = to_string(value);
  std::string text;
  for (const auto& [name, value] : words) text += fmt::format("{}={} ", name, value);
  return text;
}

BenchCase Case::bench_case() const {
  BenchCase made;
  made.label = text_;
  made.params = params_;
  const Tensors views = inputs();
  const auto shared = std::make_shared<const Case>(*this);
  for (const auto& [name, view] : views) {
    BenchCase::Input input{name, view.dtype, view.shape, view.strides};
    for (const InputValues& values : parsed_->op->values) {
      if (values.tensor != name) continue;
      input.values = [shared, value = values.value](int64_t i) { return value(*shared, i); };
    }
    made.inputs.push_back(std::move(input));
  }
  if (parsed_->op->bytes != nullptr) {
    made.bytes = parsed_->op->bytes(*this);
    return made;
  }
  const Call call(*parsed_, views, params_);
  for (const auto& [name, view] : views) made.bytes += view.size() * bytes(view.dtype);
  for (const OutputInfo& output : call.outputs()) {
    if (!output.workspace) made.bytes += num_elements(output.shape) * bytes(output.dtype);
  }
  return made;
}

std::string case_text(const Call& call) {
  const Signature& signature = parsed(call.op()).signature;
  std::vector<std::string> words;
  std::set<std::string> named;
  // Values that a case computes itself: a parameter, and a let that calls no function of the call.
  const auto is_implied = [&](const std::string& name) {
    if (signature.find_param(name) != nullptr) return true;
    const LetRule* let = signature.find_let(name);
    if (let == nullptr) return false;
    const std::vector<std::string> names = let->value.names();
    return std::none_of(names.begin(), names.end(),
                        [](const std::string& one) { return one.ends_with("()"); });
  };
  const auto add_extent = [&](const std::string& name) {
    if (is_implied(name)) return;
    const auto value = call.find(name);
    if (value && named.insert(name).second) words.push_back(name + "=" + to_string(*value));
  };
  std::vector<std::string> of_tensors;
  for (const TensorRule& rule : signature.tensors) {
    if (!rule.is_input()) continue;
    if (!rule.list.empty()) add_extent(rule.list);
    for (const Expression& extent : rule.shape) {
      for (const std::string& name : extent.names()) add_extent(name);
    }
    const std::string tensor = rule.list.empty() ? rule.name : rule.name + ".0";
    if (!call.has(tensor)) continue;
    const std::string dtype = word_of_dtype(call, rule, tensor);
    if (dtype != "given" || rule.optional || rule.accumulate) {
      of_tensors.push_back(rule.name + "=" + dtype);
    }
    if (rule.scales || !rule.list.empty()) continue;
    const TensorView& given = call.given(tensor);
    const auto rank = static_cast<size_t>(given.rank());
    const TensorView view = rank == rule.shape.size() ? given : call.tensor(tensor);
    if (view.is_row_major()) continue;
    std::string strides;
    for (int i = 0; i < view.rank(); ++i) strides += fmt::format(",{}", view.strides[i]);
    of_tensors.push_back(rule.name + ".strides=" + strides.substr(1));
  }
  words.insert(words.end(), of_tensors.begin(), of_tensors.end());
  for (const ParamRule& param : signature.params) {
    const ParamValue& value = call.params().at(param.name);
    if (value != param.standard) words.push_back(param.name + "=" + to_string(value));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace tessera::kernels
