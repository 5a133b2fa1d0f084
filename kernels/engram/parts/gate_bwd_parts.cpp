// engram_gate_bwd for rows of any length: two kernels, which pass the gradients of the scores
// through memory.
//
// Shapes   as build_gate_bwd; score_gradients [3, tokens x 4]: delta, then what the norms of x and k
//          subtract
// Dtypes   score_gradients f32
// Method   build_gate_scores takes a block per token, which loops along the row: it reads grad_out
//          and v once, writes grad_v and sums over the block. build_gate_rows takes a block per
//          partial and 2048 columns of the four rows: each thread keeps the weights and sums of 8
//          columns in registers and loops over the tokens. grad_out is read twice, all else moves
//          once, so the bound is bytes / copy bandwidth with 52 bytes per column instead of 44.
// Maths    as build_gate_bwd, in the same order
// Tuned    H100: 8001 tokens of 4 x 8192 take 1191 us, 81 % of copy.

#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/engram/parts/block_sums.h"
#include "kernels/engram/parts/gate_bwd_kernel.h"
#include "kernels/engram/parts/gate_gradients.h"
#include "kernels/engram/parts/gate_tile.h"

namespace tessera::kernels::engram {
namespace {

constexpr int64_t kRowThreads = 256;

}  // namespace

ir::Kernel build_gate_scores(const GateBwdSpec& s) {
  using namespace dsl;
  Builder k("engram_gate_bwd_scores");
  const Columns columns(k, s.hidden, pick_gate_bwd_tile(s.hidden));
  const GateTile& tile = columns.tile();
  const GateBwdTensors tensors(k, s);
  const Value &tokens = tensors.tokens(), &rows = tensors.rows();
  auto grad_out = tensors.row_input("grad_out"), values = tensors.values();
  const std::vector<Ref> saved = tensors.saved();
  const std::optional<Ref> image = tensors.image_mask();
  auto grad_values = tensors.grad_values();
  auto score_gradients = k.output("score_gradients", DType::f32, {3, rows}, {.align = 4});
  auto clamp = k.scalar("clamp_value", DType::f32);
  auto at = k.launch({tokens}, {.threads = static_cast<int>(tile.threads)});
  auto token = at.x;
  const IsImage is_image = is_image_token(k, image, token);

  std::vector<Value> gates;
  std::vector<Ref> partial;
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    gates.push_back(k.let("gate", saved[1](token, stream)));
    partial.push_back(k.var(DType::f32, 0.0f, "partial"));
  }
  k.serial(0, tile.runs, [&](Value run) {
    columns.in_row(run, [&](const Value& col) {
      auto g = k.local(DType::bf16, {kStreams, kRun}, "g");
      auto v = k.local(DType::bf16, {kRun}, "v"),
           grad_v = k.local(DType::f32, {kRun}, "grad_v_run");
      std::vector<Ref> grads;
      for (int64_t stream = 0; stream < kStreams; ++stream) {
        columns.load_run(s.vector, grad_out(tensors.row(token, stream)), col, g(stream));
        grads.push_back(g(stream));
      }
      columns.load_run(s.vector, values(token), col, v);
      add_value_run(k, grads, v, gates, partial, grad_v, is_image);
      columns.store_run(s.out_vector, grad_v, grad_values(token), col);
    });
  });
  const Value sum = block_sum_of_lane(k, tile.threads / 32, partial);
  k.if_(k.thread() < kStreams, [&] {
    std::vector<Value> own;
    for (const Ref& tensor : saved) own.push_back(k.let("saved", tensor(token, k.thread())));
    const ScoreGradient score = score_gradient(sum, own, clamp, s.hidden);
    auto row = k.let("row", token * kStreams + k.thread());
    score_gradients(0, row) = score.delta;
    score_gradients(1, row) = score.x;
    score_gradients(2, row) = score.k;
  });
  return k.finish();
}

ir::Kernel build_gate_rows(const GateBwdSpec& s) {
  using namespace dsl;
  const int64_t runs = s.hidden / kRun;  // runs of one stream; a warp never spans two streams
  Builder k("engram_gate_bwd_rows");
  const Columns columns(k, s.hidden, {kRowThreads, 1, false});
  const GateBwdTensors tensors(k, s);
  const Value &tokens = tensors.tokens(), &rows = tensors.rows();
  auto partials = k.dim("partials");
  auto grad_out = tensors.row_input("grad_out"), hidden = tensors.row_input("hidden_states");
  auto keys = tensors.keys(), weight_fused = tensors.weights();
  auto score_gradients = k.input("score_gradients", DType::f32, {3, rows}, {.align = 4});
  const std::optional<Ref> image = tensors.image_mask();
  auto grad_hidden = tensors.row_output("grad_hidden_states");
  auto grad_keys = tensors.row_output("grad_k");
  auto grad_w = tensors.weight_sums(partials);
  auto tokens_per_partial = k.scalar("tokens_per_partial", DType::i32);
  auto at = k.launch({partials, kStreams * runs / kRowThreads}, {.threads = kRowThreads});
  auto first_token = k.let("first_token", min(at.x * tokens_per_partial, tokens));
  auto last_token = k.let("last_token", min(first_token + tokens_per_partial, tokens));
  auto stream = k.let("stream", (at.y * kRowThreads + k.thread()) / runs);
  auto col = k.let("col", (at.y * kRowThreads + k.thread()) % runs * kRun);
  k.assume(stream < kStreams);

  const RunGradient grad(k);
  columns.load_run(s.weight_vector, weight_fused(stream), col, grad.weight);
  k.unrolled(kRun, [&](Value i) { grad.weight_sum(i) = 0.0f; });
  k.serial(first_token, last_token, [&](Value token) {
    auto row = k.let("row", token * kStreams + stream);
    k.assume(token >= 0 && token < tokens && row >= 0 && row < rows);
    auto g = k.local(DType::bf16, {kRun}, "g"), x = k.local(DType::bf16, {kRun}, "x");
    auto key = k.local(DType::bf16, {kRun}, "key");
    const ScoreGradient score = {k.let("delta", score_gradients(0, row)),
                                 k.let("dx", score_gradients(1, row)),
                                 k.let("dk", score_gradients(2, row))};
    columns.load_run(s.vector, grad_out(row), col, g);
    columns.load_run(s.vector, hidden(row), col, x);
    columns.load_run(s.vector, keys(token, stream), col, key);
    add_row_run(k, score, g, x, key, grad, is_image_token(k, image, token));
    columns.store_run(s.out_vector, grad.x, grad_hidden(row), col);
    columns.store_run(s.out_vector, grad.key, grad_keys(row), col);
  });
  columns.store_run(s.sum_vector, grad.weight_sum, grad_w(at.x, stream), col);
  return k.finish();
}

ir::Kernel build_no_tokens(const GateBwdSpec& s) {
  using namespace dsl;
  Builder k("engram_gate_bwd_no_tokens");
  auto partials = k.dim("partials");
  auto grad_w = k.output("grad_w_partial", DType::f32, {partials, kStreams, s.hidden},
                         {.align = s.sum_vector * 4});
  auto at = k.launch({partials, kStreams, s.hidden / 512}, {.threads = 128});
  k.parallel({512}, [&](Value i) { grad_w(at.x, at.y, at.z * 512 + i) = 0.0f; });
  return k.finish();
}

}  // namespace tessera::kernels::engram
