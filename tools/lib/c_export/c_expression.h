#pragma once
// Expressions of the host as C, and names that C takes.

#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "dsl/ir/expr.h"

namespace tessera::tools {

/// The C code of a Var.
using CodeOf = std::function<std::string(const ir::VarRef&)>;

/// An int64_t in C; `bad` becomes 1 where a step leaves 64 bits or divides by zero.
std::string c_code(const ir::Expr& expr, const CodeOf& code_of);
/// The same, where each step must also stay within its dtype.
std::string c_code_in_dtypes(const ir::Expr& expr, const CodeOf& code_of);

std::string c_integer(int64_t value);

/// Makes identifiers of C and C++ out of names, each once.
class CNames {
 public:
  explicit CNames(std::initializer_list<std::string_view> taken)
      : taken_(taken.begin(), taken.end()) {}
  /// "x.0" becomes "x_0"; a keyword or a name that is taken gets a "_".
  std::string unique(std::string_view name);

 private:
  std::set<std::string> taken_;
};

/// True for an identifier that is no keyword of C or C++.
bool is_c_name(const std::string& name);

}  // namespace tessera::tools
