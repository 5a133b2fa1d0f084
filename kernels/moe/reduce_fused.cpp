// reduce_fused: host side; the kernel and its description are in reduce_kernel.cpp.

#include <algorithm>

#include "kernels/moe/parts/even_mapping.h"
#include "kernels/moe/parts/reduce_kernel.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  moe::ReduceSpec s;
  s.in = c.dtype("x");
  s.out = c.dtype("out");
  s.num_topk = c["P"] == 0 ? 0 : c.i32("K");
  s.has_x_sf = s.num_topk > 0 && c.has("x_sf");
  s.has_weights = s.num_topk > 0 && c.has("topk_weights");
  s.has_sf = c.has("sf");
  s.align = static_cast<uint8_t>(c.align({"x", "out"}));
  s.vector = static_cast<uint8_t>(std::max(1, s.align / bytes(s.in)));
  s.hidden = c.i32("H");
  s.walk = moe::pick_walk(c["T"], s.hidden / s.vector);
  go.add(moe::build_reduce, s);
}

/// Bytes that must move: only positions with an entry are read.
int64_t least_bytes(const Case& c) {
  const int64_t positions = c["P"], in = c.dtype_word("x") == "f32" ? 4 : 2;
  const bool to_e4m3 = c.find("format") == ParamValue(std::string("e4m3"));
  return positions * (4 + (c.has("x_sf") ? 4 : 0) + (c.has("topk_weights") ? 4 : 0)) +
         c["T"] * c["H"] * (to_e4m3 ? 1 : in) + c["entries"] * c["H"] * in;
}

}  // namespace

const Op reduce_fused_op{
    .name = "reduce_fused",
    .family = "moe",
    .purpose = "the rows of each token's positions, weighted and summed",
    .signature = R"(
      x                  f32/bf16 [P, H]
      x_sf?              f32 [P]
      topk_weights?      f32 [T, K]
      token_topk_to_pos  i32 [T, K]                   values -1 .. P - 1
      sf?                f32 [1]
      -> out             format/as x [T, H]
      param              format {none, e4m3} = none
      need               H % 256 = 0
      need               format = e4m3 if sf on sf "'sf' scales e4m3 outputs only"
      bucket             T at 1024                    # pick_walk
    )",
    .launches = launches,
    .examples = R"(
      T=17 K=6 E=9 entries=25 H=7168 x=bf16 x_sf=given topk_weights=given
      T=9 K=8 E=4 entries=20 H=2560 x=f32 x_sf=given topk_weights=given
      T=5 K=2 E=3 entries=9 H=256 x=bf16 topk_weights=given format=e4m3 sf=given
      T=3 K=20 E=64 entries=50 H=768 x=f32)",
    .bench = R"(
      T=18431 K=6 x=bf16 H=7168 E=9 x_sf=given topk_weights=given
      T=18578 K=6 x=bf16 H=7168 E=32 x_sf=given topk_weights=given
      T=18311 K=6 x=f32 H=7168 E=9 x_sf=given topk_weights=given
      T=25023 K=6 x=f32 H=7168 E=4 x_sf=given topk_weights=given
      T=1 H=7168 K=8 x=bf16 topk_weights=given; T=128 H=7168 K=8 x=bf16 topk_weights=given
      T=1 H=7168 K=8 x=f32 topk_weights=given; T=128 H=7168 K=8 x=f32 topk_weights=given)",
    .case_words = {{"E", [](const Case&) { return int64_t{256}; }},
                   {"entries", moe::rank_entries},
                   {"alignment", [](const Case&) { return int64_t{1}; }},
                   {"P", [](const Case& c) { return c["T"] * c["K"]; }}},
    .values = {{"token_topk_to_pos",
                [](const Case& c, int64_t i) { return moe::mapping_of(c).position(i); }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
