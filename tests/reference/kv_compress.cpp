#include "tests/reference/kv_compress.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;
using Row = std::array<int64_t, 8>;

constexpr Row kUnused = {-1, -1, -1, -1, -1, -1, -1, -1};

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  return static_cast<int32_t>(static_cast<uint32_t>(tensor.bits(element)));
}

/// The entry of a table, -1 beyond its columns.
int64_t entry(const HostTensor& table, int64_t row, int64_t column) {
  const int64_t columns = table.shape()[1];
  return column < columns ? integer_at(table, row * columns + column) : -1;
}

int64_t within_i32(int64_t place) {
  return place > std::numeric_limits<int32_t>::max() ? -1 : place;
}

int64_t slot_of(const HostTensors& in, const CompressOptions& o, int64_t b, int64_t p) {
  const bool by_page = in.contains("state_pages");
  const int64_t base = by_page ? entry(in.at("state_pages"), b, p / o.state_page_size)
                               : integer_at(in.at("state_slot"), b);
  return base < 0 ? -1 : within_i32(base * o.ring + p % o.ring);
}

bool has_location(const HostTensors& in, const CompressOptions& o, int64_t window) {
  const auto table = in.find("page_table");
  return table == in.end() || window / o.page_size < table->second.shape()[1];
}

int64_t location_of(const HostTensors& in, const CompressOptions& o, int64_t b, int64_t window) {
  const auto table = in.find("page_table");
  if (table == in.end()) return -1;
  const int64_t page = entry(table->second, b, window / o.page_size);
  return page < 0 ? -1 : within_i32(page * o.page_size + window % o.page_size);
}

/// The window that token p of request b ends; kUnused if a slot of it is missing.
Row window_row(const HostTensors& in, const CompressOptions& o, int64_t b, int64_t p, int64_t start,
               int64_t first_row) {
  const int64_t slots = o.ratio == 4 ? 8 : o.ratio, window = p / o.ratio;
  const int64_t from_state = std::clamp<int64_t>(slots - 1 - (p - start), 0, slots);
  const int64_t own = slot_of(in, o, b, window * o.ratio);
  if (own < 0 && from_state > slots - o.ratio) return kUnused;
  int64_t older = -1;
  if (o.ratio == 4 && window > 0 && from_state > 0) {
    older = slot_of(in, o, b, window * 4 - 4);
    if (older < 0) return kUnused;
  }
  if (!has_location(in, o, window)) return kUnused;
  return {first_row + p - start,         p, from_state, older, own,
          location_of(in, o, b, window), b, o.page_size};
}

bool is_stored(const CompressOptions& o, int64_t p, int64_t end) {
  const bool overlaps = o.ratio == 4;
  const int64_t settled = end < o.max_rollback ? 0 : (end - o.max_rollback) / o.ratio * o.ratio;
  if (p >= std::max<int64_t>(0, settled - (overlaps ? 4 : 0))) return true;
  const int64_t page = o.state_page_size;
  return page > 0 && overlaps && p % page >= page - 4;
}

HostTensor table_of(const std::vector<std::vector<int64_t>>& rows, int64_t count, int64_t columns) {
  HostTensor table(DType::i32, {count, columns});
  for (int64_t i = 0; i < table.size(); ++i) {
    const bool is_there = i / columns < std::ssize(rows);
    const int64_t value =
        is_there ? rows[static_cast<size_t>(i / columns)][static_cast<size_t>(i % columns)] : -1;
    table.set_value(i, static_cast<double>(value));
  }
  return table;
}

std::vector<int64_t> list(const Row& row) {
  return {row.begin(), row.end()};
}

}  // namespace

HostTensors compress_plan(const HostTensors& in, const CompressOptions& o) {
  const HostTensor &starts = in.at("start"), &rows = in.at("row_start");
  std::vector<std::vector<int64_t>> windows, writes;
  for (int64_t b = 0; b < starts.size(); ++b) {
    const int64_t first = integer_at(rows, b), tokens = integer_at(rows, b + 1) - first;
    const int64_t start = integer_at(starts, b), end = start + tokens;
    if (start < 0 || first < 0 || tokens < 0 || end > std::numeric_limits<int32_t>::max()) continue;
    for (int64_t p = start; p < end; ++p) {
      if (p % o.ratio == o.ratio - 1)
        windows.push_back(list(window_row(in, o, b, p, start, first)));
      if (!is_stored(o, p, end)) continue;
      const int64_t slot = slot_of(in, o, b, p);
      writes.push_back(slot < 0 ? std::vector<int64_t>{-1, -1}
                                : std::vector<int64_t>{first + p - start, slot});
    }
  }
  HostTensor counts(DType::i32, {2});
  counts.set_value(0, static_cast<double>(windows.size()));
  counts.set_value(1, static_cast<double>(writes.size()));
  return {{"plan", table_of(windows, o.num_windows, 8)},
          {"write_plan", table_of(writes, o.num_writes, 2)},
          {"counts", std::move(counts)}};
}

HostTensor compress_plan_decode(const HostTensors& in, const CompressOptions& o) {
  const HostTensor& positions = in.at("positions");
  const int64_t slots = o.ratio == 4 ? 8 : o.ratio;
  std::vector<std::vector<int64_t>> rows;
  for (int64_t b = 0; b < positions.size(); ++b) {
    const int64_t p = integer_at(positions, b), window = p / o.ratio;
    const int64_t own = p < 0 ? -1 : slot_of(in, o, b, window * o.ratio);
    if (own < 0) {
      rows.push_back(list(kUnused));
      continue;
    }
    const bool overlaps = o.ratio == 4 && window > 0;
    const int64_t older = overlaps ? slot_of(in, o, b, window * 4 - 4) : -1;
    const bool is_whole = p % o.ratio == o.ratio - 1 && (older >= 0 || !overlaps);
    const int64_t location = is_whole ? location_of(in, o, b, window) : -1;
    rows.push_back({b, p, slots, older, own, location, b, o.page_size});
  }
  return table_of(rows, positions.size(), 8);
}

}  // namespace tessera::reference
