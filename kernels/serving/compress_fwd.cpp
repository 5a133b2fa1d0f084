// compress_fwd: the entries of the windows of a plan.
//
// Dtypes   x and state f32|bf16
// Method   see compress_kernel.cpp

#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/compress_kernel.h"
#include "kernels/serving/parts/window_cases.h"
#include "kernels/serving/parts/window_values.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::launch_compress(c, go, false);
}

}  // namespace

const Op compress_fwd_op{.name = "compress_fwd",
                         .family = "serving",
                         .purpose = "KV entries of windows of tokens, weighted by their scores",
                         .signature = R"(
      x       f32/bf16 [N, L] rows      # kv and score of the new tokens
      ape     f32 [W, D]                # bias of the scores by slot
      state   f32/bf16 [slots, L] rows  # rows of tokens before
      plan    i32 [C, 8]                # of compress_plan
      -> out  out_dtype [C, D]
      param  ratio {4, 128}
      param  out_dtype {f32, bf16} = f32
      need   slots >= 1 on state "argument 'state' has no rows"
    )",
                         .launches = launches,
                         .check = serving::require_windows,
                         .check_values = serving::require_planned_windows,
                         .examples = R"(
      C=7 D=512 ratio=4 x=bf16 state=bf16; C=5 D=128 ratio=4 x=f32 state=f32 out_dtype=bf16
      C=3 D=512 ratio=128 x=bf16 state=bf16; C=2 D=128 ratio=128 x=f32 state=f32)",
                         .bench = R"(
      C=1024 D=512 ratio=4 x=bf16 state=bf16; C=8192 D=512 ratio=4 x=bf16 state=bf16
      C=32768 D=512 ratio=4 x=bf16 state=bf16; C=8192 D=512 ratio=4 x=f32 state=f32
      C=8192 D=128 ratio=4 x=bf16 state=bf16; C=8192 D=128 ratio=4 x=f32 state=f32
      C=32 D=512 ratio=128 x=bf16 state=bf16; C=256 D=512 ratio=128 x=bf16 state=bf16
      C=256 D=512 ratio=128 x=f32 state=f32; C=1024 D=512 ratio=128 x=bf16 state=bf16
      C=1024 D=128 ratio=128 x=bf16 state=bf16)",
                         .case_words = {{"N", serving::rows_of_windows},
                                        {"L", serving::row_length},
                                        {"W", serving::slots_of_window},
                                        {"slots", serving::slots_of_window}},
                         .values = {{"plan", serving::planned_window}}};

}  // namespace tessera::kernels
