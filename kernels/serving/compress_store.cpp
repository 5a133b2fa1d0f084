// compress_store: computes the entries of a plan's windows, normalises and rotates them, and stores
// them to the KV cache.
//
// Dtypes   x and state f32|bf16; the cache as its format
// Method   see compress_kernel.cpp and cache_entry.cpp
// Maths    1 / sqrt(mean of squares + norm_eps), IEEE; the rotation by fma; scales by their rule

#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/compress_kernel.h"
#include "kernels/serving/parts/window_cases.h"
#include "kernels/serving/parts/window_values.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::launch_compress(c, go, false);
}

void check(const Call& c) {
  serving::require_windows(c);
  serving::require_entry(c, c["D"]);
}

void check_values(const Call& c) {
  serving::require_planned_windows(c);
  serving::require_places(c);
}

}  // namespace

const Op compress_store_op{
    .name = "compress_store",
    .family = "serving",
    .purpose = "KV entries of windows of tokens, normalised and rotated, to the cache",
    .signature = R"(
      x               f32/bf16 [N, L] rows      # kv and score of the new tokens
      ape             f32 [W, D]                # bias of the scores by slot
      state           f32/bf16 [slots, L] rows  # rows of tokens before
      plan            i32 [C, 8]                # of compress_plan, for the same page_size
      norm_weight     f32/bf16 [D]
      cos_sin         f32 [angles, 64]
      -> inout cache  u8/bf16 [blocks, bytes] rows
      -> out?         f32 [C, D]  iff save_out  # before quantising
      workspace?      f32 [C, D]  iff ratio = 128
      param  ratio {4, 128}
      param  format {bf16, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
      param  page_size int = 64
      param  cache_order {planes, rows} = planes  # as in kv_store
      param  norm_eps float = 1e-6
      param  hadamard bool = false
      param  cos_sin_layout {pairs, halves} = pairs
      param  save_out bool = false
      need   slots >= 1 on state "argument 'state' has no rows"
      need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
      need   blocks >= 1 on cache "argument 'cache' has no rows"
    )",
    .launches = launches,
    .check = check,
    .check_values = check_values,
    .examples = R"(
      C=7 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8; C=5 D=128 ratio=4 x=f32 state=f32 format=index_fp8 hadamard=true
      C=3 D=512 ratio=128 x=bf16 state=f32 format=v4_fp8 cos_sin_layout=halves
      C=5 D=128 ratio=4 x=bf16 state=bf16 format=index_fp4 save_out=true; C=2 D=256 ratio=128 x=bf16 state=bf16 format=bf16 cache=bf16)",
    .bench = R"(
      C=1024 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8; C=8192 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8
      C=32768 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8; C=8192 D=512 ratio=4 x=f32 state=f32 format=v4_fp8
      C=8192 D=128 ratio=4 x=bf16 state=bf16 format=index_fp8 hadamard=true
      C=32 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8; C=256 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8
      C=1024 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8)",
    .case_words = {{"N", serving::rows_of_windows},
                   {"L", serving::row_length},
                   {"W", serving::slots_of_window},
                   {"slots", serving::slots_of_window},
                   {"angles", serving::positions_of_windows},
                   {"blocks", serving::blocks_of_windows},
                   {"bytes", serving::bytes_of_block}},
    .values = {{"plan", serving::planned_window}},
    .bytes = serving::stored_window_bytes};

}  // namespace tessera::kernels
