#pragma once
// The first kernel of hisparse_swap_in: which slots the wanted tokens get, and the new order of the slots.

#include <cstdint>

#include "dsl/ir/tile.h"

namespace tessera::kernels::serving {

/// Everything that generated code depends on.
struct SwapSpec {
  int32_t slots;  // of a request, C
  int32_t
      capacity;  // of the table of tokens: a power of two, at least twice the entries of a request
  bool has_num_reqs, saves_misses;
  uint8_t unused[2] = {};
};

/// The capacity for that many entries.
int64_t table_capacity(int64_t entries);
/// Bytes of shared memory that the kernel takes.
int64_t swap_plan_memory(int64_t slots, int64_t entries);

/// Tensors: tokens i32 [batch, entries], seq_len, req i32 [batch], num_reqs i32 [1], hot_slots, hot_tokens
/// i32 [states, slots + 1], host_loc i64 [states, longest] rows, lru i16 [states, slots], locations i32
/// [batch, entries], miss_list i64 [batch, entries, 2], miss_count i32 [batch]. Scalars: host_rows,
/// cache_rows.
ir::Kernel build_swap_plan(const SwapSpec& spec);

}  // namespace tessera::kernels::serving
