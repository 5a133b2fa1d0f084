#pragma once
// mqa_topk and its kin: logits, topk_select and perhaps candidate_blocks one after the other. The scores of all keys pass
// through the workspace, 4 bytes each.

#include "kernels/serving/indexer/parts/blocks_call.h"

namespace tessera::kernels::serving {

enum class Blocks { none, chosen };  // chosen: candidate_blocks comes last

/// Keys in rows [T, D], queries [S, h, D]; slots by page_table.
struct TopkOfRows {
  static int64_t elements(const Call& c);
  static void add(const Call& c, Launches& go, Blocks blocks);
  static void require(const Call& c);
};

/// Keys in pages, queries [B, n, h, D]; slots by out_page_table.
struct TopkOfPages {
  static int64_t elements(const Call& c);
  static void add(const Call& c, Launches& go, Blocks blocks);
  static void require(const Call& c);
};

}  // namespace tessera::kernels::serving
