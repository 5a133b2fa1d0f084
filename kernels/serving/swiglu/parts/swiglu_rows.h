#pragma once
// The walk of swiglu_fwd and swiglu_bwd: a block has up to eight rows, one after another. Its warps find out
// first which of them belong to experts.

#include <cstdint>
#include <functional>
#include <optional>

#include "dsl/builder.h"
#include "kernels/serving/swiglu/parts/expert_rows.h"

namespace tessera::kernels::serving {

/// The optional parts of a call, in a Spec.
struct SwigluForm {
  bool has_experts, has_weights, has_factor, has_clamp;
};

class SwigluRows {
 public:
  /// Declares psum, topk_weights, routed_scaling_factor and clamp_value, as far as there are any.
  SwigluRows(dsl::Builder& k, const SwigluForm& form, const dsl::Value& positions);

  /// Declares rows_per_block and the launch, so many threads to a block and, if given, to a multiprocessor at least.
  void launch(int64_t threads, int64_t at_once = 0);
  /// Waits for the previous kernel, and finds the owners of the block's rows.
  void start();
  /// Calls body(position, whether the row belongs to an expert, the same in all threads) for each row.
  void each(const std::function<void(const dsl::Value& position, const dsl::Value& valid)>& body);

  bool has_weights() const { return weights_.has_value(); }
  /// The weight of a row times the factor.
  dsl::Value weight(const dsl::Value& position) const;
  /// `value`, times the factor.
  dsl::Value scaled(const dsl::Value& value) const { return factor_ ? value * *factor_ : value; }
  const std::optional<dsl::Value>& clamp() const { return clamp_; }

 private:
  dsl::Builder& k_;
  dsl::Value positions_;
  std::optional<ExpertRows> experts_;
  std::optional<dsl::Ref> weights_, owned_;
  std::optional<dsl::Value> factor_, clamp_;
  int64_t threads_ = 0;
  dsl::Value block_, rows_per_block_, first_, rows_;
};

}  // namespace tessera::kernels::serving
