// Containment of layouts and collisions of elements.

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "dsl/layout/layout.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

/// The thread offsets of all replicas, sorted.
std::vector<int64_t> copy_offsets(const Layout& layout) {
  std::vector<int64_t> offsets = {0};
  for (const Replica& replica : layout.replicas()) {
    const size_t below = offsets.size();
    for (int64_t copy = 1; copy < replica.extent; ++copy) {
      for (size_t i = 0; i < below; ++i) offsets.push_back(offsets[i] + copy * replica.thread);
    }
  }
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  return offsets;
}

bool has(const std::vector<int64_t>& sorted, int64_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

/// The length of the runs along an axis that stay in one thread; 0 if the whole axis stays.
int64_t thread_run(const Layout& layout, int axis) {
  for (const Digit& digit : layout.digits()) {
    if (digit.axis == axis && digit.thread != 0) return digit.div;
  }
  return 0;
}

/// Walks along one axis in steps that divide its thread_run and updates the axis' part of the
/// thread number, without divisions.
class AxisWalk {
 public:
  AxisWalk(const Layout& layout, int axis, int64_t step) {
    for (const Digit& digit : layout.digits()) {
      if (digit.axis != axis) continue;
      if (digits_.empty()) {
        if (digit.thread == 0) continue;
        digits_.push_back({axis, 1, digit.div / step, 0, 0});  // all smaller digits are slots
      }
      digits_.push_back(digit);
    }
    values_.assign(digits_.size(), 0);
  }

  int64_t thread() const { return thread_; }

  void next() {
    for (size_t i = 0; i < digits_.size(); ++i) {
      thread_ += digits_[i].thread;
      if (++values_[i] < digits_[i].extent) return;
      thread_ -= digits_[i].thread * digits_[i].extent;
      values_[i] = 0;
    }
  }

 private:
  std::vector<Digit> digits_;
  std::vector<int64_t> values_;
  int64_t thread_ = 0;
};

/// The distinct distances, sorted, between the threads of `small` and `large` along one axis;
/// nothing if an element of `small` has no replica in `large`.
std::optional<std::vector<int64_t>> distances(const Layout& large, const Layout& small, int axis,
                                              const std::vector<int64_t>& copies) {
  std::vector<int64_t> result = {0};
  const int64_t step = std::gcd(thread_run(large, axis), thread_run(small, axis));
  if (step == 0) return result;
  AxisWalk in_large(large, axis, step);
  AxisWalk in_small(small, axis, step);
  const int64_t extent = large.shape()[static_cast<size_t>(axis)];
  for (int64_t index = 0; index < extent; index += step) {
    const int64_t distance = in_small.thread() - in_large.thread();
    const auto at = std::lower_bound(result.begin(), result.end(), distance);
    if (at == result.end() || *at != distance) {
      if (!has(copies, distance)) return std::nullopt;
      result.insert(at, distance);
    }
    in_large.next();
    in_small.next();
  }
  return result;
}

/// True if every stride exceeds the sum of the smaller terms, so that all sums differ. Sufficient,
/// and the usual case.
bool nests(std::vector<Replica> terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Replica& a, const Replica& b) { return a.thread < b.thread; });
  int64_t reach = 0;
  for (const Replica& term : terms) {
    if (term.thread <= reach) return false;
    reach += term.thread * (term.extent - 1);
  }
  return true;
}

bool evidently_injective(const Layout& layout) {
  std::vector<Replica> threads = layout.replicas();
  std::vector<Replica> slots;
  for (const Digit& digit : layout.digits()) {
    if (digit.slot != 0) {
      slots.push_back({digit.extent, digit.slot});
    } else {
      threads.push_back({digit.extent, digit.thread});
    }
  }
  return nests(std::move(threads)) && nests(std::move(slots));
}

}  // namespace

bool contains(const Layout& large, const Layout& small) {
  if (large.shape() != small.shape()) {
    reject("contains", "small", "has another shape", shape_text(large.shape()),
           shape_text(small.shape()));
  }
  // Element e is in threads a(e) + A of `large` and b(e) + B of `small`, where A and B are the
  // replica offsets. So b(e) - a(e) + B must be in A for all e. The distance is a sum over the axes
  // and may be 0 on each, so every partial sum must be in A as well: the sets never grow beyond A.
  const std::vector<int64_t> copies = copy_offsets(large);
  std::vector<int64_t> reached = copy_offsets(small);
  for (const int64_t offset : reached) {
    if (!has(copies, offset)) return false;
  }
  for (size_t axis = 0; axis < large.shape().size(); ++axis) {
    const auto steps = distances(large, small, static_cast<int>(axis), copies);
    if (!steps) return false;
    if (steps->size() == 1) continue;
    std::vector<int64_t> next;
    for (const int64_t offset : reached) {
      for (const int64_t step : *steps) {
        if (!has(copies, offset + step)) return false;
        next.push_back(offset + step);
      }
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    reached = std::move(next);
  }
  return true;
}

std::optional<Collision> find_collision(const Layout& layout) {
  if (evidently_injective(layout)) return std::nullopt;
  const size_t rank = layout.shape().size();
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < rank; ++axis) {
    extents.push_back(layout.padded_extent(static_cast<int>(axis)));
  }
  const int64_t num_slots = layout.num_slots();
  const int64_t num_replicas = layout.num_replicas();
  std::unordered_map<int64_t, std::vector<int64_t>> owner;  // of a register, by thread and slot
  std::vector<int64_t> index(rank, 0);
  while (true) {
    for (int64_t replica = 0; replica < num_replicas; ++replica) {
      const Place place = layout.place(index, replica);
      const auto [at, fresh] = owner.try_emplace(place.thread * num_slots + place.slot, index);
      if (!fresh) return Collision{at->second, index, place.thread, place.slot};
    }
    size_t axis = rank;
    while (axis > 0 && ++index[axis - 1] == extents[axis - 1]) index[--axis] = 0;
    if (axis == 0) return std::nullopt;
  }
}

}  // namespace tessera::layout
