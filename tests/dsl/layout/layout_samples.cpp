#include "tests/dsl/layout/layout_samples.h"

#include <algorithm>

namespace tessera::layout {

std::vector<std::vector<int64_t>> all_points(const std::vector<int64_t>& shape) {
  std::vector<std::vector<int64_t>> points = {{}};
  for (const int64_t extent : shape) {
    std::vector<std::vector<int64_t>> longer;
    for (const auto& point : points) {
      for (int64_t i = 0; i < extent; ++i) {
        longer.push_back(point);
        longer.back().push_back(i);
      }
    }
    points = std::move(longer);
  }
  return points;
}

std::vector<int64_t> padded_shape(const Layout& layout) {
  std::vector<int64_t> shape;
  for (size_t axis = 0; axis < layout.shape().size(); ++axis) {
    shape.push_back(layout.padded_extent(static_cast<int>(axis)));
  }
  return shape;
}

std::set<int64_t> owners(const Layout& layout, const std::vector<int64_t>& index) {
  std::set<int64_t> threads;
  for (int64_t copy = 0; copy < layout.num_replicas(); ++copy) {
    threads.insert(layout.place(index, copy).thread);
  }
  return threads;
}

bool is_injective(const Layout& layout) {
  std::set<std::pair<int64_t, int64_t>> used;
  for (const auto& point : all_points(padded_shape(layout))) {
    for (int64_t copy = 0; copy < layout.num_replicas(); ++copy) {
      const Place place = layout.place(point, copy);
      if (!used.emplace(place.thread, place.slot).second) return false;
    }
  }
  return true;
}

int64_t pick(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
}

int64_t pick_one(Random& random, const std::vector<int64_t>& values) {
  return values[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(values.size()) - 1))];
}

Layout random_layout(Random& random) {
  const auto rank = static_cast<int>(pick(random, 1, 4));
  std::vector<int64_t> shape;
  std::vector<Digit> digits;
  int64_t points = 1;
  for (int axis = 0; axis < rank; ++axis) {
    int64_t div = 1;
    for (int64_t count = pick(random, 0, 3); count > 0 && points < 800; --count) {
      const int64_t extent = pick_one(random, {2, 2, 2, 3, 4, 5, 8});
      digits.push_back({axis, div, extent, 0, 0});
      div *= extent;
      points *= extent;
    }
    // The last digit may run beyond the axis.
    const bool ragged = div > 1 && pick(random, 0, 3) == 0;
    const int64_t least = div > 1 ? div - div / digits.back().extent + 1 : 1;
    shape.push_back(ragged ? pick(random, least, div) : div);
  }
  std::vector<Replica> replicas;
  for (int64_t count = pick(random, 0, 2); count > 0; --count) {
    replicas.push_back({pick(random, 1, 3), 0});
  }
  // Strides in random order; each one steps over all that the earlier ones reach, or a bit more.
  std::vector<std::pair<int64_t*, int64_t>> threads, slots;
  for (Digit& digit : digits) {
    if (pick(random, 0, 1) == 0) {
      threads.emplace_back(&digit.thread, digit.extent);
    } else {
      slots.emplace_back(&digit.slot, digit.extent);
    }
  }
  for (Replica& replica : replicas) threads.emplace_back(&replica.thread, replica.extent);
  for (auto* numbers : {&threads, &slots}) {
    for (size_t i = numbers->size(); i > 1; --i) {
      std::swap((*numbers)[i - 1],
                (*numbers)[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(i) - 1))]);
    }
    int64_t next = 1;
    for (auto& [stride, extent] : *numbers) {
      if (pick(random, 0, 4) == 0) next += pick(random, 1, 3);
      *stride = next;
      next += next * (extent - 1);
    }
  }
  return Layout(std::move(shape), std::move(digits), std::move(replicas));
}

}  // namespace tessera::layout
