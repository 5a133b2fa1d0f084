#include "kernels/serving/gate/parts/gate_route.h"

#include <algorithm>
#include <limits>

#include "kernels/moe/parts/best_expert.h"
#include "kernels/moe/parts/expert_row.h"
#include "kernels/moe/parts/expert_score.h"

namespace tessera::kernels::serving {
namespace {

using dsl::Value;

dsl::Value score_of(const dsl::Value& logit) {
  return moe::expert_score(moe::Scoring::sqrtsoftplus, logit, logit, logit);
}

/// The routing of one token by a warp.
class Route {
 public:
  Route(dsl::Builder& k, const GateSpec& s, const GateTensors& t, const GateLogits& logits,
        const dsl::Value& token)
      : k_(k), s_(s), t_(t), logits_(logits), token_(token), lane_(k.lane()) {}

  /// The expert of slot `lane`, -1 for none. `x` are the logits of the row.
  dsl::Ref choose(const moe::ExpertRow& row, const dsl::Ref& x) const {
    using namespace dsl;
    auto mine = k_.var(DType::i32, -1, "mine");
    const auto rank = [&] {
      const Ref values = ranked_values(row, x);
      moe::Ranking ranking(
          k_, row.slots(),
          [&](const Value& slot) {
            return select(row.expert(slot) < s_.experts, moe::order_key(k_, values(slot)),
                          cast(DType::u32, moe::kTaken));
          },
          [&](const Value& slot) { return row.expert(slot); });
      k_.unrolled(s_.num_topk, [&](Value round) {
        auto expert = ranking.take();
        mine = select(lane_ == round, expert, mine);
      });
      store_unmapped(mine);
    };
    if (!t_.fixed) {
      rank();
      return mine;
    }
    const auto keep = [&] {
      auto stored = k_.let("stored", (*t_.unmapped)(token_, min(lane_, s_.num_topk - 1)));
      auto known = lane_ < s_.num_topk && stored >= 0 && stored < s_.experts;
      k_.report_unless(known || lane_ >= s_.num_topk, out_of_range("unmapped_topk_idx"));
      mine = select(known, i32(stored), -1);
    };
    k_.if_else((*t_.fixed)(token_), keep, rank);
    return mine;
  }

  /// Stores ids and weights for the experts of the lanes.
  void store(const dsl::Ref& mine) const {
    using namespace dsl;
    const int64_t all = s_.num_topk + s_.num_shared;
    auto score = k_.var(DType::f32, 0.0f, "score");
    k_.if_(mine >= 0, [&] { score = score_of(logits_.at(mine)); });
    auto sum = k_.var(DType::f32, score, "sum");
    for (const int distance : {16, 8, 4, 2, 1}) sum = sum + k_.shuffle_xor(sum, distance);
    auto share = k_.let("share", score / (sum + 1e-20f) * t_.scale);
    auto weight = select(lane_ >= s_.num_topk, 1.0f, select(mine >= 0, share, 0.0f));
    auto shared_expert = lane_ + i32(s_.experts - s_.num_topk);
    auto logical = k_.let("logical", select(lane_ >= s_.num_topk, shared_expert, mine));
    Value id = logical;
    if (t_.replicas) {
      auto seed = i64(t_.ep_rank) + i64(token_) * 23333;
      id = t_.replicas->replica(logical, seed, lane_ >= all, k_.let("any", i64(0) + kAnyPhysical));
    }
    k_.if_(lane_ < all, [&] {
      t_.topk_idx(token_, lane_) = i64(max(id, -1));
      t_.topk_weights(token_, lane_) = weight;
    });
  }

  void store_unmapped(const dsl::Value& expert) const {
    if (!t_.unmapped) return;
    k_.if_(lane_ < s_.num_topk, [&] { (*t_.unmapped)(token_, lane_) = dsl::i64(expert); });
  }

  /// Stores the scores, or zeros, of the row.
  void store_scores(const moe::ExpertRow& row, const dsl::Ref& x, const dsl::Value& routed) const {
    using namespace dsl;
    if (!t_.scores) return;
    k_.unrolled(row.slots() / s_.vector, [&](Value part) {
      auto first = k_.let("first_score", row.expert(part * s_.vector));
      k_.if_(first < s_.experts, [&] {
        k_.vectorized(s_.vector, [&](Value j) {
          Value logit = x(part * s_.vector + j);
          (*t_.scores)(token_, first + j) = select(routed, score_of(logit), 0.0f);
        });
      });
    });
  }

 private:
  /// Scores plus bias.
  dsl::Ref ranked_values(const moe::ExpertRow& row, const dsl::Ref& x) const {
    using namespace dsl;
    auto values = k_.local(DType::f32, {row.slots()}, "values");
    const auto rank_by = [&](const std::optional<Ref>& bias) {
      std::optional<Ref> b;
      if (bias) b = row.load("b", [&](const Value& expert) { return (*bias)(expert); });
      row.each([&](const Value& slot, const Value&) {
        Value logit = x(slot);
        auto score = score_of(logit);
        values(slot) = moe::rankable(b ? score + (*b)(slot) : score);
      });
    };
    if (t_.image_bias) {
      k_.if_else((*t_.image_mask)(token_), [&] { rank_by(t_.image_bias); },
                 [&] { rank_by(t_.bias); });
    } else {
      rank_by(t_.bias);
    }
    return values;
  }

  dsl::Builder& k_;
  const GateSpec& s_;
  const GateTensors& t_;
  const GateLogits& logits_;
  const dsl::Value token_, lane_;
};

}  // namespace

GateSpec gate_spec(const Call& c, int32_t logits_align) {
  GateSpec s{};
  s.experts = c.i32("E");
  s.num_topk = c.i32("K");
  s.num_shared = c.i32("S");
  s.has_bias = c.has("bias");
  s.has_image_bias = c.has("image_bias");
  s.has_mask = c.has("mask");
  s.has_fixed = c.has("fix_routing_mask");
  s.has_unmapped = c.has("unmapped_topk_idx");
  s.has_map = c.has("to_physical_map");
  s.save_scores = c.flag("save_scores");
  int32_t align = logits_align;
  for (const char* name : {"bias", "image_bias"}) {
    if (c.has(name)) align = std::min(align, c.align({name}));
  }
  if (s.save_scores) align = std::min(align, c.align({"scores"}));
  s.vector = static_cast<uint8_t>(align == 16 && s.experts % 4 == 0 ? 4 : 1);
  return s;
}

int64_t shared_slots(const Call& c) {
  return c.flag("use_shared_as_routed") ? c["num_shared_experts"] : 0;
}

Value GateTensors::counts(const Value& token) const {
  if (!count) return Value((*mask)(token));
  return mask ? Value((*mask)(token)) && token < *count : token < *count;
}

GateTensors declare_gate(dsl::Builder& k, const GateSpec& s, const Value& tokens) {
  const int64_t align = s.vector * 4, all = s.num_topk + s.num_shared;
  GateTensors t{k.output("topk_idx", DType::i64, {tokens, all}, {.align = 8}),
                k.output("topk_weights", DType::f32, {tokens, all}, {.align = 4}),
                {},
                {},
                {},
                {},
                {},
                {},
                {},
                {},
                {},
                {}};
  const auto flags = [&](const char* name) {
    return k.input(name, DType::boolean, {tokens}, {.align = 1});
  };
  const auto per_expert = [&](const char* name) {
    return k.input(name, DType::f32, {s.experts}, {.align = align});
  };
  if (s.has_bias) t.bias = per_expert("bias");
  if (s.has_image_bias) {
    t.image_bias = per_expert("image_bias");
    t.image_mask = flags("image_token_mask");
  }
  if (s.has_mask) t.mask = flags("mask");
  if (s.has_fixed) t.fixed = flags("fix_routing_mask");
  if (s.has_unmapped) {
    t.unmapped = k.output("unmapped_topk_idx", DType::i64, {tokens, s.num_topk},
                          {.strides = {k.stride("unmapped_stride"), 1}, .align = 8});
  }
  if (s.save_scores) {
    t.scores = k.output("scores", DType::f32, {tokens, s.experts}, {.align = align});
  }
  if (s.has_map) t.replicas.emplace(k, s.experts + s.num_shared);
  t.scale = k.scalar("routed_scaling_factor", DType::f32);
  t.ep_rank = k.scalar("ep_rank", DType::i32);
  return t;
}

void route_token(dsl::Builder& k, const GateSpec& s, const GateTensors& t, const GateLogits& logits,
                 const Value& token, const Value& lane) {
  using namespace dsl;
  const int64_t all = s.num_topk + s.num_shared;
  moe::RouterSpec in_row{};
  in_row.experts = s.experts;
  in_row.vector = s.vector;
  const moe::ExpertRow row(k, in_row);
  const Route route(k, s, t, logits, token);
  auto x = row.load("x", logits.at);
  auto bad = k.var(DType::boolean, false, "bad");
  row.each([&](const Value& slot, const Value&) {
    bad = Value(bad) || !(abs(x(slot)) <= std::numeric_limits<float>::max());
  });
  auto finite = k.let("finite", !k.warp_any(bad));
  auto wanted = k.let("wanted", t.mask || t.count ? t.counts(token) : lane >= 0);
  k.report_unless(finite || !wanted, logits.not_finite);
  auto routed = k.let("routed", finite && wanted);
  route.store_scores(row, x, routed);
  k.if_else(
      routed, [&] { route.store(route.choose(row, x)); },
      [&] {
        k.if_(lane < all, [&] {
          t.topk_idx(token, lane) = i64(-1);
          t.topk_weights(token, lane) = 0.0f;
        });
        route.store_unmapped(i32(-1));
      });
}

}  // namespace tessera::kernels::serving
