#pragma once
// Integer evaluation of index expressions for given values of their Vars: the exhaustive tier of
// the prover.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// Values of Vars by Var::id; absent = unknown.
class Environment {
 public:
  explicit Environment(int num_vars) : values_(static_cast<size_t>(num_vars)) {}
  void set(const ir::Var& var, int64_t value) { values_[static_cast<size_t>(var.id)] = value; }
  void clear(const ir::Var& var) { values_[static_cast<size_t>(var.id)].reset(); }
  std::optional<int64_t> get(const ir::Var& var) const {
    return values_[static_cast<size_t>(var.id)];
  }

 private:
  std::vector<std::optional<int64_t>> values_;
};

/// Nothing if a Var has no value or an operation is not an integer one.
std::optional<int64_t> evaluate(const ir::Expr& e, const Environment& environment);

/// An integer operation of two arguments; nothing for others, for a division by 0 and for results
/// beyond 64 bits.
inline std::optional<int64_t> apply(ir::Op op, int64_t a, int64_t b) {
  using ir::Op;
  int64_t result = 0;
  switch (op) {
    case Op::add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional<int64_t>(result);
    case Op::sub:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional<int64_t>(result);
    case Op::mul:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional<int64_t>(result);
    case Op::div:
      if (b == 0) return std::nullopt;
      return b == -1 ? apply(Op::sub, 0, a) : std::optional<int64_t>(a / b);
    case Op::mod:
      return b == 0 ? std::nullopt : std::optional<int64_t>(b == -1 ? 0 : a % b);
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::bit_and:
      return a & b;
    case Op::bit_or:
      return a | b;
    case Op::bit_xor:
      return a ^ b;
    case Op::lt:
      return a < b;
    case Op::le:
      return a <= b;
    case Op::eq:
      return a == b;
    case Op::ne:
      return a != b;
    case Op::logical_and:
      return a != 0 && b != 0;
    case Op::logical_or:
      return a != 0 || b != 0;
    default:
      return std::nullopt;
  }
}

}  // namespace tessera::codegen
