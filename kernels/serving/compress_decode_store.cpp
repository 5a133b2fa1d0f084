// compress_decode_store: stores the row of one new token per request to its slot; computes the
// entries of the windows that end, normalises and rotates them, and stores them to the KV cache.
//
// Dtypes   x and state f32|bf16; the cache as its format
// Method   as compress_decode and compress_store; two kernels for ratio 128

#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/compress_kernel.h"
#include "kernels/serving/parts/window_cases.h"
#include "kernels/serving/parts/window_values.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::launch_compress(c, go, true);
}

void check(const Call& c) {
  serving::require_windows(c);
  serving::require_entry(c, c["D"]);
}

void check_values(const Call& c) {
  serving::require_planned_tokens(c);
  serving::require_places(c);
}

}  // namespace

const Op compress_decode_store_op{.name = "compress_decode_store",
                                  .family = "serving",
                                  .purpose =
                                      "one new token of each request to the state, and entries of "
                                      "windows that end to the KV cache",
                                  .signature = R"(
      x               f32/bf16 [B, L] rows
      ape             f32 [W, D]                # bias of the scores by slot
      plan            i32 [B, 8]                # of compress_plan_decode, for the same page_size
      norm_weight     f32/bf16 [D]
      cos_sin         f32 [angles, 64]
      -> inout state  f32/bf16 [slots, L] rows
      -> inout cache  u8/bf16 [blocks, bytes] rows
      -> out?         f32 [B, D]  iff save_out  # before quantising; 0 where no window ends
      workspace?      f32 [B, D]  iff ratio = 128
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
      B=9 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8; B=5 D=128 ratio=4 x=f32 state=f32 format=index_fp8 hadamard=true
      B=3 D=512 ratio=128 x=bf16 state=f32 format=v4_fp8 cos_sin_layout=halves
      B=5 D=128 ratio=4 x=bf16 state=bf16 format=index_fp4 save_out=true; B=2 D=256 ratio=128 x=bf16 state=bf16 format=bf16 cache=bf16)",
                                  .bench = R"(
      B=1 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8; B=32 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8
      B=256 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8; B=1024 D=512 ratio=4 x=bf16 state=bf16 format=v4_fp8
      B=256 D=128 ratio=4 x=bf16 state=bf16 format=index_fp8 hadamard=true
      B=1 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8; B=32 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8
      B=256 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8; B=1024 D=512 ratio=128 x=bf16 state=bf16 format=v4_fp8)",
                                  .case_words = {{"L", serving::row_length},
                                                 {"W", serving::slots_of_window},
                                                 {"slots", serving::slots_of_tokens},
                                                 {"angles", serving::positions_of_tokens},
                                                 {"blocks", serving::blocks_of_tokens},
                                                 {"bytes", serving::bytes_of_block}},
                                  .values = {{"plan", serving::planned_token}},
                                  .bytes = serving::stored_token_bytes};

}  // namespace tessera::kernels
