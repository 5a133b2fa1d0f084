// post_bwd: gradients of the residual streams after a sub-layer.
//
// Shapes   x and grad_x [tokens, hidden], residual, grad_out and grad_residual [tokens, streams,
//          hidden], post_mix and grad_post_mix [tokens, streams], comb_mix and grad_comb_mix
//          [tokens, streams, streams]
// Dtypes   mixes and their gradients f32, the rest bf16
// Method   one block per token loops along its row; per step a thread takes one 16-byte vector of x
//          and of every stream. Vectors are copied through shared memory two steps ahead; each
//          thread reads only its own copies, so no barrier is needed. With ordinary loads the
//          compiler would move half of them after the products of the others to save registers, and
//          wait again. Each thread keeps n (n + 1) sums of its columns, which are reduced at the end
//          by shuffles and once through shared memory. Every byte moves once, so the bound is bytes
//          / copy bandwidth.
// Maths    post_bwd.h. A thread sums its columns in ascending order from +0, a warp its lanes by xor
//          16, 8, 4, 2, 1, the block its warps in ascending order.
// Tuned    H200; see pick_row_threads.

#include "kernels/mhc/parts/post_bwd_kernel.h"

#include <algorithm>
#include <vector>

#include "dsl/builder.h"
#include "dsl/layout/layout.h"
#include "kernels/mhc/parts/row_tile.h"
#include "kernels/mhc/parts/warp_sums.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kVector = 8;
constexpr int kMostThreads = 224;  // three steps of 4 streams fit 99 KiB of shared memory

/// Builds the kernel for rows without columns: all sums are +0.
ir::Kernel build_empty(const PostBwdSpec& s) {
  using namespace dsl;
  const int64_t n = s.streams;
  constexpr int64_t kThreads = 128;
  Builder k("post_bwd_empty");
  auto tokens = k.dim("tokens");
  auto grad_post_mix = k.output("grad_post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto grad_comb_mix = k.output("grad_comb_mix", DType::f32, {tokens, n, n}, {.align = 4});
  auto at = k.launch({ceil_div(tokens, kThreads)}, {.threads = kThreads});
  auto token = k.let("token", at.x * kThreads + k.thread());
  for (int64_t o = 0; o < n; ++o) {
    grad_post_mix(token, o) = 0.0f;
    for (int64_t i = 0; i < n; ++i) grad_comb_mix(token, i, o) = 0.0f;
  }
  return k.finish();
}

}  // namespace

ir::Kernel build_post_bwd(const PostBwdSpec& s) {
  if (s.hidden == 0) return build_empty(s);
  using namespace dsl;
  const int threads = pick_row_threads(s.hidden, kMostThreads);
  const int64_t n = s.streams, cols = threads * kVector, num_sums = n * (n + 1);
  const int64_t warps = threads / 32, chunks = (s.hidden + cols - 1) / cols;
  Builder k("post_bwd");
  auto tokens = k.dim("tokens");
  const std::vector<Arg> row = {tokens, s.hidden}, rows = {tokens, n, s.hidden};
  auto grad_out = k.input("grad_out", DType::bf16, rows, {.align = s.align});
  auto x = k.input("x", DType::bf16, row, {.align = s.align});
  auto residual = k.input("residual", DType::bf16, rows, {.align = s.align});
  auto post_mix = k.input("post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto comb_mix = k.input("comb_mix", DType::f32, {tokens, n, n}, {.align = 4});
  auto grad_x = k.output("grad_x", DType::bf16, row, {.align = s.align});
  auto grad_residual = k.output("grad_residual", DType::bf16, rows, {.align = s.align});
  auto grad_post_mix = k.output("grad_post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto grad_comb_mix = k.output("grad_comb_mix", DType::f32, {tokens, n, n}, {.align = 4});
  auto at = k.launch({tokens}, {.threads = threads});
  auto token = at.x;

  // The mixes of the token in the order of the sums: comb[i * n + o], then post[o].
  std::vector<Value> mixes;
  for (int64_t v = 0; v < n * n; ++v) mixes.push_back(comb_mix(token, v / n, v % n));
  for (int64_t o = 0; o < n; ++o) mixes.push_back(post_mix(token, o));
  auto sums = k.local(DType::f32, {num_sums}, "sums");
  k.unrolled(num_sums, [&](Value v) { sums(v) = 0.0f; });

  auto grad_tile = k.shared(DType::bf16, {n, cols}, "grad_tile");
  auto residual_tile = k.shared(DType::bf16, {n, cols}, "residual_tile");
  auto x_tile = k.shared(DType::bf16, {cols}, "x_tile");
  // The assignment of columns to threads must not depend on the width of the loads.
  auto x_frag =
      k.fragment(DType::bf16, layout::split({cols}, threads, kVector), "x_frag");  // (cols)
  const int stages = static_cast<int>(std::clamp<int64_t>(chunks, 2, 3));
  k.pipelined(0, chunks, stages, [&](Value chunk) {
    auto first_col = k.let("first_col", chunk * cols);
    // load: columns beyond the row read +0 and add nothing
    k.copy(grad_out(token).tile({0, first_col}, {n, cols}), grad_tile);
    k.copy(residual(token).tile({0, first_col}, {n, cols}), residual_tile);
    k.copy(x(token).tile({first_col}, {cols}), x_tile);
    k.copy(x_tile, x_frag);
    k.parallel({cols}, [&](Value col) {
      auto h = first_col + col;
      std::vector<Value> gradients, sources;  // sources: the streams, then the layer's output
      for (int64_t o = 0; o < n; ++o) gradients.push_back(f32(grad_tile(o, col)));
      for (int64_t i = 0; i < n; ++i) sources.push_back(f32(residual_tile(i, col)));
      sources.push_back(f32(x_frag(col)));
      // gradients of the sources, stored; sums for the gradients of the mixes
      for (int64_t i = 0; i <= n; ++i) {
        const auto source = static_cast<size_t>(i);
        Value chain = Arg(0.0f).value();
        for (int64_t o = 0; o < n; ++o) {
          const auto stream = static_cast<size_t>(o);
          const int64_t v = i * n + o;
          chain = fma(mixes[static_cast<size_t>(v)], gradients[stream], chain);
          sums(v) = fma(sources[source], gradients[stream], sums(v));
        }
        if (i < n) {
          grad_residual(token, i, h) = cast(DType::bf16, chain);
        } else {
          grad_x(token, h) = cast(DType::bf16, chain);
        }
      }
    });
  });

  // reduce the sums over the block
  std::vector<Value> thread_sums;
  for (int64_t v = 0; v < num_sums; ++v) thread_sums.push_back(sums(v));
  block_sums(k, warps, thread_sums, [&](const Value& total) {
    k.if_else(
        k.thread() < n * n, [&] { grad_comb_mix(token, k.thread() / n, k.thread() % n) = total; },
        [&] { grad_post_mix(token, k.thread() - n * n) = total; });
  });
  return k.finish();
}

}  // namespace tessera::kernels::mhc
