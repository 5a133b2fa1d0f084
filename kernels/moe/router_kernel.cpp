#include "kernels/moe/router_kernel.h"

#include <bit>
#include <functional>
#include <limits>
#include <vector>

#include "dsl/builder.h"
#include "kernels/moe/best_expert.h"

namespace tessera::kernels::moe {
namespace {

constexpr int kWarps = 4;  // tokens per block

int64_t lanes_per_group(const RouterSpec& s) {
  return 32 / static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(s.num_groups)));
}

/// What one lane holds of a row: slot 4 i + j is expert 128 i + 4 lane + j.
class Row {
 public:
  Row(dsl::Builder& k, const RouterSpec& s) : k_(k), s_(s), slots_((s.experts + 127) / 128 * 4) {}

  int64_t slots() const { return slots_; }
  dsl::Value expert(const dsl::Value& slot) const {
    return slot / 4 * 128 + k_.lane() * 4 + slot % 4;
  }
  /// Elements of a row of `experts` floats; 0 where there is no expert.
  dsl::Ref load(const char* name, const std::function<dsl::Ref(const dsl::Value&)>& at) const {
    using namespace dsl;
    auto values = k_.local(DType::f32, {slots_}, name);
    k_.unrolled(slots_ / s_.vector, [&](Value part) {
      auto first = k_.let("first", expert(part * s_.vector));
      k_.unrolled(s_.vector, [&](Value j) { values(part * s_.vector + j) = 0.0f; });
      k_.if_(first < s_.experts, [&] {
        k_.vectorized(s_.vector, [&](Value j) { values(part * s_.vector + j) = at(first + j); });
      });
    });
    return values;
  }
  template <class Fn>
  void each(const Fn& fn) const {
    k_.unrolled(slots_, [&](dsl::Value slot) { fn(slot, expert(slot)); });
  }

 private:
  dsl::Builder& k_;
  const RouterSpec& s_;
  int64_t slots_;
};

/// Which groups win: bit g * lanes_per_group(s) of the result. The lanes of the warp are dealt to
/// the groups in turn: each looks at some of the members, then they put together what they found.
///
///   values   f32 [slots] of a row, rankable
dsl::Value winning_groups(dsl::Builder& k, const RouterSpec& s, const Row& row,
                          const dsl::Ref& values) {
  using namespace dsl;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t members = s.experts / s.num_groups, lanes = lanes_per_group(s);
  // Rows are longer than a group, so that neighbours start at different banks.
  auto ranked = k.shared(DType::f32, {kWarps, s.num_groups * (members + lanes)}, "ranked");
  row.each([&](const Value& slot, const Value& expert) {
    k.if_(expert < s.experts,
          [&] { ranked(k.warp(), expert + expert / members * lanes) = values(slot); });
  });
  k.sync_warp();
  // the two best of each group
  auto group = k.let("group", k.lane() / lanes), place = k.let("place", k.lane() % lanes);
  auto best = k.var(DType::f32, -kInfinity, "best_of_group");
  auto second = k.var(DType::f32, -kInfinity, "second_of_group");
  k.unrolled((members + lanes - 1) / lanes, [&](Value i) {
    auto member = i * lanes + place;
    k.if_(group < s.num_groups && member < members, [&] {
      auto value = k.let("value", ranked(k.warp(), group * (members + lanes) + member));
      second = max(second, min(best, value));
      best = max(best, value);
    });
  });
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    auto other_best = k.let("other_best", k.shuffle_xor(best, distance));
    auto other_second = k.let("other_second", k.shuffle_xor(second, distance));
    second = max(min(best, other_best), max(second, other_second));
    best = max(best, other_best);
  }
  auto sum = k.let("sum", best + second);
  auto mine = k.let("group_value", select(is_nan(sum), -kInfinity, sum));
  // how many groups are better
  auto rank = k.var(DType::i32, 0, "rank");
  k.unrolled((s.num_groups + lanes - 1) / lanes, [&](Value i) {
    auto other_group = i * lanes + place;
    auto other = k.let("other", k.shuffle(mine, min(other_group, s.num_groups - 1) * lanes));
    auto beats = select(other_group<group, other >= mine, other> mine);
    rank = rank + select(other_group < s.num_groups && beats, 1, 0);
  });
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    rank = rank + k.shuffle_xor(rank, distance);
  }
  return k.ballot(group < s.num_groups && rank < s.num_topk_groups);
}

}  // namespace

ir::Kernel build_router(const RouterSpec& s) {
  using namespace dsl;
  const int64_t align = s.vector * 4, all = s.num_topk + s.num_shared;
  Builder k("top2_sum_gate");
  auto tokens = k.dim("tokens");
  auto logits = k.input("logits", DType::f32, {tokens, s.experts}, {.align = align});
  auto bias = k.input("bias", DType::f32, {s.experts}, {.align = align});
  auto topk_idx = k.output("topk_idx", DType::i64, {tokens, all}, {.align = 8});
  auto topk_weights = k.output("topk_weights", DType::f32, {tokens, all}, {.align = 4});
  std::vector<Ref> mask, fixed, unmapped, physical, count;  // one or none
  if (s.has_mask) mask.push_back(k.input("mask", DType::boolean, {tokens}, {.align = 1}));
  if (s.has_fixed) {
    fixed.push_back(k.input("fix_routing_mask", DType::boolean, {tokens}, {.align = 1}));
  }
  if (s.has_unmapped) {
    unmapped.push_back(k.output("unmapped_topk_idx", DType::i64, {tokens, s.num_topk},
                                {.strides = {k.stride("unmapped_stride"), 1}, .align = 8}));
  }
  Value num_replicas;
  if (s.has_map) {
    const int64_t rows = s.experts + s.num_shared;
    num_replicas = k.dim("num_replicas");
    physical.push_back(k.input("to_physical_map", DType::i32, {rows, num_replicas}, {.align = 4}));
    count.push_back(k.input("logical_count", DType::i32, {rows}, {.align = 4}));
  }
  auto scale = k.scalar("routed_scaling_factor", DType::f32);
  auto ep_rank = k.scalar("ep_rank", DType::i32);
  auto num_physical = k.scalar("num_physical", DType::i32);
  auto experts_per_rank = k.scalar("experts_per_rank", DType::i32);
  auto tp_rank = k.scalar("tp_rank", DType::i32);
  auto num_tp_ranks = k.scalar("num_tp_ranks", DType::i32);
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});

  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.if_(token < tokens, [&] {
    // load
    const Row row(k, s);
    auto x = row.load("x", [&](const Value& expert) { return logits(token, expert); });
    auto b = row.load("b", [&](const Value& expert) { return bias(expert); });
    auto bad = k.var(DType::boolean, false, "bad");
    row.each([&](const Value& slot, const Value&) {
      bad = Value(bad) || !(abs(x(slot)) <= std::numeric_limits<float>::max());
    });
    Value routed = !k.warp_any(bad);
    for (const Ref& given : mask) routed = routed && given(token);

    auto route = [&] {
      // softmax over the row
      Value maximum, sum;
      if (s.scoring == Scoring::softmax) {
        auto most = k.var(DType::f32, -std::numeric_limits<float>::infinity(), "most");
        row.each([&](const Value& slot, const Value& expert) {
          most = select(expert < s.experts, max(most, x(slot)), most);
        });
        maximum = k.let("maximum", k.warp_max(most));
        auto part = k.var(DType::f32, 0.0f, "part");
        row.each([&](const Value& slot, const Value& expert) {
          part = select(expert < s.experts, part + exp(x(slot) - maximum), part);
        });
        sum = k.let("sum", k.warp_sum(part));
      }
      // the expert of slot `lane`
      auto mine = k.var(DType::i32, -1, "mine");
      auto choose = [&] {
        auto values = k.local(DType::f32, {row.slots()}, "values");
        row.each([&](const Value& slot, const Value&) {
          const bool by_logit = s.scoring == Scoring::softmax;
          Value logit = x(slot);
          auto score = by_logit ? logit : expert_score(s.scoring, logit, maximum, sum);
          values(slot) = rankable(score + b(slot));
        });
        Value winners;
        if (s.num_groups > 0) winners = k.let("winners", winning_groups(k, s, row, values));
        Ranking ranking(
            k, row.slots(),
            [&](const Value& slot) {
              auto expert = row.expert(slot);
              auto candidate = expert < s.experts;
              if (s.num_groups > 0) {
                auto group = expert / (s.experts / s.num_groups);
                auto bit = u32(min(group * lanes_per_group(s), 31));
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
          mine = select(known, i32(stored), -1);
        };
        k.if_else(fixed[0](token), keep, choose);
      } else {
        choose();
      }
      // weights
      auto score = k.let(
          "score",
          select(mine >= 0, expert_score(s.scoring, logits(token, mine), maximum, sum), 0.0f));
      auto total = k.var(DType::f32, 1e-20f, "total");
      k.unrolled(s.num_topk, [&](Value slot) { total = total + k.shuffle(score, slot); });
      auto weight =
          select(lane >= s.num_topk, 1.0f, select(mine >= 0, score / total * scale, 0.0f));
      // replica of the expert, then its number on this rank
      auto shared_expert = lane + i32(s.experts - s.num_topk);
      auto logical = k.let("logical", select(lane >= s.num_topk, shared_expert, mine));
      Value id = logical;
      if (s.has_map) {
        auto replicas = k.let("replicas_of_expert", count[0](logical));
        auto choice = (i64(ep_rank) + i64(token) * 23333) % i64(max(replicas, 1));
        id = k.let("physical", select(replicas >= 1 && replicas <= num_replicas,
                                      physical[0](logical, i32(choice)), -1));
      }
      auto rank = k.let("rank", max(id, 0) / experts_per_rank);
      auto row_of_ranks = k.let("row_of_ranks", rank / num_tp_ranks);
      auto here = id >= 0 && id < num_physical && rank - row_of_ranks * num_tp_ranks == tp_rank;
      auto local = id - (rank - row_of_ranks) * experts_per_rank;
      k.if_(lane < all, [&] {
        topk_idx(token, lane) = i64(select(here, local, -1));
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
