// pre_big_fuse_and_norm: all work before a sub-layer, and the root mean square norm of its input.
//
// Method   two launches, as pre_big_fuse; the kernel of the mixes takes whole rows and norms them in
//          registers (parts/normed_input.h), so that the layer input is written only where it is asked for
//          and never read. The bound is reading the residual twice, the second time from L2 where it fits.
// Maths    that of pre_big_fuse, then of norm_fwd or norm_fwd_and_per_token_cast on the bf16 layer input

#include "kernels/mhc/parts/pre_mixes.h"
#include "kernels/mhc/parts/projection.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

/// The residual, out, what is saved, mixes, fn.
int64_t least_bytes(const Case& c) {
  const int64_t n = c["n"], width = c["H"];
  const bool casts = c.find("format") == ParamValue(std::string("e4m3"));
  const bool saves = c.find("save_layer_input") == ParamValue(true);
  const int64_t of_token =
      2 * n * width + (casts ? 1 : 2) * width + (saves ? 2 * width : 0) + 4 * n * (n + 1);
  return c["T"] * of_token + 4 * n * (n + 2) * n * width;
}

}  // namespace

const Op pre_big_fuse_and_norm_op{
    .name = "pre_big_fuse_and_norm",
    .family = "mhc",
    .purpose = "mixes and normalised input of a sub-layer from the residual, in one",
    .signature = R"(
      residual        bf16 [T, n, H]
      fn              f32 [M, n*H]
      scale           f32 [3]
      base            f32 [M]
      norm_weight?    f32 [n*H]             # of the residual, as for pre_big_fuse
      weight?         bf16 [H]              # of the norm of layer_input
      -> post_mix     f32 [T, n]
      -> comb_mix     f32 [T, n, n]
      -> layer_input? bf16 [T, H]           iff save_layer_input
      -> out          bf16/e4m3 [T, H] align 16  # e4m3 where format says so
      -> out_sf?      SF(1,num_per_channels) sf_layout  iff format = e4m3
      -> out_bf16?    bf16 [T, H] align 16  iff save_bf16
      workspace       f32 [elements()]
      param           norm_eps, pre_eps, sinkhorn_eps float = 1e-6
      param           post_mult_value float = 1
      param           sinkhorn_repeat int 1..45 = 10
      param           n_splits int 1..16 = 16
      param           rms_eps float         # of the norm of layer_input
      param           out_scale float = 1
      param           format {none, e4m3} = none
      param           num_per_channels {32, 128} = 32
      param           round_sf bool = false
      param           sf_layout = row_major
      param           save_layer_input, save_bf16 bool = false
      need            n >= 1 on residual "there must be a stream"
      limit           n <= 4 on residual "so many streams are not supported"   # sinkhorn.h
      need            H >= 1 on residual "argument 'residual' has no columns"
      limit           H % 16 = 0 on residual "rows of this length are not supported"
      limit           H <= 8192 on residual "rows this long are not supported"  # registers
      need            n*H % 256 = 0 on residual "a row has the wrong number of columns"
      need            M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
      limit           T * M <= 2147483647 on residual "so many tokens are not supported"
      need            round_sf if sf_layout = packed_ue8m0 on sf_layout
      |               "packed_ue8m0 scales are powers of two"
      bucket          T at 129
    )",
    .launches = mhc::add_normed_mixes,
    .functions = {{"elements", mhc::projection_elements},
                  {"out_dtype",
                   [](const Call& c) {
                     const bool casts = c.word("format") == "e4m3";
                     return static_cast<int64_t>(casts ? DType::e4m3 : DType::bf16);
                   }}},
    .examples = R"(
      T=13 n=4 H=1280 rms_eps=1e-6 weight=given; T=140 n=4 H=256 rms_eps=1e-6 norm_weight=given save_layer_input=true
      T=5 n=4 H=512 rms_eps=1e-5 weight=given format=e4m3 round_sf=true sf_layout=packed_ue8m0 save_bf16=true
      T=9 n=3 H=256 rms_eps=1e-6 format=e4m3 num_per_channels=128 n_splits=4
      T=6 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3; T=3 n=1 H=512 rms_eps=1e-6 weight=given save_bf16=true)",
    .bench = R"(
      T=1 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3; T=64 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3
      T=512 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3
      T=4096 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3
      T=8192 n=4 H=7168 rms_eps=1e-6 weight=given format=e4m3
      T=8192 n=4 H=4096 rms_eps=1e-6 weight=given)",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
