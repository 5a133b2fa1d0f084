// kv_load: slots of a KV cache as rows.
//
// Dtypes   the cache as its format, loc i32|i64, out bf16|f32
// Method   a warp has 128 channels of a row: cache_rows.cpp. A slot is read once, a row written once; the bound is bytes /
//          copy bandwidth.
// Maths    round(code * scale) to bf16, exact for scales that are powers of two; of index_fp8 the product in f32

#include "kernels/registry/all_ops.h"
#include "kernels/serving/cache/parts/cache_cases.h"
#include "kernels/serving/parts/cache_rows.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using namespace dsl;
using serving::kLaneChannels;

struct Spec {
  int32_t channels;
  serving::CacheKind kind;
  DType out, loc;
};

ir::Kernel build(const Spec& s) {
  Builder k("kv_load");
  auto tokens = k.dim("tokens");
  const serving::CacheRows cache(k, s.kind, s.channels, false);
  auto loc = k.input("loc", s.loc, {tokens}, {.align = bytes(s.loc)});
  auto out = k.output("out", s.out, {tokens, s.channels});
  const serving::EntryWarps warps(s.channels);
  auto at = k.launch({ceil_div(tokens, warps.entries)}, {.threads = warps.threads()});
  k.let_next_kernel_start();
  const serving::EntryPart part = serving::entry_part(k, warps, at.x);
  const Value &token = part.entry, &column = part.column;
  k.wait_for_previous_kernel();
  k.if_(token < tokens && column < s.channels, [&] {
    auto location = k.let("location", loc(token).unchecked());
    auto values = k.local(DType::f32, {kLaneChannels}, "values");
    k.unrolled(kLaneChannels, [&](Value i) { values(i) = 0.0f; });
    const serving::CacheRows::Slot slot = cache.slot(location, "loc");
    k.if_(slot.exists, [&] { cache.load(values, column, slot); });
    k.vectorized(kLaneChannels,
                 [&](Value i) { out(token, column + i).unchecked() = cast(s.out, values(i)); });
  });
  return k.finish();
}

int64_t channels_of(const Call& c) {
  const serving::CacheKind kind = serving::cache_kind(c);
  return kind.format == serving::CacheFormat::bf16 ? c["bytes"]
                                                   : serving::cache_layout(kind).channels;
}

void launches(const Call& c, Launches& go) {
  const Spec s{static_cast<int32_t>(channels_of(c)), serving::cache_kind(c), c.dtype("out_dtype"),
               c.dtype("loc")};
  go.add(build, s, {.tensors = serving::cache_tensors(c)});
}

}  // namespace

const Op kv_load_op{
    .name = "kv_load",
    .family = "serving",
    .purpose = "slots of a KV cache as rows",
    .signature = R"(
      cache   u8/bf16 [blocks, bytes] rows           # of kv_store
      loc     i32/i64 [T]                            # slots; negative: a row of zeros
      -> out  out_dtype [T, channels()] align 16
      param   format {bf16, v32_fp8, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
      param   page_size int = 64
      param   cache_order {planes, rows} = planes
      param   out_dtype {bf16, f32} = bf16
      need    blocks >= 1 on cache "argument 'cache' has no rows"
    )",
    .launches = launches,
    .check = [](const Call& c) { serving::require_cache(c, channels_of(c)); },
    .check_values = [](const Call& c) { serving::require_locations(c, false); },
    .functions = {{"channels", channels_of}},
    .examples = R"(
      T=37 loc=i64 format=v32_fp8; T=21 loc=i32 format=v4_fp8 page_size=5 out_dtype=f32
      T=9 loc=i32 format=v41_fp8 cache_order=rows; T=9 loc=i32 format=v41_fp4
      T=9 loc=i32 format=index_fp8 out_dtype=f32; T=9 loc=i64 format=index_fp4
      T=9 bytes=576 loc=i32 format=bf16 cache=bf16)",
    .bench = R"(
      T=8192 loc=i32 format=v4_fp8; T=8192 loc=i32 format=v32_fp8; T=8192 loc=i32 format=v41_fp8
      T=8192 loc=i32 format=v41_fp4; T=8192 loc=i32 format=index_fp8 out_dtype=f32)",
    .case_words = {{"blocks", serving::cached_blocks}, {"bytes", serving::cached_bytes}},
    .values = {{"loc", serving::cached_location}},
    .bytes =
        [](const Case& c) {
          const bool is_f32 = std::get<std::string>(c.params().at("out_dtype")) == "f32";
          return c["T"] *
                 (serving::cached_channels(c) * (is_f32 ? 4 : 2) + serving::cached_token_bytes(c));
        }};

}  // namespace tessera::kernels
