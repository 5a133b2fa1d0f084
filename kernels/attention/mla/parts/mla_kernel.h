#pragma once
// The kernels of mla_decode, sparse_mla_fwd, sparse_mla_decode and mla_combine.

#include <cstdint>

#include "dsl/builder.h"
#include "kernels/serving/parts/cache_format.h"

namespace tessera::kernels::attention {

/// The first channels of a key, which are the value too.
inline constexpr int64_t kLatentValueWidth = 512;
inline constexpr int64_t kLatentKeys = 64;  // of a block: a part of the ops' definition

/// The instructions that multiply, and the side of a product that is on M, their rows.
enum class MlaForm : int32_t {
  plain,      // queries on M, by instructions of one warp
  keys_on_m,  // by wgmma: keys, then channels of values on M
  two_groups,  // by wgmma: 64 queries on M; one group of four warps for even, one for odd blocks of keys
};

/// Everything that the generated code of the first kernel depends on.
struct MlaSpec {
  int32_t width;                   // channels of a key: 512 or 576
  int32_t q_vector, cache_vector;  // elements that rows begin at multiples of
  int32_t is_causal, has_parts;    // 0 or 1; requests may be longer than a part
  int32_t is_f32;                  // out, else bf16
  int32_t page_size;               // 0: known at the call
  int32_t one_token;               // 1: no tile has rows of two tokens
  /// 1: of sparse_mla_fwd. Requests are tokens, pages have one row: page_table holds indices, of which some are none.
  int32_t is_sparse;
  /// 0 or 1. Without lengths all keys of a request count.
  int32_t has_lengths, has_sink, has_q_scale;
  /// With a format the kernel is that of sparse_mla_decode (mla_lists.h). Bytes of accesses to codes.
  serving::CacheKind listed, extra;
  int32_t code_bytes, extra_code_bytes, has_extra_lengths;
  // No bit of the result depends on these.
  MlaForm form;
  int32_t rows;       // queries of a tile: 16; with keys on M also 8 or 32; of two groups 64
  int32_t stages;     // blocks of keys on their way; of two groups the pieces of a block: 2 or 4
  int32_t p_stages;   // blocks of p on their way
  int32_t by_engine;  // 1: whole blocks by tensor copies; pages have a multiple of 64 rows
};

inline bool has_lists(const MlaSpec& s) {
  return s.listed.format != serving::CacheFormat::none;
}

/// Scalars besides the tensors: c (f32), part_blocks (i32). The cache is [P, ps, 1, width], out [B, n * h, 512]. With
/// parts the tensors partial, partial_max and partial_sum of mla_combine take those of requests that have several.
ir::Kernel build_mla_decode(const MlaSpec& spec);

struct CombineSpec {
  int32_t has_sink, is_f32;
  /// 1: rows belong to the requests of mla_decode. Only those with several parts are combined, each of as many as its
  /// request has. 0: all rows, of all parts.
  int32_t has_requests = 0;
  int32_t is_causal = 0;
  /// The lists of a request of sparse_mla_decode. Other requests have lengths alone.
  int32_t has_lengths = 0, has_extra = 0, has_extra_lengths = 0;
};

/// Combines the parts of rows. Scalars: with requests part_len and cache_rows (i32), with a second list extra_rows (i32);
/// else num_heads (i32).
ir::Kernel build_mla_combine(const CombineSpec& spec);

}  // namespace tessera::kernels::attention
