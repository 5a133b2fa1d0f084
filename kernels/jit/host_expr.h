#pragma once
// Integer expressions over a kernel's dims and scalars, evaluated on the host at every call: grid
// extents, and the extents and strides that tensors must have.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::kernels::jit {

/// Maps a Var to its index among the values of a call.
using SlotOf = std::function<int(const ir::VarRef&)>;

/// An expression compiled to postfix code: no tree walk and no allocation per evaluation.
/// Arithmetic is 64-bit.
class HostExpr {
 public:
  /// Throws a program error, at the author's line, for operations that host expressions do not
  /// support (floats).
  HostExpr(const ir::Expr& expr, const SlotOf& slot_of);

  /// Throws an argument error if a step overflows or divides by zero. `op` appears in the message.
  int64_t evaluate(std::span<const int64_t> slots, const std::string& op) const;

  /// As the kernel computes it: nothing if a step leaves its dtype, overflows or divides by zero.
  std::optional<int64_t> evaluate_in_dtypes(std::span<const int64_t> slots) const;

  bool is_constant() const { return code_.size() == 1 && code_[0].op == ir::Op::constant; }
  const std::string& text() const { return text_; }  // as the author would write it

 private:
  struct Instruction {
    ir::Op op = ir::Op::constant;
    DType type = DType::i64;
    int64_t value = 0;  // a constant, or the slot of a var
  };
  /// The step that has no value, and what it was to compute with.
  struct Failure {
    ir::Op op = ir::Op::constant;
    int64_t left = 0, right = 0;
  };
  void compile(const ir::Expr& expr, const SlotOf& slot_of);
  std::optional<int64_t> run(std::span<const int64_t> slots, bool in_dtypes,
                             Failure& failure) const;

  std::vector<Instruction> code_;
  std::string text_;
};

}  // namespace tessera::kernels::jit
