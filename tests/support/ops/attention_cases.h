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

}  // namespace tessera::test
