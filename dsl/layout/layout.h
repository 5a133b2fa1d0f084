#pragma once
// Fragment layouts as exact mixed-radix digit maps: which thread and which register slot hold each
// element of a tile.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::layout {

/// One digit of one logical axis: ((index[axis] / div) % extent), multiplied by `thread` into the
/// thread number and by `slot` into the register slot. Exactly one of the two strides is non-zero,
/// unless extent is 1.
struct Digit {
  int axis = 0;
  int64_t div = 1;
  int64_t extent = 1;
  int64_t thread = 0;
  int64_t slot = 0;
  friend bool operator==(const Digit&, const Digit&) = default;
};

/// `extent` copies of every element, `thread` threads apart, all in the same slot.
struct Replica {
  int64_t extent = 1;
  int64_t thread = 0;
  friend bool operator==(const Replica&, const Replica&) = default;
};

struct Place {
  int64_t thread = 0;
  int64_t slot = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

/// Digits of one axis chain: div 1, e0, e0*e1, ...; their product may exceed the axis extent
/// (ragged: the surplus indices own registers that hold nothing). Normal form: per axis by
/// ascending div, adjacent mergeable digits merged, extent-1 digits dropped, replicas by ascending
/// stride and merged. Equal maps have equal normal forms.
class Layout {
 public:
  Layout() = default;
  Layout(std::vector<int64_t> shape, std::vector<Digit> digits, std::vector<Replica> replicas = {});

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Digit>& digits() const { return digits_; }
  const std::vector<Replica>& replicas() const { return replicas_; }

  int64_t num_threads() const;   // one past the largest thread number
  int64_t num_slots() const;     // registers per thread
  int64_t num_replicas() const;  // copies of each element
  int64_t padded_extent(int axis) const;
  bool is_ragged() const;  // some padded extent exceeds the shape

  /// Where copy `replica` of the element lives. `index` within the padded extents.
  Place place(const std::vector<int64_t>& index, int64_t replica = 0) const;
  /// The element in (thread, slot), possibly a padding point outside `shape`; nothing if the thread
  /// owns none.
  std::optional<std::vector<int64_t>> element(int64_t thread, int64_t slot) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<int64_t> shape_;
  std::vector<Digit> digits_;
  std::vector<Replica> replicas_;
};

/// The default split of a tile over `threads` threads with runs of `vector` elements along the last
/// axis.
///   exact case: thread = (flat / vector) % threads, slot = (flat / vector / threads) * vector +
///   flat % vector ragged case (64 x 96 over 256, 1 x 229 over 128): the largest power of two that
///   divides the last axis' units takes threads along it, the rest goes to the outer axes; what
///   does not divide is padded. Left-over threads replicate.
/// `vector` must divide the last extent.
Layout plan(const std::vector<int64_t>& shape, int64_t threads, int64_t vector);

/// Every thread holds the whole tile, slot = row-major index.
Layout replicated(const std::vector<int64_t>& shape, int64_t threads);

/// The layout of a reduction's result: `axis` removed, its thread digits become replicas, its slot
/// digits vanish.
Layout reduce(const Layout& source, int axis);

/// Same physical map for another shape with the same element order; nothing if a digit would
/// straddle the new axes.
std::optional<Layout> reshape(const Layout& source, const std::vector<int64_t>& shape);

/// n times as many copies: the new ones `num_threads()` apart.
Layout replicate(const Layout& source, int64_t times);

/// True if every thread that holds element e in `small` also holds it in `large` (shapes equal).
bool contains(const Layout& large, const Layout& small);

/// A collision, if two elements (or two copies) share a thread and slot: the two index tuples.
struct Collision {
  std::vector<int64_t> first, second;
  int64_t thread, slot;
};
std::optional<Collision> find_collision(const Layout& layout);

/// Recovers digits from a function given by enumeration; nothing if it is not a mixed-radix map.
template <class Fn>  // Place(const std::vector<int64_t>&)
std::optional<Layout> from_function(const std::vector<int64_t>& shape, const Fn& fn);
std::optional<Layout> from_table(const std::vector<int64_t>& shape,
                                 const std::vector<Place>& places);

/// "thread = (i / 1 % 8) * 32 + (j / 4 % 32), slot = ...": axes named i, j, k, l.
std::string to_string(const Layout& layout);
/// A grid of thread numbers (2-D; higher ranks as panels), cut to `max_rows` x `max_cols`.
std::string draw(const Layout& layout, int max_rows = 32, int max_cols = 32);

template <class Fn>
std::optional<Layout> from_function(const std::vector<int64_t>& shape, const Fn& fn) {
  std::vector<Place> places;
  std::vector<int64_t> index(shape.size(), 0);
  int64_t total = 1;
  for (const int64_t extent : shape) total *= extent;
  for (int64_t flat = 0; flat < total; ++flat) {
    int64_t rest = flat;
    for (size_t axis = shape.size(); axis-- > 0;) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    places.push_back(fn(index));
  }
  return from_table(shape, places);
}

}  // namespace tessera::layout
