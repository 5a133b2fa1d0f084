#pragma once
// The kernel of causal_conv1d_fwd and causal_conv1d_update.

#include "kernels/signature/launches.h"

namespace tessera::kernels::linear {

/// How the states of a tensor lie.
enum class StateForm : uint8_t {
  packed,  // the inputs of a channel one behind the other, channels behind each other without a gap
  by_channel,  // neighbouring channels side by side
  any
};

/// Everything that generated code depends on.
struct ConvSpec {
  DType dtype, weight_dtype;
  StateForm form;
  uint8_t taps;
  uint8_t width, weight_width, state_width;  // elements of an access
  uint8_t warps;
  bool is_update;   // a request without a slot to read is padding
  bool has_tokens;  // else states alone are copied
  bool has_bias, has_silu;
  bool has_pool;  // else initial_state is read and final_state written
  bool reads_state, writes_state;
  bool has_read_slots, has_write_slots, has_slot_of_token;
};

/// Tensors: x, out [batch, tokens, channels] rows; weight [channels * taps]; bias [channels]; pool, or initial_state and
/// final_state, [slots, channels * (taps - 1)] if packed, else [slots, taps - 1, channels]; read_slots [batch]; write_slots
/// [batch], or [batch, tokens].
ir::Kernel build_conv(const ConvSpec& spec);

/// Throws unless the weight has the dtype of x, or f32.
void require_weight(const Call& c);

/// Adds the kernel of a call of either op.
void add_conv(const Call& c, Launches& go, bool is_update);

}  // namespace tessera::kernels::linear
