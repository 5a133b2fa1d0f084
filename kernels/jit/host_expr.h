#pragma once
// Integer expressions over a kernel's dims and scalars, evaluated on the host on every call: grid
// extents and the extents and strides that a tensor must have.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::kernels::jit {

/// Where the value of a Var is found among the values of a call.
using SlotOf = std::function<int(const ir::VarRef&)>;

/// An expression compiled to postfix code: no tree walk, no allocation per evaluation. Arithmetic
/// is done in 64 bits.
class HostExpr {
 public:
  /// Throws a program error, at the author's line, for operations that a host expression cannot
  /// have (floats).
  HostExpr(const ir::Expr& expr, const SlotOf& slot_of);

  /// Throws an argument error if a step overflows or divides by zero. `op` is for the message.
  int64_t evaluate(std::span<const int64_t> slots, const std::string& op) const;

  bool is_constant() const { return code_.size() == 1 && code_[0].op == ir::Op::constant; }
  const std::string& text() const { return text_; }  // as the author would write it

 private:
  struct Instruction {
    ir::Op op = ir::Op::constant;
    DType type = DType::i64;
    int64_t value = 0;  // the constant, or the slot of a var
  };
  int compile(const ir::Expr& expr, const SlotOf& slot_of);

  std::vector<Instruction> code_;
  std::string text_;
};

}  // namespace tessera::kernels::jit
