#pragma once
// Bugs of a compiler, planted in what it made of a program: proof that the fuzzer would see them.

#include <cstdint>
#include <string_view>

#include "codegen/thread_ir.h"
#include "dsl/ir/tile.h"

namespace tessera::test {

enum class Bug : uint8_t {
  none,
  barrier_left_out,         // one that the compiler inserted
  guard_left_out,           // of one access to a tensor
  vector_too_wide,          // alignments and multiples are taken for twice what was declared
  reduction_counts_twice,   // one step of a reduction between lanes is done twice
  extents_taken_for_small,  // proofs hold for extents up to 1000 alone, whose products never wrap
};
std::string_view name(Bug bug);

/// Plants a false fact for the compiler before it starts. Changes the kernel's own dims and tensors, so bind
/// them to arguments first. False if there is nothing that it could get wrong.
bool plant_before(Bug bug, ir::Kernel& kernel);
/// Plants a mistake of the compiler in one of the places, as `choice` says. False if there is none.
bool plant_after(Bug bug, codegen::Program& program, uint64_t choice);

}  // namespace tessera::test
