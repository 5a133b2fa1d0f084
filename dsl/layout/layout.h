#pragma once
// Fragment layouts as exact mixed-radix digit maps: which thread and which register slot hold each
// element of a tile. Everything here is integer arithmetic on a handful of digits.
//
// Wrong arguments (extents below 1, a vector that does not divide, shapes that differ, ...) throw
// an Error of kind `program` naming the function, what was expected and what was given.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::layout {

/// One digit of one logical axis: (index[axis] / div) % extent. It adds that value times `thread`
/// to the thread number and times `slot` to the register slot. At most one of the two strides is
/// non-zero. A digit with neither makes the layout collide; find_collision reports it.
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

/// The digits of an axis form a chain: div 1, e0, e0*e1, ... Their product may exceed the axis
/// extent (ragged: the surplus indices own unused registers). A chain that ends below the axis
/// extent is completed by a digit without strides.
///
/// Normal form: axes in order, digits of an axis by ascending div, adjacent digits merged where
/// possible, extent-1 digits dropped; replicas by ascending stride, merged, none within one thread.
/// Equal maps have equal normal forms.
///
///   // 64 x 128 over 256 threads: thread = (i % 8) * 32 + j / 4, slot = (i / 8) * 4 + j % 4
///   Layout({64, 128}, {{0, 1, 8, 32, 0}, {0, 8, 8, 0, 4}, {1, 1, 4, 0, 1}, {1, 4, 32, 1, 0}});
class TESSERA_API Layout {
 public:
  Layout() = default;  // rank 0: one element in thread 0 slot 0
  Layout(std::vector<int64_t> shape, std::vector<Digit> digits, std::vector<Replica> replicas = {});

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Digit>& digits() const { return digits_; }
  const std::vector<Replica>& replicas() const { return replicas_; }

  int64_t num_threads() const;   // one past the largest thread number
  int64_t num_slots() const;     // registers per thread
  int64_t num_replicas() const;  // copies of each element
  int64_t padded_extent(int axis) const;
  bool is_ragged() const;  // some padded extent exceeds the shape

  /// The place of replica `replica` of the element. `index` is within the padded extents. The first
  /// entry of replicas() varies fastest.
  Place place(const std::vector<int64_t>& index, int64_t replica = 0) const;
  /// The element in (thread, slot), possibly a padding point outside `shape`; nothing if the slot
  /// is unused.
  std::optional<std::vector<int64_t>> element(int64_t thread, int64_t slot) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<int64_t> shape_;
  std::vector<Digit> digits_;
  std::vector<Replica> replicas_;
};

/// The default split of a tile over `threads` threads with runs of `vector` elements along the last
/// axis. `vector` must divide the last extent. Each axis gets a divisor of `threads` as its lanes:
/// the choice with the fewest registers per thread, then the fewest threads, then the most lanes
/// along the last axis, the second last, ... Lanes count row-major, and so do the passes in slots:
///
///   exact    64 x 128 over 256, vector 4   thread = (flat / 4) % 256,
///                                          slot = (flat / 4 / 256) * 4 + flat % 4
///   ragged   64 x 96 over 256, vector 4    thread = (i % 32) * 8 + (j / 4) % 8,
///                                          slot = (i / 32) * 12 + (j / 32) * 4 + j % 4
///   padded   1 x 229 over 128, vector 1    thread = j % 128, slot = j / 128
///
/// Surplus threads hold replicas: lanes divide `threads`, so every thread holds an element (in
/// ragged cases perhaps only padding).
TESSERA_API Layout split(const std::vector<int64_t>& shape, int64_t threads, int64_t vector);

/// Every thread holds the whole tile, slot = row-major index.
TESSERA_API Layout replicated(const std::vector<int64_t>& shape, int64_t threads);

/// The layout of a reduction's result: `axis` removed, its thread digits become replicas, its slot
/// digits vanish and the remaining slots close up. Row sum of the 64 x 128 tile above:
/// thread = (i % 8) * 32 + rep, slot = i / 8, 32 copies.
TESSERA_API Layout reduce(const Layout& source, int axis);

/// The same physical map for another shape with the same element order; nothing if a digit would
/// straddle the new axes. 4 x 1024 as 4 x 8 x 128: reshape(source, {4, 8, 128}).
TESSERA_API std::optional<Layout> reshape(const Layout& source, const std::vector<int64_t>& shape);

/// `times` as many replicas, `num_threads()` apart.
TESSERA_API Layout replicate(const Layout& source, int64_t times);

/// True if every thread that holds element e in `small` also holds it in `large` (shapes equal).
/// Slots do not matter.
TESSERA_API bool contains(const Layout& large, const Layout& small);

/// A collision: the index tuples of two elements (or replicas) that share a thread and slot.
/// Padding points own their registers, so they count.
struct Collision {
  std::vector<int64_t> first, second;
  int64_t thread, slot;
};
TESSERA_API std::optional<Collision> find_collision(const Layout& layout);

/// Recovers the digits of a layout from a function; nothing if it is no mixed-radix map. A table
/// does not show padding: the last digit of an axis gets the least extent that fits.
///
///   from_function({32, 32}, [](const auto& at) { return Place{at[0], at[1]}; });
template <class Fn>  // Place(const std::vector<int64_t>&)
std::optional<Layout> from_function(const std::vector<int64_t>& shape, const Fn& fn);
/// Does the same for the places of all elements in row-major order.
TESSERA_API std::optional<Layout> from_table(const std::vector<int64_t>& shape,
                                             const std::vector<Place>& places);

/// "thread = (i % 8) * 32 + j / 4, slot = (i / 8) * 4 + j % 4": axes named i, j, k, l, m, ...;
/// ", 32 copies" and ", padded to 64 x 128" follow where they apply; `rep` numbers the copies.
TESSERA_API std::string to_string(const Layout& layout);
/// Draws the thread numbers of the first replicas as a grid (higher ranks as panels, lower ranks as
/// one row), cut to `max_rows` x `max_cols`. All panels together have at most `max_rows` rows, but
/// one panel is always drawn.
TESSERA_API std::string draw(const Layout& layout, int max_rows = 32, int max_cols = 32);

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
