// The second kernel of the sums over all tokens.
//
// Shapes   run_sums [runs, 2, entries], grad_scale [scales], grad_base [entries]
// Dtypes   f32
// Method   one block. Its rows take the runs in turn, then are added through shared memory; a warp
//          adds up the entries of each scale. Few bytes: the bound is latency.
// Maths    row g adds runs g, g + rows, g + 2 rows, ... from +0; sum_rows adds the rows. A lane adds
//          every 32nd entry of its scale from +0, the warp its lanes by xor 16, 8, 4, 2, 1. The
//          totals are added to the gradients once.
// Tuned    H100: with the kernel before it, see pre_split_mixes_bwd.

#include "kernels/mhc/parts/token_sums.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace tessera::kernels::mhc {
namespace {

/// As many rows as `threads` allow, at least one.
RowThreads row_threads(int64_t entries, int64_t threads) {
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(threads / entries, 1));
  return {entries, static_cast<int64_t>(std::bit_floor(rows))};
}

/// Sums both values of each entry over the rows. The result is row 0 of the shared array [2, rows,
/// entries].
dsl::Ref sum_rows(dsl::Builder& k, const RowThreads& block, const dsl::Ref& sum_of_thread,
                  const dsl::Ref& product_sum_of_thread) {
  const dsl::Value product_sum = product_sum_of_thread, sum = sum_of_thread;  // read in this order
  auto sums = k.shared(DType::f32, {2, block.rows, block.entries}, "sums");
  auto row = k.let("row", k.thread() / block.entries), j = k.let("j", k.thread() % block.entries);
  k.if_(row < block.rows, [&] {
    sums(0, row, j) = sum;
    sums(1, row, j) = product_sum;
  });
  for (int64_t half = block.rows / 2; half > 0; half /= 2) {
    k.if_(row < half, [&] {
      sums(0, row, j) += sums(0, row + half, j);
      sums(1, row, j) += sums(1, row + half, j);
    });
  }
  return sums;
}

ir::Kernel build(const TokenSumSpec& s) {
  using namespace dsl;
  constexpr int64_t kTogether = 4;  // runs whose sums are loaded at once
  const RowThreads block = row_threads(s.entries, 1024);
  Builder k("token_sums");
  auto runs = k.dim("runs");
  auto run_sums = k.input("run_sums", DType::f32, {runs, 2, s.entries}, {.align = 4});
  auto grad_scale = k.output("grad_scale", DType::f32, {s.scales}, {.align = 4});
  auto grad_base = k.output("grad_base", DType::f32, {s.entries}, {.align = 4});
  k.launch({1}, {.threads = block.threads()});
  k.wait_for_previous_kernel();

  auto row = k.let("row", k.thread() / s.entries), j = k.let("j", k.thread() % s.entries);
  auto sum = k.var(DType::f32, 0.0f, "sum"), product_sum = k.var(DType::f32, 0.0f, "product_sum");
  k.serial(0, ceil_div(runs, block.rows * kTogether), [&](Value step) {
    std::vector<Value> sums, product_sums;
    for (int64_t i = 0; i < kTogether; ++i) {
      auto run = k.let("run", (step * kTogether + i) * block.rows + row);
      sums.push_back(run_sums(run, 0, j));  // 0 past the last run
      product_sums.push_back(run_sums(run, 1, j));
    }
    for (size_t i = 0; i < kTogether; ++i) {
      sum += sums[i];
      product_sum += product_sums[i];
    }
  });
  const Ref totals = sum_rows(k, block, sum, product_sum);
  k.if_(k.thread() < s.entries, [&] { grad_base(j) += totals(0, 0, j); });
  k.if_(k.warp() < s.scales, [&] {
    auto first = k.let("first", k.warp() * s.streams);
    auto count = k.let("count", select(k.warp() == 2, s.entries - 2 * s.streams, s.streams));
    auto total = k.var(DType::f32, 0.0f, "total");
    k.serial(0, ceil_div(count, 32), [&](Value step) {
      auto entry = k.let("entry", step * 32 + k.lane());
      k.if_(entry < count, [&] { total += totals(1, 0, first + entry); });
    });
    auto of_scale = k.let("of_scale", k.warp_sum(total));
    k.if_(k.lane() == 0, [&] { grad_scale(k.warp()) += of_scale; });
  });
  return k.finish();
}

}  // namespace

RowThreads run_threads(int64_t entries) {
  return row_threads(entries, 256);
}

int64_t num_runs(int64_t tokens, int64_t entries) {
  const int64_t tokens_of_run = run_threads(entries).rows * kSteps;
  return (tokens + tokens_of_run - 1) / tokens_of_run;
}

Args::Tensor run_sums(const Call& c, int64_t entries) {
  const Dims shape = {num_runs(c["T"], entries), 2, entries};
  return {"run_sums", TensorView(c.given("workspace").data, DType::f32, shape, c.device())};
}

int64_t run_sums_elements(const Call& c, int64_t entries) {
  return num_runs(c["T"], entries) * 2 * entries;
}

void write_run_sums(dsl::Builder& k, const RowThreads& block, const dsl::Ref& run_sums,
                    const dsl::Value& run, const dsl::Ref& sum, const dsl::Ref& product_sum) {
  const dsl::Ref sums = sum_rows(k, block, sum, product_sum);
  k.if_(k.thread() < block.entries, [&] {
    run_sums(run, 0, k.thread()) = sums(0, 0, k.thread());
    run_sums(run, 1, k.thread()) = sums(1, 0, k.thread());
  });
}

void add_token_sums(const Call& c, Launches& go, const TokenSumSpec& spec) {
  go.add(build, spec, {.tensors = {run_sums(c, spec.entries)}}, "token_sums");
}

}  // namespace tessera::kernels::mhc
