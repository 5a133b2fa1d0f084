// engram_gate_bwd where a row fits a block: gradients of x, k and v, one partial of the weights' per
// block.
//
// Shapes   grad_out, hidden_states and their gradients [tokens x 4, hidden], k [tokens, 4, hidden], v
//          and grad_v [tokens, hidden], weight_fused [4, hidden], dot, gate_score, rstd_x and rstd_k
//          [tokens, 4], grad_w_partial [partials, 4, hidden]
// Dtypes   rows bf16, weights, partials and saved scores f32
// Method   one block per partial walks over its tokens. A thread owns the same columns of all four
//          streams: their rows in registers, their weights and sums in shared memory that no other
//          thread touches. As soon as it has used a row it loads the row that comes next into the
//          same registers, of the next token where this one has no more. So the loads of a token are
//          in flight while the block finishes the token before it. Every byte of a token is moved
//          once, so the bound is bytes / copy bandwidth.
// Maths    gate_gradients.h; sums of grad_out * v: fma over the thread's columns in ascending order,
//          then block_sums.h; weights: fma over the tokens of the partial in ascending order from +0
// Tuned    H100: 8001 tokens of 4 x 7168 take 918 us, 92 % of copy.

#include "kernels/engram/gate_bwd_kernel.h"

#include <functional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/engram/block_sums.h"
#include "kernels/engram/gate_gradients.h"
#include "kernels/engram/gate_tile.h"
#include "kernels/engram/weight_tile.h"

namespace tessera::kernels::engram {
namespace {

constexpr int64_t kMostRuns = 2;  // of twelve rows in the registers of a thread

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
  const Value &tokens = tensors.tokens(), &rows = tensors.rows();
  auto partials = k.dim("partials");
  auto grad_out = tensors.row_input("grad_out"), hidden = tensors.row_input("hidden_states");
  auto keys = tensors.keys(), values = tensors.values(), weight_fused = tensors.weights();
  const std::vector<Ref> saved = tensors.saved();
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
        columns.in_run(s.weight_vector,
                       [&](const Value& i) { w(i) = weight_fused(stream, col + i); });
        weight_tile.store(run, stream, [&](const Value& i) { return Value(w(i)); });
        sum_tile.store(run, stream, [&](const Value&) { return Arg(0.0f).value(); });
      }
    });
  });

  // A step is a run of one stream. Two runs of all streams do not fit the registers of a thread.
  const int64_t steps = tile.runs * kStreams, ahead = tile.runs == 1 ? kStreams : 2;
  auto g = k.local(DType::bf16, {tile.runs, kStreams, kRun}, "g");
  auto x = k.local(DType::bf16, {ahead, kRun}, "x");  // of step % ahead
  auto key = k.local(DType::bf16, {ahead, kRun}, "key");
  auto v = k.local(DType::bf16, {tile.runs, kRun}, "v");
  auto scores = k.local(DType::f32, {4}, "scores");  // saved ones of stream lane % 4
  auto load_step = [&](const Value& token, int64_t step) {
    const int64_t stream = step % kStreams, slot = step % ahead;
    columns.in_row(i32(step / kStreams), [&](const Value& col) {
      auto row = k.let("row", token * kStreams + stream);
      k.assume(row >= 0 && row < rows);
      columns.in_run(s.vector, [&](const Value& i) { x(slot, i) = hidden(row, col + i); });
      columns.in_run(s.vector,
                     [&](const Value& i) { key(slot, i) = keys(token, stream, col + i); });
    });
  };
  auto load_grads = [&](const Value& token, int64_t run) {
    columns.in_row(i32(run), [&](const Value& col) {
      for (int64_t stream = 0; stream < kStreams; ++stream) {
        auto row = k.let("row", token * kStreams + stream);
        k.assume(row >= 0 && row < rows);
        columns.in_run(s.vector,
                       [&](const Value& i) { g(run, stream, i) = grad_out(row, col + i); });
      }
    });
  };
  auto load_values = [&](const Value& token) {
    k.unrolled(tile.runs, [&](Value run) {
      columns.in_row(run, [&](const Value& col) {
        columns.in_run(s.vector, [&](const Value& i) { v(run, i) = values(token, col + i); });
      });
    });
    for (size_t i = 0; i < saved.size(); ++i) {
      scores(static_cast<int64_t>(i)) = saved[i](token, k.lane() % kStreams);
    }
  };
  k.if_(first_token < last_token, [&] {
    k.assume(first_token >= 0 && first_token < tokens);
    load_values(first_token);
    for (int64_t run = 0; run < tile.runs; ++run) load_grads(first_token, run);
    for (int64_t step = 0; step < ahead; ++step) load_step(first_token, step);
  });

  k.serial(first_token, last_token, [&](Value token) {
    k.assume(token >= 0 && token < tokens);
    auto next_token = k.let("next_token", token + 1);
    // grad_v, and the gradients of the gates
    std::vector<Value> gates;
    std::vector<Ref> partial;
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      gates.push_back(k.let("gate", k.shuffle(scores(1), stream)));
      partial.push_back(k.var(DType::f32, 0.0f, "partial"));
    }
    k.unrolled(tile.runs, [&](Value run) {
      columns.in_row(run, [&](const Value& col) {
        std::vector<Ref> grads;
        for (int64_t stream = 0; stream < kStreams; ++stream) grads.push_back(g(run, stream));
        auto grad_v = k.local(DType::f32, {kRun}, "grad_v_run");
        add_value_run(k, grads, v(run), gates, partial, grad_v);
        columns.in_run(s.out_vector, [&](const Value& i) {
          grad_values(token, col + i) = cast(DType::bf16, grad_v(i));
        });
      });
    });
    const Value sum = block_sum_of_lane(k, tile.threads / 32, partial);
    // gradient of the score: each lane for stream lane % 4
    std::vector<Value> own;
    for (int64_t i = 0; i < 4; ++i) own.emplace_back(scores(i));
    const ScoreGradient score = score_gradient(sum, own, clamp, s.hidden);
    auto delta = k.let("delta", score.delta), dx = k.let("dx", score.x), dk = k.let("dk", score.k);
    auto load_ahead = [&](const std::function<void()>& load) {
      k.if_(next_token < last_token, [&] {
        k.assume(next_token < tokens);
        load();
      });
    };
    // gradients of the rows and weights
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t run = step / kStreams, stream = step % kStreams, slot = step % ahead;
      const ScoreGradient mine = {k.let("stream_delta", k.shuffle(delta, stream)),
                                  k.let("stream_dx", k.shuffle(dx, stream)),
                                  k.let("stream_dk", k.shuffle(dk, stream))};
      columns.in_row(i32(run), [&](const Value& col) {
        auto row = k.let("row", token * kStreams + stream);
        k.assume(row >= 0 && row < rows);
        const RunGradient grad(k);
        weight_tile.load(i32(run), stream, grad.weight);
        sum_tile.load(i32(run), stream, grad.weight_sum);
        add_row_run(k, mine, g(run, stream), x(slot), key(slot), grad);
        columns.in_run(s.out_vector, [&](const Value& i) {
          grad_hidden(row, col + i) = cast(DType::bf16, grad.x(i));
        });
        columns.in_run(s.out_vector, [&](const Value& i) {
          grad_keys(row, col + i) = cast(DType::bf16, grad.key(i));
        });
        sum_tile.store(i32(run), stream, [&](const Value& i) { return Value(grad.weight_sum(i)); });
      });
      if (step + ahead < steps) {
        load_step(token, step + ahead);
      } else {
        load_ahead([&] { load_step(next_token, step + ahead - steps); });
      }
      if (stream == kStreams - 1) load_ahead([&] { load_grads(next_token, run); });
    }
    load_ahead([&] { load_values(next_token); });
  });

  k.sync();  // else the compiler keeps sums of the last step in registers
  k.serial(0, kStreams, [&](Value stream) {
    k.unrolled(tile.runs, [&](Value run) {
      columns.in_row(run, [&](const Value& col) {
        auto sum = k.local(DType::f32, {kRun}, "sum");
        sum_tile.load(run, stream, sum);
        columns.in_run(s.sum_vector,
                       [&](const Value& i) { grad_w(at.x, stream, col + i) = sum(i); });
      });
    });
  });
  return k.finish();
}

}  // namespace tessera::kernels::engram
