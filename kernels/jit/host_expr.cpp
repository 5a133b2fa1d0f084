#include "kernels/jit/host_expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "dsl/base/error.h"
#include "dsl/ir/integer.h"

namespace tessera::kernels::jit {
namespace {

using ir::Op;

constexpr int kMaxStack = 32;

bool is_supported(const ir::Node& node) {
  if (is_float(node.type)) return false;
  const bool has_value =
      node.args.size() == 2 && ir::compute_exactly(node.op, DType::i64, 1, 1).has_value();
  return has_value || node.op == Op::constant || node.op == Op::var || node.op == Op::cast ||
         node.op == Op::select;
}

}  // namespace

HostExpr::HostExpr(const ir::Expr& expr, const SlotOf& slot_of) : text_(ir::to_string(expr)) {
  const int depth = compile(expr, slot_of);
  TESSERA_CHECK(depth <= kMaxStack, "a grid or shape expression is nested too deeply: " + text_);
}

// Returns the deepest stack that the code of `expr` needs.
int HostExpr::compile(const ir::Expr& expr, const SlotOf& slot_of) {
  if (!is_supported(*expr)) {
    throw Error(
        {.kind = ErrorKind::program,
         .what = "the host cannot evaluate this expression of a grid, shape or stride",
         .expected = "integer arithmetic, comparisons, min, max and select over dims and scalars",
         .got = ir::to_string(expr),
         .loc = expr->loc});
  }
  Instruction instruction;
  instruction.op = expr->op;
  instruction.type = expr->type;
  if (expr->op == Op::constant) instruction.value = expr->integer;
  if (expr->op == Op::var) instruction.value = slot_of(expr->var);
  int depth = 1;
  for (size_t i = 0; i < expr->args.size(); ++i) {
    depth = std::max(depth, static_cast<int>(i) + compile(expr->args[i], slot_of));
  }
  code_.push_back(instruction);
  return depth;
}

int64_t HostExpr::evaluate(std::span<const int64_t> slots, const std::string& op) const {
  if (code_.size() == 1) {  // most are a number or a dim
    const int64_t value = code_[0].value;
    return code_[0].op == Op::constant ? value : slots[static_cast<size_t>(value)];
  }
  std::array<int64_t, kMaxStack> stack{};
  size_t top = 0;  // one past the top of the stack
  for (const Instruction& instruction : code_) {
    switch (instruction.op) {
      case Op::constant:
        stack[top++] = instruction.value;
        break;
      case Op::var:
        stack[top++] = slots[static_cast<size_t>(instruction.value)];
        break;
      case Op::cast:
        stack[top - 1] = ir::wrap(instruction.type, stack[top - 1]);
        break;
      case Op::select:
        top -= 2;
        stack[top - 1] = stack[top - 1] != 0 ? stack[top] : stack[top + 1];
        break;
      default: {
        --top;
        const auto result =
            ir::compute_exactly(instruction.op, DType::i64, stack[top - 1], stack[top]);
        if (!result) {
          throw Error({.kind = ErrorKind::argument,
                       .op = op,
                       .what = "the extents of this call cannot be computed with",
                       .expected = text_ + " within 64 bits, no division by zero",
                       .got = fmt::format("{} of {} and {}", ir::name(instruction.op),
                                          stack[top - 1], stack[top])});
        }
        stack[top - 1] = *result;
      }
    }
  }
  return stack[0];
}

}  // namespace tessera::kernels::jit
