#pragma once
// The parts that swiglu_fwd and swiglu_bwd share.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/serving/swiglu/parts/expert_rows.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Consecutive rows of a block. Few rows take a block each.
inline int64_t swiglu_rows_per_block(int64_t rows, int64_t warps) {
  constexpr int64_t kManyRows = 2048;
  return rows >= kManyRows ? std::min<int64_t>(warps, 8) : 1;
}

/// Flags of the block's rows, in shared memory: warp w finds out about row first + w.
inline dsl::Ref owned_rows(dsl::Builder& k, const ExpertRows& experts, const dsl::Value& first,
                           const dsl::Value& count, int64_t warps) {
  auto owned = k.shared(DType::boolean, {warps}, "owned_rows");
  k.if_(k.warp() < count, [&] {
    const dsl::Value is_owned = experts.owned(first + k.warp());
    k.if_(k.lane() == 0, [&] { owned(k.warp()) = is_owned; });
  });
  return owned;
}

/// Checks parameters that go with tensors.
inline void require_swiglu(const Call& c) {
  c.need(!c.has_value("routed_scaling_factor") || c.has("topk_weights"), "routed_scaling_factor",
         "parameter 'routed_scaling_factor' needs 'topk_weights'", "topk_weights", "nothing");
}

/// The scalars of the kernels.
inline std::vector<Args::Scalar> swiglu_scalars(const Call& c, int64_t rows_per_block) {
  std::vector<Args::Scalar> scalars = {{"rows_per_block", rows_per_block}};
  if (c.has_value("swiglu_clamp_value")) {
    scalars.push_back({"clamp_value", c.number("swiglu_clamp_value")});
  }
  if (c.has_value("routed_scaling_factor")) {
    scalars.push_back({"routed_scaling_factor", c.number("routed_scaling_factor")});
  }
  return scalars;
}

}  // namespace tessera::kernels::serving
