#include "step.h"

#include <algorithm>
#include <stdexcept>

namespace model {
namespace {

int32_t i32(int64_t value) {
  return static_cast<int32_t>(value);
}

int32_t slot(const std::vector<int32_t>& pages, int64_t index) {
  return i32(pages[static_cast<size_t>(index / kPageSize)] * kPageSize + index % kPageSize);
}

/// Writes a row of `numbers` from `column` on.
template <class Values>
void write(Numbers& numbers, int64_t row, int64_t column, const Values& values) {
  const int64_t columns =
      static_cast<int64_t>(numbers.values.size()) / numbers.tensor.view().shape[0];
  std::copy(values.begin(), values.end(), numbers.values.begin() + row * columns + column);
}
void write(Numbers& numbers, int64_t row, int64_t value) {
  numbers.values[static_cast<size_t>(row)] = i32(value);
}

void grow(std::vector<int32_t>& table, int64_t keys, Pages& pages) {
  while (static_cast<int64_t>(table.size()) * kPageSize < keys) table.push_back(pages.take());
}

void plan_row(Step& step, int64_t row, const Request& r, int64_t position) {
  write(step.token_ids, row, r.tokens[static_cast<size_t>(position)]);
  std::vector<int32_t> ngram;
  for (int64_t at = position; at >= 0 && at > position - kNgram; --at) {
    ngram.push_back(r.tokens[static_cast<size_t>(at)]);
  }
  write(step.ngram_ids, row, 0, ngram);
  write(step.positions, row, position);
  write(step.angles, row, position);
  write(step.key_slots, row, slot(r.pages, position));

  std::vector<int32_t> window, entries4, entries128;
  for (int64_t at = std::max<int64_t>(position - kWindow + 1, 0); at <= position; ++at) {
    window.push_back(slot(r.pages, at));
  }
  for (int64_t i = 0; i < (position + 1) / 4; ++i) entries4.push_back(slot(r.pages4, i));
  for (int64_t i = 0; i < (position + 1) / 128; ++i) entries128.push_back(slot(r.pages128, i));
  const auto raw = static_cast<int64_t>(window.size());
  write(step.num_entries, row, static_cast<int64_t>(entries4.size()));
  write(step.index_pages, row, 0, r.pages4);
  // The window ends where the entries begin.
  write(step.end_column, row, kWindow + static_cast<int64_t>(entries4.size()));
  write(step.key_table, row, kWindow - raw, window);
  write(step.key_table, row, kWindow, entries4);
  write(step.keys128, row, 0, window);
  write(step.keys128, row, raw, entries128);
}

}  // namespace

Numbers::Numbers(ts::Device device, ts::Dims shape, int32_t empty_)
    : tensor(device, ts::DType::i32, shape),
      values(static_cast<size_t>(tensor.view().size())),
      empty(empty_) {}

Step::Step(ts::Device device, Shape s)
    : shape(s),
      token_ids(device, {s.rows}, 0),
      ngram_ids(device, {s.rows, kNgram}, -1),
      positions(device, {s.rows}, -1),
      angles(device, {s.rows}, 0),
      key_slots(device, {s.rows}, -1),
      num_entries(device, {s.rows, 1}, 0),
      index_pages(device, {s.rows, kPages4}, 0),
      end_column(device, {s.rows}, kWindow),
      key_table(device, {s.rows, kWindow + kEntries4}, -1),
      keys128(device, {s.rows, kKeys}, -1),
      start(device, {s.requests}, 0),
      row_start(device, {s.requests + 1}, 0),
      ring(device, {s.requests}, 0),
      pages4(device, {s.requests, kPages4}, -1),
      pages128(device, {s.requests, kPages128}, -1),
      num_tokens(device, {1}, 0) {
  clear();
  upload();
}

void Step::clear() {
  for (Numbers* n : all()) std::fill(n->values.begin(), n->values.end(), n->empty);
}

void Step::upload() {
  for (Numbers* n : all()) n->tensor.upload(n->values);
}

std::vector<Numbers*> Step::all() {
  return {&token_ids,   &ngram_ids,  &positions, &angles,    &key_slots, &num_entries,
          &index_pages, &end_column, &key_table, &keys128,   &start,     &row_start,
          &ring,        &pages4,     &pages128,  &num_tokens};
}

Pages::Pages() {
  for (int64_t page = kPages - 1; page >= 0; --page) free_.push_back(i32(page));
}

int32_t Pages::take() {
  if (free_.empty()) throw std::runtime_error("no page is free");
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void plan(Step& step, std::span<const Part> parts, Pages& pages) {
  step.clear();
  int64_t row = 0, request = 0;
  for (const Part& part : parts) {
    Request& r = *part.request;
    const int64_t end = r.done + part.count;
    if (request >= step.shape.requests || row + part.count > step.shape.rows || part.count < 0 ||
        end > static_cast<int64_t>(r.tokens.size())) {
      throw std::runtime_error("parts that the step has no rows, or their requests no tokens, for");
    }
    if (end > kContext) throw std::runtime_error("a text is longer than the context");
    grow(r.pages, end, pages);
    grow(r.pages4, end / 4, pages);
    grow(r.pages128, end / 128, pages);
    write(step.start, request, r.done);
    write(step.ring, request, r.ring);
    write(step.pages4, request, 0, r.pages4);
    write(step.pages128, request, 0, r.pages128);
    for (; r.done < end; ++r.done) plan_row(step, row++, r, r.done);
    write(step.row_start, ++request, row);
  }
  while (request < step.shape.requests) write(step.row_start, ++request, row);
  write(step.num_tokens, 0, row);
  step.upload();
}

}  // namespace model
