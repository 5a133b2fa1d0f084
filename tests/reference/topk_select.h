#pragma once
// The best scores of rows by definition: a stable sort.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct SelectOptions {
  int64_t topk = 1;
  bool by_value = false;
  int64_t page_size = 64;
  bool is_relative = false, saves_raw = false, saves_values = false;
};

/// The topk of the columns start .. end - 1 of each row with the largest scores, equal ones by column;
/// NaN counts as -inf. In ascending order, or by score. What is left of a result is -1, of values -inf.
///
///   scores       f32 or bf16 [B, L]
///   lengths      i32 [B], the ends; none: L
///   starts       i32 [B]; none: 0
///   page_table   i32 [R, Q]; none: indices are columns
///   table_row    i32 [B], the row of page_table; none: that of the scores
///   returns      indices, and raw_indices and values if asked for
test::HostTensors topk_select(const test::HostTensors& in, const SelectOptions& options);

/// Row 0: the threshold, max(topk, min(max_length, 32768)), and how many rows are longer; these rows
/// and their lengths; -1 in the rest.
///
///   lengths   i32 [B]
///   returns   i32 [B + 1, 2]
test::HostTensor topk_plan(const test::HostTensor& lengths, int64_t topk, int64_t max_length);

}  // namespace tessera::reference
