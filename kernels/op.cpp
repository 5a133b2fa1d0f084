#include "kernels/op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dsl/base/error.h"
#include "dsl/base/nearest_name.h"

namespace tessera::kernels {
namespace {

[[noreturn]] void fail(const std::string& op, const std::string& argument, std::string code,
                       std::string what, std::string expected, std::string got,
                       std::string hint = {}) {
  throw Error({.kind = ErrorKind::argument,
               .op = op,
               .what = std::move(what),
               .argument = argument,
               .expected = std::move(expected),
               .got = std::move(got),
               .hint = std::move(hint),
               .code = std::move(code)});
}

/// True for "H", "E": an allowed value that names an extent, which the op itself compares.
bool is_symbol(const std::string& word) {
  return !word.empty() && word.front() >= 'A' && word.front() <= 'Z';
}

bool lists(const ParamInfo& param, const std::string& word) {
  return std::find(param.allowed.begin(), param.allowed.end(), word) != param.allowed.end();
}

bool takes_none(const ParamInfo& param) {
  return lists(param, "none") ||
         (param.def.has_value() && std::holds_alternative<std::monostate>(*param.def));
}

bool allows_integer(const ParamInfo& param, int64_t value) {
  if (param.min.has_value() && value < *param.min) return false;
  if (param.allowed.empty() || lists(param, fmt::format("{}", value))) return true;
  return value >= 1 && std::any_of(param.allowed.begin(), param.allowed.end(), is_symbol);
}

/// True if the value has the parameter's type, in range or not.
bool has_type(const ParamInfo& param, const ParamValue& value) {
  switch (param.type) {
    case ParamInfo::Type::integer:
      return std::holds_alternative<int64_t>(value);
    case ParamInfo::Type::floating:
      return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
    case ParamInfo::Type::boolean:
      return std::holds_alternative<bool>(value);
    case ParamInfo::Type::word:
      return std::holds_alternative<std::string>(value);
    case ParamInfo::Type::tuple:
      return std::holds_alternative<std::vector<int64_t>>(value);
  }
  return false;
}

/// Converts the value to the parameter's type; nothing if it is not an allowed value.
std::optional<ParamValue> accept(const ParamInfo& param, const ParamValue& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    if (takes_none(param)) return value;
    return std::nullopt;
  }
  switch (param.type) {
    case ParamInfo::Type::integer: {
      const auto* integer = std::get_if<int64_t>(&value);
      if (integer == nullptr || !allows_integer(param, *integer)) return std::nullopt;
      return value;
    }
    case ParamInfo::Type::floating: {
      if (const auto* integer = std::get_if<int64_t>(&value)) {
        return ParamValue(static_cast<double>(*integer));
      }
      if (!std::holds_alternative<double>(value)) return std::nullopt;
      return value;
    }
    case ParamInfo::Type::boolean:
      if (!std::holds_alternative<bool>(value)) return std::nullopt;
      return value;
    case ParamInfo::Type::word: {
      const auto* word = std::get_if<std::string>(&value);
      if (word == nullptr || !lists(param, *word)) return std::nullopt;
      if (*word == "none") return ParamValue();
      return value;
    }
    case ParamInfo::Type::tuple: {
      const auto* tuple = std::get_if<std::vector<int64_t>>(&value);
      if (tuple == nullptr || tuple->empty()) return std::nullopt;
      for (const int64_t element : *tuple) {
        if (!allows_integer(param, element)) return std::nullopt;
      }
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

ParamInfo integer(std::string name, std::vector<std::string> allowed, Default def) {
  return {std::move(name), ParamInfo::Type::integer, std::move(def), std::move(allowed), {}, ""};
}

ParamInfo count(std::string name, std::string range, Default def, int64_t least) {
  return {std::move(name), ParamInfo::Type::integer, std::move(def), {}, least, std::move(range)};
}

ParamInfo number(std::string name, Default def) {
  return {std::move(name), ParamInfo::Type::floating, std::move(def), {}, {}, ""};
}

ParamInfo flag(std::string name, bool def) {
  return {std::move(name), ParamInfo::Type::boolean, ParamValue(def), {}, {}, ""};
}

ParamInfo word(std::string name, std::vector<std::string> allowed, Default def) {
  return {std::move(name), ParamInfo::Type::word, std::move(def), std::move(allowed), {}, ""};
}

ParamInfo tuple(std::string name, Default def) {
  return {std::move(name), ParamInfo::Type::tuple, std::move(def), {}, {}, ""};
}

OutputInfo row_major_output(std::string name, DType dtype, const Dims& shape) {
  return {std::move(name), dtype, shape, row_major_strides(shape), num_elements(shape)};
}

const OpInfo& find_op(const std::vector<OpInfo>& among, const std::string& name) {
  std::vector<std::string> names;
  for (const OpInfo& op : among) {
    if (op.name == name) return op;
    names.push_back(op.name);
  }
  fail("", "op", "NAME", fmt::format("unknown op '{}'", name),
       fmt::format("{}", fmt::join(names, ", ")), name, did_you_mean(name, names));
}

Params check_params(const OpInfo& op, const Params& given) {
  std::vector<std::string> names;
  for (const ParamInfo& param : op.params) names.push_back(param.name);
  for (const auto& [name, value] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(op.name, name, "NAME", fmt::format("unknown parameter '{}'", name),
         names.empty() ? "no parameters" : fmt::format("{}", fmt::join(names, ", ")),
         fmt::format("{}={}", name, to_string(value)), did_you_mean(name, names));
  }
  Params checked;
  for (const ParamInfo& param : op.params) {
    const auto found = given.find(param.name);
    const bool absent =
        found == given.end() ||
        (std::holds_alternative<std::monostate>(found->second) && !takes_none(param));
    if (absent) {
      if (!param.def.has_value()) {
        fail(op.name, param.name, "NAME", fmt::format("parameter '{}' is missing", param.name),
             allowed_values(param), "none");
      }
      checked[param.name] = *param.def;
      continue;
    }
    const std::optional<ParamValue> value = accept(param, found->second);
    if (!value.has_value()) {
      const auto* word = std::get_if<std::string>(&found->second);
      fail(op.name, param.name, has_type(param, found->second) ? "VALUE" : "TYPE",
           fmt::format("parameter '{}' has a wrong value", param.name), allowed_values(param),
           to_string(found->second), word == nullptr ? "" : did_you_mean(*word, param.allowed));
    }
    checked[param.name] = *value;
  }
  return checked;
}

std::string_view name(ParamInfo::Type type) {
  switch (type) {
    case ParamInfo::Type::integer:
      return "int";
    case ParamInfo::Type::floating:
      return "float";
    case ParamInfo::Type::boolean:
      return "bool";
    case ParamInfo::Type::word:
      return "enum";
    case ParamInfo::Type::tuple:
      return "tuple";
  }
  return "int";
}

std::string to_string(const ParamValue& value) {
  struct {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const std::vector<int64_t>& v) const {
      return fmt::format("{}", fmt::join(v, ","));
    }
  } visitor;
  return std::visit(visitor, value);
}

std::string allowed_values(const ParamInfo& param) {
  std::string text;
  if (!param.allowed.empty()) {
    text = fmt::format("{}{{{}}}", param.type == ParamInfo::Type::tuple ? "tuple of " : "",
                       fmt::join(param.allowed, ", "));
  } else if (!param.allowed_text.empty()) {
    text = fmt::format("{} {}", name(param.type), param.allowed_text);
  } else if (param.min.has_value()) {
    text = fmt::format("{} >= {}", name(param.type), *param.min);
  } else {
    text = name(param.type);
  }
  if (takes_none(param) && !lists(param, "none")) text += " or none";
  return text;
}

}  // namespace tessera::kernels
