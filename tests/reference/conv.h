#pragma once
// The short causal convolution of each channel by definition, and the gated norm after a linear attention.
//
//   acc = bias, or +0; acc = fma(weight[j], input W - 1 - j tokens ago, acc), j = 0 .. W - 1, the oldest first
//   out = round(acc), or round(acc / (1 + exp(-acc)))
//
// Inputs before the first token come from the state, else are +0. A state is the last W - 1 inputs, oldest first.

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Mistakes that the cases must catch.
enum class ConvMistake : uint8_t {
  none,
  newest_first,      // weight[0] is that of the newest input
  state_reversed,    // the state has the newest input first
  zero_fills,        // a state of a short request begins with zeros, not with older inputs
  keeps_state,       // the state is not written
  wraps_slot,        // slot -1 is the last slot
  padded_row_runs,   // a row without a slot to read starts from +0
  last_token_alone,  // of several slots of a request only the last is written
  previous_request,  // the first inputs are those at the end of the request before
  silu_before_bias,  // the bias is added last
  sigmoid,           // the activation lacks its factor
  one_weight,        // all channels have the filter of the first
};

test::HostTensors causal_conv1d_fwd(const test::HostTensors& in, const kernels::Params& params,
                                    ConvMistake mistake = ConvMistake::none);
test::HostTensors causal_conv1d_update(const test::HostTensors& in, const kernels::Params& params,
                                       ConvMistake mistake = ConvMistake::none);

/// Mistakes of the gated norm.
enum class GatedNormMistake : uint8_t {
  none,
  gate_first,    // x is gated before the norm
  sum_for_mean,  // the sum of squares is not divided
  eps_outside,   // eps is added to the root
  other_gate,    // silu and sigmoid are exchanged
  gate_of_x,     // x gates itself
  first_weight,  // all columns have the first weight
};

/// r = 1 / sqrt(mean of squares + eps); out = round(((x * r) * weight) * act(z)).
test::HostTensors rmsnorm_gated_fwd(const test::HostTensors& in, const kernels::Params& params,
                                    GatedNormMistake mistake = GatedNormMistake::none);

/// The reference of an op of the linear family, or null if it is none.
Runner linear_runner(const std::string& op);

}  // namespace tessera::reference
