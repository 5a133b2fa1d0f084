#pragma once
// Proofs of claims without Z3, for questions on which it spends minutes or gives up. They share no code with the prover but
// the evaluation of expressions.
//
// Sums     i32 and i64 wrap, so sums, differences and products by constants are equal if each factor counts as often on both
//          sides, modulo 2^32 or 2^64. Z3 knows that of integers without an end, not below a division.
// Values   a claim about variables with few values is evaluated at each of them. What is taken modulo a constant and has no bounds,
//          such as the stage of a round of a loop, may have any value that a remainder can have: more than was claimed.

#include <cstdint>
#include <string>

#include "codegen/analysis/proof_log.h"
#include "dsl/ir/expr.h"

namespace tessera::test {

/// Text that is equal for structurally equal expressions alone (names of Vars may repeat).
std::string key_of(const ir::Expr& e);

/// True if both are the same sum, whatever its order. False: unknown.
bool have_equal_sums(const ir::Expr& a, const ir::Expr& b);

/// True if the claim, which is no guard, holds at every value of its Vars: at most `most_points`. False: unknown.
/// Conditions are not used: more than was claimed.
bool holds_everywhere(const codegen::Claim& claim, int64_t most_points);

}  // namespace tessera::test
