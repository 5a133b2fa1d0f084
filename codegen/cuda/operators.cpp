#include "codegen/cuda/operators.h"

#include <utility>

namespace tessera::codegen::cuda {

using ir::Op;

Operator infix(Op op) {
  switch (op) {
    case Op::add:
      return {"+", Precedence::additive};
    case Op::sub:
      return {"-", Precedence::additive};
    case Op::mul:
      return {"*", Precedence::multiplicative};
    case Op::div:
      return {"/", Precedence::multiplicative};
    case Op::mod:
      return {"%", Precedence::multiplicative};
    case Op::bit_and:
      return {"&", Precedence::bit_and};
    case Op::bit_or:
      return {"|", Precedence::bit_or};
    case Op::bit_xor:
      return {"^", Precedence::bit_xor};
    case Op::shl:
      return {"<<", Precedence::shift};
    case Op::shr:
      return {">>", Precedence::shift};
    case Op::lt:
      return {"<", Precedence::relational};
    case Op::le:
      return {"<=", Precedence::relational};
    case Op::eq:
      return {"==", Precedence::equality};
    case Op::ne:
      return {"!=", Precedence::equality};
    case Op::logical_and:
      return {"&&", Precedence::logical_and};
    case Op::logical_or:
      return {"||", Precedence::logical_or};
    default:
      return {"", Precedence::primary};
  }
}

namespace {

Precedence tighter(Precedence precedence) {
  return static_cast<Precedence>(static_cast<int>(precedence) + 1);
}

}  // namespace

bool is_bitwise(Op op) {
  return op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
}

Precedence operand_precedence(Op op, bool right) {
  if (is_bitwise(op) || op == Op::shl || op == Op::shr) return Precedence::unary;
  if (op == Op::logical_or) return right ? Precedence::bit_or : Precedence::logical_or;
  const Precedence own = infix(op).precedence;
  return right ? tighter(own) : own;
}

bool is_wide(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u32 || type == DType::u64;
}

bool is_promoted(DType type) {
  return is_integer(type) && !is_wide(type);
}

std::string parenthesise(Text text, Precedence outer) {
  if (text.precedence >= outer) return std::move(text.text);
  return "(" + text.text + ")";
}

}  // namespace tessera::codegen::cuda
