// sparse_mla_decode: latent attention of each token to the slots of a quantised cache that its indices choose.
//
// Dtypes   q bf16, caches in the formats of kv_store; out bf16|f32; lse f32
// Method   that of mla_decode, with a role that turns entries into keys of bf16: mla_listed_keys.cpp
// Maths    that of sparse_mla_fwd over the rows that kv_load gives, to the bit. The entries of the second list follow those of
//          the first one in a block of their own. With num_splits the blocks are cut into runs of equal length, which start
//          anew and are combined as by mla_combine.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/attention/mla/parts/mla_call.h"
#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using serving::CacheFormat;

constexpr const char* kExtra = "extra_";
constexpr int64_t kFewestBytes = 4;  // of an access to codes

int64_t blocks_of(int64_t entries) {
  return (entries + attention::kLatentKeys - 1) / attention::kLatentKeys;
}
int64_t extra_count(const Call& c) {
  return c.has("extra_cache") ? c["k2"] : 0;
}
int64_t list_blocks(const Call& c) {
  return blocks_of(c["k"]) + blocks_of(extra_count(c));
}
int64_t part_blocks(const Call& c) {
  const int64_t splits = c["num_splits"];
  return std::max<int64_t>((list_blocks(c) + splits - 1) / splits, 1);
}
int64_t part_count(const Call& c) {
  return (list_blocks(c) + part_blocks(c) - 1) / part_blocks(c);
}

/// The lists of a call that have entries, by the prefixes of their arguments: kernels take no empty ones.
struct Lists {
  explicit Lists(const Call& c)
      : first(c["k"] > 0 ? "" : kExtra), has_second(c["k"] > 0 && extra_count(c) > 0) {}

  std::string length() const { return first.empty() ? "topk_length" : "extra_length"; }

  std::string first;
  bool has_second;  // "extra_"
};

/// The bytes of an access to codes: as many as entries are aligned to.
int32_t code_bytes(const TensorView& cache) {
  return static_cast<int32_t>(std::max(common_vector(cache, 16), kFewestBytes));
}

attention::MlaSpec spec_of(const Call& c, const Lists& lists) {
  attention::MlaSpec s{};
  s.width = c.i32("d"), s.page_size = 1;
  s.q_vector = attention::vector_of_rows(attention::packed(c.given("q")));
  s.has_parts = part_count(c) > 1 ? 1 : 0;
  s.is_f32 = c.dtype("out_dtype") == DType::f32 ? 1 : 0;
  s.has_lengths = c.has(lists.length()) ? 1 : 0;
  s.has_sink = c.has("attn_sink") ? 1 : 0;
  s.has_q_scale = c.has("q_scale") ? 1 : 0;
  s.listed = serving::cache_kind(c, lists.first);
  s.code_bytes = code_bytes(c.given(lists.first + "cache"));
  if (lists.has_second) {
    s.extra = serving::cache_kind(c, kExtra),
    s.extra_code_bytes = code_bytes(c.given("extra_cache"));
    s.has_extra_lengths = c.has("extra_length") ? 1 : 0;
  }
  // Each tile converts its keys anew: smaller ones are for multiprocessors that have nothing else to do. Codes of 4 bits take
  // so long that two tiles with eight warps that convert each are faster than one with four.
  constexpr int64_t kSmallTile = 16, kTile = 32;
  const int64_t heads = c["h"], tokens = c["B"] * c["n"] * part_count(c);
  const bool is_small =
      tokens * ((heads + kSmallTile - 1) / kSmallTile) <= jit::num_sms(c.device());
  const bool has_fp4 = s.extra.format == CacheFormat::v41_fp4;
  const int64_t most = is_small ? kSmallTile : has_fp4 ? kTile : heads;
  attention::choose_form(s, c, std::min(heads, most));
  return s;
}

void launches(const Call& c, Launches& go) {
  const TensorView& out = c.given("out");
  if (list_blocks(c) == 0) return attention::add_empty_rows(out, c.given("lse"), go);
  const Lists lists(c);
  const attention::MlaSpec s = spec_of(c, lists);
  const int64_t rows = c["n"] * c["h"];
  Args args{.tensors = serving::cache_tensors(c, lists.first, {.is_raw = true}),
            .scalars = {{"c", attention::latent_factor_of(c)},
                        {"part_blocks", part_blocks(c)},
                        {"page_size", c[lists.first + "page_size"]}}};
  const auto add = [&](const char* name, const TensorView& view) {
    args.tensors.push_back({name, view});
  };
  add("q", attention::packed(c.given("q")));
  add("page_table", attention::packed(c.given(lists.first + "indices")));
  if (s.has_lengths != 0) add("lengths", c.given(lists.length()));
  if (s.has_q_scale != 0) {
    add("q_scale", {c.given("q_scale").data, DType::f32, {c["B"], rows}, c.device()});
  }
  if (lists.has_second) {
    const auto of_second = serving::cache_tensors(c, kExtra, {.is_raw = true, .prefix = kExtra});
    args.tensors.insert(args.tensors.end(), of_second.begin(), of_second.end());
    add("extra_indices", attention::packed(c.given("extra_indices")));
  }
  if (s.has_parts != 0) attention::add_parts(c, part_count(c), args);
  Args combined = args;
  add("out", {out.data, out.dtype, {c["B"], rows, attention::kLatentValueWidth}, c.device()});
  go.add(attention::build_mla_decode, s, args);
  if (s.has_parts == 0) return;
  combined.tensors.push_back(
      {"out", {out.data, out.dtype, {c["B"] * rows, attention::kLatentValueWidth}, c.device()}});
  combined.scalars = {{"part_len", part_blocks(c) * attention::kLatentKeys},
                      {"cache_rows", c[lists.first.empty() ? "k" : "k2"]},
                      {"extra_rows", extra_count(c)}};
  go.add(attention::build_mla_combine,
         attention::CombineSpec{s.has_sink, s.is_f32, 1, 0, s.has_lengths, lists.has_second ? 1 : 0,
                                s.has_extra_lengths},
         combined, "combine");
}

void require(const Call& c) {
  attention::require_latent_scale(c);
  serving::require_cache(c, c["d"]);
  if (!c.has("extra_cache")) return;
  const CacheFormat format = serving::cache_kind(c).format,
                    extra = serving::cache_kind(c, kExtra).format;
  const bool is_v4 = format == CacheFormat::v4_fp8 && extra == CacheFormat::v4_fp8;
  const bool is_v41 = format == CacheFormat::v41_fp8 &&
                      (extra == CacheFormat::v41_fp8 || extra == CacheFormat::v41_fp4);
  const bool is_own = c.has_value("extra_format") && !c.word("extra_format").empty();
  c.need(is_v4 || is_v41, is_own ? "extra_format" : "format",
         "the formats of 'cache' and 'extra_cache' do not go together",
         "v4_fp8 with v4_fp8, or v41_fp8 with v41_fp8 or v41_fp4",
         fmt::format("{} with {}", serving::cache_layout({format, false}).word,
                     serving::cache_layout({extra, false}).word));
  serving::require_cache(c, c["d"], kExtra);
}

serving::CacheKind kind_of(const Case& c, bool is_extra) {
  const auto word = [&](const char* name) -> std::string {
    const auto* text = std::get_if<std::string>(&c.params().at(name));
    return text == nullptr || *text == "none" ? "" : *text;
  };
  const std::string own = is_extra ? word("extra_format") : "";
  return {serving::cache_format(own.empty() ? word("format") : own), word("cache_order") == "rows"};
}
int64_t bytes_of_block(const Case& c, bool is_extra) {
  return serving::block_bytes(kind_of(c, is_extra), c["d"],
                              c[is_extra ? "extra_page_size" : "page_size"]);
}
int64_t token_bytes(const Case& c, bool is_extra) {
  const serving::CacheLayout layout = serving::cache_layout(kind_of(c, is_extra));
  return layout.code_bytes() + layout.bf16_bytes() + layout.scale_bytes;
}
/// Slots that lie apart: the step is a prime.
int64_t slot_of(int64_t i, int64_t slots) {
  constexpr int64_t kStep = 7919;
  return i * kStep % std::max<int64_t>(slots, 1);
}

}  // namespace

const Op sparse_mla_decode_op{
    .name = "sparse_mla_decode",
    .family = "attention",
    .purpose = "latent attention of tokens to the slots of a quantised cache that indices choose",
    .signature = R"(
      q               bf16 [B, n, h, d] rows
      cache           u8 [blocks, bytes] rows     # of kv_store; the first 512 channels are the value
      indices         i32 [B, n, k] rows          # slots: block * page_size + place in the block; others, as -1, are none
      topk_length?    i32 [B]                     values 0 .. k  # indices of a token that count
      extra_cache?    u8 [extra_blocks, extra_bytes] rows
      extra_indices?  i32 [B, n, k2] rows         iff extra_cache  # slots of extra_cache
      extra_length?   i32 [B]                     values 0 .. k2
      attn_sink?      f32 [h]                     # exp(sink) is added to the sum of a row, not to lse
      q_scale?        f32 [B, n, h]               # a factor of the scores of a row
      -> out          out_dtype [B, n, h, 512] align 16
      -> lse          f32 [B, h, n]
      workspace?      f32 [parts(), B * n * h, 514] align 16  iff parts() > 1
      param  format {v32_fp8, v4_fp8, v41_fp8}
      param  page_size int = 64
      param  extra_format {none, v4_fp8, v41_fp8, v41_fp4} = none  # none: as format
      param  extra_page_size int = 64
      param  cache_order {planes, rows} = planes  # of v41_fp8, v41_fp4
      param  sm_scale float
      param  num_splits int 1..32 = 1
      param  out_dtype {bf16, f32} = bf16
      need   blocks >= 1 on cache "argument 'cache' has no rows"
      need   extra_blocks >= 1 if extra_cache on extra_cache "argument 'extra_cache' has no rows"
      need   extra_cache if extra_length on extra_length "argument 'extra_length' goes with 'extra_cache'"
      need   extra_cache if extra_format on extra_format "parameter 'extra_format' goes with 'extra_cache'"
      limit  h % 8 = 0 on q "the heads of 'q' are no multiple of 8"
      limit  h <= 128 on q "so many heads are not supported"
      limit  k <= 1048576 on indices "so many indices of a token are not supported"
      limit  k2 <= 1048576 if extra_cache on extra_indices "so many indices of a token are not supported"
      limit  B * n * h * list_blocks() <= 2147483647 on q "so many rows and keys are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = attention::require_query_scales,
    .functions = {{"parts", part_count}, {"list_blocks", list_blocks}},
    .examples = R"(
      B=2 n=1 h=16 blocks=3 k=100 format=v32_fp8 sm_scale=0.0417 topk_length=given num_splits=2
      B=1 n=2 h=8 blocks=9 k=70 format=v4_fp8 page_size=5 sm_scale=0.0442 attn_sink=given q_scale=given
      B=1 n=1 h=64 blocks=2 k=64 extra_cache=given extra_blocks=4 k2=130 format=v4_fp8 sm_scale=0.0442
      B=2 n=1 h=8 blocks=2 k=40 extra_cache=given extra_blocks=3 k2=70 extra_length=given extra_format=v41_fp4 format=v41_fp8 sm_scale=0.0442 out_dtype=f32
      B=1 n=1 h=32 blocks=2 k=20 format=v41_fp8 cache_order=rows sm_scale=0.0442)",
    .bench = R"(
      B=8 n=1 h=16 blocks=4096 k=2048 format=v32_fp8 sm_scale=0.0417
      B=8 n=1 h=16 blocks=4096 k=2048 format=v32_fp8 sm_scale=0.0417 num_splits=16
      B=1 n=1 h=8 blocks=4096 k=2048 format=v32_fp8 sm_scale=0.0417 num_splits=32
      B=64 n=1 h=8 blocks=8192 k=2048 format=v32_fp8 sm_scale=0.0417 num_splits=2
      B=128 n=2 h=128 blocks=8192 k=2048 format=v32_fp8 sm_scale=0.0417
      B=128 n=2 h=64 blocks=512 page_size=256 k=128 extra_cache=given extra_blocks=8192 k2=512 format=v4_fp8 sm_scale=0.0442
      B=128 n=2 h=128 blocks=512 page_size=256 k=128 extra_cache=given extra_blocks=8192 k2=1024 format=v4_fp8 sm_scale=0.0442
      B=1 n=1 h=64 blocks=512 page_size=256 k=128 extra_cache=given extra_blocks=8192 k2=512 format=v4_fp8 sm_scale=0.0442
      B=1 n=1 h=64 blocks=512 page_size=256 k=128 extra_cache=given extra_blocks=8192 k2=512 format=v4_fp8 sm_scale=0.0442 num_splits=10
      B=64 n=4 h=64 blocks=512 page_size=256 k=128 extra_cache=given extra_blocks=8192 k2=512 extra_format=v41_fp4 format=v41_fp8 sm_scale=0.0442
      B=256 n=4 h=64 blocks=512 page_size=256 k=128 extra_cache=given extra_blocks=8192 k2=512 extra_format=v41_fp4 format=v41_fp8 sm_scale=0.0442)",
    .case_words = {{"d",
                    [](const Case& c) {
                      return serving::cache_layout(kind_of(c, false)).channels;
                    }},
                   {"bytes", [](const Case& c) { return bytes_of_block(c, false); }},
                   {"extra_bytes", [](const Case& c) { return bytes_of_block(c, true); }}},
    .values = {{"indices",
                [](const Case& c, int64_t i) { return slot_of(i, c["blocks"] * c["page_size"]); }},
               {"extra_indices",
                [](const Case& c, int64_t i) {
                  return slot_of(i, c["extra_blocks"] * c["extra_page_size"]);
                }},
               {"topk_length",
                [](const Case& c, int64_t b) { return c["k"] - b * 9 % (c["k"] + 1); }},
               {"extra_length",
                [](const Case& c, int64_t b) { return c["k2"] - b * 9 % (c["k2"] + 1); }},
               // As bits: 1, 1.25, 1.5, 1.75.
               {"q_scale",
                [](const Case&, int64_t i) -> int64_t {
                  return std::bit_cast<int32_t>(1 + 0.25f * static_cast<float>(i % 4));
                }}},
    .bytes = [](const Case& c) {
      const bool is_f32 = std::get<std::string>(c.params().at("out_dtype")) == "f32";
      const int64_t entry = 4 + token_bytes(c, false);
      const int64_t extra = c.has("extra_cache") ? c["k2"] * (4 + token_bytes(c, true)) : 0;
      const int64_t row = 2 * c["d"] + attention::kLatentValueWidth * (is_f32 ? 4 : 2) + 4;
      return c["B"] * c["n"] * (c["k"] * entry + extra + c["h"] * row);
    }};

}  // namespace tessera::kernels
