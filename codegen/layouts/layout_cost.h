#pragma once
// The cost of a layout: memory requests of all warps with their 32-byte sectors, shuffles, and a
// small weight for registers.

#include <string>
#include <vector>

#include "codegen/layouts/layout_participants.h"

namespace tessera::codegen {

/// The cost of one participant. `iteration` is the layout of a loop, or of the reduced fragment or
/// reducer. Matrix products and reads are free: their layouts are given.
double layout_cost(const Participant& participant, const layout::Layout& iteration,
                   const IndexMath& math);

/// True if cp.async can copy runs of so many bits: 4, 8 or 16 bytes.
inline bool is_async_width(int64_t run_bits) {
  return run_bits == 32 || run_bits == 64 || run_bits == 128;
}

/// One line per global access of a loop whose warps touch at least twice the 32-byte sectors that
/// their bytes fill.
std::vector<std::string> uncoalesced_accesses(const Participant& participant,
                                              const layout::Layout& iteration,
                                              const IndexMath& math);

/// The widest power of two <= `limit` for which every aligned run of that many `lane` values
/// addresses consecutive elements of `buffer` that form one aligned vector of at most 16 bytes.
int64_t feasible_vector(const IndexMath& math, const ir::Buffer& buffer,
                        const std::vector<ir::Expr>& indices, const ir::Var& lane, int64_t limit);

/// The widest run that both sides of the loop of a copy have in one vector, in elements.
int64_t common_run(const IndexMath& math, const ir::Loop& copy);
/// The runs that threads can copy in the background (cp.async: 4, 8 or 16 bytes), widest first. Empty: there are none.
std::vector<int64_t> piece_widths(const IndexMath& math, const ir::Loop& copy);

}  // namespace tessera::codegen
