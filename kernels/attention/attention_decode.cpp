// attention_decode: attention of the newest tokens of requests over a paged cache of keys and values.
//
// Dtypes   q and out bf16|f16; the cache as q, or e4m3 with a scale per head; lse f32
// Method   see decode_kernel.cpp and decode_join.cpp
// Maths    that of attention_fwd for each part of split_len keys; parts are joined from left to right. So a row has the
//          bits of the same row of a causal attention_varlen_fwd with that split_len (0 while the keys fit in one
//          part), and depends on no other request, on neither page size nor table.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "kernels/attention/parts/decode_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/checks/value_check.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case_values.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using attention::DecodeSpec;

constexpr int64_t kOther = 96;          // registers of a thread beside scores, sums and rows
constexpr int64_t kLargestPage = 4096;  // of the sizes that a kernel is made for

constexpr int64_t kMostRegisters = 180;  // of registers_of, without spills

/// Registers of a thread, about. The cap's tanh, divisions by a page size of the call and conversions take some more.
int64_t registers_of(const DecodeSpec& s) {
  const int64_t more = s.has_softcap != 0 || s.page_size == 0 || s.is_e4m3 != 0 ? 16 : 0;
  return s.rows * (s.value_width + s.keys()) / (s.warps * 32) + 3 * s.rows / s.warps + kOther +
         more;
}

constexpr int32_t kMostStages = 6;
constexpr int32_t kLeastBox = 16;  // rows of a tensor copy
/// Items of work that leave multiprocessors without any: then the time of an item counts, else that of all.
constexpr int64_t kFewItems = 128;

/// The most stages with which so many blocks run at once; false without one.
bool fit_stages(DecodeSpec& s, int32_t blocks, int32_t least, int64_t limit) {
  constexpr int64_t kReserved =
      1024;  // bytes of each block; a multiprocessor has those of one more
  s.blocks_per_sm = blocks;
  for (s.stages = kMostStages; s.stages >= least; --s.stages) {
    if (blocks * (s.shared_bytes() + kReserved) <= limit + kReserved) return true;
  }
  return false;
}

/// Chooses a tile for all rows if they fit. Many items: small blocks, two at once, one computes while the other
/// waits. Few: one block with twice the warps.
void choose_tile(DecodeSpec& s, int64_t rows, int64_t requests_and_heads, int64_t limit) {
  const auto needed = static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const auto of_size = [&](int32_t warps, int32_t load_warps) {
    s.warps = warps, s.load_warps = load_warps;
    s.has_moves = warps == 8 ? 1 : 0;
  };
  for (s.rows = std::clamp(needed, 16, 64); s.rows > 16; s.rows /= 2) {
    of_size(8, 4);
    if (registers_of(s) <= kMostRegisters && fit_stages(s, 1, 2, limit)) return;
  }
  const int64_t items = requests_and_heads * ((rows + 15) / 16);
  of_size(4, 2);
  if (items > kFewItems && fit_stages(s, 2, 1, limit)) return;
  // Each of eight warps takes columns of values: 8 or more, of codes 16.
  if (s.value_width % (s.is_e4m3 != 0 ? 128 : 64) == 0) of_size(8, 4);
  fit_stages(s, 1, 1, limit);
}

/// True if tensor copies can load whole pages of both caches: 16-byte strides, rows that a swizzle fits.
bool fits_engine(const DecodeSpec& s, Device device) {
  const int32_t vector = s.is_e4m3 != 0 ? 16 : 8;
  return jit::has_wgmma(device) && s.page_size >= kLeastBox && s.k_vector == vector &&
         s.v_vector == vector && s.width == s.value_width && s.width % 64 == 0;
}

int64_t part_count(const Call& c) {
  return (c["Q"] * c["ps"] + c["split_len"] - 1) / c["split_len"];
}

int32_t vector_of(const TensorView& view) {
  return static_cast<int32_t>(common_vector(view, 16 / bytes(view.dtype)));
}

void launches(const Call& c, Launches& go) {
  DecodeSpec s{};
  s.width = c.i32("dk"), s.value_width = c.i32("dv");
  s.is_f16 = c.dtype("q") == DType::f16 ? 1 : 0;
  if (c["P"] == 0 || c["Q"] == 0) return attention::add_empty(c, go);
  const TensorView q = attention::packed(c.given("q")), k = attention::packed(c.given("k_cache")),
                   v = attention::packed(c.given("v_cache"));
  s.is_e4m3 = c.dtype("k_cache") == DType::e4m3 ? 1 : 0;
  s.q_vector = vector_of(q), s.k_vector = vector_of(k), s.v_vector = vector_of(v);
  const int64_t left = c["window_left"], most = c["Q"] * c["ps"];
  s.is_causal = c.flag("causal") ? 1 : 0;
  s.has_left = left >= 0 && left < most + c["n"] ? 1 : 0;
  const double softcap = c.number("softcap");
  s.has_softcap = softcap > 0 ? 1 : 0;
  s.has_sink = c.has("sink") ? 1 : 0;
  s.has_parts = most > c["split_len"] ? 1 : 0;
  const bool is_usual =
      std::has_single_bit(static_cast<uint64_t>(c["ps"])) && c["ps"] <= kLargestPage;
  s.page_size = is_usual ? c.i32("ps") : 0;
  choose_tile(s, c["n"] * (c["h"] / c["g"]), c["B"] * c["g"] * part_count(c),
              jit::shared_memory_limit(c.device()));
  // Two blocks at once hide the loads of 16-bit rows, and tensor copies cost them 2 %.
  const bool is_alone = s.blocks_per_sm == 1;
  s.by_engine = fits_engine(s, c.device()) && (is_alone || s.is_e4m3 != 0) ? 1 : 0;
  Args args{.tensors = {{"q", q}, {"k_cache", k}, {"v_cache", v}},
            .scalars = {{"c", attention::factor_of(c)},
                        {"cap", softcap > 0 ? attention::scale_of(c) / softcap : 0.0},
                        {"left", left},
                        {"part_blocks", c["split_len"] / s.keys()},
                        {"group", c["h"] / c["g"]},
                        {"cache_rows", most}}};
  if (s.has_parts == 0) return go.add(attention::build_decode, s, args);
  const int64_t rows = c["B"] * c["n"] * c["h"];
  const TensorView& workspace = c.given("workspace");
  args.tensors.push_back(
      {"parts",
       {workspace.data, DType::f32, {part_count(c), rows, s.value_width + 2}, c.device()}});
  go.add(attention::build_decode, s, args);
  go.add(attention::build_join,
         attention::JoinSpec{s.value_width, s.is_f16, s.is_causal, s.has_left, s.has_sink,
                             s.is_e4m3, static_cast<int32_t>(s.keys())},
         args, "join");
}

void require(const Call& c) {
  attention::require_widths(c, "v_cache");
  attention::require_factors(c);
  const int64_t keys = attention::keys_of_block(c["dk"]), split_len = c["split_len"];
  c.need(split_len % keys == 0, "split_len", "parameter 'split_len' has a wrong value",
         "a multiple of " + std::to_string(keys), std::to_string(split_len));
  const DType cache = c.dtype("k_cache"), q = c.dtype("q");
  c.need(cache == DType::e4m3 || cache == q, "k_cache", "argument 'k_cache' has the wrong dtype",
         std::string(name(q)) + ", as 'q', or e4m3", std::string(name(cache)));
  const bool has_form = cache != DType::e4m3 || (c["dk"] == c["dv"] && c["dk"] != 96);
  c.need(has_form, "k_cache", "e4m3 goes without heads of these extents",
         "dk and dv of 64 and 64, 128 and 128, or 256 and 256",
         std::to_string(c["dk"]) + " and " + std::to_string(c["dv"]), ErrorKind::unsupported);
}

/// Scales that make sense: the kernel gives NaN for the rows of other heads.
void require_scales(const Call& c) {
  if (!c.has("k_sf") || !values_are_checked(c.given("k_sf"))) return;
  const TensorView& scales = c.given("k_sf");
  for (int64_t i = 0; i < scales.size(); ++i) {
    const float scale = static_cast<const float*>(scales.data)[i * scales.strides[0]];
    c.need(std::isfinite(scale) && scale > 0, "k_sf", "argument 'k_sf' has a value out of range",
           "finite numbers above 0", fmt::format("{} at [{}]", scale, i));
  }
}

/// Pages that keys need.
void require_pages(const Call& c) {
  require_scales(c);
  const TensorView &table = c.given("page_table"), &lengths = c.given("lengths");
  if (values_are_checked(table) && values_are_checked(lengths)) {
    const int64_t columns = c["Q"], page_size = c["ps"];
    require_values(c.check(), "page_table", table, 0, c["P"] - 1, [&](int64_t i) {
      return i % columns * page_size < integer_at(lengths, i / columns);
    });
  }
}

}  // namespace

const Op attention_decode_op{
    .name = "attention_decode",
    .family = "attention",
    .purpose = "attention of the newest tokens of requests over a paged cache of keys and values",
    .signature = R"(
      q            bf16/f16 [B, n, h, dk] rows        # the last n tokens of each request
      k_cache      bf16/f16/e4m3 [P, ps, g, dk] rows  # pages of ps tokens; heads of q share those of k in groups of h / g
      v_cache      as k_cache [P, ps, g, dv] rows
      page_table  i32 [B, Q] rows                    # pages of a request; behind its length any value
      lengths      i32 [B]                            values 0 .. Q * ps  # with the n new tokens
      k_sf?        f32 [g]                            iff k_cache is e4m3
      v_sf?        f32 [g]                            iff k_cache is e4m3
      sink?        f32 [h]                            # exp(sink) is added to the sum of a row, not to lse
      -> out       as q [B, n, h, dv]
      -> lse       f32 [B, h, n]
      workspace?   f32 [ceil(Q * ps / split_len), B * n * h, dv + 2]  iff Q * ps > split_len
      param  scale float = none
      param  causal bool = true
      param  window_left int >= -1 = -1
      param  softcap float = 0
      param  split_len int = 1024
      need   split_len >= 1 on split_len "parameter 'split_len' has a wrong value"
      need   ps >= 1 on k_cache "argument 'k_cache' has pages without rows"
      need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k_cache'"
      limit  Q * ps <= 536870912 on page_table "so many keys of a request are not supported"
      limit  split_len <= 1073741824 on split_len "so large a part is not supported"
      limit  B * n * h * ceil(Q * ps / 64) <= 2147483647 on q "so many rows and keys are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = require_pages,
    .examples = R"(
      B=3 n=1 h=8 g=2 dk=128 dv=128 P=80 ps=16 Q=20 q=bf16 k_cache=bf16 split_len=128
      B=2 n=3 h=8 g=1 dk=64 dv=64 P=9 ps=64 Q=4 q=f16 k_cache=f16 sink=given window_left=40
      B=2 n=1 h=4 g=2 dk=128 dv=128 P=30 ps=16 Q=12 q=bf16 k_cache=e4m3
      B=2 n=2 h=2 g=1 dk=192 dv=128 P=40 ps=7 Q=20 q=bf16 k_cache=bf16 softcap=8
      B=1 n=5 h=16 g=2 dk=96 dv=96 P=12 ps=16 Q=10 q=bf16 k_cache=bf16 causal=false
      B=1 n=5 h=8 g=1 dk=256 dv=256 P=5 ps=64 Q=4 q=bf16 k_cache=bf16 split_len=64)",
    .bench = R"(
      B=32 n=1 h=32 g=8 dk=128 dv=128 P=2048 ps=64 Q=64 q=bf16 k_cache=bf16
      B=32 n=1 h=32 g=8 dk=128 dv=128 P=8192 ps=16 Q=256 q=bf16 k_cache=bf16
      B=32 n=4 h=32 g=8 dk=128 dv=128 P=2048 ps=64 Q=64 q=bf16 k_cache=bf16
      B=128 n=1 h=64 g=8 dk=128 dv=128 P=16384 ps=64 Q=128 q=bf16 k_cache=bf16
      B=256 n=1 h=64 g=8 dk=128 dv=128 P=4096 ps=64 Q=16 q=bf16 k_cache=bf16
      B=1 n=1 h=32 g=4 dk=128 dv=128 P=64 ps=64 Q=64 q=bf16 k_cache=e4m3
      B=1 n=1 h=32 g=4 dk=128 dv=128 P=256 ps=64 Q=256 q=bf16 k_cache=e4m3
      B=1 n=1 h=32 g=4 dk=128 dv=128 P=1024 ps=64 Q=1024 q=bf16 k_cache=e4m3
      B=1 n=1 h=32 g=4 dk=128 dv=128 P=4096 ps=64 Q=4096 q=bf16 k_cache=e4m3
      B=32 n=1 h=8 g=1 dk=128 dv=128 P=16384 ps=64 Q=512 q=bf16 k_cache=e4m3
      B=1 n=1 h=32 g=4 dk=128 dv=128 P=16 ps=64 Q=16 q=bf16 k_cache=bf16
      B=1 n=1 h=32 g=4 dk=128 dv=128 P=128 ps=64 Q=128 q=bf16 k_cache=bf16
      B=1 n=1 h=64 g=8 dk=128 dv=128 P=16 ps=64 Q=16 q=bf16 k_cache=bf16
      B=1 n=1 h=64 g=8 dk=128 dv=128 P=128 ps=64 Q=128 q=bf16 k_cache=bf16
      B=64 n=1 h=64 g=8 dk=64 dv=64 P=8192 ps=64 Q=128 q=bf16 k_cache=bf16 window_left=127 sink=given)",
    .values = {{"page_table", scattered_page},
               {"lengths",
                [](const Case& c, int64_t b) {
                  const int64_t most = c["Q"] * c["ps"];
                  return b < 2 || c["B"] > 3 ? most : most - b * 9 % (most + 1);
                }},
               // As bits: 1, 1.25, 1.5, 1.75.
               {"k_sf",
                [](const Case&, int64_t i) -> int64_t {
                  return std::bit_cast<int32_t>(1 + 0.25f * static_cast<float>(i % 4));
                }}},
    .bytes = [](const Case& c) {
      const int64_t element = c.dtype_word("k_cache") == "e4m3" ? 1 : 2;
      const int64_t left = c["window_left"], most = c["Q"] * c["ps"];
      const int64_t keys = left < 0 ? most : std::min(most, left + c["n"]);
      const int64_t cache = c["B"] * keys * c["g"] * (c["dk"] + c["dv"]) * element;
      return cache + c["B"] * c["n"] * c["h"] * ((c["dk"] + c["dv"]) * 2 + 4);
    }};

}  // namespace tessera::kernels
