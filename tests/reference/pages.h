#pragma once
// Slots of paged caches, by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// page_table[r, index / page_size] * page_size + index % page_size for indices i32 [R, k]; -1 for a
/// negative index, a negative page, a page that the table lacks and one whose slots 32 bits do not hold.
test::HostTensor gather_pages(const test::HostTensor& indices, const test::HostTensor& page_table,
                              int64_t page_size);

/// compressed = length / ratio and blocks = ceil(compressed / page_size); a length below 0 counts as 0.
test::HostTensors paged_lengths(const test::HostTensor& lengths, int64_t ratio, int64_t page_size);

struct PageSizes {
  int64_t window = 0, c4 = 0, c128 = 0;
};

/// The slots of tokens at `positions`: window_slot of position p by window_pages; c4_slot of p / 4 where
/// p % 4 = 3 and c128_slot of p / 128 where p % 128 = 127, of the pools whose pages are given; else -1.
test::HostTensors slot_plan(const test::HostTensors& tensors, const PageSizes& sizes);

struct StepSizes {
  int64_t rows = 0, ratio = 4, second_ratio = 128, page_size = 64;
};

/// Request by request: the rows row_start[b] .. row_start[b + 1] - 1 at positions from start[b], or 0, on; entries that they
/// see, (p + 1) / ratio for both ratios; slots by page_table, if given. Rows of no request, and of one whose rows or positions
/// are out of range, have -1 and no entries.
test::HostTensors serving_plan(const test::HostTensors& tensors, const StepSizes& sizes);

}  // namespace tessera::reference
