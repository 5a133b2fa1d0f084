#include "kernels/serving/parts/window_cases.h"

#include <algorithm>

#include "kernels/serving/parts/cache_format.h"
#include "kernels/serving/parts/compress_tables.h"

namespace tessera::kernels::serving {
namespace {

constexpr int64_t kWindows = 50 * 128;  // windows of a request before its tokens

int64_t size_of(const Case& c, const char* tensor) {
  return c.dtype_word(tensor) == "f32" ? 4 : 2;
}

CacheKind kind_of(const Case& c) {
  const auto word = [&](const char* param) { return std::get<std::string>(c.params().at(param)); };
  return {cache_format(word("format")), word("cache_order") == "rows"};
}

/// Pools do not shrink with a step.
int64_t at_least_one(int64_t count) {
  return std::max<int64_t>(count, 1);
}

int64_t blocks_for(const Case& c, int64_t entries) {
  const int64_t tokens = kind_of(c).format == CacheFormat::bf16 ? 1 : c["page_size"];
  return (at_least_one(entries) + tokens - 1) / tokens;
}

/// Bytes of one entry in the cache.
int64_t entry_bytes(const Case& c) {
  const CacheKind kind = kind_of(c);
  return kind.format == CacheFormat::bf16 ? 2 * c["D"] : block_bytes(kind, c["D"], 64) / 64;
}

/// The page size that the plan carries; only ops with a cache look at it.
int64_t planned_page_size(const Case& c) {
  return c.find("page_size") ? c["page_size"] : 0;
}

int64_t windows_that_end(const Case& c) {
  return (c["B"] + c["ratio"] - 1) / c["ratio"];
}

/// Bytes of the rows of tokens, and of the slots of the windows that end.
int64_t row_bytes(const Case& c) {
  const int64_t of_window = c["D"] * 2 * slots_of_window(c);
  return c["B"] * row_length(c) * (size_of(c, "x") + size_of(c, "state")) +
         windows_that_end(c) * of_window * size_of(c, "state");
}

}  // namespace

int64_t row_length(const Case& c) {
  return c["D"] * (c["ratio"] == 4 ? 4 : 2);
}
int64_t slots_of_window(const Case& c) {
  return window_slots(c["ratio"]);
}
int64_t rows_of_windows(const Case& c) {
  return c["C"] * c["ratio"];
}
int64_t slots_of_tokens(const Case& c) {
  return at_least_one(c["B"]) * slots_of_window(c);
}

int64_t planned_window(const Case& c, int64_t i) {
  const int64_t window = i / 8, ratio = c["ratio"], last = window * ratio + ratio - 1;
  const bool is_first = ratio == 4 && window == 0;
  const int64_t fields[] = {last, last, is_first ? 4 : 0, -1, 0, window, 0, planned_page_size(c)};
  return fields[i % 8];
}

int64_t planned_token(const Case& c, int64_t i) {
  const int64_t token = i / 8, ratio = c["ratio"], slots = slots_of_window(c);
  const int64_t position = kWindows * ratio + (token + 1) * (ratio - 1) % ratio;
  const int64_t ring = token * slots;
  const int64_t fields[] = {token, position,
                            slots, ratio == 4 ? ring + 4 : -1,
                            ring,  position % ratio == ratio - 1 ? token : -1,
                            token, planned_page_size(c)};
  return fields[i % 8];
}

int64_t planned_write(const Case& c, int64_t i) {
  return i % 2 == 0 ? c["N"] - c["Y"] + i / 2 : i / 2;
}

int64_t positions_of_windows(const Case& c) {
  return at_least_one(rows_of_windows(c));
}
int64_t positions_of_tokens(const Case& c) {
  return (kWindows + 1) * c["ratio"];
}
int64_t blocks_of_windows(const Case& c) {
  return blocks_for(c, c["C"]);
}
int64_t blocks_of_tokens(const Case& c) {
  return blocks_for(c, c["B"]);
}
int64_t bytes_of_block(const Case& c) {
  return block_bytes(kind_of(c), c["D"], c["page_size"]);
}

int64_t write_bytes(const Case& c) {
  return c["Y"] * (row_length(c) * (size_of(c, "x") + size_of(c, "state")) + 8);
}

int64_t token_bytes(const Case& c) {
  return row_bytes(c) + c["B"] * (32 + c["D"] * 4);
}

int64_t stored_window_bytes(const Case& c) {
  return rows_of_windows(c) * row_length(c) * size_of(c, "x") + c["C"] * (32 + entry_bytes(c));
}

int64_t stored_token_bytes(const Case& c) {
  return row_bytes(c) + c["B"] * 32 + windows_that_end(c) * entry_bytes(c);
}

}  // namespace tessera::kernels::serving
