#include "tests/reference/pages.h"

#include <algorithm>
#include <string>

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  return static_cast<int32_t>(static_cast<uint32_t>(tensor.bits(element)));
}

void set(HostTensor& tensor, int64_t element, int64_t value) {
  tensor.set_bits(element, static_cast<uint32_t>(static_cast<int32_t>(value)));
}

int64_t slot_of(const HostTensor& table, int64_t row, int64_t entry, int64_t page_size) {
  const int64_t columns = table.shape()[1], column = entry / page_size;
  if (entry < 0 || column >= columns) return -1;
  const int64_t page = integer_at(table, row * columns + column);
  const int64_t last_slot = page * page_size + page_size - 1;
  if (page < 0 || last_slot > INT32_MAX) return -1;
  return page * page_size + entry % page_size;
}

}  // namespace

HostTensor gather_pages(const HostTensor& indices, const HostTensor& page_table,
                        int64_t page_size) {
  HostTensor out(DType::i32, indices.shape());
  for (int64_t i = 0; i < out.size(); ++i) {
    set(out, i, slot_of(page_table, i / indices.shape()[1], integer_at(indices, i), page_size));
  }
  return out;
}

HostTensors paged_lengths(const HostTensor& lengths, int64_t ratio, int64_t page_size) {
  HostTensor compressed(DType::i32, lengths.shape()), blocks(DType::i32, lengths.shape());
  for (int64_t b = 0; b < lengths.size(); ++b) {
    const int64_t entries = std::max<int64_t>(integer_at(lengths, b), 0) / ratio;
    set(compressed, b, entries);
    set(blocks, b, (entries + page_size - 1) / page_size);
  }
  return {{"compressed", compressed}, {"blocks", blocks}};
}

HostTensors slot_plan(const HostTensors& tensors, const PageSizes& sizes) {
  const HostTensor& positions = tensors.at("positions");
  HostTensors result;
  const auto plan = [&](const std::string& pool, int64_t ratio, int64_t page_size) {
    const auto pages = tensors.find(pool + "_pages");
    if (pages == tensors.end()) return;
    HostTensor slots(DType::i32, positions.shape());
    for (int64_t b = 0; b < positions.size(); ++b) {
      const int64_t p = integer_at(positions, b);
      const bool ends = p >= 0 && p % ratio == ratio - 1;
      set(slots, b, ends ? slot_of(pages->second, b, p / ratio, page_size) : -1);
    }
    result[pool + "_slot"] = std::move(slots);
  };
  plan("window", 1, sizes.window);
  plan("c4", 4, sizes.c4);
  plan("c128", 128, sizes.c128);
  return result;
}

HostTensors serving_plan(const HostTensors& tensors, const StepSizes& sizes) {
  const HostTensor& row_start = tensors.at("row_start");
  HostTensor requests(DType::i32, {sizes.rows}), positions(DType::i32, {sizes.rows});
  HostTensor entries(DType::i32, {2, sizes.rows}), slots(DType::i32, {sizes.rows});
  for (int64_t row = 0; row < sizes.rows; ++row) {
    set(requests, row, -1), set(positions, row, -1), set(slots, row, -1);
    set(entries, row, 0), set(entries, sizes.rows + row, 0);
  }
  const auto pages = tensors.find("page_table"), start = tensors.find("start");
  for (int64_t b = 0; b + 1 < row_start.size(); ++b) {
    const int64_t first = integer_at(row_start, b), last = integer_at(row_start, b + 1);
    const int64_t before = start == tensors.end() ? 0 : integer_at(start->second, b);
    if (first < 0 || last > sizes.rows || before < 0 || before + last - first > INT32_MAX) continue;
    for (int64_t row = first; row < last; ++row) {
      const int64_t position = before + row - first;
      set(requests, row, b), set(positions, row, position);
      set(entries, row, (position + 1) / sizes.ratio);
      set(entries, sizes.rows + row, (position + 1) / sizes.second_ratio);
      if (pages == tensors.end()) continue;
      set(slots, row, slot_of(pages->second, b, position, sizes.page_size));
    }
  }
  HostTensors result;
  result["row_request"] = std::move(requests), result["positions"] = std::move(positions);
  result["entries"] = std::move(entries);
  if (pages != tensors.end()) result["slots"] = std::move(slots);
  return result;
}

}  // namespace tessera::reference
