// compress_prefill: compress_fwd, then compress_state_write: windows of the call may still read the
// old slots.
//
// Method   two kernels; the second waits for the first.
// Maths    that of compress_fwd

#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/window_cases.h"
#include "kernels/serving/parts/window_values.h"
#include "kernels/signature/chain.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  launch_chain(c, go, [](Chain& chain) {
    chain.add(compress_fwd_op);
    chain.add(compress_state_write_op);
  });
}

void check_values(const Call& c) {
  serving::require_planned_windows(c);
  serving::require_planned_writes(c);
}

}  // namespace

const Op compress_prefill_op{
    .name = "compress_prefill",
    .family = "serving",
    .purpose = "KV entries of windows of tokens, and the rows that later windows need to the state",
    .signature = R"(
      x               f32/bf16 [N, L] rows      # kv and score of the new tokens
      ape             f32 [W, D]                # bias of the scores by slot
      plan            i32 [C, 8]                # of compress_plan
      write_plan      i32 [Y, 2]
      -> out          out_dtype [C, D]
      -> inout state  f32/bf16 [slots, L] rows
      param  ratio {4, 128}
      param  out_dtype {f32, bf16} = f32
      need   slots >= 1 on state "argument 'state' has no rows"
    )",
    .launches = launches,
    .check = serving::require_windows,
    .check_values = check_values,
    .examples = R"(
      C=7 Y=8 D=512 ratio=4 x=bf16 state=bf16; C=5 Y=5 D=128 ratio=4 x=f32 state=f32 out_dtype=bf16
      C=2 Y=100 D=256 ratio=128 x=bf16 state=f32)",
    .bench = R"(
      C=8192 Y=8 D=512 ratio=4 x=bf16 state=bf16; C=256 Y=128 D=512 ratio=128 x=bf16 state=bf16)",
    .case_words = {{"N", serving::rows_of_windows},
                   {"L", serving::row_length},
                   {"W", serving::slots_of_window},
                   {"slots", serving::slots_of_window}},
    .values = {{"plan", serving::planned_window}, {"write_plan", serving::planned_write}}};

}  // namespace tessera::kernels
