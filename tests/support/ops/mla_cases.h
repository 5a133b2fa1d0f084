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

/// Tokens of sparse_mla_fwd, and the indices of each.
struct ChosenSize {
  int64_t tokens, heads, width, keys, count;
};
/// Lengths around blocks, indices that are none or repeated, heads around tiles, sinks, scales, values out of range.
std::vector<OpCase> sparse_mla_fwd_cases();

/// Tokens of sparse_mla_decode, and their lists in caches of so many entries.
struct ListedSize {
  std::string format;
  int64_t requests, tokens, heads, count, page_size;
  std::string extra_format = "";
  int64_t extra_count = 0, extra_page_size = 64;
  bool in_rows = false;
  int64_t keys = 40;
};
OpCase normal_listed(const std::string& label, const ListedSize& size);
/// Every format in its orders, one list and two, pages of any size, lengths around blocks, parts, sinks, scales, values out of
/// range.
std::vector<OpCase> sparse_mla_decode_cases();

/// Parts that are there and not, sinks, special values.
std::vector<OpCase> mla_combine_cases();

}  // namespace tessera::test
