#pragma once
// get_fused_mapping over chunks of pairs: the phases count, offset and place.

#include "kernels/moe/mapping_kernels.h"

namespace tessera::kernels::moe {

ir::Kernel build_chunked_mapping(const MappingSpec& s);

}  // namespace tessera::kernels::moe
