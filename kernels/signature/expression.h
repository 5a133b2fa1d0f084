#pragma once
// The expressions of signatures: extents, lets and rules over the names of a call.
//
//   n*H    2H    ceil(H / group)    T * K + (alignment - 1) * E <= 2130706431
//   format = e2m1    1 <= n <= 8    group in {16, 32, H}    x is e4m3/e2m1    mask iff bias
//
// Operators from loose to tight: iff; or; and; not; = != < <= > >= (chains), in, is; + -; * / %; ^.
// Integers saturate at the ends of i64; `/` and `%` round towards minus infinity. A name unknown to
// the scope is a word, such as the value of an enum.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "kernels/param_value.h"

namespace tessera::kernels {

/// The names of one call.
class TESSERA_API Scope {
 public:
  virtual ~Scope() = default;
  /// The value of an extent, a let, a parameter or a function `name()`; for a tensor whether it is
  /// given; nothing for an unknown name.
  virtual std::optional<ParamValue> find(std::string_view name) const = 0;
  /// The dtype word of a tensor; "" if it is not given.
  virtual std::string dtype_word(std::string_view tensor) const = 0;
};

class TESSERA_API Expression {
 public:
  Expression() = default;
  /// Errors: program, with the text and the place in it.
  static Expression parse(std::string_view text);

  /// The text as written.
  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  /// Names in order of appearance, words included; functions end with "()".
  std::vector<std::string> names() const;
  /// The name, if the expression is a single name.
  std::optional<std::string> single_name() const;

  ParamValue value(const Scope& scope) const;
  /// True for true, nonzero numbers, words and lists; false for none.
  bool holds(const Scope& scope) const;
  /// Errors: internal if the value is no integer.
  int64_t integer(const Scope& scope) const;

  struct Solution {
    std::string name;
    std::optional<int64_t> value;  // nothing if no integer fits
  };
  /// Solves for the one unknown name of an extent that has `value`: 2H = 64 gives H = 32. Nothing if
  /// all names are known. Errors: internal for more than one unknown name.
  std::optional<Solution> solve(int64_t value, const Scope& scope) const;

 private:
  friend class ExpressionParser;
  enum class Kind : uint8_t {
    constant,
    name,
    negate,
    add,
    subtract,
    multiply,
    divide,
    ceil_divide,
    remainder,
    power,
    equal,
    not_equal,
    less,
    less_equal,
    in,
    is,
    negation,
    conjunction,
    disjunction,
    equivalence
  };
  struct Node {
    Kind kind = Kind::constant;
    ParamValue constant;             // if it is a constant
    std::string name;                // if it is a name; the tensor of `is`
    std::vector<Node> parts;         // operands; for `in` the value and the choices
    std::vector<std::string> words;  // dtypes of `is`
  };
  static ParamValue value_of(const Node& node, const Scope& scope);
  static bool compare(Kind kind, const ParamValue& a, const ParamValue& b);
  static void add_names(const Node& node, std::vector<std::string>& names);
  static std::optional<int64_t> solve(const Node& node, int64_t value, const std::string& unknown,
                                      const Scope& scope);

  std::string text_;
  Node root_;
};

}  // namespace tessera::kernels
