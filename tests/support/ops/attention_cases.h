#pragma once
// Cases of the attention family, which cases_of has too.

#include <string>
#include <vector>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Sums that are exact and whole exponents, so that every target has their bits, and others; all masks.
std::vector<OpCase> attention_fwd_cases();

/// The case with queries and keys whose products are all -inf: no row sees a key that counts, and those around the
/// visible keys must not either.
OpCase scores_of_minus_infinity(OpCase test, const std::string& keys);

/// Requests of attention_varlen_fwd, and the rows behind them, which are NaN.
struct PackedSize {
  std::vector<int64_t> queries, keys;
  int64_t heads, groups, width, value_width, rest;
};
/// One case of attention_varlen_fwd with the tolerance T2.
OpCase normal_packed(const std::string& label, const PackedSize& size,
                     const kernels::Params& params = {}, DType dtype = DType::bf16);
/// Lengths around tiles and blocks, empty requests, all masks, bounds out of order.
std::vector<OpCase> attention_varlen_fwd_cases();

/// Requests of attention_decode, and their keys in pages.
struct PagedSize {
  int64_t tokens, heads, groups, width, value_width, page_size;
  std::vector<int64_t> lengths;
};
/// One case of attention_decode with the tolerance T2. A cache of e4m3 has scales.
OpCase normal_paged(const std::string& label, const PagedSize& size,
                    const kernels::Params& params = {}, DType dtype = DType::bf16);
/// Pages of every size, lengths around blocks and parts, several tokens, all masks, values out of range.
std::vector<OpCase> attention_decode_cases();

/// Extents of a call of attention_bwd.
struct BackwardSize {
  int64_t requests, queries, keys, heads, groups, width, value_width;
};
/// One case of attention_bwd with the tolerance T4, after a forward pass by the reference.
OpCase normal_backward(const std::string& label, const BackwardSize& size,
                       const kernels::Params& params = {}, DType dtype = DType::bf16,
                       const std::vector<double>& sinks = {});
/// Sums that are exact, and others; all masks, groups, sinks, lengths.
std::vector<OpCase> attention_bwd_cases();

/// One case of attention_varlen_bwd with the tolerance T4, after a forward pass by the reference.
OpCase normal_packed_backward(const std::string& label, const PackedSize& size,
                              const kernels::Params& params = {}, DType dtype = DType::bf16,
                              const std::vector<double>& sinks = {});
/// Lengths around tiles and parts, empty requests, all masks, sinks, bounds out of order.
std::vector<OpCase> attention_varlen_bwd_cases();

}  // namespace tessera::test
