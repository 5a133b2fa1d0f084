#pragma once
// The smallest forms, and the order of atoms in a form.

#include <cstdint>

#include "codegen/analysis/index_form.h"

namespace tessera::codegen {

/// A total order on expressions: what is uniform over the block first, then the thread, then loops.
int compare(const ir::Expr& a, const ir::Expr& b);
Form constant_form(int64_t value);
Form atom_form(ir::Expr atom);
/// A cast between index types, which changes no value.
bool is_index_cast(const ir::Expr& e);

}  // namespace tessera::codegen
