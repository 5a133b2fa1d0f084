#pragma once
// Elementary forms, and the order of atoms in a form.

#include <cstdint>

#include "codegen/analysis/index_form.h"

namespace tessera::codegen {

/// A total order on expressions: uniform values first, then values of the thread, then of loops.
int compare(const ir::Expr& a, const ir::Expr& b);
Form constant_form(int64_t value);
Form atom_form(ir::Expr atom);
/// True for a cast between index types.
bool is_index_cast(const ir::Expr& e);
/// a * b and a + b; nothing if 64 bits overflow.
std::optional<int64_t> product(int64_t a, int64_t b);
std::optional<int64_t> sum(int64_t a, int64_t b);

}  // namespace tessera::codegen
