#include "tests/support/expression_text.h"

#include <cctype>
#include <map>

namespace tessera::test {
namespace {

using ir::Expr;
using ir::Op;

/// An expression whose numbers have no dtype yet.
struct Tree {
  Op op = Op::constant;
  std::string number;  // constant
  ir::VarRef var;
  DType to = DType::i32;  // cast, bitcast
  std::vector<Tree> args = {};
};

struct Sign {
  Op op;
  int precedence;
};
const std::map<std::string, Sign>& signs() {
  static const std::map<std::string, Sign> all = {
      {"*", {Op::mul, 10}},       {"/", {Op::div, 10}},   {"%", {Op::mod, 10}},
      {"+", {Op::add, 9}},        {"-", {Op::sub, 9}},    {"<<", {Op::shl, 8}},
      {">>", {Op::shr, 8}},       {"<", {Op::lt, 7}},     {"<=", {Op::le, 7}},
      {"==", {Op::eq, 6}},        {"!=", {Op::ne, 6}},    {"&", {Op::bit_and, 5}},
      {"^", {Op::bit_xor, 4}},    {"|", {Op::bit_or, 3}}, {"&&", {Op::logical_and, 2}},
      {"||", {Op::logical_or, 1}}};
  return all;
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_number(const std::string& word) {
  return is_digit(word[0]) || word == "inf" || word == "nan";
}

class Reader {
 public:
  Reader(Line& line, const VarLookup& lookup) : line_(line), lookup_(lookup) {}

  Tree expression(int lowest = 1) {
    Tree left = operand();
    while (!line_.is_at_end()) {
      const auto sign = signs().find(line_.peek());
      if (sign == signs().end() || sign->second.precedence < lowest) break;
      line_.take();
      Tree right = expression(sign->second.precedence + 1);
      left = {sign->second.op, {}, {}, {}, {std::move(left), std::move(right)}};
    }
    return left;
  }

 private:
  Tree operand() {
    if (line_.accept("(")) {
      Tree inner = expression();
      line_.expect(")");
      return inner;
    }
    if (line_.accept("!")) return {Op::logical_not, {}, {}, {}, {operand()}};
    if (line_.accept("-")) {
      if (is_number(line_.peek())) return {Op::constant, "-" + line_.take(), {}, {}, {}};
      return {Op::neg, {}, {}, {}, {operand()}};
    }
    const std::string word = line_.take();
    if (is_number(word)) return {Op::constant, word, {}, {}, {}};
    const bool is_cast = (word == "cast" || word == "bitcast") && line_.peek() == "<";
    if (is_cast) {
      line_.expect("<");
      const auto type = dtype_from_name(line_.take());
      if (!type) line_.fail("no such dtype");
      line_.expect(">");
      line_.expect("(");
      Tree result{word == "cast" ? Op::cast : Op::bitcast, {}, {}, *type, {expression()}};
      line_.expect(")");
      return result;
    }
    if (line_.is_at_end() || line_.peek() != "(") {
      Tree leaf{Op::var, {}, lookup_(word), {}, {}};
      if (!leaf.var) line_.fail("no variable '" + word + "'");
      return leaf;
    }
    Tree result{operation(word), {}, {}, {}, {}};
    line_.expect("(");
    do {
      result.args.push_back(expression());
    } while (line_.accept(","));
    line_.expect(")");
    return result;
  }

  Op operation(const std::string& word) const {
    for (int op = 0; op <= static_cast<int>(Op::kLast); ++op) {
      if (ir::name(static_cast<Op>(op)) == word) return static_cast<Op>(op);
    }
    line_.fail("no operation '" + word + "'");
  }

  Line& line_;
  const VarLookup& lookup_;
};

bool is_boolean(Op op) {
  switch (op) {
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::is_nan:
    case Op::is_inf:
      return true;
    default:
      return false;
  }
}

std::optional<DType> type_of(const Tree& tree) {
  if (tree.op == Op::constant) return std::nullopt;
  if (tree.op == Op::var) return tree.var->type;
  if (tree.op == Op::cast || tree.op == Op::bitcast) return tree.to;
  if (is_boolean(tree.op)) return DType::boolean;
  if (ir::counts_bits(tree.op)) return DType::i32;
  if (tree.op == Op::f16x2_toward_zero) return DType::u32;
  if (tree.op == Op::shl || tree.op == Op::shr) return type_of(tree.args[0]);
  for (size_t i = tree.op == Op::select ? 1 : 0; i < tree.args.size(); ++i) {
    if (const auto type = type_of(tree.args[i])) return type;
  }
  return std::nullopt;
}

Expr number(const std::string& text, std::optional<DType> type) {
  const bool has_point = text.find_first_of(".en") != std::string::npos;  // of inf and nan too
  const DType dtype = type.value_or(has_point ? DType::f32 : DType::i32);
  return is_float(dtype) ? ir::float_constant(dtype, std::stod(text))
                         : ir::constant(dtype, std::stoll(text));
}

Expr build(const Tree& tree, std::optional<DType> expected) {
  if (tree.op == Op::constant) return number(tree.number, expected);
  if (tree.op == Op::var) return ir::var(tree.var);
  if (tree.op == Op::cast) return ir::cast(tree.to, build(tree.args[0], std::nullopt));
  if (tree.op == Op::bitcast) return ir::bitcast(tree.to, build(tree.args[0], std::nullopt));
  std::optional<DType> type = type_of(tree).value_or(expected.value_or(DType::i32));
  if (is_boolean(tree.op)) {  // of the arguments
    type.reset();
    for (const Tree& arg : tree.args) {
      if (!type) type = type_of(arg);
    }
  }
  std::vector<Expr> args;
  for (size_t i = 0; i < tree.args.size(); ++i) {
    const bool is_test = tree.op == Op::select && i == 0;
    const bool is_amount = (tree.op == Op::shl || tree.op == Op::shr) && i == 1;
    args.push_back(build(tree.args[i], is_test     ? std::optional(DType::boolean)
                                       : is_amount ? std::nullopt
                                                   : type));
  }
  if (tree.op == Op::select) return ir::select(args[0], args[1], args[2]);
  const bool is_plain = args.size() == 2 && tree.op != Op::copysign;
  if (is_plain && tree.op != Op::f16x2_toward_zero) return ir::binary(tree.op, args[0], args[1]);
  if (args.size() == 1 && (tree.op == Op::neg || tree.op == Op::logical_not)) {
    return ir::unary(tree.op, args[0]);
  }
  return ir::call(tree.op, type_of(tree).value_or(args[0]->type), args);
}

}  // namespace

Line::Line(std::string text) : text_(std::move(text)) {
  constexpr std::string_view kPairs[] = {"<<", ">>", "<=", "==", "!=", "&&", "||", "..", "+="};
  const std::string& s = text_;
  for (size_t i = 0; i < s.size();) {
    size_t end = i + 1;
    if (s[i] == ' ') {
      ++i;
      continue;
    }
    if (is_digit(s[i])) {
      while (end < s.size() &&
             (is_name(s[end]) || (s[end] == '.' && end + 1 < s.size() && is_digit(s[end + 1])) ||
              ((s[end] == '-' || s[end] == '+') && s[end - 1] == 'e'))) {
        ++end;
      }
    } else if (is_name(s[i])) {
      while (end < s.size() && (is_name(s[end]) || (s[end] == '.' && is_digit(s[end + 1])))) ++end;
    } else {
      for (const std::string_view pair : kPairs) {
        if (s.compare(i, 2, pair) == 0) end = i + 2;
      }
    }
    tokens_.push_back(s.substr(i, end - i));
    i = end;
  }
}

const std::string& Line::peek(size_t ahead) const {
  static const std::string kNothing;
  return next_ + ahead < tokens_.size() ? tokens_[next_ + ahead] : kNothing;
}

std::string Line::take() {
  if (is_at_end()) fail("something is missing at the end");
  return tokens_[next_++];
}

bool Line::accept(std::string_view words) {
  const Line wanted{std::string(words)};
  for (size_t i = 0; i < wanted.tokens_.size(); ++i) {
    if (peek(i) != wanted.tokens_[i]) return false;
  }
  next_ += wanted.tokens_.size();
  return true;
}

void Line::expect(std::string_view words) {
  if (!accept(words)) fail("'" + std::string(words) + "' is missing before '" + peek() + "'");
}

int64_t Line::integer() {
  const bool negative = accept("-");
  const std::string word = take();
  if (!is_digit(word[0])) fail("a number is missing before '" + word + "'");
  return negative ? -std::stoll(word) : std::stoll(word);
}

void Line::fail(const std::string& why) const {
  throw std::invalid_argument(why + " in: " + text_);
}

Expr read_expression(Line& line, const VarLookup& lookup, std::optional<DType> expected) {
  return build(Reader(line, lookup).expression(), expected);
}

}  // namespace tessera::test
