// Layouts derived from a shape alone: the default split and the full replica.

#include <fmt/format.h>

#include <limits>

#include "dsl/layout/layout.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

constexpr int64_t kMaxThreads = 1 << 16;  // far above any block, far below overflow

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

void check_threads(const char* op, int64_t threads) {
  if (threads < 1 || threads > kMaxThreads) {
    reject(op, "threads", "is out of range", fmt::format("1 .. {}", kMaxThreads),
           fmt::format("{}", threads));
  }
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) result.push_back(d);
  }
  return result;
}

/// The lanes along each axis, and their cost.
struct Split {
  std::vector<int64_t> lanes;
  int64_t passes = 1;   // units per thread
  int64_t threads = 1;  // product of the lanes
};

/// Tries every assignment of divisors to the axes below `axis`, most lanes first, so that the first
/// of equal splits wins.
void search(const std::vector<int64_t>& units, const std::vector<int64_t>& lane_counts, size_t axis,
            Split& current, Split& best) {
  if (current.passes > best.passes) return;
  if (axis == 0) {
    if (current.passes < best.passes || current.threads < best.threads) best = current;
    return;
  }
  const int64_t all_threads = lane_counts.back();
  for (size_t i = lane_counts.size(); i-- > 0;) {
    const int64_t lanes = lane_counts[i];
    if (all_threads / current.threads % lanes != 0) continue;
    const int64_t passes = ceil_div(units[axis - 1], lanes);
    current.lanes[axis - 1] = lanes;
    current.passes *= passes;
    current.threads *= lanes;
    search(units, lane_counts, axis - 1, current, best);
    current.passes /= passes;
    current.threads /= lanes;
  }
}

}  // namespace

Layout split(const std::vector<int64_t>& shape, int64_t threads, int64_t vector) {
  check_shape("plan", shape);
  check_threads("plan", threads);
  const int64_t last_extent = shape.empty() ? 1 : shape.back();
  if (vector < 1 || last_extent % vector != 0) {
    reject("plan", "vector", "does not divide the last axis",
           fmt::format("a divisor of {}", last_extent), fmt::format("{}", vector));
  }
  std::vector<int64_t> units = shape;  // a run of `vector` elements counts as one unit
  if (!units.empty()) units.back() /= vector;

  Split current, best;
  current.lanes.assign(shape.size(), 1);
  best.passes = std::numeric_limits<int64_t>::max();
  search(units, divisors(threads), shape.size(), current, best);

  std::vector<Digit> digits;
  int64_t thread = 1;
  int64_t slot = vector;
  for (size_t a = shape.size(); a-- > 0;) {
    const int axis = static_cast<int>(a);
    const int64_t run = a + 1 == shape.size() ? vector : 1;
    const int64_t passes = ceil_div(units[a], best.lanes[a]);
    digits.push_back({axis, 1, run, 0, 1});
    digits.push_back({axis, run, best.lanes[a], thread, 0});
    digits.push_back({axis, run * best.lanes[a], passes, 0, slot});
    thread *= best.lanes[a];
    slot *= passes;
  }
  return Layout(shape, std::move(digits), {{threads / thread, thread}});
}

Layout replicated(const std::vector<int64_t>& shape, int64_t threads) {
  check_shape("replicated", shape);
  check_threads("replicated", threads);
  std::vector<Digit> digits;
  int64_t slot = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    digits.push_back({static_cast<int>(axis), 1, shape[axis], 0, slot});
    slot *= shape[axis];
  }
  return Layout(shape, std::move(digits), {{threads, 1}});
}

}  // namespace tessera::layout
