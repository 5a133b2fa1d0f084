#pragma once
// The variables that statements of the tile IR take from around them.

#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// The variables that the statement or one inside it uses and does not bind, once per use.
std::vector<ir::VarRef> free_variables(const ir::Stmt& stmt);

/// True if the statement itself binds the variable.
bool binds(const ir::Stmt& stmt, const ir::VarRef& var);

}  // namespace tessera::codegen
