#pragma once
// Stores to a KV cache, loads from it and the queries beside it, by definition.

#include "tests/reference/cache_entry.h"
#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// The cache after row t of x is stored to slot loc[t]; nothing for a slot that is not there.
test::HostTensor kv_store(const test::HostTensors& tensors, const EntryOptions& options);

/// Row t is slot loc[t]; zeros for one that is not there.
test::HostTensor kv_load(const test::HostTensors& tensors, const EntryOptions& options,
                         DType out_dtype);

/// kv_store of normalized_entry of each row, at its position; nothing for position -1.
test::HostTensor kv_norm_rope_store(const test::HostTensors& tensors, const EntryOptions& options);

/// Heads over their root mean square, rounded to bf16, then the last 64 channels rotated and rounded. Zeros
/// for position -1.
test::HostTensor q_norm_rope(const test::HostTensors& tensors, const EntryOptions& options);

struct IndexQueryOptions {
  float weight_scale = 1;
  bool hadamard = true, rope_first = false, halves = false;
};
/// out: heads, rotated, transformed, by 448 / c, where c is the largest magnitude, at least 1e-4; weights: (weight
/// weight_scale) (c / 448). Zeros for position -1.
test::HostTensors index_q_store(const test::HostTensors& tensors, const IndexQueryOptions& options);

/// The op of that name; null for another.
Runner kv_cache_runner(const std::string& op);

}  // namespace tessera::reference
