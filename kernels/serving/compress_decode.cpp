// compress_decode: stores the row of one new token per request to its slot, and computes the
// entries of the windows that end.
//
// Dtypes   x and state f32|bf16
// Method   see compress_kernel.cpp; the row of the token itself comes from x.

#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/compress_kernel.h"
#include "kernels/serving/parts/window_cases.h"
#include "kernels/serving/parts/window_values.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::launch_compress(c, go, true);
}

}  // namespace

const Op compress_decode_op{
    .name = "compress_decode",
    .family = "serving",
    .purpose = "one new token of each request to the state, and the KV entries of windows that end",
    .signature = R"(
      x                f32/bf16 [B, L] rows
      ape              f32 [W, D]                # bias of the scores by slot
      plan             i32 [B, 8]                # of compress_plan_decode
      -> out           out_dtype [B, D]          # 0 where no window ends
      -> inout state   f32/bf16 [slots, L] rows
      param  ratio {4, 128}
      param  out_dtype {f32, bf16} = f32
      need   slots >= 1 on state "argument 'state' has no rows"
    )",
    .launches = launches,
    .check = serving::require_windows,
    .check_values = serving::require_planned_tokens,
    .examples = R"(
      B=9 D=512 ratio=4 x=bf16 state=bf16; B=5 D=128 ratio=4 x=f32 state=f32 out_dtype=bf16
      B=3 D=512 ratio=128 x=bf16 state=f32; B=2 D=128 ratio=128 x=f32 state=f32)",
    .bench = R"(
      B=1 D=512 ratio=4 x=bf16 state=bf16; B=32 D=512 ratio=4 x=bf16 state=bf16
      B=256 D=512 ratio=4 x=bf16 state=bf16; B=1024 D=512 ratio=4 x=bf16 state=bf16
      B=1 D=512 ratio=128 x=bf16 state=bf16; B=32 D=512 ratio=128 x=bf16 state=bf16
      B=256 D=512 ratio=128 x=bf16 state=bf16; B=1024 D=512 ratio=128 x=bf16 state=bf16
      B=256 D=128 ratio=4 x=bf16 state=bf16)",
    .case_words = {{"L", serving::row_length},
                   {"W", serving::slots_of_window},
                   {"slots", serving::slots_of_tokens}},
    .values = {{"plan", serving::planned_token}},
    .bytes = serving::token_bytes};

}  // namespace tessera::kernels
