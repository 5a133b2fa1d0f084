// sparse_mla_fwd: latent attention of each token to the keys that its indices choose.
//
// Dtypes   q and kv bf16; out bf16|f32; max_logits and lse f32
// Method   that of mla_decode: a token is a request, its indices are a table of pages of one row
// Maths    that of mla_decode without parts, over the chosen keys in the order of the indices; c of a row times its q_scale.
//          An index counts as often as it stands. exp(sink) is added to the sum of a row, not to lse.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/attention/mla/parts/mla_call.h"
#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  const TensorView &out = c.given("out"), &lse = c.given("lse");
  if (c["T"] == 0 || c["k"] == 0) {
    return attention::add_empty_rows(out, lse, go, &c.given("max_logits"));
  }
  const TensorView q = attention::packed(c.given("q")), kv = attention::packed(c.given("kv"));
  const int64_t tokens = c["S"], heads = c["h"], width = c["d"];
  attention::MlaSpec s{};
  s.width = c.i32("d"), s.page_size = 1, s.is_sparse = 1;
  s.q_vector = attention::vector_of_rows(q), s.cache_vector = attention::vector_of_rows(kv);
  s.is_f32 = c.dtype("out_dtype") == DType::f32 ? 1 : 0;
  s.has_lengths = c.has("topk_length") ? 1 : 0;
  s.has_sink = c.has("attn_sink") ? 1 : 0;
  s.has_q_scale = c.has("q_scale") ? 1 : 0;
  attention::choose_form(s, c, heads);
  const int64_t q_row = q.strides[0], kv_row = kv.strides[0];
  Args args{
      .tensors =
          {{"q",
            {q.data,
             q.dtype,
             {tokens, 1, heads, width},
             {q_row, q_row, q.strides[1], 1},
             c.device()}},
           {"cache",
            {kv.data, kv.dtype, {c["T"], 1, 1, width}, {kv_row, kv_row, kv_row, 1}, c.device()}},
           {"page_table", attention::packed(c.given("indices"))},
           {"lse", {lse.data, lse.dtype, {tokens, heads, 1}, c.device()}}},
      .scalars = {{"c", attention::latent_factor_of(c)},
                  {"part_blocks", (c["k"] + attention::kLatentKeys - 1) / attention::kLatentKeys}}};
  if (s.has_lengths != 0) args.tensors.push_back({"lengths", c.given("topk_length")});
  go.add(attention::build_mla_decode, s, args);
}

void require(const Call& c) {
  attention::require_latent_scale(c);
  c.need(c["d"] == 512 || c["d"] == 576, "q", "argument 'q' has channels that are not supported",
         "512 or 576", fmt::format("{}", c["d"]), ErrorKind::unsupported);
}

}  // namespace

const Op sparse_mla_fwd_op{
    .name = "sparse_mla_fwd",
    .family = "attention",
    .purpose = "latent attention of each token to the keys that its indices choose",
    .signature = R"(
      q             bf16 [S, h, d] rows
      kv            bf16 [T, d] rows           # the first 512 channels are the value
      indices       i32 [S, k] rows            # rows of kv; others, as -1, are none
      topk_length?  i32 [S]                    values 0 .. k  # indices of a token that count
      attn_sink?    f32 [h]                    # exp(sink) is added to the sum of a row, not to lse
      q_scale?      f32 [S, h]                 # a factor of the scores of a row
      -> out         out_dtype [S, h, 512] align 16
      -> max_logits  f32 [S, h]
      -> lse         f32 [S, h]
      param  sm_scale float
      param  out_dtype {bf16, f32} = bf16
      limit  h % 8 = 0 on q "the heads of 'q' are no multiple of 8"
      limit  h <= 128 on q "so many heads are not supported"
      limit  k <= 1048576 on indices "so many indices of a token are not supported"
      limit  S * h * ceil(k / 64) <= 2147483647 on q "so many rows and keys are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = attention::require_query_scales,
    .examples = R"(
      S=3 h=16 d=576 T=200 k=100 sm_scale=0.0417 topk_length=given
      S=2 h=8 d=512 T=90 k=130 sm_scale=0.0442 attn_sink=given q_scale=given
      S=1 h=64 d=512 T=40 k=60 sm_scale=0.0442 out_dtype=f32)",
    .bench = R"(
      S=4096 h=8 d=576 T=8192 k=2048 sm_scale=0.0417; S=4096 h=16 d=576 T=8192 k=2048 sm_scale=0.0417
      S=4096 h=32 d=576 T=8192 k=2048 sm_scale=0.0417; S=4096 h=128 d=576 T=8192 k=2048 sm_scale=0.0417
      S=4096 h=128 d=512 T=32768 k=1024 sm_scale=0.0442; S=4096 h=64 d=512 T=32768 k=512 sm_scale=0.0442)",
    .values = {
        {"indices",
         [](const Case& c, int64_t i) {
           constexpr int64_t kStep = 7919;  // a prime: keys of a token are apart
           return i % 13 == 5 ? -1 : i * kStep % std::max<int64_t>(c["T"], 1);
         }},
        {"topk_length", [](const Case& c, int64_t s) { return c["k"] - s * 9 % (c["k"] + 1); }},
        // As bits: 1, 1.25, 1.5, 1.75.
        {"q_scale", [](const Case&, int64_t i) -> int64_t {
           return std::bit_cast<int32_t>(1 + 0.25f * static_cast<float>(i % 4));
         }}}};

}  // namespace tessera::kernels
