#pragma once
// The routing of tokens by a table, as hash_gate has it, from logits that lie anywhere.
//
// A token has a group of lanes, as many as its slots, rounded up to a power of two. Each lane goes from token id to
// expert to logit, and the group sums the scores. A token that the table does not know, or whose logits are not finite,
// gets -1 and 0 in all slots, as do tokens that do not count.

#include <functional>
#include <optional>
#include <string>

#include "kernels/signature/call.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels::serving {

/// Everything that generated code depends on.
struct HashSpec {
  int32_t num_topk, num_shared;
  bool wide_tokens, wide_ids;  // i64
  bool has_num_tokens;
  bool scales_routed;  // the factor scales routed experts; else its inverse scales shared experts

  int64_t slots() const { return num_topk + num_shared; }
  int64_t lanes() const;  // of a token
};

HashSpec hash_spec(const Call& c);

/// The tensors of the kernel besides the logits, and its scalar.
struct HashTensors {
  dsl::Value tokens, entries;
  dsl::Ref token_ids, table, topk_idx, topk_weights;
  std::optional<dsl::Ref> num_tokens;
  dsl::Value scale;

  /// The tokens that count.
  dsl::Value count() const;
};

HashTensors declare_hash(OpBuilder& k, const HashSpec& s);

/// The logits of a token. One that is looked at and not finite is reported as `not_finite`.
struct HashLogits {
  dsl::Value experts;
  std::function<dsl::Value(const dsl::Value& expert)> at;
  std::string not_finite;
  std::function<void()> before = [] {};  // statements ahead of the first
};

/// Routes one token by each group of lanes and stores its outputs; `slot` is the lane in the group. All lanes of the warp
/// take part, those without a token with one that does not exist. `counts`: the token is no padding.
void route_by_table(dsl::Builder& k, const HashSpec& s, const HashTensors& t,
                    const HashLogits& logits, const dsl::Value& token, const dsl::Value& slot,
                    const dsl::Value& counts);

}  // namespace tessera::kernels::serving
