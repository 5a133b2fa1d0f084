#pragma once
// Rules that every thread-IR program satisfies between passes.

#include <string_view>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Properties that earlier passes have established.
struct Expectations {
  bool is_shared_placed = false;         // place_arena has run
  bool are_bulk_copies_lowered = false;  // lower_bulk_copies has run
  bool are_registers_declared = false;   // place_declarations has run
};

/// Throws an internal error that names the pass `after`, the rule and the line, unless
///
/// - every variable and array is defined before it is used, and so is in scope there;
/// - dtypes agree: of what is stored, bound, compared and tested;
/// - accesses in flight belong to a group that is closed before a wait and before the end;
/// - barriers that a pass put in stand where all threads of the block come, or of the role around.
///   `uniform`: values that are the same for the whole block by construction;
/// - roles stand once and at the top level, are whole warps and disjoint; inside them stands no barrier
///   of the block, and no thread leaves the kernel;
/// - no copy of a group is in flight when roles begin: inside them only its own thread could wait for it;
/// - named barriers have ids of 1 to 15 and count whole warps;
/// - steps of loops are positive, and unrolled loops have constant bounds;
/// - conversions of several elements at once divide their width;
/// - register slices at constant places lie inside their arrays;
/// - mbarriers are touched by nothing but mbarrier statements and bulk copies, initialised before these,
///   and expect whole pieces of 16 bytes; bulk and tensor copies name one (once they are lowered);
/// - tensor copies have a map of the program, a box that the hardware takes, and a target aligned to its
///   pattern;
/// - shared arrays lie inside the arena, those in use together apart, and their accesses have offsets (once
///   they are placed).
void verify(const Program& program, const std::vector<VarRef>& uniform,
            const Expectations& expected, std::string_view after);

}  // namespace tessera::codegen
