// topk_select: the exact top-k of each row; ties go to the smaller column.
//
// Dtypes   f32|bf16
// Method   each row is read once, chunk by chunk, by one block or by the blocks of a cluster in turn. A
//          block keeps its candidates in shared memory, key and column in one word. Later columns lose
//          ties, so a score counts only if it exceeds the last of the best topk candidates. This
//          threshold first comes from group maxima of the first chunk, later from a selection whenever
//          the room is full. A selection is a radix select: it counts 11 bits of the words at a time,
//          within their range. The blocks of a cluster share the first threshold: the least key that the
//          share of topk of a block reaches. They send the words above a common bound to the first block.
//          The chosen words are sorted by bins, then within each bin; a large bin takes a bitonic sort.
// Speed    H200, f32, us: topk 512: 1 x 8192 5.2 (goal 4.5), 4 x 65536 8.5, 1 x 262144 12.2 (limit 15, goal 8),
//          1 x 2^20 19.9, 64 x 262144 34.4 (limit 40, goal 24); topk 2048: 1 x 262144 15.2, 1 x 2^20 25.9,
//          64 x 2^20 116.8 (goal 80). Before the blocks shared a threshold, 1 x 262144 took 13.0, topk 2048
//          26.2 and 67.9. Tried: the chunk after next loaded before the first threshold, 64 x 262144 43.8.
//          On an H100 (there 5.3, 13.6, 43.4, 134): one block per row of 64 x 262144 53.0, clusters of 2 x
//          512 threads 47.9, of 8 at 4 per SM 84.9; 8 keys per thread 45.9; room for 4096 candidates 48.1;
//          without reading ahead 46.4. 1 x 8192 in clusters of 2 and 4: 8.3 and 9.5; 1024 threads 5.4, 256
//          threads 6.4.
// Maths    none: NaN ranks as -inf, -0 as +0

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/select_call.h"
#include "kernels/serving/parts/select_values.h"
#include "kernels/signature/case_values.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

struct PadSpec {
  int32_t topk, score_bytes;
  int32_t saves_raw, saves_values;
};

/// Rows without columns: nothing is chosen.
ir::Kernel build_padding(const PadSpec& s) {
  using namespace dsl;
  constexpr int kThreads = 128;
  Builder k("topk_select_padding");
  const DType dtype = s.score_bytes == 4 ? DType::f32 : DType::bf16;
  auto rows = k.dim("rows");
  auto indices = k.output("indices", DType::i32, {rows, s.topk}, {.align = 4});
  std::optional<Ref> raw, values;
  if (s.saves_raw) raw = k.output("raw_indices", DType::i32, {rows, s.topk}, {.align = 4});
  if (s.saves_values) values = k.output("values", dtype, {rows, s.topk}, {.align = s.score_bytes});
  auto at = k.launch({rows}, {.threads = kThreads});
  k.serial(
      k.thread(), i32(s.topk),
      [&](Value place) {
        indices(at.x, place) = -1;
        if (raw) (*raw)(at.x, place) = -1;
        if (values) (*values)(at.x, place) = cast(dtype, -std::numeric_limits<float>::infinity());
      },
      kThreads);
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const int64_t columns = c["L"];
  if (columns == 0) {
    return go.add(
        build_padding,
        PadSpec{c.i32("topk"), bytes(c.dtype("scores")), c.flag("save_raw"), c.flag("save_values")},
        {}, "padding");
  }
  serving::SelectSpec s{};
  s.topk = c.i32("topk");
  s.score_bytes = static_cast<uint8_t>(bytes(c.dtype("scores")));
  const int64_t vector = 16 / s.score_bytes;
  s.is_aligned = c.align({"scores"}) == 16 && columns % vector == 0 &&
                 c.given("scores").strides[0] % vector == 0;
  s.by_value = c.word("order") == "value";
  s.has_starts = c.has("starts");
  s.has_lengths = c.has("lengths");
  s.has_pages = c.has("page_table"), s.has_table_rows = c.has("table_row");
  s.is_relative = c.flag("relative");
  s.saves_raw = c.flag("save_raw");
  s.saves_values = c.flag("save_values");
  const int32_t page_shift = std::countr_zero(static_cast<uint64_t>(c["page_size"]));
  serving::add_select(c, go, s, c["B"], columns,
                      {.scalars = {{"page_shift", page_shift}, {"rows_of_table", 1}}});
}

void require(const Call& c) {
  serving::require_page_size(c);
  if (!c.has("page_table") || c.has("table_row")) return;
  c.need(c["R"] == c["B"], "page_table", "argument 'page_table' has the wrong shape",
         "a row for each of scores, " + std::to_string(c["B"]) + ", or 'table_row'",
         to_string(c.given("page_table")));
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
      page_table?      i32 [R, Q] rows  # pages of the columns; row r of the scores has row r of it
      table_row?       i32 [B]          # or this one
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
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
      need   page_table if table_row on table_row "argument 'table_row' goes with 'page_table'"
      limit  B <= 266338303 on scores "so many rows are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = serving::require_ranges,
    .examples = R"(
      B=3 L=1000 scores=f32 topk=64; B=2 L=9000 scores=f32 topk=512 order=value save_values=true lengths=given starts=given
      B=2 L=20001 scores=bf16 topk=100 page_table=given R=2 Q=400 lengths=given save_raw=true
      B=3 L=700 scores=f32 topk=64 page_table=given R=2 Q=11 table_row=given
      B=2 L=40000 scores=f32 topk=512 lengths=given; B=1 L=270000 scores=f32 topk=32 lengths=given)",
    .bench = R"(
      B=1 L=8192 scores=f32 topk=512; B=64 L=8192 scores=f32 topk=512; B=4 L=65536 scores=f32 topk=512
      B=1 L=262144 scores=f32 topk=512; B=64 L=262144 scores=f32 topk=512; B=256 L=65536 scores=f32 topk=512
      B=64 L=1048576 scores=f32 topk=2048; B=64 L=65536 scores=bf16 topk=512
      B=64 L=65536 scores=f32 topk=512 order=value
      B=64 L=65536 scores=f32 topk=2048 lengths=given page_table=given R=64 Q=1024)",
    .values = {{"lengths",
                [](const Case& c, int64_t b) {
                  return c["L"] - b * 77 % std::max<int64_t>(c["L"], 1);
                }},
               {"starts",
                [](const Case& c, int64_t b) { return b * 5 % std::max<int64_t>(c["L"] / 2, 1); }},
               {"page_table", slot_page},
               {"table_row",
                [](const Case& c, int64_t b) { return b % std::max<int64_t>(c["R"], 1); }}},
    .bytes = [](const Case& c) {
      return c["B"] * (c["L"] * (c.dtype_word("scores") == "f32" ? 4 : 2) + 4 * c["topk"]);
    }};

}  // namespace tessera::kernels
