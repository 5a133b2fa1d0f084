// causal_conv1d_update: causal_conv1d_fwd of the newest tokens of each request, on a pool of states.
//
// Dtypes   x, out, pool bf16|f16|f32; weight, bias as x or f32
// Method   see conv_kernel.cpp. The bound is bytes / copy bandwidth: x and out once, a state read and written.

#include "kernels/linear/parts/conv_kernel.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {

const Op causal_conv1d_update_op{
    .name = "causal_conv1d_update",
    .family = "linear",
    .purpose = "short causal convolution of the newest tokens, on a pool of states",
    .signature = R"(
      x               bf16/f16/f32 [B, n, C] rows
      weight          bf16/f16/f32 [C, W]       # the oldest input first
      bias?           as weight [C]
      read_slots      i32 [B]                   # -1: the row is padding, out +0
      write_slots     i32 [B, m?]               # of the state after the last token; m = n: after each; -1: not written
      -> out          as x [B, n, C]
      -> inout pool   as x [N, C, W-1] any1     # the last inputs of requests, the oldest first
      param  activation {none, silu} = none
      need   n >= 1 on x "argument 'x' has no tokens"
      limit  n <= 16 on x "so many tokens are not supported"
      need   W >= 2 on weight "argument 'weight' has too few taps"
      limit  W <= 8 on weight "filters of so many taps are not supported"
      need   N >= 1 on pool "argument 'pool' has no slots"
      limit  B * ceil(C / 32) <= 2147483647 on x "so many rows are not supported"
    )",
    .launches = [](const Call& c, Launches& go) { linear::add_conv(c, go, /*is_update=*/true); },
    .check =
        [](const Call& c) {
          linear::require_weight(c);
          linear::require_slots_of_tokens(c);
        },
    .check_values = [](const Call& c) { linear::require_slots(c, /*skips_padding=*/true); },
    .examples = R"(
      B=5 n=1 C=72 W=4 N=9 x=bf16 weight=bf16 bias=given activation=silu
      B=3 n=3 m=3 C=64 W=4 N=12 x=bf16 weight=f32 pool.strides=192,1,64 activation=silu; B=2 n=2 C=33 W=3 N=5 x=f32 weight=f32)",
    .bench = R"(
      B=256 n=1 C=8192 W=4 N=512 x=bf16 weight=bf16 activation=silu
      B=256 n=1 C=8192 W=4 N=512 x=bf16 weight=bf16 activation=silu pool.strides=24576,1,8192)",
    .values = {{"read_slots", linear::slot_to_read}, {"write_slots", linear::slot_to_write}},
    .bytes =
        [](const Case& c) {
          const int64_t size = c.dtype_word("x") == "f32" ? 4 : 2;
          const int64_t of_weight = c.dtype_word("weight") == "f32" ? 4 : 2;
          const int64_t rows = c["B"] * c["C"], written = c.find("m") ? c["n"] : 1;
          return rows * size * (2 * c["n"] + (1 + written) * (c["W"] - 1)) +
                 c["C"] * c["W"] * of_weight + 8 * c["B"];
        }};

}  // namespace tessera::kernels
