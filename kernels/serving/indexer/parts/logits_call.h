#pragma once
// From a call of an op that scores keys to its kernel.

#include "kernels/serving/indexer/parts/logits_kernel.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Where logits go, and whether columns without a key are -inf.
struct LogitsOut {
  TensorView logits;
  bool is_clean, is_compressed = false;
};

/// Adds the kernel of mqa_logits, with logits [S, columns].
void add_logits_of_rows(const Call& c, Launches& go, const LogitsOut& out);
/// Adds the kernel of paged_mqa_logits, with logits [B * n, columns].
void add_logits_of_pages(const Call& c, Launches& go, const LogitsOut& out);

/// Adds the kernel of sparse_mqa_logits, with blocks i32 [S, C] and logits [S, C * block_size] of the caller's.
void add_logits_of_blocks(const Call& c, Launches& go, const TensorView& blocks,
                          const TensorView& logits);

/// Throws unless heads and channels are supported: h a multiple of 8 up to 128, D 32, 64 or 128.
void require_heads(const Call& c);
/// Throws unless 0 <= k_start <= k_end <= T. Tensors in GPU memory are not read.
void require_key_ranges(const Call& c);
/// Throws unless the cache has rows of 64 * (D + 4) bytes, or as many as page_size says, at multiples of 16.
void require_index_cache(const Call& c);
/// Throws unless lengths are in 0 .. max_len and their pages exist. Tensors in GPU memory are not read.
void require_index_pages(const Call& c);

/// Values of cases: the keys that a row of a causal prompt at the end of the keys sees, first and end.
int64_t first_key(const Case& c, int64_t row);
int64_t end_key(const Case& c, int64_t row);
/// Values of cases: lengths of requests with full tables, of few requests other ones too.
int64_t cached_keys(const Case& c, int64_t row);

}  // namespace tessera::kernels::serving
