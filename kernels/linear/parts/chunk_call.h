#pragma once
// Calls of gated_delta_fwd and gated_delta_varlen_fwd.

#include <string_view>

#include "kernels/signature/launches.h"

namespace tessera::kernels::linear {

/// Rows of both signatures: states, parameters and what they need.
inline constexpr std::string_view kChunkStates = R"(
      initial_state?   f32 [B, hv, dk, dv]             # absent: +0
      read_slots?      i32 [B]                         # of 'pool'; -1: +0; absent: request b has slot b
      write_slots?     i32 [B]                         # -1: the state is not written
    )";
inline constexpr std::string_view kChunkRules = R"(
      -> final_state?  f32 [B, hv, dk, dv]             iff output_final_state
      -> inout pool?   f32/bf16 [N, hv, dk, dv] any1   # states of requests, in place of the other two
      workspace        f32 [elements()] align 16
      param  scale float = none                        # none: dk^-0.5
      param  qk_norm bool = false                      # q and k are divided by their lengths
      param  norm_eps float = 1e-6
      param  segment int >= 0 = 0
      param  output_final_state bool = false
      need   h >= 1 on q "argument 'q' has no heads"
      need   hv % h = 0 on v "the heads of 'v' are no multiple of those of 'k'"
      need   segment % 64 = 0 on segment "parameter 'segment' is no multiple of 64"
      limit  dk in {64, 128} on q "heads of this extent are not supported"
      limit  dv in {64, 128} on v "heads of this extent are not supported"
      need   not initial_state if pool on initial_state "states come from 'initial_state' or from 'pool'"
      need   not output_final_state if pool on output_final_state "states go to 'final_state' or to 'pool'"
      need   pool if read_slots on read_slots "'read_slots' needs 'pool'"
      need   pool if write_slots on write_slots "'write_slots' needs 'pool'"
      need   N >= 1 if pool on pool "argument 'pool' has no slots"
      need   N >= B if pool and not (read_slots and write_slots) on pool
      |      "argument 'pool' has fewer slots than requests"
      limit  B * hv <= 536870912 on q "so many rows are not supported"
    )";

/// Elements of the workspace.
int64_t chunk_elements(const Call& c);
/// Adds both kernels.
void add_chunks(const Call& c, Launches& go);
/// Scale and segment. Errors: argument, unsupported.
void require_chunks(const Call& c);

}  // namespace tessera::kernels::linear
