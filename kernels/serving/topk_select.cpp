// topk_select: the largest scores of each row, exactly; equal ones by their column.
//
// Dtypes   f32|bf16
// Method   scores become unsigned keys of the same order. Digits of 11, 11 and 10 bits of the keys are
//          counted in shared memory from the top, each among the keys that begin like the last one
//          chosen, until all such keys are chosen or are equal. Then every warp counts what it has
//          before that key and what equals it, and places its columns behind those of the warps in front:
//          counts are integers, so nothing depends on who comes first. Rows of up to 32768 scores stay in
//          the registers of one block from the one load on, up to 262144 in those of a cluster of 8;
//          longer ones are read again for every digit, through L2.
//          order value: a bitonic sort of the chosen keys in shared memory.
// Maths    none: NaN ranks as -inf, -0 as +0

#include <algorithm>
#include <bit>

#include "kernels/all_ops.h"
#include "kernels/serving/select_kernel.h"
#include "kernels/serving/select_values.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using serving::kSelectCluster;
using serving::scores_held;

/// How many rows fill the device without clusters.
constexpr int64_t kManyRows = 128;

void launches(const Call& c, Launches& go) {
  const int64_t columns = c["L"];
  serving::SelectSpec s{};
  s.topk = c.i32("topk");
  s.score_bytes = static_cast<uint8_t>(bytes(c.dtype("scores")));
  const int64_t vector = 16 / s.score_bytes;
  s.is_aligned = c.align({"scores"}) == 16 && columns % vector == 0 &&
                 c.given("scores").strides[0] % vector == 0;
  s.by_value = c.word("order") == "value";
  s.has_starts = c.has("starts");
  s.has_lengths = c.has("lengths");
  s.has_pages = c.has("page_table");
  s.is_relative = c.flag("relative");
  s.saves_raw = c.flag("save_raw");
  s.saves_values = c.flag("save_values");
  const int32_t page_shift = std::countr_zero(static_cast<uint64_t>(c["page_size"]));
  go.in_clusters([&](int limit) {
    const bool spreads = columns > scores_held(32, 1) && c["B"] < kManyRows;
    s.cluster = spreads && kSelectCluster <= limit ? kSelectCluster : 1;
    s.keys = 8;
    while (s.keys < 32 && scores_held(s.keys, s.cluster) < columns) s.keys *= 2;
    s.streams = scores_held(s.keys, s.cluster) < columns;
    if (s.streams) s.keys = 16;
    go.add(serving::build_select, s, {.scalars = {{"page_shift", page_shift}}});
  });
}

}  // namespace

const Op topk_select_op{
    .name = "topk_select",
    .family = "serving",
    .purpose = "the columns of the largest scores of each row, exactly",
    .signature = R"(
      scores           f32/bf16 [B, L] rows
      lengths?         i32 [B]          # the ends of the rows; L
      starts?          i32 [B]          # their first columns; 0
      page_table?      i32 [B, Q] rows
      plan?            i32 [B+1, 2]     # of topk_plan
      -> indices       i32 [B, topk]
      -> raw_indices?  i32 [B, topk]    iff save_raw
      -> values?       as scores [B, topk]  iff save_values
      param  topk int 1..4096
      param  order {index, value} = index
      param  page_size int = 64
      param  relative bool = false
      param  save_raw, save_values bool = false
      limit  topk <= 4096 "so many scores of a row are not supported"
      need   L >= 1 on scores "argument 'scores' has no columns"
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
      limit  B <= 266338303 on scores "so many rows are not supported"  # eight blocks each
    )",
    .launches = launches,
    .check = serving::require_page_size,
    .check_values = serving::require_ranges,
    .examples = R"(
      B=3 L=1000 scores=f32 topk=64; B=2 L=9000 scores=f32 topk=512 order=value save_values=true lengths=given starts=given
      B=2 L=20001 scores=bf16 topk=100 page_table=given Q=400 lengths=given save_raw=true
      B=2 L=40000 scores=f32 topk=512 lengths=given; B=1 L=270000 scores=f32 topk=32 lengths=given)",
    .bench = R"(
      B=1 L=8192 scores=f32 topk=512; B=64 L=8192 scores=f32 topk=512; B=4 L=65536 scores=f32 topk=512
      B=1 L=262144 scores=f32 topk=512; B=64 L=262144 scores=f32 topk=512; B=256 L=65536 scores=f32 topk=512
      B=64 L=1048576 scores=f32 topk=2048; B=64 L=65536 scores=bf16 topk=512
      B=64 L=65536 scores=f32 topk=512 order=value
      B=64 L=65536 scores=f32 topk=2048 lengths=given page_table=given Q=1024)",
    .values = {{"lengths", [](const Case& c, int64_t b) { return c["L"] - b * 77 % c["L"]; }},
               {"starts", [](const Case& c, int64_t b) { return b * 5 % (c["L"] / 2); }},
               {"page_table", [](const Case&, int64_t i) { return i * 7 % 1021; }}},
    .bytes = [](const Case& c) {
      return c["B"] * (c["L"] * (c.dtype_word("scores") == "f32" ? 4 : 2) + 4 * c["topk"]);
    }};

}  // namespace tessera::kernels
