#pragma once
// get_fused_mapping over chunks of pairs.

#include "kernels/moe/mapping_kernels.h"

namespace tessera::kernels::moe {

/// The phases count and place.
ir::Kernel build_chunked_mapping(const MappingSpec& s);
/// The phase offset.
ir::Kernel build_mapping_offset(const MappingSpec& s);

}  // namespace tessera::kernels::moe
