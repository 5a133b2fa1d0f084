#pragma once
// The parts that ops of chosen blocks of keys share.

#include "kernels/serving/indexer/parts/listed_blocks.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// A table of pages that turns chosen keys into slots.
struct OutPages {
  const char* table;  // the tensor's name; it may be absent
  const char* size;   // the parameter's
};

/// Adds topk_select's kernel for `scores` f32 [rows, columns], with `order`, save_values and perhaps `relative` of the
/// call. Tensors `lengths` and perhaps `starts` stand in `args`; the kernel of the scores reports those out of range.
void add_topk(const Call& c, Launches& go, const TensorView& scores, const OutPages& pages,
              Args args);
/// Adds candidate_blocks' kernel, with num_blocks and block_size of the call.
void add_blocks(const Call& c, Launches& go, const TensorView& scores, const TensorView& lengths);
/// Columns whose rows begin at multiples of 16 bytes.
int64_t padded_columns(int64_t columns);

/// Throws unless the table's rows divide `rows`, and pages are a power of two.
void require_out_pages(const Call& c, const OutPages& pages, int64_t rows);
/// Throws unless block_size is a power of two up to 64.
void require_block_size(const Call& c);
/// Throws for what sparse_mqa_logits and sparse_mqa_topk ask for beyond their signatures.
void require_chosen_blocks(const Call& c);
/// Throws unless ranges of keys, lengths and pages of chosen blocks exist. Tensors in GPU memory are not read.
void require_chosen_keys(const Call& c);

}  // namespace tessera::kernels::serving
