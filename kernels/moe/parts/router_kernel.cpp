#include "kernels/moe/parts/router_kernel.h"

#include <limits>
#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/best_expert.h"
#include "kernels/moe/parts/expert_groups.h"
#include "kernels/moe/parts/expert_place.h"
#include "kernels/moe/parts/group_rank.h"

namespace tessera::kernels::moe {
constexpr int kWarps = 4;  // tokens per block

ir::Kernel build_router(const RouterSpec& s) {
  using namespace dsl;
  const int64_t align = s.vector * 4, all = s.num_topk + s.num_shared;
  Builder k("top2_sum_gate");
  auto tokens = k.dim("tokens");
  auto logits = k.input("logits", DType::f32, {tokens, s.experts}, {.align = align});
  auto bias = k.input("bias", DType::f32, {s.experts}, {.align = align});
  auto topk_idx = k.output("topk_idx", DType::i64, {tokens, all}, {.align = 8});
  auto topk_weights = k.output("topk_weights", DType::f32, {tokens, all}, {.align = 4});
  std::vector<Ref> mask, fixed, unmapped;  // zero or one element
  if (s.has_mask) mask.push_back(k.input("mask", DType::boolean, {tokens}, {.align = 1}));
  if (s.has_fixed) {
    fixed.push_back(k.input("fix_routing_mask", DType::boolean, {tokens}, {.align = 1}));
  }
  if (s.has_unmapped) {
    unmapped.push_back(k.output("unmapped_topk_idx", DType::i64, {tokens, s.num_topk},
                                {.strides = {k.stride("unmapped_stride"), 1}, .align = 8}));
  }
  std::optional<ReplicaMap> replicas;
  if (s.has_map) replicas.emplace(k, s.experts + s.num_shared);
  auto scale = k.scalar("routed_scaling_factor", DType::f32);
  const ExpertRanks ranks(k);
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});

  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.if_(token < tokens, [&] {
    // load
    const ExpertRow row(k, s);
    auto x = row.load("x", [&](const Value& expert) { return logits(token, expert); });
    auto b = row.load("b", [&](const Value& expert) { return bias(expert); });
    auto bad = k.var(DType::boolean, false, "bad");
    row.each([&](const Value& slot, const Value&) {
      bad = Value(bad) || !(abs(x(slot)) <= std::numeric_limits<float>::max());
    });
    auto finite = k.let("finite", !k.warp_any(bad));
    Value routed = finite;
    if (mask.empty()) k.report_unless(finite, out_of_range("logits"));
    for (const Ref& given : mask) {
      auto wanted = k.let("wanted", given(token));
      k.report_unless(finite || !wanted, out_of_range("logits"));
      routed = routed && wanted;
    }

    auto route = [&] {
      ExpertRow::Softmax softmax;
      if (s.scoring == Scoring::softmax) softmax = row.softmax(x);
      // the expert of slot `lane`
      auto mine = k.var(DType::i32, -1, "mine");
      auto choose = [&] {
        auto values = k.local(DType::f32, {row.slots()}, "values");
        row.each([&](const Value& slot, const Value&) {
          const bool by_logit = s.scoring == Scoring::softmax;
          Value logit = x(slot);
          auto score =
              by_logit ? logit : expert_score(s.scoring, logit, softmax.maximum, softmax.sum);
          values(slot) = rankable(score + b(slot));
        });
        Value winners;
        if (s.num_groups > 0) winners = k.let("winners", winning_groups(k, s, kWarps, row, values));
        Ranking ranking(
            k, row.slots(),
            [&](const Value& slot) {
              auto expert = row.expert(slot);
              auto candidate = expert < s.experts;
              if (s.num_groups > 0) {
                auto group = expert / (s.experts / s.num_groups);
                auto bit = u32(min(group * lanes_per_group(s.num_groups), 31));
                candidate = candidate && (winners >> bit & 1) == 1;
              }
              return select(candidate, order_key(k, values(slot)), cast(DType::u32, kTaken));
            },
            [&](const Value& slot) { return row.expert(slot); });
        k.unrolled(s.num_topk, [&](Value round) {
          auto expert = ranking.take();
          mine = select(lane == round, expert, mine);
        });
        for (const Ref& ids : unmapped) {
          k.if_(lane < s.num_topk, [&] { ids(token, lane) = i64(mine); });
        }
      };
      if (s.has_fixed) {
        auto keep = [&] {
          auto stored = k.let("stored", unmapped[0](token, min(lane, s.num_topk - 1)));
          auto known = lane < s.num_topk && stored >= 0 && stored < s.experts;
          k.report_unless(known || lane >= s.num_topk, out_of_range("unmapped_topk_idx"));
          mine = select(known, i32(stored), -1);
        };
        k.if_else(fixed[0](token), keep, choose);
      } else {
        choose();
      }
      // weights
      auto known = expert_score(s.scoring, logits(token, mine), softmax.maximum, softmax.sum);
      auto score = k.let("score", select(mine >= 0, known, 0.0f));
      auto total = k.var(DType::f32, 1e-20f, "total");
      k.unrolled(s.num_topk, [&](Value slot) { total = total + k.shuffle(score, slot); });
      Value share = score / total * scale;  // reads `total` before `mine`
      auto weight = select(lane >= s.num_topk, 1.0f, select(mine >= 0, share, 0.0f));
      // replica of the expert, then its number on this rank
      auto shared_expert = lane + i32(s.experts - s.num_topk);
      auto logical = k.let("logical", select(lane >= s.num_topk, shared_expert, mine));
      Value id = logical;
      if (replicas) {
        auto seed = i64(ranks.ep_rank()) + i64(token) * 23333;
        id = replicas->replica(logical, seed, lane >= all, ranks.num_physical());
      }
      auto local = ranks.local_id(id);
      k.if_(lane < all, [&] {
        topk_idx(token, lane) = i64(local);
        topk_weights(token, lane) = weight;
      });
    };
    auto drop = [&] {
      k.if_(lane < all, [&] {
        topk_idx(token, lane) = i64(-1);
        topk_weights(token, lane) = 0.0f;
      });
      for (const Ref& ids : unmapped) {
        k.if_(lane < s.num_topk, [&] { ids(token, lane) = i64(-1); });
      }
    };
    k.if_else(routed, route, drop);
  });
  return k.finish();
}

}  // namespace tessera::kernels::moe
