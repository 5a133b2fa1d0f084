// mqa_logits: scores of keys for the queries of an indexer that all heads share.
//
// Dtypes   q and k e4m3, k_sf and weights f32; logits f32|bf16
// Method   see parts/logits_kernel.cpp
// Maths    product of a head by the instruction of the target, 32 channels each, from +0. Four chains c = 0 .. 3, each
//          over the heads 8i + 2c and, apart from them, 8i + 2c + 1, i ascending from +0:
//          sum = fma(max(product, 0), weight, sum); v_c = even + odd; logit = ((v_0 + v_1) + (v_2 + v_3)) * k_sf, where a
//          sum of -0 is +0.
//          max(NaN, 0) = 0. One rounding to logits.

#include <algorithm>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

int64_t columns(const Call& c) {
  return c.flag("compressed") ? c["max_len"] : c["T"];
}

void launches(const Call& c, Launches& go) {
  serving::add_logits_of_rows(c, go, {c.given("logits"), c.flag("clean"), c.flag("compressed")});
}

}  // namespace

const Op mqa_logits_op{
    .name = "mqa_logits",
    .family = "serving",
    .purpose = "scores of keys for queries of several heads, of which the positive products count",
    .signature = R"(
      q          e4m3 [S, h, D]
      k          e4m3 [T, D] rows
      k_sf       f32 [T]
      weights    f32 [S, h] rows
      k_start    i32 [S]                         values 0 .. T
      k_end      i32 [S]                         values 0 .. T  # row i sees the keys k_start[i] .. k_end[i] - 1
      -> logits  logits_dtype [S, columns] rows  # T columns, or max_len where compressed; not clean: one without a key stays as it was
      param  logits_dtype {f32, bf16} = f32
      param  compressed bool = false             # the first column of a row is its first key
      param  max_len int >= 0 = 0                # columns where compressed
      param  clean bool = true                   # columns without a key are -inf
      let    columns = columns()
      limit  S * h <= 2130706431 on q "so many queries are not supported"
      limit  T <= 2130706431 on k "so many keys are not supported"
      limit  columns <= 2130706431 on max_len "so many columns are not supported"
    )",
    .launches = launches,
    .check = serving::require_heads,
    .check_values = serving::require_key_ranges,
    .functions = {{"columns", columns}},
    .examples = R"(
      S=5 h=64 D=128 T=300; S=9 h=32 D=64 T=200 logits_dtype=bf16; S=3 h=8 D=32 T=70 clean=false
      S=6 h=64 D=128 T=200 compressed=true max_len=90)",
    .bench = R"(
      S=2048 h=64 D=128 T=65536; S=8192 h=64 D=128 T=65536; S=2048 h=32 D=128 T=8192; S=2048 h=64 D=64 T=65536
      S=2048 h=64 D=128 T=65536 logits_dtype=bf16)",
    .values = {{"k_start",
                [](const Case& c, int64_t i) {
                  const bool is_compressed = std::get<bool>(c.params().at("compressed"));
                  return is_compressed ? std::max<int64_t>(serving::end_key(c, i) - c["max_len"], 0)
                                       : 0;
                }},
               {"k_end", serving::end_key}}};

}  // namespace tessera::kernels
