#pragma once
// The smallest forms, and the order of atoms in a form.

#include <cstdint>

#include "codegen/analysis/index_form.h"

namespace tessera::codegen {

/// A total order on expressions: what is uniform over the block first, then the thread, then loops.
int compare(const ir::Expr& a, const ir::Expr& b);
Form constant_form(int64_t value);
Form atom_form(ir::Expr atom);
/// A cast between index types.
bool is_index_cast(const ir::Expr& e);
/// a * b and a + b; nothing beyond 64 bits.
std::optional<int64_t> product(int64_t a, int64_t b);
std::optional<int64_t> sum(int64_t a, int64_t b);

}  // namespace tessera::codegen
