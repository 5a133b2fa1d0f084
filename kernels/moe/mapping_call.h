#pragma once
// The arguments of a mapping call, checked.

#include "kernels/arg_check.h"
#include "kernels/moe/get_fused_mapping.h"

namespace tessera::kernels::moe {

inline constexpr const char* kByPosition[] = {"pos_to_expert", "pos_to_token", "pos_to_token_topk"};
inline constexpr const char* kByExpert[] = {"expert_start", "expert_end", "num_tokens_per_expert"};

GetFusedMappingOptions mapping_options(const Params& params);

/// Whether the call has to wait for the device to know how many positions there are.
bool synchronises(const GetFusedMappingOptions& o);

/// Checks topk_idx and the options; binds T, K and E.
void check_mapping_input(ArgCheck& check, const Tensors& tensors, const GetFusedMappingOptions& o);
/// Binds P.
void check_mapping_outputs(ArgCheck& check, const Tensors& tensors,
                           const GetFusedMappingOptions& o);

/// The length of the pos arrays that is enough for every routing of this shape.
int64_t most_positions(const ArgCheck& check, const GetFusedMappingOptions& o);
std::vector<OutputInfo> mapping_outputs(const ArgCheck& check, const GetFusedMappingOptions& o);

}  // namespace tessera::kernels::moe
