#pragma once
// Whether the blocks and rounds of a kernel access parts of a tensor that share no element.

#include <set>

#include "codegen/analysis/index_form.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// True if each index of a block and of the loops around, `loops`, is proved to move the part along a dimension of its
/// own, by its extent at least.
bool are_parts_disjoint(const ir::Kernel& kernel, const IndexMath& math,
                        const std::set<const ir::Var*>& loops, const ir::Region& part);

}  // namespace tessera::codegen
