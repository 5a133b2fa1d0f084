// norm_fwd_and_per_token_cast: norm_fwd, then per_token_cast of its result: norm_kernel.cpp.

#include <algorithm>
#include <string>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_kernel.h"

namespace tessera::kernels {
namespace {

/// Rows between two columns of mega_moe_sf.
int64_t words_apart(const TensorView& view) {
  return view.shape[1] == 1 ? std::max(view.shape[0], view.strides[1]) : view.strides[1];
}

void check(const Call& c) {
  if (!c.has("mega_moe_sf")) return;
  const TensorView& mega = c.given("mega_moe_sf");
  if (mega.size() == 0) return;
  const int64_t needed = serving::mega_rows(c["T"], c["mega_moe_block_m"]);
  const bool is_column_major = mega.shape[0] == 1 || mega.strides[0] == 1;
  c.need(is_column_major && words_apart(mega) >= needed, "mega_moe_sf",
         "argument 'mega_moe_sf' has the wrong strides",
         "(1, R) with R >= " + std::to_string(needed),
         to_string(mega) + ", strides " + to_string(mega.strides));
}

void launches(const Call& c, Launches& go) {
  serving::NormSpec s = serving::norm_spec(c);
  serving::set_cast(s.out, c);
  s.out.has_mega = c.has("mega_moe_sf");
  Args args;
  if (s.out.has_mega) {
    const TensorView& mega = c.given("mega_moe_sf");
    const int64_t rows = words_apart(mega);
    args.tensors.push_back(
        {"mega_moe_sf",
         {mega.data, DType::u8, Dims{mega.shape[1], rows, 4}, Dims{rows * 4, 4, 1}, mega.device}});
  }
  serving::add_norm(c, go, s, std::move(args));
}

}  // namespace

const Op norm_fwd_and_per_token_cast_op{
    .name = "norm_fwd_and_per_token_cast",
    .family = "serving",
    .purpose = "root mean square norm of rows, cast to e4m3 with one scale per group of columns",
    .signature = R"(
      x                       bf16/f32 [T, H] rows
      weight?                 as x [H]
      residual?               as x [T, H] rows     # is added to x first
      -> out                  e4m3 [T, H] align 16
      -> out_sf               SF(1,num_per_channels) sf_layout
      -> out_bf16?            bf16 [T, H] align 16  iff save_bf16
      -> inout mega_moe_sf?   i32 [R, H/128] any    # strides (1, R), a word of four exponents
      -> residual_out?        as x [T, H] align 16  iff residual
      -> rstd?                f32 [T]               iff save_rstd
      param  norm_eps float
      param  out_scale float = 1
      param  save_rstd bool = false
      param  num_per_channels {32, 128} = 32
      param  sf_layout = row_major
      param  round_sf bool = false
      param  save_bf16 bool = false
      param  mega_moe_block_m int = 0
      need   H >= 1 on x "argument 'x' has no columns"
      need   H % 16 = 0 on x "a row has the wrong number of columns"
      limit  H <= 16384 on x "rows this long are not supported"
      need   round_sf if sf_layout = packed_ue8m0 on sf_layout
      |      "packed_ue8m0 scales are powers of two"
      need   round_sf if mega_moe_sf on round_sf "scales of 'mega_moe_sf' are powers of two"
      need   num_per_channels = 32 if mega_moe_sf
      need   H % 128 = 0 if mega_moe_sf on x "a row has the wrong number of columns"
      need   1 <= mega_moe_block_m <= 65536 if mega_moe_sf on mega_moe_block_m
      limit  T <= 1073741824
      bucket T at 1024                 # weights in registers, or loaded late
    )",
    .launches = launches,
    .check = check,
    .examples = R"(
      T=37 H=7168 x=bf16 weight=given norm_eps=1e-6; T=9 H=528 x=f32 residual=given norm_eps=1e-5 save_rstd=true round_sf=true
      T=21 H=256 x=bf16 weight=given residual=given norm_eps=1e-6 num_per_channels=128 save_bf16=true sf_layout=col_major_tma
      T=5 H=2048 x=bf16 norm_eps=1e-6 round_sf=true sf_layout=packed_ue8m0
      T=130 R=1408 H=512 x=bf16 norm_eps=1e-6 round_sf=true mega_moe_sf=given mega_moe_sf.strides=1,1408 mega_moe_block_m=100)",
    .bench = R"(
      T=1 H=7168 x=bf16 weight=given norm_eps=1e-6 round_sf=true sf_layout=packed_ue8m0
      T=64 H=7168 x=bf16 weight=given norm_eps=1e-6 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=bf16 weight=given norm_eps=1e-6 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=bf16 weight=given residual=given norm_eps=1e-6 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=bf16 weight=given residual=given norm_eps=1e-6 num_per_channels=128 save_bf16=true
      T=8001 H=4096 x=bf16 weight=given residual=given norm_eps=1e-6 round_sf=true)"};

}  // namespace tessera::kernels
