#include "kernels/serving/indexer/parts/blocks_call.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "kernels/checks/value_check.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/serving/parts/select_call.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {
namespace {

constexpr int64_t kLargestBlock = 64;

/// The pages of the keys of chosen blocks.
void require_pages_of_blocks(const Call& c) {
  const TensorView &blocks = c.given("blocks"), &table = c.given("page_table");
  const TensorView& lengths = c.given("lengths");
  const int64_t of_request = c["S"] / std::max<int64_t>(c["B"], 1), page_size = c["page_size"];
  for (int64_t i = 0; i < blocks.size(); ++i) {
    const int64_t row = i / c["C"], first = integer_at(blocks, i) * c["block_size"];
    const int64_t end = std::min(first + c["block_size"], integer_at(lengths, row));
    for (int64_t key = std::max<int64_t>(first, 0); first >= 0 && key < end; ++key) {
      const int64_t page = integer_at(table, row / of_request * c["Q"] + key / page_size);
      c.need(page >= 0 && page < c["P"], "page_table", out_of_range("page_table"),
             "0 .. " + std::to_string(c["P"] - 1),
             std::to_string(page) + " at " + to_string(Dims{row / of_request, key / page_size}));
    }
  }
}

int64_t rows_of_table(const TensorView& table, int64_t rows) {
  return table.shape[0] > 0 ? rows / table.shape[0] : 1;
}

}  // namespace

void add_topk(const Call& c, Launches& go, const TensorView& scores, const OutPages& pages,
              Args args) {
  const int64_t rows = scores.shape[0], columns = scores.shape[1];
  if (columns == 0) {
    go.add(build_no_indices, PadSpec{c.i32("topk")}, {}, "none");
    if (c.flag("save_values")) go.add(build_no_values, PadSpec{c.i32("topk")}, {}, "no_values");
    return;
  }
  SelectSpec s{};
  s.topk = c.i32("topk");
  s.score_bytes = 4;
  s.is_aligned = columns % 4 == 0 && scores.strides[0] % 4 == 0;
  s.by_value = c.word("order") == "value";
  s.saves_values = c.flag("save_values");
  s.has_lengths = s.has_known_range = true;
  s.has_pages = c.has(pages.table);
  s.has_out_table = s.has_pages && std::string_view(pages.table) != "page_table";
  for (const Args::Tensor& tensor : args.tensors) {
    s.has_starts = s.has_starts || tensor.name == "starts";
  }
  s.is_relative = s.has_starts && c.flag("relative");
  args.tensors.push_back({"scores", scores});
  args.scalars = {{"page_shift", std::countr_zero(static_cast<uint64_t>(c[pages.size]))},
                  {"rows_of_table", 1}};
  if (s.has_pages) {
    const TensorView& table = c.given(pages.table);
    args.tensors.push_back({"page_table", table});
    args.scalars.back() = {"rows_of_table", rows_of_table(table, rows)};
  }
  add_select(c, go, s, rows, columns, args, "topk");
}

void add_blocks(const Call& c, Launches& go, const TensorView& scores, const TensorView& lengths) {
  const int64_t columns = scores.shape[1], size = c["block_size"];
  const Args args{
      .tensors = {{"indices", c.given("blocks")}, {"scores", scores}, {"lengths", lengths}}};
  if (columns == 0) {
    return go.add(build_no_indices, PadSpec{c.i32("num_blocks")}, args, "no_blocks");
  }
  SelectSpec s{};
  s.from = SelectFrom::maxima;
  s.block_shift = static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(size)));
  s.takes_last = c["num_blocks"] == 1;
  s.topk = s.takes_last ? 1 : c.i32("num_blocks") - 1;
  s.score_bytes = static_cast<uint8_t>(bytes(scores.dtype));
  const int64_t vector = 16 / s.score_bytes;
  s.is_aligned =
      common_alignment({scores}) == 16 && columns % vector == 0 && scores.strides[0] % vector == 0;
  s.has_lengths = true;
  s.has_known_range = c.op().name != "candidate_blocks";
  add_select(c, go, s, scores.shape[0], (columns + size - 1) / size, args, "blocks");
}

int64_t padded_columns(int64_t columns) {
  return (columns + 3) / 4 * 4;
}

void require_out_pages(const Call& c, const OutPages& pages, int64_t rows) {
  const int64_t size = c[pages.size];
  c.need(size >= 1 && size <= 1 << 30 && std::has_single_bit(static_cast<uint64_t>(size)),
         pages.size, "parameter '" + std::string(pages.size) + "' has a wrong value",
         "a power of two up to 2^30", std::to_string(size));
  if (!c.has(pages.table)) return;
  const int64_t tables = c.given(pages.table).shape[0];
  c.need(tables > 0 ? rows % tables == 0 : rows == 0, pages.table,
         "argument '" + std::string(pages.table) + "' has rows that do not divide the queries",
         "a divisor of " + std::to_string(rows) + " queries", std::to_string(tables));
}

void require_block_size(const Call& c) {
  const int64_t size = c["block_size"];
  c.need(size >= 1 && size <= kLargestBlock && std::has_single_bit(static_cast<uint64_t>(size)),
         "block_size", "parameter 'block_size' has a wrong value", "a power of two up to 64",
         std::to_string(size));
}

void require_chosen_blocks(const Call& c) {
  require_block_size(c);
  require_heads(c);
  if (!c.has("cache")) return;
  require_index_cache(c);
  const int64_t rows = c["S"], requests = c["B"];
  c.need(requests > 0 ? rows % requests == 0 : rows == 0, "page_table",
         "argument 'page_table' has rows that do not divide the queries",
         "a divisor of " + std::to_string(rows) + " queries", std::to_string(requests));
}

void require_chosen_keys(const Call& c) {
  if (!c.has("cache")) return require_key_ranges(c);
  const TensorView &lengths = c.given("lengths"), &table = c.given("page_table");
  require_values(c.check(), "lengths", lengths, 0, c["Q"] * c["page_size"]);
  if (!values_are_checked(lengths) || !values_are_checked(table)) return;
  if (values_are_checked(c.given("blocks"))) require_pages_of_blocks(c);
}

}  // namespace tessera::kernels::serving
