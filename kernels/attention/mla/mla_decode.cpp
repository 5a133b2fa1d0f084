// mla_decode: latent attention of the newest tokens of requests over a paged cache that all heads share.
//
// Dtypes   q and the cache bf16; out bf16|f32; lse f32
// Method   see mla_decode_kernel.cpp and mla_combine_kernel.cpp
// Maths    scores and p v by the tensor cores, 16 of k per instruction; p = exp2(fma(score, c, -max c)) with
//          c = sm_scale * log2 e; the sum of a row in 64 classes of keys; p rounded to bf16 for p v, not in the sum.
//          Blocks of 64 keys, ascending. Parts of split_len keys start anew and are combined as by mla_combine. No bit of
//          a row depends on other rows, requests, the number of heads, page size or table.

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernels/attention/mla/parts/mla_call.h"
#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case_values.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using attention::MlaSpec;

constexpr int32_t kWidth = 576;         // channels of a key
constexpr int64_t kLargestPage = 4096;  // of the sizes that a kernel is made for

int64_t part_count(const Call& c) {
  return (c["Q"] * c["ps"] + c["split_len"] - 1) / c["split_len"];
}

void launches(const Call& c, Launches& go) {
  const TensorView& out = c.given("out");
  if (c["P"] == 0 || c["Q"] == 0) return attention::add_empty_rows(out, c.given("lse"), go);
  const TensorView q = attention::packed(c.given("q"));
  TensorView cache = attention::packed(c.given("cache"));
  cache = {cache.data,
           cache.dtype,
           {c["P"], c["ps"], 1, kWidth},
           {cache.strides[0], cache.strides[1], kWidth, 1},
           c.device()};
  MlaSpec s{};
  s.width = kWidth, s.has_lengths = 1;
  s.q_vector = attention::vector_of_rows(q), s.cache_vector = attention::vector_of_rows(cache);
  s.is_causal = c.flag("causal") ? 1 : 0;
  s.is_f32 = c.dtype("out_dtype") == DType::f32 ? 1 : 0;
  const int64_t most = c["Q"] * c["ps"], split_len = c["split_len"];
  s.has_parts = most > split_len ? 1 : 0;
  const bool is_usual =
      std::has_single_bit(static_cast<uint64_t>(c["ps"])) && c["ps"] <= kLargestPage;
  s.page_size = is_usual ? c.i32("ps") : 0;
  attention::choose_form(s, c, c["n"] * c["h"]);
  Args args{.tensors = {{"q", q},
                        {"cache", cache},
                        {"out",
                         {out.data,
                          out.dtype,
                          {c["B"], c["n"] * c["h"], attention::kLatentValueWidth},
                          c.device()}}},
            .scalars = {{"c", attention::latent_factor_of(c)},
                        {"part_blocks", split_len / attention::kLatentKeys}}};
  if (s.has_parts != 0) attention::add_parts(c, part_count(c), args);
  go.add(attention::build_mla_decode, s, args);
  if (s.has_parts == 0) return;
  args.tensors[2].view = {
      out.data, out.dtype, {c["B"] * c["n"] * c["h"], attention::kLatentValueWidth}, c.device()};
  args.scalars = {{"part_len", split_len}, {"cache_rows", most}};
  go.add(attention::build_mla_combine, attention::CombineSpec{0, s.is_f32, 1, s.is_causal, 1, 0, 0},
         args, "combine");
}

void require(const Call& c) {
  attention::require_latent_scale(c);
  const int64_t split_len = c["split_len"];
  c.need(split_len % attention::kLatentKeys == 0, "split_len",
         "parameter 'split_len' has a wrong value",
         fmt::format("a multiple of {}", attention::kLatentKeys), fmt::format("{}", split_len));
}

/// Pages that keys need.
void require_pages(const Call& c) {
  const TensorView &table = c.given("page_table"), &lengths = c.given("lengths");
  if (!values_are_checked(table) || !values_are_checked(lengths)) return;
  const int64_t columns = c["Q"], page_size = c["ps"];
  require_values(c.check(), "page_table", table, 0, c["P"] - 1, [&](int64_t i) {
    return i % columns * page_size < integer_at(lengths, i / columns);
  });
}

}  // namespace

const Op mla_decode_op{
    .name = "mla_decode",
    .family = "attention",
    .purpose = "latent attention of the newest tokens of requests over a paged cache",
    .signature = R"(
      q            bf16 [B, n, h, 576] rows    # the last n tokens of each request
      cache        bf16 [P, ps, 576] rows      # pages of ps tokens; the first 512 channels are the value
      page_table   i32 [B, Q] rows             # pages of a request; behind its length any value
      lengths      i32 [B]                     values 0 .. Q * ps  # with the n new tokens
      -> out       out_dtype [B, n, h, 512] align 16
      -> lse       f32 [B, h, n]
      workspace?   f32 [ceil(Q * ps / split_len), B * n * h, 514] align 16  iff Q * ps > split_len
      param  sm_scale float
      param  causal bool = false
      param  split_len int = 4096
      param  out_dtype {bf16, f32} = bf16
      need   split_len >= 1 on split_len "parameter 'split_len' has a wrong value"
      need   ps >= 1 on cache "argument 'cache' has pages without rows"
      limit  h % 8 = 0 on q "the heads of 'q' are no multiple of 8"
      limit  h <= 128 on q "so many heads are not supported"
      limit  Q * ps <= 536870912 on page_table "so many keys of a request are not supported"
      limit  split_len <= 1073741824 on split_len "so large a part is not supported"
      limit  B * n * h * ceil(Q * ps / 64) <= 2147483647 on q "so many rows and keys are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = require_pages,
    .examples = R"(
      B=2 n=1 h=16 P=12 ps=64 Q=5 sm_scale=0.0417 split_len=128
      B=2 n=2 h=8 P=40 ps=16 Q=10 sm_scale=0.0417 causal=true
      B=1 n=1 h=128 P=4 ps=64 Q=3 sm_scale=0.0417
      B=1 n=2 h=32 P=20 ps=7 Q=12 sm_scale=0.0417 out_dtype=f32)",
    .bench = R"(
      B=128 n=1 h=16 P=8192 ps=64 Q=64 sm_scale=0.0417
      B=128 n=1 h=16 P=2048 ps=64 Q=16 sm_scale=0.0417
      B=128 n=1 h=128 P=8192 ps=64 Q=64 sm_scale=0.0417
      B=128 n=2 h=128 P=8192 ps=64 Q=64 sm_scale=0.0417 causal=true
      B=128 n=1 h=128 P=65536 ps=64 Q=512 sm_scale=0.0417
      B=128 n=2 h=128 P=65536 ps=64 Q=512 sm_scale=0.0417 causal=true
      B=1 n=1 h=16 P=2048 ps=64 Q=2048 sm_scale=0.0417)",
    .values = {{"page_table", scattered_page}, {"lengths", [](const Case& c, int64_t b) {
                                                  const int64_t most = c["Q"] * c["ps"];
                                                  return b < 2 || c["B"] > 3
                                                             ? most
                                                             : most - b * 9 % (most + 1);
                                                }}}};

}  // namespace tessera::kernels
