#include "kernels/serving/gate/parts/hash_route.h"

#include <bit>
#include <limits>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/expert_score.h"

namespace tessera::kernels::serving {
namespace {

using dsl::Value;

DType integer(bool wide) {
  return wide ? DType::i64 : DType::i32;
}

}  // namespace

int64_t HashSpec::lanes() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(slots())));
}

HashSpec hash_spec(const Call& c) {
  return {c.i32("K"),
          c.i32("S"),
          c.dtype("token_ids") == DType::i64,
          c.dtype("topk_idx") == DType::i64,
          c.has("num_tokens"),
          c.word("scale") == "routed"};
}

Value HashTensors::count() const {
  return num_tokens ? min((*num_tokens)(0), tokens) : tokens;
}

HashTensors declare_hash(OpBuilder& k, const HashSpec& s) {
  HashTensors t{k.extent("T"),
                k.extent("V"),
                k.tensor("token_ids", {.dtype = integer(s.wide_tokens)}),
                k.tensor("table"),
                k.tensor("topk_idx", {.dtype = integer(s.wide_ids)}),
                k.tensor("topk_weights"),
                {},
                {}};
  if (s.has_num_tokens) t.num_tokens = k.tensor("num_tokens");
  t.scale = k.param("routed_scaling_factor");
  return t;
}

void route_by_table(dsl::Builder& k, const HashSpec& s, const HashTensors& t,
                    const HashLogits& logits, const Value& token, const Value& slot,
                    const Value& counts) {
  using namespace dsl;
  const Value& experts = logits.experts;
  auto expert = k.var(DType::i32, -1, "expert");
  auto score = k.var(DType::f32, 0.0f, "score");
  auto bad = k.var(DType::boolean, false, "bad");  // the row is padding
  k.if_(counts, [&] {
    auto id = k.let("id", i64(t.token_ids(token).unchecked()));
    auto known = k.let("known", id >= 0 && id < i64(t.entries));
    k.report_unless(known, out_of_range("token_ids"));
    bad = !known;
    k.if_(known && slot < s.num_topk, [&] {
      auto named = k.let("named", t.table(i32(id), slot).unchecked());
      auto exists = k.let("exists", named >= 0 && named < experts);
      k.report_unless(exists, out_of_range("table"));
      k.if_(exists, [&] { expert = named; });
    });
  });
  logits.before();
  k.if_(expert >= 0, [&] {
    auto logit = k.let("logit", logits.at(expert));
    auto finite = k.let("finite", abs(logit) <= std::numeric_limits<float>::max());
    k.report_unless(finite, logits.not_finite);
    bad = !finite;
    score = moe::expert_score(moe::Scoring::sqrtsoftplus, logit, logit, logit);
  });
  const int64_t lanes = s.lanes();
  auto group = k.let("group", k.ballot(bad) >> u32(k.lane() / lanes * lanes));
  const auto mask = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);
  auto routed = k.let("routed", counts && (group & mask) == 0);
  auto sum = k.var(DType::f32, score, "sum");
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    sum = sum + k.shuffle_xor(sum, distance);
  }
  auto share = k.let("share", score / (sum + 1e-20f));
  k.if_(token < t.tokens && slot < s.slots(), [&] {
    const bool scaled = s.scales_routed;
    auto routed_weight = scaled ? share * t.scale : share;
    auto shared_weight = scaled ? f32(1.0f) : 1.0f / t.scale;
    auto id = select(slot < s.num_topk, expert, experts + (slot - s.num_topk));
    auto weight =
        select(slot < s.num_topk, select(expert >= 0, routed_weight, 0.0f), shared_weight);
    t.topk_idx(token, slot) = cast(integer(s.wide_ids), select(routed, id, -1));
    t.topk_weights(token, slot) = select(routed, weight, 0.0f);
  });
}

}  // namespace tessera::kernels::serving
