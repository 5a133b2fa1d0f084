// mla_combine: the output of rows whose entries were attended to in parts.
//
// Dtypes   parts f32; out bf16|f32; lse f32
// Method   see mla_combine_kernel.cpp
// Maths    M = max m_z; f_z = exp2(m_z - M); L = sum of fma(l_z, f_z, .), O = sum of fma(O_z, f_z, .), z ascending from +0;
//          out = O / (L + exp2(sink log2 e - M)), lse = (M + log2 L) ln 2. m_z is in units of log2: scores times
//          sm_scale log2 e. A part that is not there has m_z -inf, l_z 0 and O_z 0; a row without any is 0, its lse +inf.

#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  if (c["Z"] == 0) return attention::add_empty_rows(c.given("out"), c.given("lse"), go);
  const attention::CombineSpec s{c.has("attn_sink") ? 1 : 0,
                                 c.dtype("out_dtype") == DType::f32 ? 1 : 0};
  go.add(attention::build_mla_combine, s);
}

}  // namespace

const Op mla_combine_op{.name = "mla_combine",
                        .family = "attention",
                        .purpose = "the output of rows whose keys were attended to in parts",
                        .signature = R"(
      partial      f32 [Z, R, 512] align 16    # not divided by their sums
      partial_max  f32 [Z, R]                  # the largest scores, times sm_scale log2 e
      partial_sum  f32 [Z, R]
      attn_sink?   f32 [num_heads]             # exp(sink) is added to the sum of a row, not to lse
      -> out       out_dtype [R, 512] align 16
      -> lse       f32 [R]
      param  num_heads int
      param  out_dtype {bf16, f32} = bf16
      need   num_heads >= 1
      need   R % num_heads = 0 on num_heads "the rows of 'partial' are no multiple of 'num_heads'"
      limit  R * Z <= 2147483647 on partial "so many parts are not supported"
    )",
                        .launches = launches,
                        .examples = R"(
      Z=3 R=16 num_heads=8 attn_sink=given; Z=11 R=8 num_heads=8 out_dtype=f32)",
                        .bench = R"(
      Z=2 R=2048 num_heads=16; Z=8 R=128 num_heads=128; Z=32 R=128 num_heads=128 attn_sink=given)"};

}  // namespace tessera::kernels
