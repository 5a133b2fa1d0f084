#pragma once
// get_fused_mapping over chunks of pairs.

#include "kernels/moe/parts/mapping_kernels.h"

namespace tessera::kernels::moe {

/// Builds the phases count and place.
ir::Kernel build_chunked_mapping(const MappingSpec& s);
/// Builds the phase offset.
ir::Kernel build_mapping_offset(const MappingSpec& s);

}  // namespace tessera::kernels::moe
