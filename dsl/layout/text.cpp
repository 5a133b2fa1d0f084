// Text of layouts: one line of arithmetic, or a grid of thread numbers.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "dsl/layout/layout.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

std::string axis_name(size_t axis) {
  constexpr size_t kLetters = 18;  // i .. z
  if (axis < kLetters) return std::string(1, static_cast<char>('i' + static_cast<char>(axis)));
  return fmt::format("i{}", axis);
}

struct Summand {
  int64_t stride = 0;
  std::string text;
};

/// name / div % extent * stride without needless operators; `whole` is one past the largest value
/// of name.
Summand summand(const std::string& name, int64_t div, int64_t extent, int64_t stride,
                int64_t whole) {
  const bool divided = div != 1;
  const bool wrapped = div * extent < whole;
  std::string text = name;
  if (divided) text = fmt::format("{} / {}", text, div);
  if (divided && wrapped) text = fmt::format("({})", text);
  if (wrapped) text = fmt::format("{} % {}", text, extent);
  if (stride != 1 && (divided || wrapped)) text = fmt::format("({})", text);
  if (stride != 1) text = fmt::format("{} * {}", text, stride);
  return {stride, std::move(text)};
}

std::string sum(std::vector<Summand> summands) {
  if (summands.empty()) return "0";
  std::stable_sort(summands.begin(), summands.end(),
                   [](const Summand& a, const Summand& b) { return a.stride > b.stride; });
  std::string text;
  for (const Summand& part : summands) {
    text += text.empty() ? "" : " + ";
    text += part.text;
  }
  return text;
}

/// Draws one panel: the last two axes, with the others fixed in `index`.
void draw_panel(const Layout& layout, std::vector<int64_t> index, int64_t rows, int64_t columns,
                std::string& out) {
  const size_t rank = layout.shape().size();
  const int64_t all_rows = rank >= 2 ? layout.shape()[rank - 2] : 1;
  const int64_t all_columns = rank >= 1 ? layout.shape()[rank - 1] : 1;
  const size_t width =
      fmt::formatted_size("{}", std::max({layout.num_threads() - 1, columns - 1, rows - 1}));
  auto at = std::back_inserter(out);
  fmt::format_to(at, "{:{}} |", "", width);
  for (int64_t column = 0; column < columns; ++column) fmt::format_to(at, " {:{}}", column, width);
  fmt::format_to(at, "{}\n", columns < all_columns ? " ..." : "");
  fmt::format_to(at, "{:-<{}}-+{:-<{}}\n", "", width, "",
                 (width + 1) * static_cast<size_t>(columns));
  for (int64_t row = 0; row < rows; ++row) {
    fmt::format_to(at, "{:{}} |", row, width);
    for (int64_t column = 0; column < columns; ++column) {
      if (rank >= 2) index[rank - 2] = row;
      if (rank >= 1) index[rank - 1] = column;
      fmt::format_to(at, " {:{}}", layout.place(index).thread, width);
    }
    fmt::format_to(at, "{}\n", columns < all_columns ? " ..." : "");
  }
  if (rows < all_rows) out += "...\n";
}

}  // namespace

std::string to_string(const Layout& layout) {
  std::vector<Summand> threads, slots;
  for (const Digit& digit : layout.digits()) {
    if (digit.thread == 0 && digit.slot == 0) continue;
    std::vector<Summand>& number = digit.thread != 0 ? threads : slots;
    number.push_back(summand(axis_name(static_cast<size_t>(digit.axis)), digit.div, digit.extent,
                             std::max(digit.thread, digit.slot), layout.padded_extent(digit.axis)));
  }
  int64_t copies = 1;
  for (const Replica& replica : layout.replicas()) {
    threads.push_back(
        summand("rep", copies, replica.extent, replica.thread, layout.num_replicas()));
    copies *= replica.extent;
  }
  std::string text =
      fmt::format("thread = {}, slot = {}", sum(std::move(threads)), sum(std::move(slots)));
  if (copies > 1) text += fmt::format(", {} copies", copies);
  if (layout.is_ragged()) {
    std::vector<int64_t> padded;
    for (size_t axis = 0; axis < layout.shape().size(); ++axis) {
      padded.push_back(layout.padded_extent(static_cast<int>(axis)));
    }
    text += fmt::format(", padded to {}", shape_text(padded));
  }
  return text;
}

std::string draw(const Layout& layout, int max_rows, int max_cols) {
  if (max_rows < 1 || max_cols < 1) {
    reject("draw", "max_rows, max_cols", "leave nothing to draw", "from 1 up",
           fmt::format("{}, {}", max_rows, max_cols));
  }
  const std::vector<int64_t>& shape = layout.shape();
  const size_t rank = shape.size();
  const int64_t rows = std::min<int64_t>(rank >= 2 ? shape[rank - 2] : 1, max_rows);
  const int64_t columns = std::min<int64_t>(rank >= 1 ? shape[rank - 1] : 1, max_cols);
  std::string out;
  std::vector<int64_t> index(rank, 0);
  for (int64_t panels = std::max<int64_t>(1, max_rows / rows); panels > 0; --panels) {
    for (size_t axis = 0; axis + 2 < rank; ++axis) {
      out += fmt::format("{}{} = {}", axis == 0 ? "" : ", ", axis_name(axis), index[axis]);
    }
    if (rank > 2) out += '\n';
    draw_panel(layout, index, rows, columns, out);
    size_t axis = rank < 2 ? 0 : rank - 2;
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return out;
  }
  return out + "...\n";
}

}  // namespace tessera::layout
