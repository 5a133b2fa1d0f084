#include "kernels/serving/parts/compress_tables.h"

#include <string>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {

using namespace dsl;

CompressSpec compress_spec(const Call& c, int32_t capacity) {
  return {c.i32("ratio"), capacity, c.has("state_pages"), c.has("page_table")};
}

void require_rings(const Call& c) {
  const int64_t ratio = c["ratio"], ring = c["ring"], rollback = c["max_rollback"];
  const int64_t slots = window_slots(ratio), page = c["state_page_size"];
  c.need(rollback >= 0, "max_rollback", "parameter 'max_rollback' is out of range", "at least 0",
         std::to_string(rollback));
  const int64_t least = std::max(slots, slots - 1 + rollback);
  c.need(ring % ratio == 0 && ring >= least && ring <= INT32_MAX, "ring",
         "parameter 'ring' has a wrong value",
         "a multiple of " + std::to_string(ratio) + ", at least " + std::to_string(least),
         std::to_string(ring));
  const bool by_page = c.has("state_pages");
  c.need(c.has("state_slot") != by_page, "state_slot",
         "one of 'state_slot' and 'state_pages' is needed", "one of them",
         by_page ? "both" : "none");
  c.need(by_page == (page != 0), "state_page_size",
         "parameter 'state_page_size' does not go with the tables",
         by_page ? "the tokens of a page of 'state_pages'" : "0 without 'state_pages'",
         std::to_string(page));
  c.need(page >= 0 && page % ring == 0 && page <= INT32_MAX, "state_page_size",
         "parameter 'state_page_size' has a wrong value",
         "a multiple of ring = " + std::to_string(ring), std::to_string(page));
}

std::string CompressTables::no_slot() const {
  return out_of_range(s_.has_pages ? "state_pages" : "state_slot");
}

CompressTables::CompressTables(Builder& k, const CompressSpec& s, const Value& batch)
    : k_(k), s_(s) {
  if (s.has_pages) {
    state_columns_ = k.dim("state_columns");
    state_pages_ = k.input("state_pages", DType::i32, {batch, *state_columns_},
                           {.strides = {k.stride("state_pages_stride"), 1}, .align = 4});
  } else {
    state_slot_ = k.input("state_slot", DType::i32, {batch}, {.align = 4});
  }
  if (s.has_page_table) {
    page_columns_ = k.dim("page_columns");
    page_table_ = k.input("page_table", DType::i32, {batch, *page_columns_},
                          {.strides = {k.stride("page_table_stride"), 1}, .align = 4});
  }
  ring_ = k.scalar("ring", DType::i32);
  state_page_size_ = k.scalar("state_page_size", DType::i32);
  page_size_ = k.scalar("page_size", DType::i32);
}

Value CompressTables::slot(const Value& request, const Value& position) const {
  auto base = k_.var(DType::i32, -1, "base");
  if (s_.has_pages) {
    auto column = k_.let("state_column", position / *state_page_size_);
    k_.if_(column < *state_columns_, [&] { base = (*state_pages_)(request, column).unchecked(); });
  } else {
    base = (*state_slot_)(request).unchecked();
  }
  auto slot = k_.let("wide_slot", i64(base) * i64(*ring_) + i64(position % *ring_));
  return k_.let("slot", select(base < 0 || slot > i64(INT32_MAX), -1, i32(slot)));
}

Value CompressTables::location(const Value& request, const Value& window) const {
  if (!s_.has_page_table) return i32(-1);
  auto column = k_.let("page_column", window / *page_size_);
  auto page = k_.var(DType::i32, -1, "page");
  k_.if_(column < *page_columns_, [&] { page = (*page_table_)(request, column).unchecked(); });
  auto inside = window - column * *page_size_;
  auto wide = k_.let("wide_location", i64(page) * i64(*page_size_) + i64(inside));
  auto fits = k_.let("location_fits", wide <= i64(INT32_MAX));
  k_.report_unless(fits, out_of_range("page_table"));
  return k_.let("location", select(page < 0 || !fits, -1, i32(wide)));
}

Value CompressTables::has_location(const Value& window) const {
  if (!s_.has_page_table) return cast(DType::boolean, true);
  return window / *page_size_ < *page_columns_;
}

}  // namespace tessera::kernels::serving
