// kv_norm_rope_store: normalises and rotates rows and stores them to the slots of a KV cache.
//
// Dtypes   x bf16|f32, norm_weight f32|bf16, positions and loc i32|i64; the cache as its format
// Method   a warp has 128 channels of a row; the warps of a row add their squares by shared memory, then each quantises and stores
//          its own: cache_entry.cpp. A row is read once and written once; the bound is bytes / copy bandwidth.
// Maths    norm_fwd, then apply_rotary of interleaved pairs, then kv_store, all in f32: the same bits. 1 / sqrt(mean of squares +
//          norm_eps), IEEE; (x * r) * weight; of 576 channels the first 512

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/cache/parts/cache_cases.h"
#include "kernels/serving/parts/cache_entry.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using namespace dsl;
using serving::kLaneChannels;

struct Spec {
  int32_t channels;
  serving::EntrySpec entry;
  DType x, loc, positions;
  uint8_t x_width;  // elements of an access
};

ir::Kernel build(const Spec& s) {
  Builder k("kv_norm_rope_store");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", s.x, {tokens, s.channels},
                   {.strides = {k.stride("x_stride", {.multiple_of = s.x_width}), 1},
                    .align = int64_t{bytes(s.x)} * s.x_width});
  auto positions = k.input("positions", s.positions, {tokens}, {.align = bytes(s.positions)});
  auto loc = k.input("loc", s.loc, {tokens}, {.align = bytes(s.loc)});
  serving::CacheEntry entry(k, s.entry, s.channels);
  const serving::EntryWarps warps(s.channels);
  auto at = k.launch({ceil_div(tokens, warps.entries)}, {.threads = warps.threads()});
  k.let_next_kernel_start();
  const serving::EntryPart part = serving::entry_part(k, warps, at.x);
  k.wait_for_previous_kernel();
  auto values = k.local(DType::f32, {kLaneChannels}, "values");
  k.unrolled(kLaneChannels, [&](Value i) { values(i) = 0.0f; });
  auto position = k.var(s.positions, -1, "position");
  auto location = k.var(s.loc, -1, "location");
  k.if_(part.entry < tokens, [&] {
    position = positions(part.entry).unchecked();
    location = loc(part.entry).unchecked();
  });
  auto counts = k.let("counts", Value(position) != -1 && Value(location) >= 0);
  const serving::CacheEntry::Place place{part.column, position, location};
  k.if_(counts, [&] {
    entry.prefetch(place, out_of_range("positions"));
    serving::load_lane(k, x(part.entry), s.channels, s.x_width, part.column, values);
  });
  const Value total = entry.sum_of_squares(values, part.pass);
  k.if_(counts, [&] {
    entry.normalize(values, total, place);
    entry.store(values, place, "loc");
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["T"] == 0) return;
  Spec s{};
  s.channels = c.i32("d");
  s.entry = serving::entry_spec(c);
  s.x = c.dtype("x");
  s.loc = c.dtype("loc");
  s.positions = c.dtype("positions");
  s.x_width = static_cast<uint8_t>(common_vector(c.given("x"), kLaneChannels));
  go.add(build, s, {.tensors = serving::cache_tensors(c)});
}

void check(const Call& c) {
  const int64_t channels = c["d"];
  serving::require_entry(c, channels);
  c.need(channels % serving::kWarpChannels == 0 || channels == 576, "x",
         "so many channels are not supported", "576, or a multiple of 128",
         std::to_string(channels), ErrorKind::unsupported);
}

}  // namespace

const Op kv_norm_rope_store_op{
    .name = "kv_norm_rope_store",
    .family = "serving",
    .purpose = "rows, normalised and rotated, to the slots of a KV cache",
    .signature = R"(
      x               bf16/f32 [T, d] rows
      norm_weight     f32/bf16 [d]                  # of 576 channels the last 64 are rotated only
      cos_sin         f32 [angles, 64]              # of the last 64 channels, in pairs (2j, 2j + 1)
      positions       i32/i64 [T]                   # -1: padding, not stored
      loc             i32/i64 [T]                   # slots; negative: not stored
      -> inout cache  u8/bf16 [blocks, bytes] rows
      param  format {bf16, v32_fp8, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
      param  page_size int = 64
      param  cache_order {planes, rows} = planes
      param  norm_eps float = 1e-6
      param  hadamard bool = false                  # of 128 channels, after the rotation
      param  round_before bool = true               # to bf16 before values are quantised
      param  cos_sin_layout {pairs, halves} = pairs
      need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
      need   blocks >= 1 on cache "argument 'cache' has no rows"
    )",
    .launches = launches,
    .check = check,
    .check_values =
        [](const Call& c) {
          serving::require_locations(c, true);
          serving::require_positions(c);
        },
    .examples = R"(
      T=37 d=576 angles=90 x=bf16 norm_weight=f32 positions=i64 loc=i64 format=v32_fp8
      T=21 d=512 angles=90 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=v4_fp8 page_size=5 cos_sin_layout=halves
      T=9 d=512 angles=50 x=f32 norm_weight=f32 positions=i32 loc=i32 format=v41_fp8 cache_order=rows
      T=9 d=512 angles=50 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=v41_fp4 round_before=false x.strides=520,1
      T=9 d=128 angles=50 x=bf16 norm_weight=f32 positions=i32 loc=i32 format=index_fp8 hadamard=true
      T=9 d=256 angles=50 x=bf16 norm_weight=f32 positions=i32 loc=i32 format=bf16 cache=bf16)",
    .bench = R"(
      T=64 d=512 angles=8192 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=v4_fp8
      T=8192 d=512 angles=8192 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=v4_fp8
      T=8192 d=512 angles=8192 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=v41_fp8
      T=8192 d=576 angles=8192 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=v32_fp8
      T=8192 d=128 angles=8192 x=bf16 norm_weight=bf16 positions=i32 loc=i32 format=index_fp8 hadamard=true)",
    .case_words = {{"blocks", serving::cached_blocks}, {"bytes", serving::cached_bytes}},
    .values = {{"loc", serving::cached_location}, {"positions", serving::cached_position}},
    .bytes =
        [](const Case& c) {
          const int64_t size = c.dtype_word("x") == "f32" ? 4 : 2;
          return c["T"] * (c["d"] * size + serving::cached_token_bytes(c));
        }};

}  // namespace tessera::kernels
