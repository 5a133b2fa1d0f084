#pragma once
// An entry of a KV cache by definition: norm, rotation, Hadamard transform, and its bytes.

#include <string>
#include <vector>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct EntryOptions {
  std::string format = "bf16";
  int64_t page_size = 64;
  float norm_eps = 1e-6f;
  bool hadamard = false, halves = false;
};

/// `values` over their root mean square, weighted, the last 64 rotated, transformed.
///
///   norm_weight  f32 or bf16 [D]
///   cos_sin      f32 [P, 64]; a position beyond has angle 0
std::vector<float> normalized_entry(std::vector<float> values, const test::HostTensor& norm_weight,
                                    const test::HostTensor& cos_sin, int64_t position,
                                    const EntryOptions& options);

/// Writes an entry to its place; nothing where that is not in the cache.
void store_entry(const std::vector<float>& values, test::HostTensor& cache, int64_t location,
                 const EntryOptions& options);

}  // namespace tessera::reference
