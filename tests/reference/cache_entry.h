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
  bool in_rows = false;  // the scales of a token behind its codes, where the format leaves a choice
  bool rounds = true;    // to bf16 before values are quantised
};

/// `values` over their root mean square, weighted, the last 64 rotated, transformed. Of 576 the norm is of the first 512.
///
///   norm_weight  f32 or bf16 [D]
///   cos_sin      f32 [P, 64]; a position beyond has angle 0
std::vector<float> normalized_entry(std::vector<float> values, const test::HostTensor& norm_weight,
                                    const test::HostTensor& cos_sin, int64_t position,
                                    const EntryOptions& options);

/// Pairs (2j, 2j + 1) of the 64 values from `first` on, rotated by the angles of a position.
void rotate_pairs(std::vector<float>& values, int64_t first, const test::HostTensor& cos_sin,
                  int64_t position, bool halves);
/// The Hadamard transform of 128 values.
void hadamard_transform(std::vector<float>& values);

/// Channels of an entry of the format; 0: any.
int64_t channels_of_format(const std::string& format);
/// Bytes of a block of tokens; not of bf16.
int64_t bytes_of_block(const std::string& format, int64_t page_size);

/// Writes an entry to its place; nothing where that is not in the cache.
void store_entry(const std::vector<float>& values, test::HostTensor& cache, int64_t location,
                 const EntryOptions& options);
/// Reads an entry of so many channels; zeros where the place is not in the cache.
std::vector<float> load_entry(const test::HostTensor& cache, int64_t location, int64_t channels,
                              const EntryOptions& options);

}  // namespace tessera::reference
