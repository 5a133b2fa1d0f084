#include "kernels/jit/host_expr.h"

#include <fmt/format.h>

#include <array>

#include "dsl/base/error.h"
#include "dsl/ir/host_value.h"
#include "dsl/ir/integer.h"

namespace tessera::kernels::jit {
namespace {

using ir::Op;

}  // namespace

HostExpr::HostExpr(const ir::Expr& expr, const SlotOf& slot_of) : text_(ir::to_string(expr)) {
  compile(expr, slot_of);
  TESSERA_CHECK(ir::host_depth(expr) <= ir::kMostHostDepth,
                "a grid or shape expression is nested too deeply: " + text_);
}

void HostExpr::compile(const ir::Expr& expr, const SlotOf& slot_of) {
  if (!ir::is_host_operation(*expr)) {
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
  for (const ir::Expr& arg : expr->args) compile(arg, slot_of);
  code_.push_back(instruction);
}

std::optional<int64_t> HostExpr::run(std::span<const int64_t> slots, bool in_dtypes,
                                     Failure& failure) const {
  std::array<int64_t, ir::kMostHostDepth> stack{};
  size_t top = 0;  // one past the top of the stack
  for (const Instruction& instruction : code_) {
    switch (instruction.op) {
      case Op::constant:
        stack[top++] = instruction.value;
        break;
      case Op::var:
        stack[top++] = slots[static_cast<size_t>(instruction.value)];
        break;
      case Op::cast: {
        const int64_t value = ir::wrap(instruction.type, stack[top - 1]);
        if (in_dtypes && value != stack[top - 1]) return std::nullopt;
        stack[top - 1] = value;
        break;
      }
      case Op::select:
        top -= 2;
        stack[top - 1] = stack[top - 1] != 0 ? stack[top] : stack[top + 1];
        break;
      default: {
        --top;
        const bool has_dtype = in_dtypes && !ir::is_comparison(instruction.op);
        const auto result = ir::compute_exactly(
            instruction.op, has_dtype ? instruction.type : DType::i64, stack[top - 1], stack[top]);
        if (!result) {
          failure = {instruction.op, stack[top - 1], stack[top]};
          return std::nullopt;
        }
        stack[top - 1] = *result;
      }
    }
  }
  return stack[0];
}

int64_t HostExpr::evaluate(std::span<const int64_t> slots, const std::string& op) const {
  if (code_.size() == 1) {  // most are a number or a dim
    const int64_t value = code_[0].value;
    return code_[0].op == Op::constant ? value : slots[static_cast<size_t>(value)];
  }
  Failure failure;
  const std::optional<int64_t> result = run(slots, false, failure);
  if (!result) {
    throw Error(
        {.kind = ErrorKind::argument,
         .op = op,
         .what = "the extents of this call cannot be computed with",
         .expected = text_ + " within 64 bits, no division by zero",
         .got = fmt::format("{} of {} and {}", ir::name(failure.op), failure.left, failure.right)});
  }
  return *result;
}

std::optional<int64_t> HostExpr::evaluate_in_dtypes(std::span<const int64_t> slots) const {
  Failure ignored;
  return run(slots, true, ignored);
}

}  // namespace tessera::kernels::jit
