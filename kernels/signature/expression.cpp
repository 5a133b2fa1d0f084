#include "kernels/signature/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "dsl/base/error.h"

namespace tessera::kernels {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool truth(const ParamValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return false;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer != 0;
  if (const auto* number = std::get_if<double>(&value)) return *number != 0;
  return true;
}

std::optional<double> number(const ParamValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

int64_t integer_of(const ParamValue& value, std::string_view where) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  internal_error(fmt::format("'{}' of a signature is no integer: {}", where, to_string(value)));
}

int64_t saturated(bool is_negative) {
  return is_negative ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? saturated(a < 0) : sum;
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? saturated((a < 0) != (b < 0)) : product;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return a == std::numeric_limits<int64_t>::min() ? saturated(false) : -a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t remainder(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a - floor_divide(a, b) * b;
}

}  // namespace

/// A recursive-descent parser of one text.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Expression parse() {
    Expression result;
    result.root_ = equivalence();
    skip_blanks();
    if (at_ != text_.size()) fail("the end");
    result.text_ = trimmed();
    return result;
  }

 private:
  using Kind = Expression::Kind;
  using Node = Expression::Node;

  [[noreturn]] void fail(std::string_view expected) const {
    std::string_view rest = text_.substr(at_);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    throw Error({.kind = ErrorKind::program,
                 .what = fmt::format("a signature's expression '{}' is not understood", text_),
                 .expected = std::string(expected),
                 .got = rest.empty() ? "the end" : std::string(rest)});
  }

  std::string trimmed() const {
    std::string result(text_);
    result.erase(0, std::min(result.find_first_not_of(' '), result.size()));
    result.erase(result.find_last_not_of(' ') + 1);
    return result;
  }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(std::string_view symbol) {
    skip_blanks();
    if (text_.substr(at_, symbol.size()) != symbol) return false;
    if (is_letter(symbol.front())) {  // a whole word
      const size_t end = at_ + symbol.size();
      if (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) return false;
    }
    at_ += symbol.size();
    return true;
  }

  static Node node(Kind kind, std::vector<Node> parts) {
    Node made;
    made.kind = kind;
    made.parts = std::move(parts);
    return made;
  }

  Node equivalence() {
    Node left = disjunction();
    while (take("iff")) left = node(Kind::equivalence, {left, disjunction()});
    return left;
  }
  Node disjunction() {
    Node left = conjunction();
    while (take("or")) left = node(Kind::disjunction, {left, conjunction()});
    return left;
  }
  Node conjunction() {
    Node left = negation();
    while (take("and")) left = node(Kind::conjunction, {left, negation()});
    return left;
  }
  Node negation() {
    if (take("not")) return node(Kind::negation, {negation()});
    return comparison();
  }

  Node comparison() {
    Node left = sum();
    if (take("in")) {
      if (!take("{")) fail("a list in braces");
      std::vector<Node> parts = {left};
      do parts.push_back(sum());
      while (take(","));
      if (!take("}")) fail("'}'");
      return node(Kind::in, std::move(parts));
    }
    if (take("is")) {
      if (left.kind != Kind::name) fail("the name of a tensor before 'is'");
      Node test = node(Kind::is, {});
      test.name = left.name;
      do test.words.push_back(word());
      while (take("/"));
      return test;
    }
    std::optional<Node> chain;
    while (true) {
      std::optional<Node> link;
      if (take("!=")) {
        link = node(Kind::not_equal, {left, sum()});
      } else if (take("<=")) {
        link = node(Kind::less_equal, {left, sum()});
      } else if (take(">=")) {
        link = swapped(Kind::less_equal, left);
      } else if (take("<")) {
        link = node(Kind::less, {left, sum()});
      } else if (take(">")) {
        link = swapped(Kind::less, left);
      } else if (take("=")) {
        link = node(Kind::equal, {left, sum()});
      } else {
        return chain ? *chain : left;
      }
      left = last_;
      chain = chain ? node(Kind::conjunction, {*chain, *link}) : *link;
    }
  }
  Node swapped(Kind kind, const Node& left) {
    const Node right = sum();
    return node(kind, {right, left});
  }

  /// Keeps the last operand, the left side of the next comparison in a chain.
  Node sum() {
    Node left = product();
    while (true) {
      if (take("+")) {
        left = node(Kind::add, {left, product()});
      } else if (take("-")) {
        left = node(Kind::subtract, {left, product()});
      } else {
        last_ = left;
        return left;
      }
    }
  }

  Node product() {
    Node left = power();
    while (true) {
      if (take("*")) {
        left = node(Kind::multiply, {left, power()});
      } else if (take("/")) {
        left = node(Kind::divide, {left, power()});
      } else if (take("%")) {
        left = node(Kind::remainder, {left, power()});
      } else {
        return left;
      }
    }
  }

  Node power() {
    Node left = unary();
    if (!take("^")) return left;
    return node(Kind::power, {left, unary()});
  }

  Node unary() {
    if (take("-")) return node(Kind::negate, {unary()});
    return primary();
  }

  Node primary() {
    skip_blanks();
    if (take("(")) {
      Node inner = equivalence();
      if (!take(")")) fail("')'");
      return inner;
    }
    if (at_ == text_.size()) fail("a name, a number or '('");
    if (is_digit(text_[at_])) return constant();
    const std::string name = word();
    Node made;
    if (name == "true" || name == "false") {
      made.constant = name == "true";
      return made;
    }
    if (name == "none") return made;
    made.kind = Kind::name;
    made.name = name;
    if (!take("(")) return made;
    if (take(")")) {
      made.name += "()";
      return made;
    }
    if (name != "ceil") fail("')'");
    Node quotient = sum();
    if (quotient.kind != Kind::divide || !take(")")) fail("ceil(a / b)");
    quotient.kind = Kind::ceil_divide;
    return quotient;
  }

  /// A number; a name directly after it is a factor: "2H".
  Node constant() {
    const char* const first = text_.data() + at_;
    const char* const last = text_.data() + text_.size();
    Node made;
    int64_t integer = 0;
    auto [end, error] = std::from_chars(first, last, integer);
    if (error != std::errc()) fail("a number that fits 64 bits");
    made.constant = integer;
    const bool is_real =
        end != last && (*end == '.' || *end == 'e') && end + 1 != last && end[1] != '.';
    if (is_real) {
      double real = 0;
      const auto result = std::from_chars(first, last, real);
      if (result.ec == std::errc() && result.ptr > end) {
        end = result.ptr;
        made.constant = real;
      }
    }
    at_ += static_cast<size_t>(end - first);
    if (at_ == text_.size() || !is_letter(text_[at_])) return made;
    Node name;
    name.kind = Kind::name;
    name.name = word();
    return node(Kind::multiply, {made, name});
  }

  std::string word() {
    skip_blanks();
    const size_t first = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > first && is_digit(text_[at_])))) {
      ++at_;
    }
    if (at_ == first) fail("a name");
    return std::string(text_.substr(first, at_ - first));
  }

  std::string_view text_;
  size_t at_ = 0;
  Node last_;
};

Expression Expression::parse(std::string_view text) {
  return ExpressionParser(text).parse();
}

void Expression::add_names(const Node& node, std::vector<std::string>& names) {
  if (node.kind == Kind::name || node.kind == Kind::is) {
    if (std::find(names.begin(), names.end(), node.name) == names.end()) {
      names.push_back(node.name);
    }
  }
  for (const Node& part : node.parts) add_names(part, names);
}

std::vector<std::string> Expression::names() const {
  std::vector<std::string> names;
  add_names(root_, names);
  return names;
}

std::optional<std::string> Expression::single_name() const {
  if (root_.kind != Kind::name) return std::nullopt;
  return root_.name;
}

bool Expression::compare(Kind kind, const ParamValue& a, const ParamValue& b) {
  const std::optional<double> x = number(a), y = number(b);
  if (!x || !y) {
    if (kind == Kind::less || kind == Kind::less_equal) return false;
    return (a == b) == (kind == Kind::equal);
  }
  const auto* i = std::get_if<int64_t>(&a);
  const auto* j = std::get_if<int64_t>(&b);
  const bool both = i != nullptr && j != nullptr;
  switch (kind) {
    case Kind::equal:
      return both ? *i == *j : *x == *y;
    case Kind::not_equal:
      return both ? *i != *j : *x != *y;
    case Kind::less:
      return both ? *i < *j : *x < *y;
    default:
      return both ? *i <= *j : *x <= *y;
  }
}

ParamValue Expression::value_of(const Node& node, const Scope& scope) {
  const auto part = [&](size_t i) { return value_of(node.parts[i], scope); };
  const auto integer = [&](size_t i) { return integer_of(part(i), node.parts[i].name); };
  switch (node.kind) {
    case Kind::constant:
      return node.constant;
    case Kind::name:
      if (const auto found = scope.find(node.name)) return *found;
      return node.name;
    case Kind::negate: {
      const ParamValue operand = part(0);
      if (const auto* real = std::get_if<double>(&operand)) return -*real;
      return add(0, multiply(-1, integer_of(operand, "-")));
    }
    case Kind::add:
      return add(integer(0), integer(1));
    case Kind::subtract:
      return add(integer(0), multiply(-1, integer(1)));
    case Kind::multiply:
      return multiply(integer(0), integer(1));
    case Kind::divide:
      return floor_divide(integer(0), integer(1));
    case Kind::ceil_divide:
      return multiply(-1, floor_divide(multiply(-1, integer(0)), integer(1)));
    case Kind::remainder:
      return remainder(integer(0), integer(1));
    case Kind::power: {
      const double base = *number(part(0)), exponent = *number(part(1));
      const double power = std::pow(base, exponent);
      if (exponent >= 0 && power < 9e18) return static_cast<int64_t>(power);
      return power;
    }
    case Kind::equal:
    case Kind::not_equal:
    case Kind::less:
    case Kind::less_equal:
      return compare(node.kind, part(0), part(1));
    case Kind::in: {
      const ParamValue value = part(0);
      for (size_t i = 1; i < node.parts.size(); ++i) {
        if (compare(Kind::equal, value, part(i))) return true;
      }
      return false;
    }
    case Kind::is: {
      const std::string dtype = scope.dtype_word(node.name);
      return std::find(node.words.begin(), node.words.end(), dtype) != node.words.end();
    }
    case Kind::negation:
      return !truth(part(0));
    case Kind::conjunction:
      return truth(part(0)) && truth(part(1));
    case Kind::disjunction:
      return truth(part(0)) || truth(part(1));
    case Kind::equivalence:
      return truth(part(0)) == truth(part(1));
  }
  return {};
}

ParamValue Expression::value(const Scope& scope) const {
  return value_of(root_, scope);
}

bool Expression::holds(const Scope& scope) const {
  return truth(value(scope));
}

int64_t Expression::integer(const Scope& scope) const {
  return integer_of(value(scope), text_);
}

std::optional<int64_t> Expression::solve(const Node& node, int64_t value,
                                         const std::string& unknown, const Scope& scope) {
  if (node.kind == Kind::name) return value;
  TESSERA_CHECK(node.parts.size() == 2, "an extent of a signature cannot be solved for " + unknown);
  std::vector<std::string> left;
  add_names(node.parts[0], left);
  const bool in_left = std::find(left.begin(), left.end(), unknown) != left.end();
  const Node& inner = node.parts[in_left ? 0 : 1];
  const int64_t other = integer_of(value_of(node.parts[in_left ? 1 : 0], scope), unknown);
  switch (node.kind) {
    case Kind::add:
      return solve(inner, add(value, multiply(-1, other)), unknown, scope);
    case Kind::subtract:
      return solve(inner, in_left ? add(value, other) : add(other, multiply(-1, value)), unknown,
                   scope);
    case Kind::multiply:
      if (other == 0 || value % other != 0) return std::nullopt;
      return solve(inner, value / other, unknown, scope);
    case Kind::divide:
      if (in_left) return solve(inner, multiply(value, other), unknown, scope);
      [[fallthrough]];
    default:
      internal_error("an extent of a signature cannot be solved for " + unknown);
  }
}

std::optional<Expression::Solution> Expression::solve(int64_t value, const Scope& scope) const {
  std::optional<Solution> solution;
  for (const std::string& name : names()) {
    if (scope.find(name)) continue;
    TESSERA_CHECK(!solution, "an extent of a signature has several unknown names: " + text_);
    solution = Solution{name, {}};
  }
  if (solution) solution->value = solve(root_, value, solution->name, scope);
  return solution;
}

}  // namespace tessera::kernels
