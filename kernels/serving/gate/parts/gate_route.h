#pragma once
// The routing of one token of moe_topk_gate_fwd by a warp, from logits that lie anywhere.
//
// The lanes rank the experts together (moe/parts/best_expert.h). Slot s belongs to lane s, which reads the logit of its expert
// again. Tokens that do not count, and tokens with a logit that is not finite, get -1 and 0 in all slots.

#include <functional>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/moe/parts/expert_place.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Everything that generated code depends on.
struct GateSpec {
  int32_t experts, num_topk, num_shared;
  bool has_bias, has_image_bias, has_mask, has_fixed, has_unmapped, has_map, save_scores;
  uint8_t vector;  // logits per load
};

/// The tensors of the kernel besides the logits, and its scalars. From token `count` on nothing counts.
struct GateTensors {
  dsl::Ref topk_idx, topk_weights;
  std::optional<dsl::Ref> bias, image_bias, image_mask, mask, fixed, unmapped, scores;
  std::optional<moe::ReplicaMap> replicas;
  dsl::Value scale, ep_rank;
  std::optional<dsl::Value> count = {};

  /// False for a token of which nothing is looked at.
  dsl::Value counts(const dsl::Value& token) const;
};

/// The Spec of a call whose logits are aligned to so many bytes.
GateSpec gate_spec(const Call& c, int32_t logits_align);

/// Shared experts that take slots; a function for signatures.
int64_t shared_slots(const Call& c);

/// Above every i32: the map may name any physical expert.
inline constexpr int64_t kAnyPhysical = int64_t{1} << 31;

GateTensors declare_gate(dsl::Builder& k, const GateSpec& s, const dsl::Value& tokens);

/// The logits of a token. A row that counts and is not finite is reported as `not_finite`.
struct GateLogits {
  std::function<dsl::Ref(const dsl::Value& expert)> at;
  std::string not_finite;
};

/// Routes `token` by the lanes of this warp and stores its outputs.
void route_token(dsl::Builder& k, const GateSpec& s, const GateTensors& t, const GateLogits& logits,
                 const dsl::Value& token, const dsl::Value& lane);

}  // namespace tessera::kernels::serving
