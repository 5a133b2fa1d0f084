#include "kernels/serving/compress_tables.h"

#include <string>

namespace tessera::kernels::serving {

using namespace dsl;

CompressSpec compress_spec(const Call& c, int32_t capacity) {
  return {c.i32("ratio"), capacity, c.has("state_pages"), c.has("out_pages")};
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

CompressTables::CompressTables(Builder& k, const CompressSpec& s, const Value& batch)
    : k_(k), s_(s) {
  if (s.has_pages) {
    state_columns_ = k.dim("state_columns");
    state_pages_ = k.input("state_pages", DType::i32, {batch, *state_columns_},
                           {.strides = {k.stride("state_pages_stride"), 1}, .align = 4});
  } else {
    state_slot_ = k.input("state_slot", DType::i32, {batch}, {.align = 4});
  }
  if (s.has_out_pages) {
    out_columns_ = k.dim("out_columns");
    out_pages_ = k.input("out_pages", DType::i32, {batch, *out_columns_},
                         {.strides = {k.stride("out_pages_stride"), 1}, .align = 4});
  }
  ring_ = k.scalar("ring", DType::i32);
  state_page_size_ = k.scalar("state_page_size", DType::i32);
  out_page_size_ = k.scalar("out_page_size", DType::i32);
}

Value CompressTables::slot(const Value& request, const Value& position) const {
  auto base = k_.var(DType::i32, -1, "base");
  if (s_.has_pages) {
    auto column = k_.let("state_column", position / *state_page_size_);
    k_.if_(column < *state_columns_, [&] { base = (*state_pages_)(request, column).unchecked(); });
  } else {
    base = (*state_slot_)(request).unchecked();
  }
  return k_.let("slot", select(base < 0, -1, base * *ring_ + position % *ring_));
}

Value CompressTables::location(const Value& request, const Value& window) const {
  if (!s_.has_out_pages) return i32(-1);
  auto column = k_.let("out_column", window / *out_page_size_);
  auto page = k_.var(DType::i32, -1, "page");
  k_.if_(column < *out_columns_, [&] { page = (*out_pages_)(request, column).unchecked(); });
  auto inside = window - column * *out_page_size_;
  return k_.let("location", select(page < 0, -1, page * *out_page_size_ + inside));
}

Value CompressTables::has_location(const Value& window) const {
  if (!s_.has_out_pages) return cast(DType::boolean, true);
  return window / *out_page_size_ < *out_columns_;
}

}  // namespace tessera::kernels::serving
