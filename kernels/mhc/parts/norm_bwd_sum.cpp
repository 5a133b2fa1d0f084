// The last kernel of norm_fn_bwd: grad_fn and grad_norm_weight from the products of all runs.
//
// Shapes   norm_bwd_workspace.h
// Method   one thread per column.
// Maths    runs ascending from +0

#include <vector>

#include "dsl/builder.h"
#include "kernels/mhc/parts/norm_bwd_kernel.h"
#include "kernels/mhc/parts/projection_parts.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int kSumThreads = 128;

}  // namespace

ir::Kernel build_norm_bwd_sum(const NormBwdSpec& s) {
  using namespace dsl;
  const int64_t entries = padded_entries(s.entries);
  Builder k("norm_fn_bwd_sum");
  auto runs = k.dim("runs");
  auto partials =
      k.input("partials", DType::f32, {runs, s.width, entries}, {.align = s.workspace_align});
  std::vector<Ref> in, weight_grad;  // fn, norm_weight
  if (s.has_weight != 0) {
    in.push_back(k.input("fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align}));
    in.push_back(k.input("norm_weight", DType::f32, {s.width}, {.align = s.fn_align}));
    weight_grad.push_back(
        k.output("grad_norm_weight", DType::f32, {s.width}, {.align = s.fn_align}));
  }
  auto grad_fn = k.output("grad_fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align});
  auto at = k.launch({s.width / kSumThreads}, {.threads = kSumThreads});
  auto h = k.let("h", at.x * kSumThreads + k.thread());

  // load
  std::vector<Value> rows, old;
  for (int64_t j = 0; j < s.entries; ++j) {
    if (s.has_weight != 0) rows.push_back(in[0](j, h));
    old.push_back(grad_fn(j, h));
  }
  k.wait_for_previous_kernel();
  // sum of the runs
  auto sums = k.local(DType::f32, {entries}, "sums");
  k.unrolled(entries, [&](Value j) { sums(j) = 0.0f; });
  k.serial(0, runs, [&](Value run) {
    for (int64_t first = 0; first < entries; first += 4) {
      k.vectorized(4, [&](Value j) { sums(first + j) += partials(run, h, first + j); });
    }
  });
  // add and store
  if (s.has_weight == 0) {
    for (int64_t j = 0; j < s.entries; ++j) grad_fn(j, h) = old[static_cast<size_t>(j)] + sums(j);
    return k.finish();
  }
  auto weight_sum = k.var(DType::f32, 0.0f, "weight_sum");
  for (int64_t j = 0; j < s.entries; ++j) {
    const auto i = static_cast<size_t>(j);
    grad_fn(j, h) = fma(sums(j), in[1](h), old[i]);
    weight_sum = fma(sums(j), rows[i], weight_sum);
  }
  weight_grad[0](h) += weight_sum;
  return k.finish();
}

}  // namespace tessera::kernels::mhc
