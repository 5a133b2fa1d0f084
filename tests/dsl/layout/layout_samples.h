#pragma once
// Material of the layout tests: all points of a shape, owners by enumeration, and random layouts.

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "dsl/layout/layout.h"

namespace tessera::layout {

/// All index tuples of a shape, row-major.
std::vector<std::vector<int64_t>> all_points(const std::vector<int64_t>& shape);
/// The shape with its padding.
std::vector<int64_t> padded_shape(const Layout& layout);
/// The threads that hold an element, by trying all copies.
std::set<int64_t> owners(const Layout& layout, const std::vector<int64_t>& index);
/// True if no two (element or padding point, copy) share a register, by enumeration.
bool is_injective(const Layout& layout);

using Random = std::mt19937;
int64_t pick(Random& random, int64_t low, int64_t high);  // both ends included
int64_t pick_one(Random& random, const std::vector<int64_t>& values);

/// A random injective layout of at most a few thousand points: rank 1 to 4, digits in any order of
/// threads and slots, strides with gaps, up to two replicas, ragged now and then.
Layout random_layout(Random& random);

}  // namespace tessera::layout
