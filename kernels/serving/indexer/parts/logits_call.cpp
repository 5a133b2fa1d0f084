#include "kernels/serving/indexer/parts/logits_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/jit/target.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::serving {
namespace {

constexpr int64_t kMostHeads = 256;   // of all queries of a tile by roles
constexpr int64_t kPlainHeads = 128;  // of the plain form: 64 sums in a thread
// The queries of a tile: each has sums and stores of its own, for which NVRTC takes about 100 ms.
constexpr int64_t kMostQueries = 4;
constexpr int64_t kLeastKeys = 256, kMostKeys = 8192;  // of an item
constexpr int64_t kTilesOfStart = 2;  // tiles of keys in the time that an item takes to begin
// Bytes of the tiles on their way: more than latency times bandwidth of a multiprocessor.
constexpr int64_t kRingBytes = 120 << 10;
constexpr int32_t kMostStages = 12;
constexpr int64_t kLargestPage = 4096;  // of the sizes that a kernel is made for

/// As many queries as fill `heads` heads.
int32_t queries_of_tile(int64_t queries, int64_t heads_of_query, int64_t heads) {
  const int64_t most = std::clamp<int64_t>(heads / heads_of_query, 1, kMostQueries);
  const auto wanted =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(queries, 1))));
  return static_cast<int32_t>(
      std::min(std::bit_floor(static_cast<uint64_t>(most)), static_cast<uint64_t>(wanted)));
}

/// The tile of a call: two groups of warps that multiply, and the sums of 256 heads in each of their threads.
LogitsTile tile_of(int64_t queries, int64_t heads_of_query, int64_t width, bool by_roles) {
  LogitsTile t{};
  t.by_roles = by_roles ? 1 : 0;
  t.rows = queries_of_tile(queries, heads_of_query, by_roles ? kMostHeads : kPlainHeads);
  t.keys = by_roles ? 128 : 64;
  t.parts = 1;
  t.stages = by_roles ? static_cast<int32_t>(
                            std::min<int64_t>(kRingBytes / (t.keys * (width + 4)), kMostStages))
                      : 3;
  return t;
}

/// The tiles of keys of an item with which all multiprocessors end soonest.
int64_t chunk_of(const Call& c, const LogitsTile& t, int64_t tiles, int64_t keys) {
  const int64_t blocks = jit::num_sms(c.device()), all = (keys + t.keys - 1) / t.keys;
  int64_t best = 1, least = std::numeric_limits<int64_t>::max();
  for (int64_t of_item = kMostKeys / t.keys; of_item >= kLeastKeys / t.keys; --of_item) {
    const int64_t items = tiles * ((all + of_item - 1) / of_item);
    const int64_t time = (items + blocks - 1) / blocks * (of_item + kTilesOfStart);
    if (time < least) best = of_item, least = time;
  }
  return best;
}

int32_t vector_of(const TensorView& view) {
  return static_cast<int32_t>(common_vector(view, 16));
}

LogitsSpec spec_of(const Call& c, DType logits, bool is_clean) {
  LogitsSpec s{};
  s.heads = c.i32("h"), s.width = c.i32("D");
  s.is_bf16 = logits == DType::bf16 ? 1 : 0;
  s.is_clean = is_clean ? 1 : 0;
  s.by_wgmma = jit::has_wgmma(c.device()) ? 1 : 0;
  return s;
}

/// The codes and the scales of a cache of index_fp8.
struct IndexCache {
  TensorView codes, scales;
};
IndexCache index_cache(const Call& c) {
  const TensorView& cache = c.given("cache");
  const int64_t pages = c["P"], page_size = c["page_size"], width = c["D"], apart = step(cache, 0);
  return {{cache.data, DType::e4m3, {pages, page_size, width}, {apart, width, 1}, cache.device},
          {static_cast<char*>(cache.data) + page_size * width,
           DType::f32,
           {pages, page_size, 1},
           {apart / 4, 1, 1},
           cache.device}};
}

/// The size of pages that a kernel is made for; 0: any.
int32_t usual_page_size(int64_t page_size) {
  const bool is_usual =
      std::has_single_bit(static_cast<uint64_t>(page_size)) && page_size <= kLargestPage;
  return is_usual ? static_cast<int32_t>(page_size) : 0;
}

/// True for operands that the copy engine and vectors of 16 bytes take, where there is wgmma.
bool is_by_roles(const LogitsSpec& s) {
  return s.q_vector == 16 && s.k_vector == 16 && s.by_wgmma != 0;
}

struct FillSpec {
  int32_t is_bf16;
};

/// Logits of rows that see no key.
ir::Kernel build_fill(const FillSpec& s) {
  using namespace dsl;
  constexpr int64_t kColumns = 1024;  // of a block
  Builder k("mqa_logits_fill");
  const DType dtype = s.is_bf16 != 0 ? DType::bf16 : DType::f32;
  auto rows = k.dim("rows"), columns = k.dim("columns");
  auto logits = k.output("logits", dtype, {rows, columns},
                         {.strides = {k.stride("logits_stride"), 1}, .align = bytes(dtype)});
  k.launch({min(rows * ceil_div(columns, kColumns), k.device_blocks(8))}, {.threads = 256});
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  k.persistent({rows, ceil_div(columns, kColumns)}, [&](Value row, Value part) {
    k.parallel({kColumns}, [&](Value c) {
      logits(row, part * kColumns + c) = cast(dtype, -std::numeric_limits<float>::infinity());
    });
  });
  return k.finish();
}

void add_fill(const LogitsSpec& s, Launches& go, const TensorView& logits) {
  if (s.is_clean == 0) return;
  go.add(build_fill, FillSpec{s.is_bf16}, {.tensors = {{"logits", logits}}}, "fill");
}

}  // namespace

void add_logits_of_rows(const Call& c, Launches& go, const LogitsOut& out) {
  const int64_t rows = c["S"], keys = c["T"], columns = out.logits.shape[1];
  LogitsSpec s = spec_of(c, out.logits.dtype, out.is_clean);
  if (keys == 0) return add_fill(s, go, out.logits);
  s.is_compressed = out.is_compressed ? 1 : 0;
  const TensorView q = reshaped(c.given("q"), {rows * s.heads, s.width});
  s.q_vector = vector_of(q), s.k_vector = vector_of(c.given("k"));
  s.tile = tile_of(kMostQueries, s.heads, s.width,
                   is_by_roles(s));  // one kernel for all numbers of rows
  const int64_t tiles = (rows + s.tile.rows - 1) / s.tile.rows;
  go.add(build_logits, s,
         {.tensors = {{"q", q},
                      {"k_sf", reshaped(c.given("k_sf"), {keys, 1})},
                      {"logits", out.logits}},
          .scalars = {{"rows_of_request", rows},
                      {"chunk", chunk_of(c, s.tile, tiles, std::max(keys, columns))}}},
         "logits");
}

void add_logits_of_pages(const Call& c, Launches& go, const LogitsOut& out) {
  const int64_t requests = c["B"], tokens = c["n"], rows = requests * tokens, width = c["D"];
  LogitsSpec s = spec_of(c, out.logits.dtype, out.is_clean);
  if (c["P"] == 0 || c["Q"] == 0) return add_fill(s, go, out.logits);
  s.keys = KeyPlace::in_pages;
  s.page_size = usual_page_size(c["page_size"]);
  const TensorView q = reshaped(c.given("q"), {rows * s.heads, width});
  const IndexCache cache = index_cache(c);
  s.q_vector = vector_of(q), s.k_vector = vector_of(cache.codes);
  s.tile = tile_of(tokens, s.heads, width, is_by_roles(s));
  const int64_t tiles = requests * ((tokens + s.tile.rows - 1) / s.tile.rows);
  go.add(build_logits, s,
         {.tensors = {{"q", q},
                      {"codes", cache.codes},
                      {"scales", cache.scales},
                      {"lengths", reshaped(c.given("lengths"), {rows})},
                      {"logits", out.logits}},
          .scalars = {{"rows_of_request", tokens},
                      {"chunk", chunk_of(c, s.tile, tiles, out.logits.shape[1])}}},
         "logits");
}

void add_logits_of_blocks(const Call& c, Launches& go, const TensorView& blocks,
                          const TensorView& logits) {
  const bool is_paged = c.has("cache");
  const int64_t rows = c["S"], width = c["D"];
  LogitsSpec s = spec_of(c, logits.dtype, true);
  Args args{.tensors = {{"logits", logits}, {"blocks", blocks}}};
  if (is_paged ? c["P"] == 0 || c["Q"] == 0 : c["T"] == 0) return add_fill(s, go, logits);
  s.keys = is_paged ? KeyPlace::in_pages : KeyPlace::in_rows;
  s.block_size = c.i32("block_size");
  const TensorView q = reshaped(c.given("q"), {rows * s.heads, width});
  s.q_vector = vector_of(q);
  args.tensors.push_back({"q", q});
  if (is_paged) {
    s.page_size = usual_page_size(c["page_size"]);
    const IndexCache cache = index_cache(c);
    s.k_vector = vector_of(cache.codes);
    args.tensors.push_back({"codes", cache.codes});
    args.tensors.push_back({"scales", cache.scales});
  } else {
    s.k_vector = vector_of(c.given("k"));
    args.tensors.push_back({"k_sf", reshaped(c.given("k_sf"), {c["T"], 1})});
  }
  s.tile = tile_of(1, s.heads, width, is_by_roles(s));  // each row has blocks of its own
  args.scalars = {{"rows_of_request", is_paged ? rows / c["B"] : rows},
                  {"chunk", chunk_of(c, s.tile, rows, logits.shape[1])}};
  go.add(build_logits, s, args, "blocks");
}

void require_heads(const Call& c) {
  const int64_t heads = c["h"], width = c["D"];
  c.need(heads >= 8 && heads % 8 == 0 && heads <= kPlainHeads, "q",
         "so many heads are not supported", "a multiple of 8, at most 128", std::to_string(heads),
         ErrorKind::unsupported);
  c.need(width == 32 || width == 64 || width == 128, "q", "so many channels are not supported",
         "32, 64 or 128", std::to_string(width), ErrorKind::unsupported);
}

void require_key_ranges(const Call& c) {
  const TensorView &start = c.given("k_start"), &end = c.given("k_end");
  if (!values_are_checked(start) || !values_are_checked(end)) return;
  const bool is_compressed = c.find("compressed").has_value() && c.flag("compressed");
  for (int64_t row = 0; row < c["S"]; ++row) {
    const int64_t from = integer_at(start, row), to = integer_at(end, row);
    c.need(from <= to, "k_start", out_of_range("k_start"), "at most k_end, " + std::to_string(to),
           std::to_string(from) + " at " + to_string(Dims{row}));
    if (!is_compressed) continue;
    c.need(to - from <= c["max_len"], "k_end", out_of_range("k_end"),
           "at most " + std::to_string(c["max_len"]) + " keys in a row",
           std::to_string(to - from) + " at " + to_string(Dims{row}));
  }
}

void require_index_cache(const Call& c) {
  const int64_t wanted = c["page_size"] * (c["D"] + 4);
  const TensorView& cache = c.given("cache");
  c.need(cache.shape[1] == wanted, "cache", "argument 'cache' has the wrong shape",
         "[.., " + std::to_string(wanted) + "], page_size * (D + 4)", to_string(cache));
  c.need(cache.shape[0] <= 1 || cache.strides[0] % 16 == 0, "cache",
         "argument 'cache' has the wrong strides", "a row stride that is a multiple of 16",
         to_string(cache));
  const auto address = reinterpret_cast<uintptr_t>(cache.data);
  c.need(cache.size() == 0 || address % sizeof(float) == 0, "cache",
         "argument 'cache' is not aligned", "an address that is a multiple of 4 bytes",
         fmt::format("{} at {}", to_string(cache), fmt::ptr(cache.data)));
}

void require_index_pages(const Call& c) {
  const TensorView &table = c.given("page_table"), &lengths = c.given("lengths");
  if (!values_are_checked(table) || !values_are_checked(lengths)) return;
  const int64_t columns = c["Q"], page_size = c["page_size"], tokens = c["n"];
  for (int64_t row = 0; row < lengths.size(); ++row) {
    const int64_t length = integer_at(lengths, row), needed = (length + page_size - 1) / page_size;
    c.need(needed <= columns, "page_table", "argument 'page_table' has too few columns",
           std::to_string(needed) + " for " + std::to_string(length) + " keys",
           std::to_string(columns));
    for (int64_t i = 0; i < needed; ++i) {
      const int64_t page = integer_at(table, row / tokens * columns + i);
      c.need(page >= 0 && page < c["P"], "page_table", out_of_range("page_table"),
             "0 .. " + std::to_string(c["P"] - 1),
             std::to_string(page) + " at " + to_string(Dims{row / tokens, i}));
    }
  }
}

int64_t first_key(const Case&, int64_t) {
  return 0;
}

int64_t end_key(const Case& c, int64_t row) {
  return std::max<int64_t>(c["T"] - c["S"] + row + 1, 0);
}

int64_t cached_keys(const Case& c, int64_t row) {
  const int64_t most = std::min(c["Q"] * c["page_size"], c["max_len"]);
  return c["B"] > 3 ? most : most - row * 9 % (most + 1);
}

}  // namespace tessera::kernels::serving
