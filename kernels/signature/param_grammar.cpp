#include "kernels/signature/param_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "dsl/base/error.h"
#include "kernels/op.h"

namespace tessera::kernels {
namespace {

using Type = ParamInfo::Type;

[[noreturn]] void fail(const OpInfo& op, const std::string& argument, std::string what,
                       std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .op = op.name,
               .what = std::move(what),
               .argument = argument,
               .expected = std::move(expected),
               .got = std::move(got)});
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<std::vector<int64_t>> parse_tuple(std::string_view text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
  }
  std::vector<int64_t> tuple;
  while (true) {
    const size_t comma = text.find(',');
    const std::optional<int64_t> element = parse_number<int64_t>(trim(text.substr(0, comma)));
    if (!element) return std::nullopt;
    tuple.push_back(*element);
    if (comma == std::string_view::npos) return tuple;
    text.remove_prefix(comma + 1);
  }
}

/// The grammar of a type, for messages.
std::string_view grammar(Type type) {
  switch (type) {
    case Type::integer:
      return "an int, such as 128";
    case Type::floating:
      return "a float, such as 1e-6 or inf";
    case Type::boolean:
      return "true or false";
    case Type::word:
      return "a word";
    case Type::tuple:
      return "a tuple, such as 128,128";
  }
  return "a value";
}

std::optional<ParamValue> parse_as(Type type, const std::string& text) {
  switch (type) {
    case Type::integer:
      if (const auto value = parse_number<int64_t>(text)) return ParamValue(*value);
      return std::nullopt;
    case Type::floating: {
      const auto value = parse_number<double>(text);
      if (!value || std::isnan(*value)) return std::nullopt;
      return ParamValue(*value);
    }
    case Type::boolean:
      if (text == "true") return ParamValue(true);
      if (text == "false") return ParamValue(false);
      return std::nullopt;
    case Type::word:
      if (text.empty()) return std::nullopt;
      return ParamValue(text);
    case Type::tuple:
      if (auto value = parse_tuple(text)) return ParamValue(std::move(*value));
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

ParamValue parse_value(const OpInfo& op, const ParamInfo& param, const std::string& text) {
  if (text == "none") return ParamValue();
  std::optional<ParamValue> value = parse_as(param.type, text);
  if (!value) {
    fail(op, param.name, fmt::format("parameter '{}' cannot be read", param.name),
         std::string(grammar(param.type)), fmt::format("'{}'", text));
  }
  return std::move(*value);
}

Params parse_params(const OpInfo& op, std::span<const std::string> assignments) {
  Params given;
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(op, assignment, fmt::format("parameter '{}' has no value", assignment), "name=value",
           assignment);
    }
    const std::string name = assignment.substr(0, equals);
    const std::string text = assignment.substr(equals + 1);
    const auto param = std::find_if(op.params.begin(), op.params.end(),
                                    [&](const ParamInfo& p) { return p.name == name; });
    // An unknown name is passed on as a word: check_params reports it with the nearest name.
    ParamValue value = param == op.params.end() ? ParamValue(text) : parse_value(op, *param, text);
    if (!given.emplace(name, std::move(value)).second) {
      fail(op, name, fmt::format("parameter '{}' is given twice", name), "each parameter once",
           assignment);
    }
  }
  return check_params(op, given);
}

}  // namespace tessera::kernels
