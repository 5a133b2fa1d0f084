// kv_store: rows to the slots of a KV cache, in the cache's format.
//
// Dtypes   x bf16|f32, loc i32|i64; the cache as its format
// Method   a warp has 128 channels of a row: cache_rows.cpp. A row is read once and written once; the bound is bytes /
//          copy bandwidth.
// Maths    codes are rounded products with the inverse of the group's scale; of v41_fp4 quotients

#include "kernels/registry/all_ops.h"
#include "kernels/serving/cache/parts/cache_cases.h"
#include "kernels/serving/parts/cache_rows.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using namespace dsl;
using serving::kLaneChannels;

struct Spec {
  int32_t channels;
  serving::CacheKind kind;
  DType x, loc;
  uint8_t x_width;  // elements of an access
  uint8_t unused[3] = {};
};

ir::Kernel build(const Spec& s) {
  Builder k("kv_store");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", s.x, {tokens, s.channels},
                   {.strides = {k.stride("x_stride", {.multiple_of = s.x_width}), 1},
                    .align = int64_t{bytes(s.x)} * s.x_width});
  auto loc = k.input("loc", s.loc, {tokens}, {.align = bytes(s.loc)});
  const serving::CacheRows cache(k, s.kind, s.channels, true);
  const serving::EntryWarps warps(s.channels);
  auto at = k.launch({ceil_div(tokens, warps.entries)}, {.threads = warps.threads()});
  k.let_next_kernel_start();
  const serving::EntryPart part = serving::entry_part(k, warps, at.x);
  const Value &token = part.entry, &column = part.column;
  k.wait_for_previous_kernel();
  k.if_(token < tokens, [&] {
    auto location = k.let("location", loc(token).unchecked());
    auto values = k.local(DType::f32, {kLaneChannels}, "values");
    serving::load_lane(k, x(token), s.channels, s.x_width, column, values);
    cache.store(values, column, cache.slot(location, "loc"), false);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["T"] == 0) return;
  Spec s{};
  s.channels = c.i32("d");
  s.kind = serving::cache_kind(c);
  s.x = c.dtype("x");
  s.loc = c.dtype("loc");
  s.x_width = static_cast<uint8_t>(common_vector(c.given("x"), kLaneChannels));
  go.add(build, s, {.tensors = serving::cache_tensors(c)});
}

}  // namespace

const Op kv_store_op{
    .name = "kv_store",
    .family = "serving",
    .purpose = "rows to the slots of a KV cache, in the cache's format",
    .signature = R"(
      x               bf16/f32 [T, d] rows
      loc             i32/i64 [T]                   # slots: block * page_size + place in the block; negative: not stored
      -> inout cache  u8/bf16 [blocks, bytes] rows  # bf16: a slot per row
      param  format {bf16, v32_fp8, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
      param  page_size int = 64
      param  cache_order {planes, rows} = planes    # of v41_fp8, v41_fp4, index_fp4: scales behind the data of a block, or of a token
      need   blocks >= 1 on cache "argument 'cache' has no rows"
    )",
    .launches = launches,
    .check = [](const Call& c) { serving::require_cache(c, c["d"]); },
    .check_values = [](const Call& c) { serving::require_locations(c, true); },
    .examples = R"(
      T=37 d=576 x=bf16 loc=i64 format=v32_fp8; T=21 d=512 x=bf16 loc=i32 format=v4_fp8 page_size=5
      T=9 d=512 x=f32 loc=i32 format=v41_fp8 cache_order=rows; T=9 d=512 x=bf16 loc=i32 format=v41_fp4 x.strides=520,1
      T=9 d=128 x=bf16 loc=i32 format=index_fp8; T=9 d=128 x=f32 loc=i64 format=index_fp4
      T=9 d=576 x=bf16 loc=i32 format=bf16 cache=bf16)",
    .bench = R"(
      T=64 d=512 x=bf16 loc=i32 format=v4_fp8; T=8192 d=512 x=bf16 loc=i32 format=v4_fp8
      T=8192 d=576 x=bf16 loc=i32 format=v32_fp8; T=8192 d=512 x=bf16 loc=i32 format=v41_fp8
      T=8192 d=512 x=bf16 loc=i32 format=v41_fp4; T=8192 d=128 x=bf16 loc=i32 format=index_fp8)",
    .case_words = {{"blocks", serving::cached_blocks}, {"bytes", serving::cached_bytes}},
    .values = {{"loc", serving::cached_location}},
    .bytes =
        [](const Case& c) {
          const int64_t size = c.dtype_word("x") == "f32" ? 4 : 2;
          return c["T"] * (c["d"] * size + serving::cached_token_bytes(c));
        }};

}  // namespace tessera::kernels
