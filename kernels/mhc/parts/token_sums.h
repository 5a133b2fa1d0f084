#pragma once
// Sums over all tokens: the gradients of the scales and bases of mixes. A kernel with one block per
// run of tokens writes the partial sums of its run; a second kernel adds them up. Runs and the order
// of all sums depend only on the number of tokens and entries.

#include <cstdint>

#include "dsl/builder.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

/// The threads of a block arranged on rows of `entries` elements: thread row * entries + j takes
/// element j of every row that it is given. `rows` is a power of two.
struct RowThreads {
  int64_t entries, rows;

  int64_t used() const { return entries * rows; }
  int threads() const { return static_cast<int>((used() + 31) / 32 * 32); }
};

/// A run has kSteps times as many tokens as a block has rows.
inline constexpr int64_t kSteps = 4;
RowThreads run_threads(int64_t entries);
/// The number of runs of all tokens of a call.
int64_t num_runs(int64_t tokens, int64_t entries);

/// The partial sums in the workspace of a call, [runs, 2, entries], and their number of elements:
/// sums of the gradients of each entry, then of their products with the entry.
Args::Tensor run_sums(const Call& c, int64_t entries);
int64_t run_sums_elements(const Call& c, int64_t entries);

/// Sums the threads' `sum` and `product_sum` over the rows of the block and writes them as the sums
/// of one run. Row r is added to row r + rows / 2 for the first half of the rows, and so on.
void write_run_sums(dsl::Builder& k, const RowThreads& block, const dsl::Ref& run_sums,
                    const dsl::Value& run, const dsl::Ref& sum, const dsl::Ref& product_sum);

/// Adds the run sums to grad_base [entries], and the product sums of each scale's entries to
/// grad_scale. Three scales: the first `streams` entries, the next `streams`, the rest. One scale:
/// all entries.
struct TokenSumSpec {
  int32_t entries, streams, scales;
};
void add_token_sums(const Call& c, Launches& go, const TokenSumSpec& spec);

}  // namespace tessera::kernels::mhc
