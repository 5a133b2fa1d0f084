// normalize_weight: routing weights of each token, divided by their sum.
//
// Method   one thread per token, with the row in registers: vectors of up to 16 bytes are loaded
//          together and the quotients stored the same way. Longer rows come in parts, twice. A few
//          bytes per token: the bound is the latency of one load, the sum, one division, one store.
// Maths    sum from 1e-20 in the order of the slots, IEEE division
// Tuned    H200 (peer): 8037 tokens of 2 1.45 us (1.47), 9803 1.47 (1.49), 21876 of 8 2.04 (2.07), 32709
//          2.25 (2.23). Blocks of 32, 64 and 256 threads instead of 128: within 0.05 us.

#include <numeric>

#include "kernels/moe/parts/row_parts.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t num_topk;  // 0: nothing to divide
  int32_t align;     // bytes of both tensors of weights, at most 16
};

constexpr int64_t kThreads = 128;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(normalize_weight_op, {{"K", s.num_topk}});
  auto tokens = k.extent("T");
  auto denominator = k.tensor("denominator");
  if (s.num_topk == 0) {
    auto at = k.launch({ceil_div(tokens, kThreads)}, {.threads = kThreads});
    auto token = k.let("token", at.x * kThreads + k.thread());
    k.if_(token < tokens, [&] { denominator(token) = 1e-20f; });
    return k.finish();
  }
  auto topk_weights = k.tensor("topk_weights", {.align = s.align});
  auto normalized_weights = k.tensor("normalized_weights", {.align = s.align});
  auto at = k.launch({ceil_div(tokens, kThreads)}, {.threads = kThreads});
  const moe::RowParts row(k, s.num_topk, std::gcd(s.num_topk, s.align / 4));

  auto token = k.let("token", at.x * kThreads + k.thread());
  k.if_(token < tokens, [&] {
    auto held = k.local(DType::f32, {row.held()}, "held");
    auto load = [&](const Value& first) {
      row.each_vector([&](const Value& i) { held(i) = topk_weights(token, first + i); });
    };
    auto sum = k.var(DType::f32, 1e-20f, "sum");
    row.each_part([&](const Value& first) {
      load(first);
      k.unrolled(row.held(), [&](Value i) { sum += held(i); });
    });
    denominator(token) = sum;
    row.each_part([&](const Value& first) {
      if (!row.is_whole()) load(first);
      row.each_vector(
          [&](const Value& i) { normalized_weights(token, first + i) = held(i) / sum; });
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("K"), c.align({"topk_weights", "normalized_weights"})});
}

}  // namespace

const Op normalize_weight_op{.name = "normalize_weight",
                             .family = "moe",
                             .purpose = "routing weights of each token, divided by their sum",
                             .signature = R"(
      topk_weights           f32 [T, K]
      -> denominator         f32 [T]
      -> normalized_weights  f32 [T, K]
    )",
                             .launches = launches,
                             .examples = "T=300 K=8; T=129 K=6; T=130 K=9; T=5 K=2; T=3 K=96",
                             .bench = R"(
      T=8037 K=2; T=9803 K=2; T=21876 K=8; T=32709 K=8; T=1 K=8; T=128 K=8)"};

}  // namespace tessera::kernels
