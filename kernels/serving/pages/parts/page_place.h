#pragma once
// The slot of an entry in a cache of pages: page * page_size + the entry's place in its page.

#include <cstdint>
#include <string>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// A table of pages in a kernel: rows of `columns` pages of `page_size` entries.
struct PageTable {
  const char* name;
  dsl::Ref pages;  // i32 [rows, columns]
  dsl::Value columns, page_size;
};

/// The slot of `entry`, at least 0, by the pages of `row`, as i32; -1 where the page is negative. -1, and a
/// report about `entries`, where the table has no such page, or about the table where 32 bits do not hold the
/// slots of the page.
inline dsl::Value slot_of(dsl::Builder& k, const PageTable& table, const char* entries,
                          const dsl::Value& row, const dsl::Value& entry) {
  using namespace dsl;
  auto column = k.let("page_column", entry / table.page_size);
  auto exists = k.let("page_exists", column < table.columns);
  k.report_unless(exists, out_of_range(entries));
  auto slot = k.var(DType::i32, -1, "slot");
  k.if_(exists, [&] {
    auto page = k.let("page", table.pages(row, column).unchecked());
    auto fits = k.let("page_fits", page <= (INT32_MAX - (table.page_size - 1)) / table.page_size);
    k.report_unless(fits, out_of_range(table.name));
    k.if_(page >= 0 && fits, [&] { slot = page * table.page_size + entry % table.page_size; });
  });
  return slot;
}

/// A value of a call and the page of its entry, value / ratio.
struct PagedEntry {
  const char* name;  // of its tensor
  int64_t value;
  Dims place;
  int64_t row, ratio;
};

/// Requires that the table has the page of the entry, and that 32 bits hold its slots.
inline void require_page(const Call& c, const char* table, int64_t page_size,
                         const PagedEntry& entry) {
  const TensorView& pages = c.given(table);
  const int64_t columns = pages.shape[1], column = entry.value / entry.ratio / page_size;
  c.need(column < columns, entry.name, out_of_range(entry.name),
         "at most " + std::to_string(columns * page_size * entry.ratio - 1),
         std::to_string(entry.value) + " at " + to_string(entry.place));
  const int64_t page = integer_at(pages, entry.row * columns + column);
  const int64_t most = (INT32_MAX - (page_size - 1)) / page_size;
  c.need(page <= most, table, out_of_range(table), "at most " + std::to_string(most) + ", or -1",
         std::to_string(page) + " at " + to_string(Dims{entry.row, column}));
}

}  // namespace tessera::kernels::serving
