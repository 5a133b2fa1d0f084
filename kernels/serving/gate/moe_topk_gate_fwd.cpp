// moe_topk_gate_fwd: the router of a mixture of experts by the root of softplus, without groups.
//
// Shapes   logits, scores [tokens, experts], topk_idx, topk_weights [tokens, num_topk + num_shared],
//          to_physical_map [experts + num_shared, replicas]
// Dtypes   f32, ids i64, maps i32, masks bool
// Method   one warp per token, ranked as in top2_sum_gate. Slot s belongs to lane s, which reloads the
//          logit of its expert. Few bytes: with few tokens the bound is the latency of one load and of
//          the rounds, with thousands the instructions.
// Maths    u = sqrt(softplus(logit)); the experts of the largest u + bias, equal ones by smaller id;
//          weight = u / D * scale, D = 1e-20 + the sum of u in pairs at distance 16, 8, 4, 2, 1

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/moe/parts/best_expert.h"
#include "kernels/moe/parts/expert_place.h"
#include "kernels/moe/parts/expert_row.h"
#include "kernels/moe/parts/router_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t experts, num_topk, num_shared;
  bool has_bias, has_image_bias, has_mask, has_fixed, has_unmapped, has_map, save_scores;
  uint8_t vector;  // logits per load
};

constexpr int kWarps = 4;  // tokens per block
// Above every i32: the map may name any physical expert.
constexpr int64_t kAnyPhysical = int64_t{1} << 31;

/// The tensors of the kernel.
struct Tensors {
  dsl::Ref logits, topk_idx, topk_weights;
  std::optional<dsl::Ref> bias, image_bias, image_mask, mask, fixed, unmapped, scores;
  std::optional<moe::ReplicaMap> replicas;
};

dsl::Value score_of(const dsl::Value& logit) {
  return moe::expert_score(moe::Scoring::sqrtsoftplus, logit, logit, logit);
}

/// The routing of one token by a warp.
class Route {
 public:
  Route(dsl::Builder& k, const Spec& s, const Tensors& t, const dsl::Value& token)
      : k_(k), s_(s), t_(t), token_(token), lane_(k.lane()) {}

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
  void store(const dsl::Ref& mine, const dsl::Value& scale, const dsl::Value& ep_rank) const {
    using namespace dsl;
    const int64_t all = s_.num_topk + s_.num_shared;
    auto score = k_.var(DType::f32, 0.0f, "score");
    k_.if_(mine >= 0, [&] { score = score_of(t_.logits(token_, mine)); });
    auto sum = k_.var(DType::f32, score, "sum");
    for (const int distance : {16, 8, 4, 2, 1}) sum = sum + k_.shuffle_xor(sum, distance);
    auto share = k_.let("share", score / (sum + 1e-20f) * scale);
    auto weight = select(lane_ >= s_.num_topk, 1.0f, select(mine >= 0, share, 0.0f));
    auto shared_expert = lane_ + i32(s_.experts - s_.num_topk);
    auto logical = k_.let("logical", select(lane_ >= s_.num_topk, shared_expert, mine));
    Value id = logical;
    if (t_.replicas) {
      auto seed = i64(ep_rank) + i64(token_) * 23333;
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
  const Spec& s_;
  const Tensors& t_;
  const dsl::Value token_, lane_;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t align = s.vector * 4, all = s.num_topk + s.num_shared;
  Builder k("moe_topk_gate_fwd");
  auto tokens = k.dim("tokens");
  Tensors t{k.input("logits", DType::f32, {tokens, s.experts}, {.align = align}),
            k.output("topk_idx", DType::i64, {tokens, all}, {.align = 8}),
            k.output("topk_weights", DType::f32, {tokens, all}, {.align = 4}),
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
  auto scale = k.scalar("routed_scaling_factor", DType::f32);
  auto ep_rank = k.scalar("ep_rank", DType::i32);
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});
  k.let_next_kernel_start();
  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.wait_for_previous_kernel();
  k.if_(token < tokens, [&] {
    moe::RouterSpec in_row{};
    in_row.experts = s.experts;
    in_row.vector = s.vector;
    const moe::ExpertRow row(k, in_row);
    const Route route(k, s, t, token);
    auto x = row.load("x", [&](const Value& expert) { return t.logits(token, expert); });
    auto bad = k.var(DType::boolean, false, "bad");
    row.each([&](const Value& slot, const Value&) {
      bad = Value(bad) || !(abs(x(slot)) <= std::numeric_limits<float>::max());
    });
    auto finite = k.let("finite", !k.warp_any(bad));
    auto wanted = k.let("wanted", t.mask ? Value((*t.mask)(token)) : lane >= 0);
    k.report_unless(finite || !wanted, out_of_range("logits"));
    auto routed = k.let("routed", finite && wanted);
    route.store_scores(row, x, routed);
    k.if_else(
        routed, [&] { route.store(route.choose(row, x), scale, ep_rank); },
        [&] {
          k.if_(lane < all, [&] {
            t.topk_idx(token, lane) = i64(-1);
            t.topk_weights(token, lane) = 0.0f;
          });
          route.store_unmapped(i32(-1));
        });
  });
  return k.finish();
}

int64_t shared_slots(const Call& c) {
  return c.flag("use_shared_as_routed") ? c["num_shared_experts"] : 0;
}

void launches(const Call& c, Launches& go) {
  Spec s{};
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
  int32_t align = c.align({"logits"});
  for (const char* name : {"bias", "image_bias"}) {
    if (c.has(name)) align = std::min(align, c.align({name}));
  }
  if (s.save_scores) align = std::min(align, c.align({"scores"}));
  s.vector = static_cast<uint8_t>(align == 16 && s.experts % 4 == 0 ? 4 : 1);
  go.add(build, s);
}

}  // namespace

const Op moe_topk_gate_fwd_op{
    .name = "moe_topk_gate_fwd",
    .family = "serving",
    .purpose = "the experts of each token by the root of softplus, and their weights",
    .signature = R"(
      logits             f32 [T, E]
      bias?, image_bias? f32 [E]
      image_token_mask?  bool [T]         iff image_bias  # true: ranked by image_bias
      mask?              bool [T]         # false: a padding row, of which nothing is looked at
      fix_routing_mask?  bool [T]         # true: keeps its unmapped_topk_idx
      to_physical_map?   i32 [E+S, D]     iff logical_count
      logical_count?     i32 [E+S]        iff to_physical_map
      -> topk_idx        i64 [T, K+S]
      -> topk_weights    f32 [T, K+S]
      -> scores?         f32 [T, E]       iff save_scores
      -> inout unmapped_topk_idx?  i64 [T, K] rows
      param  num_topk int 1..32
      param  use_shared_as_routed bool = false
      param  num_shared_experts int = 0
      param  routed_scaling_factor float = 1
      param  ep_rank int = 0
      param  save_scores bool = false
      let    K = num_topk
      let    S = shared_slots()
      let    physical = num_physical()
      need   num_topk <= E
      limit  E <= 4096 on logits "too many experts"   # 128 keys per lane still fit its registers
      need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
      need   num_shared_experts >= 0
      need   K + S <= 32 on num_topk "'num_topk' and shared experts are too many for a token"
      need   0 <= ep_rank <= 2147483647
      need   unmapped_topk_idx if fix_routing_mask
      |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
    )",
    .launches = launches,
    .check_values = moe::require_routable,
    .functions = {{"shared_slots", shared_slots},
                  {"num_physical", [](const Call&) { return kAnyPhysical; }}},
    .examples = R"(
      T=65 E=256 num_topk=8 bias=given routed_scaling_factor=2.5; T=5 E=72 num_topk=6 save_scores=true
      T=7 E=30 num_topk=5 bias=given image_bias=given save_scores=true
      T=36 E=384 num_topk=6 num_shared_experts=1 use_shared_as_routed=true to_physical_map=given logical_count=given mask=given unmapped_topk_idx=given)",
    .bench = R"(
      T=1 E=256 num_topk=6 bias=given; T=512 E=256 num_topk=6 bias=given; T=8001 E=256 num_topk=6 bias=given
      T=8192 E=256 num_topk=6 bias=given; T=8192 E=256 num_topk=6 bias=given save_scores=true
      T=8192 E=384 num_topk=6 bias=given; T=8192 E=256 num_topk=8 bias=given)",
    // The last four tokens are masked; every expert has one replica, itself.
    .case_words = {{"K", [](const Case& c) { return c["num_topk"]; }},
                   {"S",
                    [](const Case& c) {
                      return c.find("use_shared_as_routed") == ParamValue(true)
                                 ? c["num_shared_experts"]
                                 : int64_t{0};
                    }},
                   {"D", [](const Case&) { return int64_t{33}; }}},
    .values = {{"mask", [](const Case& c, int64_t t) { return t < c["T"] - 4 ? int64_t{1} : 0; }},
               {"image_token_mask", [](const Case&, int64_t t) { return t % 2; }},
               {"to_physical_map", [](const Case& c, int64_t i) { return i / c["D"]; }},
               {"logical_count", [](const Case&, int64_t) { return int64_t{1}; }}},
    .bytes = [](const Case& c) {
      const int64_t rows = c.find("save_scores") == ParamValue(true) ? 2 * c["T"] : c["T"];
      return 4 * (rows + 1) * c["E"] + 12 * c["T"] * c["K"];
    }};

}  // namespace tessera::kernels
