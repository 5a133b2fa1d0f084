// topk_gate: ids of the K largest scores of each token.
//
// Method   one warp per token: scores become unsigned keys of the same order, lane l holds experts
//          l, l + 32, ... in sorted runs of four; each of the K rounds takes the largest key and the
//          smallest id that has it, by two warp reductions. Few bytes, so the bound is the latency
//          of one load, 2 K warp reductions and one store.
// Maths    key = bits of the score, all flipped if negative, else with the sign bit set; NaN and
//          -inf share a key, and so do +0 and -0
// Tuned    H200: 8 warps per block.

#include "kernels/moe/parts/best_expert.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t experts, num_topk;
};

constexpr int kWarps = 8;  // tokens per block

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(topk_gate_op, {{"E", s.experts}, {"K", s.num_topk}});
  auto tokens = k.extent("T");
  auto scores = k.tensor("scores", {.align = 16}), topk_idx = k.tensor("topk_idx", {.align = 16});
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});

  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.if_(token < tokens, [&] {
    moe::Ranking ranking(
        k, (s.experts + 31) / 32,
        [&](const Value& slot) {
          auto expert = slot * 32 + lane;
          auto key = moe::order_key(k, moe::rankable(scores(token, expert)));
          return select(expert < s.experts, key, cast(DType::u32, moe::kTaken));
        },
        [&](const Value& slot) { return slot * 32 + lane; });
    // K rounds; lane r keeps the winner of round r of a batch of 32, so that one store writes the
    // row
    for (int64_t first = 0; first < s.num_topk; first += 32) {
      const int64_t rounds = std::min<int64_t>(32, s.num_topk - first);
      auto winner = k.var(DType::i32, 0, "winner");
      auto one_round = [&](Value round) {
        auto expert = ranking.take();
        winner = select(lane == round, expert, winner);
      };
      if (s.num_topk <= 32) {
        k.unrolled(rounds, one_round);
      } else {
        k.serial(0, rounds, one_round);
      }
      k.if_(lane < rounds, [&] { topk_idx(token, first + lane) = i64(winner); });
    }
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("E"), c.i32("num_topk")});
}

}  // namespace

const Op topk_gate_op{
    .name = "topk_gate",
    .family = "moe",
    .purpose = "ids of the num_topk largest scores of each token",
    .signature = R"(
      scores       f32 [T, E]
      -> topk_idx  i64 [T, K]
      param        num_topk int 1..E
      let          K = num_topk
      limit        E <= 4096 "too many experts"    # 128 keys per lane still fit its registers
    )",
    .launches = launches,
    .examples =
        "T=65 E=72 num_topk=6; T=33 E=256 num_topk=8; T=9 E=16 num_topk=6; T=3 E=100 num_topk=40",
    .bench = R"(
      T=4001 E=72 num_topk=6; T=4001 E=96 num_topk=6; T=8001 E=72 num_topk=6; T=8001 E=96 num_topk=6
      T=1 E=256 num_topk=8; T=128 E=256 num_topk=8)"};

}  // namespace tessera::kernels
