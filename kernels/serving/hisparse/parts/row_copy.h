#pragma once
// Copies of rows by a list of pairs (host row, device row), one list per request: the kernel of
// hisparse_replay, and the second one of hisparse_swap_in.

#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Rows of bytes as rows of words of 4 bytes.
TensorView as_words(TensorView rows);
/// Requires that each row of a matrix of bytes begins at a multiple of 16 bytes.
void require_aligned_rows(const Call& c, const char* name);

/// Adds the kernel. The list is i64 [B, entries, 2], the counts i32 [B].
void add_row_copies(const Call& c, Launches& go, const TensorView& list, const TensorView& counts);

}  // namespace tessera::kernels::serving
