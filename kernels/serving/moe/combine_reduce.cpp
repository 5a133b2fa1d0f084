// combine_reduce: the rows of each token's experts, weighted and summed; its kernel is that of reduce_fused
// (reduce_kernel.cpp).
//
// Maths    acc = fma(x, weight, acc) in the order of the slots, without weights acc + x, from base or +0; one rounding

#include <algorithm>
#include <numeric>

#include "kernels/moe/parts/reduce_kernel.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  moe::ReduceSpec s;
  s.in = s.out = DType::bf16;
  s.num_topk = c["R"] == 0 ? 0 : c.i32("K");
  s.has_x_sf = s.has_sf = false;
  s.has_weights = s.num_topk > 0 && c.has("topk_weights");
  s.form = c.has("base") ? moe::ReduceForm::combine_base : moe::ReduceForm::combine;
  s.has_num_tokens = c.has("num_tokens");
  int64_t vector = std::gcd(common_vector(c.given("out"), 8), c["H"]);
  if (s.num_topk > 0) vector = std::gcd(vector, common_vector(c.given("x"), 8));
  if (c.has("base")) vector = std::gcd(vector, common_vector(c.given("base"), 8));
  s.vector = static_cast<uint8_t>(vector);
  s.align = static_cast<uint8_t>(vector * bytes(DType::bf16));
  s.hidden = c.i32("H");
  s.walk = moe::pick_walk(c["T"], s.hidden / vector);
  go.add(moe::build_reduce, s);
}

/// Each row of x that a token has, once.
int64_t least_bytes(const Case& c) {
  const int64_t pairs = c["T"] * c["K"], row = 2 * c["H"];
  return pairs * (4 + (c.has("topk_weights") ? 4 : 0)) + std::min(c["R"], pairs) * row +
         c["T"] * row * (c.has("base") ? 2 : 1);
}

}  // namespace

const Op combine_reduce_op{
    .name = "combine_reduce",
    .family = "serving",
    .purpose = "the rows of each token's experts, weighted and summed, on top of a base if given",
    .signature = R"(
      x              bf16 [R, H] rows
      pos            i32 [T, K]        values -1 .. R - 1  # pair_to_pos of moe_plan; -1: no row
      topk_weights?  f32 [T, K]
      base?          bf16 [T, H] rows                      # sums begin here, else at 0
      num_tokens?    i32 [1]                               # tokens from here on are 0
      -> out         bf16 [T, H] align 16
      limit  H <= 2147483647
      limit  T * H <= 17045651448 on pos "so many elements are not supported"
      bucket T at 1024                                     # pick_walk
    )",
    .launches = launches,
    .examples = R"(
      T=17 K=6 R=120 H=7168 topk_weights=given; T=9 K=8 R=80 H=2560 base=given num_tokens=given
      T=5 K=2 R=9 H=24 topk_weights=given base=given base.strides=40,1; T=3 K=20 R=70 H=775 x.strides=800,1)",
    .bench = R"(
      T=1 K=6 R=48 H=7168; T=128 K=6 R=2560 H=7168; T=8192 K=6 R=50944 H=7168; T=8192 K=6 R=50944 H=4096 base=given
      T=8192 K=6 R=50944 H=4096 topk_weights=given)",
    .values = {{"pos", [](const Case& c, int64_t i) { return i * 7919 % c["R"]; }},
               {"num_tokens", [](const Case& c, int64_t) { return c["T"] - 1; }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
