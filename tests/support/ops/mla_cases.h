#pragma once
// Cases of latent attention, which cases_of has too.

#include <string>
#include <vector>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Requests of mla_decode, and their keys in pages.
struct LatentSize {
  int64_t tokens, heads, page_size;
  std::vector<int64_t> lengths;
};
/// One case of mla_decode with normal values.
OpCase normal_latent(const std::string& label, const LatentSize& size,
                     const kernels::Params& params = {});
/// Pages of every size, lengths around blocks and parts, heads and tokens around tiles, values out of range.
std::vector<OpCase> mla_decode_cases();

/// Parts that are there and not, sinks, special values.
std::vector<OpCase> mla_combine_cases();

}  // namespace tessera::test
