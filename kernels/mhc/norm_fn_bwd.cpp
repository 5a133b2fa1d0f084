// norm_fn_bwd: gradients of the residual, the projection and its weight.
//
// Method   three launches: gradients of the products per token; both matrix products over runs of
//          tokens, which add to grad_residual; the sum of the runs: norm_bwd_rows.cpp,
//          norm_bwd_kernel.cpp, norm_bwd_sum.cpp.

#include <bit>

#include "kernels/mhc/parts/norm_bwd_kernel.h"
#include "kernels/mhc/parts/norm_bwd_workspace.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

mhc::NormBwdShape shape_of(const Call& c) {
  return {c["T"], c["M"], c["n"] * c["H"]};
}

/// The bits of n * H: the sum of squares of a row with mean square 1, so it is never negative.
int64_t mean_square_of_one(const Case& c, int64_t /*token*/) {
  return std::bit_cast<int32_t>(static_cast<float>(c["n"] * c["H"]));
}

void launches(const Call& c, Launches& go) {
  const mhc::NormBwdShape shape = shape_of(c);
  if (shape.tokens == 0) return;
  const mhc::NormBwdSpec spec = {static_cast<int32_t>(shape.entries),
                                 static_cast<int32_t>(shape.width),
                                 c.has("norm_weight") ? 1 : 0,
                                 c.align({"residual", "grad_residual"}),
                                 c.align({"fn", "norm_weight", "grad_fn", "grad_norm_weight"}),
                                 c.align({"workspace"})};
  Args args{mhc::norm_bwd_tensors(shape, c.given("workspace")),
            {{"width_eps", c.number("norm_eps") * static_cast<double>(shape.width)},
             {"tiles_per_run", mhc::NormBwdRuns(shape).tiles_per_run}}};
  for (const char* name : {"residual", "grad_residual"}) {
    args.tensors.push_back({name, reshaped(c.given(name), {shape.tokens, shape.width})});
  }
  go.add(mhc::build_norm_bwd_rows, spec, args, "rows");
  go.add(mhc::build_norm_bwd_products, spec, args, "products");
  go.add(mhc::build_norm_bwd_sum, spec, args, "sum");
}

}  // namespace

const Op norm_fn_bwd_op{
    .name = "norm_fn_bwd",
    .family = "mhc",
    .purpose = "gradients of the residual and of its projection, added to what is there",
    .signature = R"(
      grad_out                  f32 [T.., M]
      residual                  bf16 [T.., n, H]
      fn                        f32 [M, n*H]
      norm_weight?              f32 [n*H]
      out_mul                   f32 [T.., M]
      sqrsum                    f32 [T..]
      -> acc grad_residual?     bf16 [T.., n, H]
      -> acc grad_fn?           f32 [M, n*H]
      -> acc grad_norm_weight?  f32 [n*H]         iff norm_weight
      workspace                 f32 [elements()]
      param                     norm_eps float = 1e-6
      need                      n >= 1 on residual "there must be a stream"
      limit                     n <= 65536 on residual "so many streams are not supported"
      need                      n*H % 256 = 0 on residual "a row has the wrong number of columns"
      limit                     n*H <= 16777216 on residual "rows this long are not supported"
      need                      M >= 1 on grad_out "there must be a column"
      limit                     M <= 32 on grad_out "so many columns are not supported"
      limit                     T * M <= 2147483647 on residual "so many tokens are not supported"
    )",
    .launches = launches,
    .functions = {{"elements", [](const Call& c) { return mhc::norm_bwd_workspace(shape_of(c)); }}},
    .examples = R"(
      T=13 n=4 H=1280; T=200 n=4 H=256 norm_weight=given grad_norm_weight=given grad_residual=given
      T=9 n=2 H=384 grad_fn=given)",
    .bench = R"(
      T=4096 n=4 H=7168 grad_residual=given grad_fn=given; T=4096 n=4 H=7168
      T=4096 n=4 H=2560; T=8192 n=4 H=4096; T=128 n=4 H=7168; T=1 n=4 H=7168
      T=4096 n=4 H=7168 norm_weight=given)",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}},
    .values = {{"sqrsum", mean_square_of_one}}};

}  // namespace tessera::kernels
