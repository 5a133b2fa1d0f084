// engram_gate_bwd where a row fits a block: gradients of x, k and v, and one partial weight gradient
// per block.
//
// Shapes   grad_out, hidden_states and their gradients [tokens x 4, hidden], k [tokens, 4, hidden], v
//          and grad_v [tokens, hidden], weight_fused [4, hidden], dot, gate_score, rstd_x and rstd_k
//          [tokens, 4], grad_w_partial [partials, 4, hidden]
// Dtypes   rows bf16, weights, partials and saved scores f32
// Method   one block per partial loops over its tokens. A thread owns the same columns of all four
//          streams: the rows in registers, weights and sums in shared memory that only this thread
//          accesses. After the use of a row it loads the next row into the same registers, of the
//          next token where this token has no more. So the loads of a token are in flight while the
//          block finishes the previous token. Every byte of a token moves once, so the bound is
//          bytes / copy bandwidth.
// Maths    gate_gradients.h; sums of grad_out * v: fma over the thread's columns in ascending order,
//          then block_sums.h; weights: fma over the tokens of the partial in ascending order from +0
// Tuned    H100: 8001 tokens of 4 x 7168 take 901 us, 93 % of copy, of 4096 columns 512 us, 94 %. H200
//          672 us, 89 % (696 before no_allocate); the peer takes 646. One block of 448 threads fills the
//          registers and, with weights and sums in f32, the shared memory of an SM. At 7168 columns 4
//          steps ahead spill (1087 us), evict_first on loads takes 946 us, on stores 935.

#include "kernels/engram/parts/gate_bwd_kernel.h"

#include <functional>
#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/engram/parts/block_sums.h"
#include "kernels/engram/parts/gate_gradients.h"
#include "kernels/engram/parts/gate_tile.h"
#include "kernels/engram/parts/held_token.h"
#include "kernels/engram/parts/weight_tile.h"

namespace tessera::kernels::engram {
namespace {

constexpr int64_t kMostRuns = 2;  // runs of twelve rows in a thread's registers

}  // namespace

bool fits_one_block(int64_t hidden, int64_t shared_bytes) {
  const GateTile tile = pick_gate_bwd_tile(hidden);
  const int64_t weights = 2 * kStreams * hidden * 4, exchange = tile.threads / 32 * 16;
  return tile.runs <= kMostRuns && weights + exchange <= shared_bytes;
}

ir::Kernel build_gate_bwd(const GateBwdSpec& s) {
  using namespace dsl;
  Builder k("engram_gate_bwd");
  const Columns columns(k, s.hidden, pick_gate_bwd_tile(s.hidden));
  const GateTile& tile = columns.tile();
  const GateBwdTensors tensors(k, s);
  const Value& tokens = tensors.tokens();
  auto partials = k.dim("partials");
  auto grad_out = tensors.row_input("grad_out"), hidden = tensors.row_input("hidden_states");
  auto keys = tensors.keys(), values = tensors.values(), weight_fused = tensors.weights();
  const std::vector<Ref> saved = tensors.saved();
  const std::optional<Ref> image = tensors.image_mask();
  auto grad_hidden = tensors.row_output("grad_hidden_states");
  auto grad_keys = tensors.row_output("grad_k"), grad_values = tensors.grad_values();
  auto grad_w = tensors.weight_sums(partials);
  auto clamp = k.scalar("clamp_value", DType::f32);
  auto tokens_per_partial = k.scalar("tokens_per_partial", DType::i32);
  auto at = k.launch({partials}, {.threads = static_cast<int>(tile.threads)});
  auto first_token = k.let("first_token", min(at.x * tokens_per_partial, tokens));
  auto last_token = k.let("last_token", min(first_token + tokens_per_partial, tokens));

  const WeightTile weight_tile(k, tile, "weight_tile"), sum_tile(k, tile, "sum_tile");
  k.unrolled(tile.runs, [&](Value run) {
    columns.in_row(run, [&](const Value& col) {
      for (int64_t stream = 0; stream < kStreams; ++stream) {
        auto w = k.local(DType::f32, {kRun}, "w");
        columns.load_run(s.weight_vector, weight_fused(stream), col, w);
        weight_tile.store(run, stream, [&](const Value& i) { return Value(w(i)); });
        sum_tile.store(run, stream, [&](const Value&) { return Arg(0.0f).value(); });
      }
    });
  });

  const HeldToken held(k, s, columns, tensors, {grad_out, hidden, keys, values, saved});
  k.if_(first_token < last_token, [&] {
    k.assume(first_token >= 0 && first_token < tokens);
    held.load(first_token);
  });

  k.serial(first_token, last_token, [&](Value token) {
    k.assume(token >= 0 && token < tokens);
    auto next_token = k.let("next_token", token + 1);
    const IsImage is_image = is_image_token(k, image, token);
    // grad_v, and the gradients of the gates
    std::vector<Value> gates;
    std::vector<Ref> partial;
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      gates.push_back(k.let("gate", k.shuffle(held.gate_score(), stream)));
      partial.push_back(k.var(DType::f32, 0.0f, "partial"));
    }
    k.unrolled(tile.runs, [&](Value run) {
      columns.in_row(run, [&](const Value& col) {
        auto grad_v = k.local(DType::f32, {kRun}, "grad_v_run");
        add_value_run(k, held.grads_out(run), held.values(run), gates, partial, grad_v, is_image);
        columns.store_run(s.out_vector, grad_v, grad_values(token), col);
      });
    });
    const Value sum = block_sum_of_lane(k, tile.threads / 32, partial);
    // Gradient of the score: lane l computes stream l % 4.
    const ScoreGradient score = score_gradient(sum, held.saved(), clamp, s.hidden);
    auto delta = k.let("delta", score.delta), dx = k.let("dx", score.x), dk = k.let("dk", score.k);
    auto load_ahead = [&](const std::function<void()>& load) {
      k.if_(next_token < last_token, [&] {
        k.assume(next_token < tokens);
        load();
      });
    };
    // gradients of the rows and weights
    for (int64_t step = 0; step < held.steps(); ++step) {
      const int64_t run = step / kStreams, stream = step % kStreams;
      const ScoreGradient mine = {k.let("stream_delta", k.shuffle(delta, stream)),
                                  k.let("stream_dx", k.shuffle(dx, stream)),
                                  k.let("stream_dk", k.shuffle(dk, stream))};
      columns.in_row(i32(run), [&](const Value& col) {
        auto row = tensors.row(token, stream);
        const RunGradient grad(k);
        weight_tile.load(i32(run), stream, grad.weight);
        sum_tile.load(i32(run), stream, grad.weight_sum);
        add_row_run(k, mine, held.grad_out(run, stream), held.x(step), held.key(step), grad,
                    is_image);
        columns.store_run(s.out_vector, grad.x, grad_hidden(row), col);
        columns.store_run(s.out_vector, grad.key, grad_keys(row), col);
        sum_tile.store(i32(run), stream, [&](const Value& i) { return Value(grad.weight_sum(i)); });
      });
      const int64_t next_step = step + held.ahead();
      if (next_step < held.steps()) {
        held.load_step(token, next_step);
      } else {
        load_ahead([&] { held.load_step(next_token, next_step - held.steps()); });
      }
      if (stream == kStreams - 1) load_ahead([&] { held.load_grads(next_token, run); });
    }
    load_ahead([&] { held.load_values(next_token); });
  });

  k.sync();  // without the barrier the compiler keeps sums of the last step in registers
  k.serial(0, kStreams, [&](Value stream) {
    k.unrolled(tile.runs, [&](Value run) {
      columns.in_row(run, [&](const Value& col) {
        auto sum = k.local(DType::f32, {kRun}, "sum");
        sum_tile.load(run, stream, sum);
        columns.store_run(s.sum_vector, sum, grad_w(at.x, stream), col);
      });
    });
  });
  return k.finish();
}

}  // namespace tessera::kernels::engram
