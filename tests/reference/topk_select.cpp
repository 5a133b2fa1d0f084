#include "tests/reference/topk_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  return static_cast<int32_t>(static_cast<uint32_t>(tensor.bits(element)));
}

int64_t given_or(const HostTensors& in, const std::string& name, int64_t row, int64_t otherwise) {
  const auto found = in.find(name);
  return found == in.end() ? otherwise : integer_at(found->second, row);
}

/// Columns in the order of the result.
std::vector<int64_t> chosen(const HostTensor& scores, int64_t row, int64_t start, int64_t end,
                            const SelectOptions& o) {
  const auto score = [&](int64_t column) {
    const double value = scores.value(row * scores.shape()[1] + column);
    return std::isnan(value) ? -kInfinity : value;
  };
  std::vector<int64_t> columns(static_cast<size_t>(end - start));
  std::iota(columns.begin(), columns.end(), start);
  std::stable_sort(columns.begin(), columns.end(),
                   [&](int64_t a, int64_t b) { return score(a) > score(b); });
  columns.resize(std::min(columns.size(), static_cast<size_t>(o.topk)));
  if (!o.by_value) std::sort(columns.begin(), columns.end());
  return columns;
}

int64_t location(const HostTensors& in, int64_t row, int64_t raw, int64_t page_size) {
  const auto found = in.find("page_table");
  if (found == in.end()) return raw;
  const int64_t pages = found->second.shape()[1], column = raw / page_size;
  if (column >= pages) return -1;
  const auto rows = in.find("table_row");
  const int64_t of_table = rows == in.end() ? row : integer_at(rows->second, row);
  if (of_table < 0 || of_table >= found->second.shape()[0]) return -1;
  const int64_t page = integer_at(found->second, of_table * pages + column);
  const int64_t location = page * page_size + raw % page_size;
  return page < 0 || location > std::numeric_limits<int32_t>::max() ? -1 : location;
}

}  // namespace

HostTensors topk_select(const HostTensors& in, const SelectOptions& o) {
  const HostTensor& scores = in.at("scores");
  const int64_t rows = scores.shape()[0], length = scores.shape()[1];
  HostTensor indices(DType::i32, {rows, o.topk}), raw(DType::i32, {rows, o.topk});
  HostTensor values(scores.dtype(), {rows, o.topk});
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t start = std::clamp<int64_t>(given_or(in, "starts", b, 0), 0, length);
    const int64_t end = std::clamp(given_or(in, "lengths", b, length), start, length);
    const std::vector<int64_t> columns = chosen(scores, b, start, end, o);
    for (int64_t i = 0; i < o.topk; ++i) {
      const int64_t to = b * o.topk + i;
      if (i >= std::ssize(columns)) {
        indices.set_value(to, -1);
        raw.set_value(to, -1);
        values.set_value(to, -kInfinity);
        continue;
      }
      const int64_t column = columns[static_cast<size_t>(i)];
      const int64_t index = o.is_relative ? column - start : column;
      indices.set_value(to, static_cast<double>(location(in, b, index, o.page_size)));
      raw.set_value(to, static_cast<double>(index));
      values.set_bits(to, scores.bits(b * length + column));
    }
  }
  HostTensors outputs = {{"indices", std::move(indices)}};
  if (o.saves_raw) outputs["raw_indices"] = std::move(raw);
  if (o.saves_values) outputs["values"] = std::move(values);
  return outputs;
}

HostTensor topk_plan(const HostTensor& lengths, int64_t topk, int64_t max_length) {
  const int64_t rows = lengths.size();
  const int64_t threshold = std::max<int64_t>(topk, std::min<int64_t>(max_length, 32768));
  HostTensor plan(DType::i32, {rows + 1, 2});
  for (int64_t i = 0; i < plan.size(); ++i) plan.set_value(i, -1);
  int64_t count = 0;
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t length = std::min(integer_at(lengths, b), max_length);
    if (length <= threshold) continue;
    ++count;
    plan.set_value(count * 2, static_cast<double>(b));
    plan.set_value(count * 2 + 1, static_cast<double>(length));
  }
  plan.set_value(0, static_cast<double>(threshold));
  plan.set_value(1, static_cast<double>(count));
  return plan;
}

}  // namespace tessera::reference
