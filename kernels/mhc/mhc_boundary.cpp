// mhc_boundary: all work between two sub-layers: the residual streams after one, mixes, input and norm of the next.
//
// Method   post_fwd, then pre_big_fuse_and_norm: the streams pass through memory between the two, where one launch would
//          keep them on chip
// Maths    that of the parts, with their roundings: the projection reads next_residual as bf16, the norm reads
//          layer_input as bf16
// Bound    x and residual once, next_residual, out and what is saved once: bytes at the copy rate

#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/chain.h"

namespace tessera::kernels {
namespace {

void parts(Chain& chain) {
  chain.add(post_fwd_op, {{"out", "next_residual"}});
  chain.add(pre_big_fuse_and_norm_op, {{"residual", "next_residual"},
                                       {"post_mix", "next_post_mix"},
                                       {"comb_mix", "next_comb_mix"}});
}

int64_t elements(const Call& c) {
  return chained_elements(c, parts);
}

void launches(const Call& c, Launches& go) {
  launch_chain(c, go, parts);
}

/// x, the streams before and after, mixes before and after, out, fn; layer_input where it is saved.
int64_t least_bytes(const Case& c) {
  const int64_t n = c["n"], width = c["H"];
  const bool casts = c.find("format") == ParamValue(std::string("e4m3"));
  const bool saves = c.find("save_layer_input") == ParamValue(true);
  const int64_t of_token = 2 * width + 4 * n * width + (casts ? 1 : 2) * width +
                           (saves ? 2 * width : 0) + 8 * n * (n + 1);
  return c["T"] * of_token + 4 * n * (n + 2) * n * width;
}

}  // namespace

const Op mhc_boundary_op{
    .name = "mhc_boundary",
    .family = "mhc",
    .purpose = "from a sub-layer's output to the normalised input of the next, in one call",
    .signature = R"(
      x                 bf16 [T, H]           # the output of a sub-layer
      residual          bf16 [T, n, H]
      post_mix          f32 [T, n]            # of that sub-layer
      comb_mix          f32 [T, n, n]
      fn                f32 [M, n*H]          # of the next one, as for pre_big_fuse
      scale             f32 [3]
      base              f32 [M]
      norm_weight?      f32 [n*H]
      weight?           bf16 [H]              # of the norm
      -> next_residual  bf16 [T, n, H]
      -> next_post_mix  f32 [T, n]
      -> next_comb_mix  f32 [T, n, n]
      -> layer_input?   bf16 [T, H]           iff save_layer_input
      -> out            bf16/e4m3 [T, H] align 16  # e4m3 where format says so
      -> out_sf?        SF(1,num_per_channels) sf_layout  iff format = e4m3
      -> out_bf16?      bf16 [T, H] align 16  iff save_bf16
      workspace         f32 [elements()]
      param             norm_eps, pre_eps, sinkhorn_eps float = 1e-6
      param             post_mult_value float = 1
      param             sinkhorn_repeat int 1..45 = 10
      param             n_splits int 1..16 = 16
      param             rms_eps float         # of the norm
      param             out_scale float = 1
      param             format {none, e4m3} = none
      param             num_per_channels {32, 128} = 32
      param             round_sf bool = false
      param             sf_layout = row_major
      param             save_layer_input, save_bf16 bool = false
      limit             n = 4 on residual "so many streams are not supported"
      need              H >= 1 on x "argument 'x' has no columns"
      limit             H % 256 = 0 on x "rows of this length are not supported"
      limit             H <= 8192 on x "rows this long are not supported"
      need              M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
      limit             T * M <= 2147483647 on residual "so many tokens are not supported"
      need              round_sf if sf_layout = packed_ue8m0 on sf_layout
      |                 "packed_ue8m0 scales are powers of two"
      bucket            T at 129
    )",
    .launches = launches,
    .functions = {{"elements", elements},
                  {"out_dtype",
                   [](const Call& c) {
                     return static_cast<int64_t>(c.word("format") == "e4m3" ? DType::e4m3
                                                                            : DType::bf16);
                   }}},
    .examples = R"(
      T=13 n=4 H=1280 rms_eps=1e-6 weight=given; T=140 n=4 H=256 rms_eps=1e-6 norm_weight=given save_layer_input=true
      T=5 n=4 H=512 rms_eps=1e-5 weight=given format=e4m3 round_sf=true sf_layout=packed_ue8m0 save_bf16=true
      T=9 n=4 H=256 rms_eps=1e-6 format=e4m3 num_per_channels=128 n_splits=4)",
    .bench = R"(
      T=1 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3; T=64 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3
      T=512 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3
      T=4096 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3 save_layer_input=true
      T=1 n=4 H=4096 rms_eps=1e-6 weight=given; T=64 n=4 H=4096 rms_eps=1e-6 weight=given
      T=8192 n=4 H=4096 rms_eps=1e-6 weight=given)",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
