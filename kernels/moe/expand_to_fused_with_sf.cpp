// expand_to_fused_with_sf: rows of tokens and their scales to the positions of their experts.
//
// Dtypes   x and out e4m3|e2m1 (two per byte), scales f32|i32 (four exponents)
// Method   one warp per row, or several if the registers of one do not hold it. The warp reads the
//          row of its token once, stores it to each position, then clears the row of the same
//          number if that is padding. Rows and scales move once, so the bound is bytes / copy
//          bandwidth.
// Maths    none, bytes are moved
// Tuned    H200: 4 rows per block, 14 vectors of 16 bytes per lane in flight.

#include "kernels/moe/parts/even_mapping.h"
#include "kernels/moe/parts/expand_kernel.h"
#include "kernels/moe/parts/mapping_values.h"
#include "kernels/moe/parts/row_scatter.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  moe::ExpandSpec s;
  s.row_bytes = static_cast<int32_t>(c.given("x").shape[1]);
  s.scales = c.i32("C");
  s.num_topk = c["T"] == 0 ? 0 : c.i32("K");
  s.align = c.align({"x", "out"});
  s.sf_layout = sf_layout_of(c.params(), "sf_layout");
  const DType word = moe::row_words(s.row_bytes, s.align).dtype;
  const auto words = [&](const char* name) {
    return Args::Tensor{name, retyped(c.given(name), word)};
  };
  TensorView sf = c.given("x_sf"), out_sf = c.given("out_sf");
  const bool by_column = s.sf_layout != SfLayout::row_major;
  const int64_t written = by_column ? (c["P"] + 3) / 4 * 4 : c["P"];
  // Columns of f32 and of packed words lie alike.
  if (by_column) out_sf = written_scales(out_sf, SfLayout::col_major_tma, c["P"], s.scales);
  sf.dtype = out_sf.dtype = DType::u32;
  go.add(moe::build_expand, s,
         {.tensors = {words("x"), words("out"), {"x_sf", sf}, {"out_sf", out_sf}},
          .scalars = {{"parts_apart", moe::part_stride(s, c["T"], written)}}});
}

}  // namespace

const Op expand_to_fused_with_sf_op{
    .name = "expand_to_fused_with_sf",
    .family = "moe",
    .purpose = "quantised rows and their scales to the positions of their experts",
    .signature = R"(
      x                  e4m3/e2m1 [T, H]
      x_sf               f32/i32 [T, C] any           # i32: four exponents per word
      token_topk_to_pos  i32 [T, K]                   values -1 .. P - 1
      pos_to_expert      i32 [P]
      -> out             as x [P, H]
      -> out_sf          as x_sf [P, C] in sf_layout
      param              num_per_channels {32, 128}
      param              sf_layout = row_major
      let                groups = ceil(H / num_per_channels)
      need               C = groups if x_sf is f32
      need               C = ceil(groups / 4) if x_sf is i32
      need               x_sf is i32 iff sf_layout = packed_ue8m0 on sf_layout
      |                  "parameter 'sf_layout' does not go with the dtype of x_sf"
    )",
    .launches = launches,
    .check_values = moe::require_expansion,
    .examples = R"(
      T=65 K=8 E=9 entries=97 H=7168 x=e4m3 num_per_channels=32
      T=33 K=2 E=4 entries=40 H=576 x=e4m3 num_per_channels=128 sf_layout=col_major_tma
      T=19 K=6 E=9 entries=30 H=2560 x=e4m3 num_per_channels=128 sf_layout=packed_ue8m0 x_sf=i32
      T=7 K=1 E=3 entries=7 alignment=1 H=1000 x=e2m1 num_per_channels=32)",
    .bench = R"(
      T=7891 K=2 x=e4m3 H=7168 E=9 num_per_channels=32; T=9948 K=2 x=e4m3 H=7168 E=4 num_per_channels=32
      T=21845 K=8 x=e4m3 H=7168 E=9 num_per_channels=32; T=32515 K=8 x=e4m3 H=7168 E=4 num_per_channels=32
      T=128 K=8 x=e4m3 H=7168 E=256 num_per_channels=128)",
    .case_words = {{"E", nullptr},
                   {"entries", moe::rank_entries},
                   {"alignment", [](const Case&) { return int64_t{16}; }},
                   {"P", [](const Case& c) { return moe::mapping_of(c).num_positions(); }},
                   {"C",
                    [](const Case& c) {
                      const int64_t groups = c["groups"];
                      return c.dtype_word("x_sf") == "i32" ? (groups + 3) / 4 : groups;
                    }}},
    .values = {
        {"token_topk_to_pos",
         [](const Case& c, int64_t i) { return moe::mapping_of(c).position(i); }},
        {"pos_to_expert", [](const Case& c, int64_t i) { return moe::mapping_of(c).expert(i); }}}};

}  // namespace tessera::kernels
