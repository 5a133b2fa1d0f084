#pragma once
// Cases of the indexer's ops, which cases_of has too.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Codes whose products have exact sums on every target, and weights and scales of any kind; row i of S sees the keys up to
/// T - S + i.
struct LogitsSize {
  int64_t rows, heads, width, keys;
};
OpCase exact_logits(const std::string& label, const LogitsSize& size,
                    const kernels::Params& params = {});
/// The same in pages of index_fp8, in some order, for requests of these lengths. Bytes that no key has are NaN.
struct PagedLogitsSize {
  int64_t tokens, heads, width, page_size;
  std::vector<int64_t> lengths;  // of each token of each request
};
OpCase exact_paged_logits(const std::string& label, const PagedLogitsSize& size,
                          const kernels::Params& params = {});

/// All extents, ranges of every kind, NaN, strides, forms of the columns, values out of range.
std::vector<OpCase> mqa_logits_cases();
std::vector<OpCase> paged_mqa_logits_cases();
/// The same scores, and fewer and more than there are keys; ties, tables of pages.
std::vector<OpCase> mqa_topk_cases();
std::vector<OpCase> paged_mqa_topk_cases();
/// Lengths around blocks, ties, NaN and -inf, a newest block that is the worst.
std::vector<OpCase> candidate_blocks_cases();
std::vector<OpCase> mqa_topk_blocks_cases();
std::vector<OpCase> paged_mqa_topk_blocks_cases();
/// Lists in and out of order, with ids twice and of no block; keys in rows and in pages.
std::vector<OpCase> sparse_mqa_logits_cases();
std::vector<OpCase> sparse_mqa_topk_cases();

}  // namespace tessera::test
