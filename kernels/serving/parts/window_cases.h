#pragma once
// Examples and bench cases of the compressor: one request from its first token on, or one token of each
// of many requests, whose windows end in turn.

#include "kernels/signature/case.h"

namespace tessera::kernels::serving {

// Extents of a case, from its ratio, channels D, windows C or tokens B.
int64_t row_length(const Case& c);       // L
int64_t slots_of_window(const Case& c);  // W
int64_t rows_of_windows(const Case& c);  // N
int64_t slots_of_tokens(const Case& c);  // a ring of W for each

int64_t positions_of_windows(const Case& c);  // P
int64_t positions_of_tokens(const Case& c);
int64_t blocks_of_windows(const Case& c);  // of the cache
int64_t blocks_of_tokens(const Case& c);
int64_t bytes_of_block(const Case& c);

/// Element `i` of the plan: of C windows, of B tokens, and of the writes of the last rows.
int64_t planned_window(const Case& c, int64_t i);
int64_t planned_token(const Case& c, int64_t i);
int64_t planned_write(const Case& c, int64_t i);

/// Minimum traffic in bytes. Of B tokens every row is stored, and the windows that end are read.
int64_t write_bytes(const Case& c);
int64_t token_bytes(const Case& c);
/// The same for entries that go to the cache.
int64_t stored_window_bytes(const Case& c);
int64_t stored_token_bytes(const Case& c);

}  // namespace tessera::kernels::serving
