#pragma once
// Where asynchronous work is awaited.
//
// Copies, tensor stores and products go on after the statement that starts them. A commit closes a group of such work, and a
// wait says how many groups of it may still be in flight. The author writes few of these waits, the pipeliner those of its
// own copies; the others are placed here, in three passes, since each needs something that only stands after another:
//
//   number_groups         right after lowering. A wait for the author's token becomes one for a number of groups; a product
//                         is awaited at once; a kernel ends after its bulk copies.
//   place_store_waits     when shared arrays have their place, before barriers: it adds waits that barriers have to follow.
//   place_product_waits   after barriers: it moves the waits for products down, to where the sums or the operands' memory
//                         are needed, over the end of a round or below later products, so that the tensor cores have work
//                         meanwhile. The arrival that frees the stage of a ring moves with the wait.
//
// All ask effects(): a new statement is known to them. What a wait gives is known to every other pass by its Order.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Guarantees that no commit or wait has a token: a wait for one becomes a wait until as many groups are in flight as any
/// path commits, at least, between the token's group and the wait; one for a store that the threads carry out goes.
/// Products get a wait behind their commit. A kernel that starts bulk or tensor copies in groups with tokens ends with a
/// wait for all: a block must not end before its copies.
void number_groups(Program& program);

/// Assumes that shared arrays have their offsets, and that barriers are not inserted. The thread that starts a store waits
/// for it; a barrier after the wait, which insert_barriers places, tells the others. Inserts
///   - a wait for the reads of a store before its source, or what shares its memory, is written, before the stage of a ring
///     that it reads is freed, before threads leave the kernel and before the program or the role ends;
///   - a wait for its elements before a statement that accesses the tensor, before the author's barriers if the program
///     accesses the tensor otherwise or has atomics that order, and before it signals or lets the next kernel start.
/// Statements of manual_sync get none: there the author waits.
void place_store_waits(Program& program);

/// Assumes that barriers are inserted. Guarantees the same order of all other statements, and that no arrival is of_warp_at.
/// Adds a note for each wait of a loop, and for each that moved.
void place_product_waits(Program& program, std::vector<std::string>& notes);

}  // namespace tessera::codegen
