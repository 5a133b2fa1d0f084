// Derives layouts from layouts: reduce, reshape, replicate.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "dsl/layout/layout.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

/// Removes gaps between slot strides, keeping their order.
void close_up_slots(std::vector<Digit>& digits) {
  std::vector<Digit*> by_stride;
  for (Digit& digit : digits) {
    if (digit.slot != 0) by_stride.push_back(&digit);
  }
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [](const Digit* a, const Digit* b) { return a->slot < b->slot; });
  int64_t slot = 1;
  for (Digit* digit : by_stride) {
    digit->slot = slot;
    slot *= digit->extent;
  }
}

/// Reads the digits of adjacent axes as digits of their flat row-major index, lowest first. Nothing
/// if an inner axis is padded below an axis with digits: the flat index then has gaps.
std::optional<std::vector<Digit>> flatten(const Layout& source, size_t first, size_t last) {
  std::vector<Digit> chain;
  bool padded = false;
  for (size_t a = last; a-- > first;) {
    const int axis = static_cast<int>(a);
    const int64_t extent = source.padded_extent(axis);
    if (padded && extent > 1) return std::nullopt;
    for (const Digit& digit : source.digits()) {
      if (digit.axis == axis) chain.push_back(digit);
    }
    padded = padded || extent > source.shape()[a];
  }
  return chain;
}

/// Moves the lowest digits of `chain`, up to `extent` values of the flat index, to `axis` of
/// `result`. False if a digit straddles that bound. The outermost axis takes all digits, padding
/// included.
bool take(std::vector<Digit>& chain, int64_t extent, int axis, bool all,
          std::vector<Digit>& result) {
  int64_t div = 1;
  size_t used = 0;
  for (; used < chain.size() && (all || div < extent); ++used) {
    Digit digit = chain[used];
    const int64_t wanted = extent / div;
    if (!all && digit.extent > wanted) {
      if (digit.extent % wanted != 0) return false;
      chain[used] = {0, 1, digit.extent / wanted, digit.thread * wanted, digit.slot * wanted};
      digit.extent = wanted;
      result.push_back({axis, div, digit.extent, digit.thread, digit.slot});
      break;
    }
    if (!all && wanted % digit.extent != 0) return false;
    result.push_back({axis, div, digit.extent, digit.thread, digit.slot});
    div *= digit.extent;
  }
  chain.erase(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(used));
  return true;
}

/// Distributes the digits of `chain` over the axes [first, last) of the new shape.
bool cut(std::vector<Digit> chain, const std::vector<int64_t>& shape, size_t first, size_t last,
         std::vector<Digit>& result) {
  size_t outermost = first;
  while (outermost + 1 < last && shape[outermost] == 1) ++outermost;
  for (size_t axis = last; axis-- > first;) {
    if (!take(chain, shape[axis], static_cast<int>(axis), axis == outermost, result)) return false;
  }
  return chain.empty();
}

}  // namespace

Layout reduce(const Layout& source, int axis) {
  const int rank = static_cast<int>(source.shape().size());
  if (axis < 0 || axis >= rank) {
    reject("reduce", "axis", "is not an axis of the layout",
           rank == 0 ? "an axis, but the rank is 0" : fmt::format("0 .. {}", rank - 1),
           fmt::format("{}", axis));
  }
  std::vector<int64_t> shape = source.shape();
  shape.erase(shape.begin() + axis);
  std::vector<Digit> digits;
  std::vector<Replica> replicas = source.replicas();
  for (Digit digit : source.digits()) {
    if (digit.axis == axis) {
      if (digit.thread != 0) replicas.push_back({digit.extent, digit.thread});
      continue;
    }
    if (digit.axis > axis) --digit.axis;
    digits.push_back(digit);
  }
  close_up_slots(digits);
  return Layout(std::move(shape), std::move(digits), std::move(replicas));
}

std::optional<Layout> reshape(const Layout& source, const std::vector<int64_t>& shape) {
  const std::vector<int64_t>& old = source.shape();
  const int64_t total = std::accumulate(old.begin(), old.end(), int64_t{1}, std::multiplies<>());
  if (check_shape("reshape", shape) != total) {
    reject("reshape", "shape", "has another number of elements",
           fmt::format("{} elements as in {}", total, shape_text(old)), shape_text(shape));
  }
  std::vector<Digit> digits;
  size_t from = 0;  // axes of the old and the new shape that are done
  size_t to = 0;
  while (from < old.size() || to < shape.size()) {
    // The next axes of both shapes with equal products.
    const size_t from_first = from;
    const size_t to_first = to;
    int64_t from_count = from < old.size() ? old[from++] : 1;
    int64_t to_count = to < shape.size() ? shape[to++] : 1;
    while (from_count != to_count) {
      if (from_count < to_count) {
        from_count *= old[from++];
      } else {
        to_count *= shape[to++];
      }
    }
    std::optional<std::vector<Digit>> chain = flatten(source, from_first, from);
    if (!chain || !cut(std::move(*chain), shape, to_first, to, digits)) return std::nullopt;
  }
  return Layout(shape, std::move(digits), source.replicas());
}

Layout replicate(const Layout& source, int64_t times) {
  if (times < 1)
    reject("replicate", "times", "is out of range", "from 1 up", fmt::format("{}", times));
  std::vector<Replica> replicas = source.replicas();
  replicas.push_back({times, source.num_threads()});
  return Layout(source.shape(), source.digits(), std::move(replicas));
}

}  // namespace tessera::layout
