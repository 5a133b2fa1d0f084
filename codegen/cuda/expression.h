#pragma once
// Expressions as C++ text: no redundant parentheses, the types and rounding of the IR.

#include <optional>
#include <set>
#include <string>

#include "codegen/analysis/usage.h"
#include "codegen/cuda/names.h"
#include "codegen/cuda/operators.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen::cuda {

/// Prints expressions and notes the device functions they call.
class ExpressionPrinter {
 public:
  ExpressionPrinter(const Usage& usage, Names& names) : usage_(usage), names_(names) {}

  std::string print(const Expr& e, ValueRole role, Precedence outer = Precedence::lowest);
  std::string index(const Expr& e, Precedence outer = Precedence::lowest) {
    return print(e, ValueRole::index, outer);
  }
  std::string value(const Expr& e) { return print(e, ValueRole::value); }

  /// `x[offset]`, with `guard ? .. : 0` around it if the access is guarded. Width 1.
  Text element(const Access& access);
  /// "evict_first, true": the hint for the caches and whether nobody writes the memory.
  std::string load_hint(const Access& access);
  /// "x[offset]": what a width-1 access names.
  std::string element(const Array& array, const Expr& offset);
  /// "x[8 * i + step]", for a loop over a slice.
  std::string element(const Array& array, const Expr& base, const std::string& step);
  /// "&x[offset]"
  std::string address(const Array& array, const Expr& offset);

  /// `operand` of dtype `from`, converted as Op::cast says.
  Text convert(DType to, DType from, Text operand, ValueRole role);
  /// `operand` as a float whose rounding to a small float is the only rounding.
  Text widen(DType from, Text operand);

  /// Notes that the text calls device function (or names device type) `name`, and returns the name.
  const std::string& call(std::string_view name);
  /// As type_name(), noted.
  std::string type(DType type);

  const std::set<std::string, std::less<>>& called() const { return called_; }

 private:
  Text text(const Expr& e, ValueRole role);
  /// Argument `i` of `e`, which has role `role`.
  std::string argument(const Expr& e, size_t i, ValueRole role,
                       Precedence outer = Precedence::lowest);
  /// As argument(), as a float.
  std::string f32_argument(const Expr& e, size_t i, Precedence outer = Precedence::lowest);
  /// An offset between brackets, which take every integer type.
  std::string subscript(const Expr& offset);

  Text constant(const ir::Node& node);
  Text variable(const ir::Var& var);
  Text integer_binary(const Expr& e, ValueRole role);
  bool may_wrap(const Expr& e, ValueRole role) const;
  std::string integer_operand(const Expr& e, size_t i, ValueRole role);
  Text float_arithmetic(const Expr& e);
  std::optional<Text> extreme_with_nan(const Expr& e);
  std::optional<Text> quotient(const Expr& e);
  std::optional<Text> sigmoid(const Expr& e);
  Text comparison(const Expr& e, ValueRole role);
  Text shift(const Expr& e, ValueRole role);
  Text sign_operation(const Expr& e, ValueRole role);
  // f64_text.cpp
  static bool is_f64_operation(const ir::Node& node);
  Text f64_operation(const Expr& e, ValueRole role);
  Text convert_f64(DType to, DType from, Text operand, ValueRole role);
  Text small_float_sign(const Expr& e, ValueRole role);
  Text select(const Expr& e, ValueRole role);
  std::optional<Text> widened_from_pair(const Expr& e);
  Text cast(const Expr& e, ValueRole role);
  Text bitcast(const Expr& e, ValueRole role);
  Text function(const Expr& e, ValueRole role);
  Text intrinsic(const Expr& e, ValueRole role);

  const Usage& usage_;
  Names& names_;
  std::set<std::string, std::less<>> called_;
};

}  // namespace tessera::codegen::cuda
