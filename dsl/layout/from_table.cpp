// Recovers the digits of a layout from an enumeration.

#include <fmt/format.h>

#include "dsl/layout/layout.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

/// Recovers the digits of one axis, whose index moves `step` entries in the table. A digit extends
/// while places advance in equal steps; then the next digit starts. False if a digit moves
/// backwards, or moves thread and slot at once.
bool recover_axis(const std::vector<Place>& places, int axis, int64_t extent, int64_t step,
                  std::vector<Digit>& digits) {
  auto at = [&](int64_t index) { return places[static_cast<size_t>(index * step)]; };
  for (int64_t div = 1; div < extent;) {
    const Place stride = at(div);
    if (stride.thread < 0 || stride.slot < 0) return false;
    if (stride.thread != 0 && stride.slot != 0) return false;
    int64_t count = 2;
    while (count * div < extent &&
           at(count * div) == Place{count * stride.thread, count * stride.slot}) {
      ++count;
    }
    digits.push_back({axis, div, count, stride.thread, stride.slot});
    div *= count;
  }
  return true;
}

}  // namespace

std::optional<Layout> from_table(const std::vector<int64_t>& shape,
                                 const std::vector<Place>& places) {
  const int64_t total = check_shape("from_table", shape);
  if (static_cast<int64_t>(places.size()) != total) {
    reject("from_table", "places", "does not list every element once",
           fmt::format("{} places for {}", total, shape_text(shape)),
           fmt::format("{}", places.size()));
  }
  std::vector<Digit> digits;
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (!recover_axis(places, static_cast<int>(axis), shape[axis], step, digits)) {
      return std::nullopt;
    }
    step *= shape[axis];
  }
  Layout layout(shape, std::move(digits));
  // The digits explain steps along the axes; the origin and the rest of the table are checked here.
  std::vector<int64_t> index(shape.size(), 0);
  for (const Place& place : places) {
    if (layout.place(index) != place) return std::nullopt;
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return layout;
}

}  // namespace tessera::layout
