#pragma once
// Tensors and arithmetic that the kernels of engram_gate_bwd share: same order of operations, same
// bits.

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/engram/parts/gate_bwd_kernel.h"
#include "kernels/engram/parts/gate_tile.h"

namespace tessera::kernels::engram {

/// Declares the tensors of the op. Rows of grad_out, hidden_states and the two gradients count
/// tokens and streams together, see build_gate.
class GateBwdTensors {
 public:
  GateBwdTensors(dsl::Builder& k, const GateBwdSpec& s)
      : k_(k), s_(s), tokens_(k.dim("tokens")), rows_(k.dim("rows")) {}

  const dsl::Value& tokens() const { return tokens_; }
  const dsl::Value& rows() const { return rows_; }

  /// The row index of a token; loads and stores with it need no guard.
  dsl::Value row(const dsl::Value& token, const dsl::Arg& stream) const {
    auto row = k_.let("row", token * kStreams + stream);
    k_.assume(row >= 0 && row < rows_);
    return row;
  }

  dsl::Ref row_input(const char* name) const {
    return k_.input(name, DType::bf16, {rows_, s_.hidden}, {.align = s_.vector * 2});
  }
  dsl::Ref row_output(const char* name) const {
    return k_.output(name, DType::bf16, {rows_, s_.hidden}, {.align = s_.out_vector * 2});
  }
  dsl::Ref keys() const {
    auto token = k_.stride("k_token_stride", {.multiple_of = s_.vector});
    auto stream = k_.stride("k_stream_stride", {.multiple_of = s_.vector});
    return k_.input("k", DType::bf16, {tokens_, kStreams, s_.hidden},
                    {.strides = {token, stream, 1}, .align = s_.vector * 2});
  }
  dsl::Ref values() const {
    auto token = k_.stride("v_token_stride", {.multiple_of = s_.vector});
    return k_.input("v", DType::bf16, {tokens_, s_.hidden},
                    {.strides = {token, 1}, .align = s_.vector * 2});
  }
  dsl::Ref grad_values() const {
    return k_.output("grad_v", DType::bf16, {tokens_, s_.hidden}, {.align = s_.out_vector * 2});
  }
  dsl::Ref weights() const {
    return k_.input("weight_fused", DType::f32, {kStreams, s_.hidden},
                    {.align = s_.weight_vector * 4});
  }
  dsl::Ref weight_sums(const dsl::Value& partials) const {
    return k_.output("grad_w_partial", DType::f32, {partials, kStreams, s_.hidden},
                     {.align = s_.sum_vector * 4});
  }
  /// The values saved by the forward pass: dot, gate_score, rstd_x, rstd_k.
  std::vector<dsl::Ref> saved() const {
    std::vector<dsl::Ref> tensors;
    for (const char* name : {"dot", "gate_score", "rstd_x", "rstd_k"}) {
      tensors.push_back(k_.input(name, DType::f32, {tokens_, kStreams}, {.align = 4}));
    }
    return tensors;
  }

  std::optional<dsl::Ref> image_mask() const {
    if (s_.has_mask == 0) return {};
    return k_.input("image_token_mask", DType::boolean, {tokens_}, {.align = 1});
  }

 private:
  dsl::Builder& k_;
  GateBwdSpec s_;
  dsl::Value tokens_, rows_;
};

/// Score gradient of one token and stream. delta is the gradient of dot with both norms held fixed; x
/// and k are what the norms subtract per unit of the row.
struct ScoreGradient {
  dsl::Value delta, x, k;
};

/// `gate_gradient` = sum of grad_out * v over the row. The gradient is 0 where the clamp held the
/// score, which includes dot = 0; a NaN score is not clamped.
inline ScoreGradient score_gradient(const dsl::Value& gate_gradient,
                                    const std::vector<dsl::Value>& saved, const dsl::Value& clamp,
                                    int64_t hidden) {
  using namespace dsl;
  const auto d = static_cast<float>(hidden);
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden)));
  const Value &dot = saved[0], &gate = saved[1], &rstd_x = saved[2], &rstd_k = saved[3];
  const Value slope =
      gate_gradient * gate * (1.0f - gate) * 0.5f * sqrt(root * rstd_x * rstd_k / abs(dot));
  return {select(abs(dot) * root * rstd_x * rstd_k < clamp, 0.0f, slope), dot * rstd_x * rstd_x / d,
          dot * rstd_k * rstd_k / d};
}

/// f32 values of a run of columns: gradients of x and k, weights, and sums of the weights'
/// gradients.
struct RunGradient {
  dsl::Ref x, key, weight, weight_sum;
  explicit RunGradient(dsl::Builder& k)
      : x(k.local(DType::f32, {kRun}, "grad_x")),
        key(k.local(DType::f32, {kRun}, "grad_key")),
        weight(k.local(DType::f32, {kRun}, "w")),
        weight_sum(k.local(DType::f32, {kRun}, "sum")) {}
};

/// True for the tokens of an image, which the gate leaves as they are; none: no token is.
using IsImage = std::optional<dsl::Value>;

/// The token of the mask, if there is one.
inline IsImage is_image_token(dsl::Builder& k, const std::optional<dsl::Ref>& mask,
                              const dsl::Value& token) {
  if (!mask) return {};
  return k.let("is_image", (*mask)(token));
}

/// Computes the gradients of x and k of a run and adds its part to the weights' gradients. A token of
/// an image passes grad_out on, adds nothing, and its k has the gradient 0.
inline void add_row_run(dsl::Builder& k, const ScoreGradient& score, const dsl::Ref& grad_out,
                        const dsl::Ref& row, const dsl::Ref& key, const RunGradient& run,
                        const IsImage& is_image) {
  using namespace dsl;
  const auto unless_image = [&](const Arg& of_image, const Value& value) {
    return is_image ? select(*is_image, of_image, value) : value;
  };
  k.unrolled(kRun, [&](Value i) {
    auto x = k.let("x_f32", f32(row(i))), y = k.let("key_f32", f32(key(i)));
    auto g = f32(grad_out(i));
    run.x(i) = unless_image(g, fma(score.delta, fma(-x, score.x, y * run.weight(i)), g));
    run.key(i) = unless_image(0.0f, score.delta * fma(-y, score.k, x * run.weight(i)));
    const Value sum = run.weight_sum(i);
    run.weight_sum(i) = unless_image(sum, fma(score.delta * x, y, sum));
  });
}

/// Adds a run of columns to the sums of grad_out * v of each stream. grad_values receives the run
/// of grad_v in f32: 0 for a token of an image.
inline void add_value_run(dsl::Builder& k, const std::vector<dsl::Ref>& grad_out,
                          const dsl::Ref& values, const std::vector<dsl::Value>& gates,
                          const std::vector<dsl::Ref>& sums, const dsl::Ref& grad_values,
                          const IsImage& is_image) {
  using namespace dsl;
  k.unrolled(kRun, [&](Value i) {
    auto v = k.let("v_f32", f32(values(i)));
    Value chain = Arg(0.0f).value();
    for (size_t stream = 0; stream < grad_out.size(); ++stream) {
      auto g = k.let("g_f32", f32(grad_out[stream](i)));
      sums[stream] = fma(g, v, sums[stream]);
      chain = fma(gates[stream], g, chain);
    }
    grad_values(i) = is_image ? select(*is_image, 0.0f, chain) : chain;
  });
}

}  // namespace tessera::kernels::engram
