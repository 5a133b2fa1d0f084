// causal_conv1d_fwd: the short convolution before a linear attention, over whole requests.
//
// Dtypes   x, out, states bf16|f16|f32; weight, bias as x or f32
// Method   see conv_kernel.cpp

#include "kernels/linear/parts/conv_kernel.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {

const Op causal_conv1d_fwd_op{
    .name = "causal_conv1d_fwd",
    .family = "linear",
    .purpose = "short causal convolution of each channel, and its state",
    .signature = R"(
      x                bf16/f16/f32 [B, S, C] rows
      weight           bf16/f16/f32 [C, W]       # the oldest input first
      bias?            as weight [C]
      initial_state?   as x [B, C, W-1]          # inputs before the first token, the oldest first; absent: +0
      read_slots?      i32 [B]                   # of 'pool'; -1: +0; absent: request b has slot b
      write_slots?     i32 [B]                   # -1: the state is not written
      -> out           as x [B, S, C]
      -> final_state?  as x [B, C, W-1]          iff output_final_state
      -> inout pool?   as x [N, C, W-1] any1     # states of requests, in place of the other two
      param  activation {none, silu} = none
      param  output_final_state bool = false
      need   W >= 2 on weight "argument 'weight' has too few taps"
      limit  W <= 8 on weight "filters of so many taps are not supported"
      need   not initial_state if pool on initial_state "states come from 'initial_state' or from 'pool'"
      need   not output_final_state if pool on output_final_state "states go to 'final_state' or to 'pool'"
      need   pool if read_slots on read_slots "'read_slots' needs 'pool'"
      need   pool if write_slots on write_slots "'write_slots' needs 'pool'"
      need   N >= 1 if pool on pool "argument 'pool' has no slots"
      need   N >= B if pool and not (read_slots and write_slots) on pool
      |      "argument 'pool' has fewer slots than requests"
      limit  B * ceil(S / 32) * ceil(C / 32) <= 2147483647 on x "so many rows are not supported"
    )",
    .launches = [](const Call& c, Launches& go) { linear::add_conv(c, go, /*is_update=*/false); },
    .check = linear::require_weight,
    .check_values = [](const Call& c) { linear::require_slots(c, /*skips_padding=*/false); },
    .examples = R"(
      B=2 S=70 C=72 W=4 x=bf16 weight=bf16 bias=given activation=silu initial_state=given output_final_state=true
      B=3 S=37 C=64 W=4 x=bf16 weight=f32 pool=given N=5 read_slots=given write_slots=given activation=silu
      B=1 S=33 C=30 W=3 x=f32 weight=f32; B=2 S=5 C=33 W=8 x=f16 weight=f16 output_final_state=true)",
    .bench = R"(
      B=1 S=32768 C=8192 W=4 x=bf16 weight=bf16 activation=silu
      B=8 S=1024 C=8192 W=4 x=bf16 weight=bf16 activation=silu output_final_state=true)",
    .values = {{"read_slots", linear::slot_from_end}, {"write_slots", linear::slot_from_end}}};

}  // namespace tessera::kernels
