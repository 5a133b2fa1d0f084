// moe_topk_gate_bwd: gradients of the logits of moe_topk_gate_fwd, with an auxiliary loss on all scores.
//
// Shapes   scores, grad_logits [tokens, experts], topk_idx, topk_weights, grad_topk_weights [tokens, K],
//          grad_scores_sum [sequences, experts]
// Dtypes   f32, ids i64, mask bool
// Method   one warp per token, 128 scores at a time in registers. Every lane reads the slots of the token
//          by shuffles and adds those of its experts, so that repeated experts need no atomics.
// Maths    D = sum of the chosen u + 1e-20; a = sum of g w by fma; r = (f g - a) / D; R = sum of the r of
//          an expert's slots; A = (h - c i) i with i = 1 / U, where U sums u and c sums h u in the order
//          of norm_row.h; grad = u'(u) (R + A), where u' is the derivative of u from its value

#include <algorithm>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/expert_row.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/gate/parts/gate_row.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t experts, num_topk;
  int16_t has_sums;
  int16_t vector;  // scores per load
};

constexpr int kWarps = 4;  // tokens per block

/// du / dlogit of u = sqrt(softplus(logit)), from u: (1 - exp(-u^2)) / (2 u), by a series below 1.
dsl::Value derivative(dsl::Builder& k, const dsl::Value& u) {
  using namespace dsl;
  auto v = k.let("v", u * u);
  Value q = f32(0.000129130945f);
  for (const float factor :
       {-0.00130112655f, 0.00827621203f, -0.041647464f, 0.166663632f, -0.499999821f}) {
    q = fma(q, v, factor);
  }
  auto half = 0.5f * u;
  auto small = fma(v * q, half, half);
  auto large = 0.5f * ((1.0f - exp(-v)) / u);
  return select(v < 1.0f, small, large);
}

/// The slot of a lane: its expert, -1 if it counts nothing, and the gradient of its score.
struct Slot {
  dsl::Value expert, gradient;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t align = int64_t{s.vector} * 4;
  Builder k("moe_topk_gate_bwd");
  auto tokens = k.dim("tokens");
  auto scores = k.input("scores", DType::f32, {tokens, s.experts}, {.align = align});
  auto topk_idx = k.input("topk_idx", DType::i64, {tokens, s.num_topk}, {.align = 8});
  auto topk_weights = k.input("topk_weights", DType::f32, {tokens, s.num_topk}, {.align = 4});
  auto grads = k.input("grad_topk_weights", DType::f32, {tokens, s.num_topk}, {.align = 4});
  std::optional<Ref> mask, sums;
  std::optional<Value> length;
  if (s.has_sums != 0) {
    mask = k.input("mask", DType::boolean, {tokens}, {.align = 1});
    sums =
        k.input("grad_scores_sum", DType::f32, {k.dim("sequences"), s.experts}, {.align = align});
    length = k.scalar("sequence_length", DType::i32);
  }
  auto grad_logits = k.output("grad_logits", DType::f32, {tokens, s.experts}, {.align = align});
  auto factor = k.scalar("routed_scaling_factor", DType::f32);
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});
  k.let_next_kernel_start();
  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.wait_for_previous_kernel();
  k.if_(token < tokens, [&] {
    moe::RouterSpec in_row{};
    in_row.experts = s.experts;
    in_row.vector = static_cast<uint8_t>(s.vector);
    const moe::ExpertRow row(k, in_row);
    auto u = row.load("u", [&](const Value& expert) { return scores(token, expert); });
    auto counts = k.let("counts", mask ? Value((*mask)(token)) : lane >= 0);
    // The slots: one per lane.
    auto expert = k.var(DType::i32, -1, "expert_of_slot");
    auto score = k.var(DType::f32, 0.0f, "score"), g = k.var(DType::f32, 0.0f, "g");
    auto w = k.var(DType::f32, 0.0f, "w");
    k.if_(counts && lane < s.num_topk, [&] {
      auto id = k.let("id", topk_idx(token, lane).read());
      auto exists = k.let("exists", id >= 0 && id < s.experts);
      k.report_unless(id < s.experts, out_of_range("topk_idx"));
      k.if_(exists, [&] {
        expert = i32(id);
        score = scores(token, i32(id));
        g = grads(token, lane);
        w = topk_weights(token, lane);
      });
    });
    auto total = k.var(DType::f32, 0.0f, "total"), a = k.var(DType::f32, 0.0f, "a");
    k.unrolled(s.num_topk, [&](Value slot) {
      total = total + k.shuffle(score, slot);
      auto gradient = k.shuffle(g, slot),
           weight = k.shuffle(w, slot);  // in this order by every compiler
      a = fma(gradient, weight, a);
    });
    auto r = k.let("r", (factor * g - a) / (total + 1e-20f));
    auto gradient = k.local(DType::f32, {row.slots()}, "gradient");
    k.unrolled(row.slots(), [&](Value slot) { gradient(slot) = 0.0f; });
    k.unrolled(s.num_topk, [&](Value slot) {
      auto theirs = k.let("theirs", k.shuffle(expert, slot));
      auto part = k.let("part", k.shuffle(r, slot));
      row.each([&](const Value& mine, const Value& of) {
        gradient(mine) = select(of == theirs, gradient(mine) + part, gradient(mine));
      });
    });
    if (sums) {
      auto h = row.load("h", [&](const Value& of) { return (*sums)(token / *length, of); });
      const Value all = serving::sum_of_row(
          k, row.slots(), [&](int64_t slot, const Value& before) { return before + u(slot); });
      const Value both = serving::sum_of_row(
          k, row.slots(),
          [&](int64_t slot, const Value& before) { return fma(h(slot), u(slot), before); });
      k.report_unless(!counts || all != 0.0f, "argument 'scores' has a row of zeros");
      auto takes = k.let("takes", counts && all != 0.0f);
      auto inverse = k.let("inverse", 1.0f / all);
      row.each([&](const Value& slot, const Value&) {
        auto of_sum = (h(slot) - both * inverse) * inverse;
        gradient(slot) = select(takes, gradient(slot) + of_sum, gradient(slot));
      });
    }
    k.unrolled(row.slots() / s.vector, [&](Value piece) {
      auto first = k.let("first", row.expert(piece * s.vector));
      k.if_(first < s.experts, [&] {
        k.vectorized(s.vector, [&](Value j) {
          auto slot = piece * s.vector + j;
          grad_logits(token, first + j) = derivative(k, u(slot)) * gradient(slot);
        });
      });
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.experts = c.i32("E");
  s.num_topk = c.i32("K");
  s.has_sums = c.has("grad_scores_sum") ? 1 : 0;
  int32_t align = c.align({"scores", "grad_logits"});
  if (s.has_sums != 0) align = std::min(align, c.align({"grad_scores_sum"}));
  s.vector = static_cast<int16_t>(align == 16 && s.experts % 4 == 0 ? 4 : 1);
  Args args;
  if (s.has_sums != 0) args.scalars.push_back({"sequence_length", c["T"] / c["Q"]});
  go.add(build, s, args);
}

/// Chosen experts exist, and tokens that count have scores.
void require_scores(const Call& c) {
  const TensorView& scores = c.given("scores");
  if (!values_are_checked(scores)) return;
  const int64_t experts = c["E"], topk = c["K"];
  const auto counts = [&](int64_t token) {
    return !c.has("mask") || integer_at(c.given("mask"), token) != 0;
  };
  require_values(c.check(), "topk_idx", c.given("topk_idx"), INT64_MIN, experts - 1,
                 [&](int64_t slot) { return counts(slot / topk); });
  if (!c.has("mask")) return;
  const auto* values = static_cast<const float*>(scores.data);
  for (int64_t t = 0; t < c["T"]; ++t) {
    if (!counts(t)) continue;
    const float* row = values + t * experts;
    const bool has_score = std::any_of(row, row + experts, [](float u) { return u != 0; });
    c.need(has_score, "scores", "argument 'scores' has a row of zeros",
           "a score in each row that 'mask' counts", "none at " + to_string(Dims{t}));
  }
}

}  // namespace

const Op moe_topk_gate_bwd_op{
    .name = "moe_topk_gate_bwd",
    .family = "serving",
    .purpose = "gradients of the logits of moe_topk_gate_fwd",
    .signature = R"(
      scores              f32 [T, E]
      topk_idx            i64 [T, K]           # before the map of experts: unmapped_topk_idx
      topk_weights        f32 [T, K]
      grad_topk_weights   f32 [T, K]
      mask?               bool [T]             iff grad_scores_sum
      grad_scores_sum?    f32 [Q, E]           iff mask  # of gate_scores_sum
      -> grad_logits      f32 [T, E]
      param  routed_scaling_factor float = 1
      need   E >= 1 on scores "argument 'scores' has no columns"
      limit  E <= 4096 on scores "too many experts"
      need   1 <= K <= 32 on topk_idx "'topk_idx' has the wrong number of columns"
      need   Q >= 1 and T % Q = 0 if grad_scores_sum on grad_scores_sum
      |      "sequences of 'grad_scores_sum' do not divide the tokens"
    )",
    .launches = launches,
    .check_values = require_scores,
    .examples = R"(
      T=65 E=256 K=8 routed_scaling_factor=2.5; T=6 Q=1 E=72 K=6 mask=given grad_scores_sum=given; T=5 E=30 K=3)",
    .bench = R"(
      T=1 E=256 K=6; T=512 E=256 K=6; T=8001 E=256 K=6; T=8192 E=256 K=6; T=8192 E=384 K=6
      T=8192 Q=2 E=256 K=6 mask=given grad_scores_sum=given; T=8192 E=256 K=8)",
    .values = {{"topk_idx", [](const Case& c, int64_t i) { return i * 7919 % c["E"]; }},
               {"mask", [](const Case&, int64_t t) { return t % 5 == 4 ? int64_t{0} : 1; }}}};

}  // namespace tessera::kernels
