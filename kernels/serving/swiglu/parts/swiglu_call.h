#pragma once
// The calls of swiglu_fwd and swiglu_bwd.

#include <algorithm>
#include <vector>

#include "kernels/serving/swiglu/parts/swiglu_rows.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Consecutive rows of a block. Few rows take a block each.
inline int64_t swiglu_rows_per_block(int64_t rows, int64_t warps) {
  constexpr int64_t kManyRows = 2048;
  return rows >= kManyRows ? std::min<int64_t>(warps, 8) : 1;
}

/// The optional parts of a call.
inline SwigluForm swiglu_form(const Call& c) {
  return {c.has("psum"), c.has("topk_weights"), c.has_value("routed_scaling_factor"),
          c.has_value("swiglu_clamp_value")};
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
