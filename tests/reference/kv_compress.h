#pragma once
// The plans of the KV compressor by definition, one token at a time.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct CompressOptions {
  int64_t ratio = 4, ring = 8, max_rollback = 0, state_page_size = 0, page_size = 64;
  int64_t num_windows = 0, num_writes = 0;  // of compress_plan
};

/// Windows that end among the new tokens, and the tokens that are stored, by request and position; what
/// needs a slot or a page that is not in its table is -1, as what is not needed.
///
///   start         i32 [B], tokens of each request before
///   row_start     i32 [B + 1], rows of the new ones
///   state_slot    i32 [B], or state_pages i32 [B, S]
///   page_table     i32 [B, Q], or none
///   returns       plan i32 [num_windows, 8], write_plan i32 [num_writes, 2], counts i32 [2]
test::HostTensors compress_plan(const test::HostTensors& in, const CompressOptions& options);

/// The same of one new token of each request, which is stored before its window is read.
///
///   positions   i32 [B], -1: padding
///   returns     i32 [B, 8]
test::HostTensor compress_plan_decode(const test::HostTensors& in, const CompressOptions& options);

}  // namespace tessera::reference
