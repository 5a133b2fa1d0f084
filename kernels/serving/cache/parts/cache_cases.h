#pragma once
// Examples and bench cases of the ops of KV caches: T tokens in slots that lie apart.

#include "kernels/signature/case.h"

namespace tessera::kernels::serving {

/// Blocks of the cache, and bytes of a block, for T tokens of d channels or of those of the format.
int64_t cached_blocks(const Case& c);
int64_t cached_bytes(const Case& c);
/// The slot of token `token`.
int64_t cached_location(const Case& c, int64_t token);
/// The position of a token of a long request.
int64_t cached_position(const Case& c, int64_t token);

/// Bytes of a token in the cache.
int64_t cached_token_bytes(const Case& c);
/// Channels of a token.
int64_t cached_channels(const Case& c);

}  // namespace tessera::kernels::serving
