#pragma once
// The rows that a plan of experts needs.

#include <cstdint>

#include "dsl/base/api.h"

namespace tessera::kernels {

/// Returns the most rows that moe_plan lays out for any ids: its P without num_rows. Every expert with a pair begins at a
/// multiple of `alignment`, and no more experts than pairs have one.
///
/// Errors:  argument if a size is negative, alignment is 0 or the rows exceed 2130706431.
/// Example: moe_rows(64, 6, 256, 8) is 2176: 384 pairs and 7 rows of padding for each of 256 experts
TESSERA_API int64_t moe_rows(int64_t num_tokens, int64_t num_topk, int64_t num_experts,
                             int64_t alignment);

}  // namespace tessera::kernels
