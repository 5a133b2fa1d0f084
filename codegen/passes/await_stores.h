#pragma once
// Where waits for tensor stores stand. The thread that starts a store waits for it; a barrier after the wait, which
// insert_barriers places, tells the others.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that shared arrays have their offsets, and that barriers are not inserted. Waits of tokens get their number
/// of pending groups; those whose store the threads carry out are dropped. Inserts
///   - a wait for the reads of a store before its source, or what shares its memory, is written, before threads leave
///     the kernel and before the program or the role ends;
///   - a wait for its elements before a statement that accesses the tensor, before the author's barriers if the program
///     accesses the tensor otherwise or has atomics that order, and before it signals or lets the next kernel start.
/// Statements of manual_sync get none: there the author waits.
void await_stores(Program& program);

}  // namespace tessera::codegen
