#pragma once
// The operators of C++ as expressions are printed with them, and how tightly they bind.

#include <string>

#include "dsl/ir/expr.h"

namespace tessera::codegen::cuda {

/// How tightly the outermost operator of a text binds.
enum class Precedence {
  lowest,
  conditional,
  logical_or,
  logical_and,
  bit_or,
  bit_xor,
  bit_and,
  equality,
  relational,
  shift,
  additive,
  multiplicative,
  unary,
  primary,
};

struct Text {
  std::string text;
  Precedence precedence = Precedence::primary;
};

/// `text`, in parentheses if it binds less tightly than `outer` asks for.
std::string parenthesise(Text text, Precedence outer);

struct Operator {
  const char* symbol;
  Precedence precedence;
};

/// The infix form of an operation; an empty symbol if it has none.
Operator infix(ir::Op op);

/// The least precedence at which an operand may stand bare. Readers know arithmetic, comparison and
/// && by heart; mixes of bit operators with others, and of && with ||, keep parentheses that C++
/// does not need.
Precedence operand_precedence(ir::Op op, bool right);

bool is_bitwise(ir::Op op);
/// The integers that C++ does not promote to int.
bool is_wide(DType type);
/// True for the integers that C++ promotes to int before it computes.
bool is_promoted(DType type);

}  // namespace tessera::codegen::cuda
