#pragma once
// Parts of the references of the gated delta rule.

#include <cstdint>
#include <vector>

#include "kernels/call_types.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct DeltaOptions {
  float scale;
  bool has_norm;
  float eps;
};
/// The parameters of a call, with their defaults.
DeltaOptions delta_options(const kernels::Params& params, int64_t dk);

/// The row of `width` elements at row `row`.
std::vector<float> delta_row(const test::HostTensor& tensor, int64_t row, int64_t width);

/// The nearest value of the dtype.
float rounded_to(DType dtype, float value);

/// A row of q or k as the rule takes it: divided by its length if the call asks for it. The other two are mistakes: eps added
/// to the length, and no rounding.
std::vector<float> normed_row(std::vector<float> x, const DeltaOptions& options, DType dtype,
                              bool is_eps_outside = false, bool is_unrounded = false);

/// log2 of the decay of a token, at least -128.
float log2_decay(float g);

/// A slot of `count`, -1 for one that does not exist.
int64_t delta_slot(const test::HostTensor& slots, int64_t element, int64_t count);

}  // namespace tessera::reference
