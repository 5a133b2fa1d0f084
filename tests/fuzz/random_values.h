#pragma once
// The values that a random program computes with, and what it has to compute them from.

#include <fmt/format.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dsl/builder.h"

namespace tessera::test {

using dsl::Ref;
using dsl::Value;

/// Sums of this many times this much are exact in f32.
constexpr int64_t kLargest = 1 << 9;
constexpr int64_t kExact = 1 << 23;

/// A value and a bound of its magnitude.
struct Bounded {
  Value value;
  int64_t bound = 0;
};

/// All tiles of a program have one shape.
struct Tile {
  Ref ref;
  int64_t bound = 0;
  bool is_shared = false;
};

/// One value per row or per column.
struct LineTile {
  Ref ref;
  int64_t bound = 0;
  bool is_per_row = false;
};

class RandomValues {
 protected:
  explicit RandomValues(uint64_t seed)
      : random_(seed),
        real_(seed % 8 == 5 ? DType::f64 : DType::f32),
        signals_(seed % 8 == 3),
        indexes_locals_(seed % 8 == 6),
        multiplies_(seed % 8 == 1),
        is_wide_(seed % 8 == 7) {}

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, std::ssize(from) - 1))];
  }
  DType compute_type() { return chance(50) ? real_ : DType::i32; }
  bool is_compute_type(DType type) const { return type == real_ || type == DType::i32; }
  DType storage_type() {
    return pick<DType>({real_, real_, DType::i32, DType::i32, DType::bf16, DType::f16, DType::i8});
  }
  Ref new_tile(bool is_shared, DType dtype) {
    return is_shared ? k_.shared(dtype, {height_, width_}, fmt::format("s{}", tiles_.size()))
                     : k_.fragment(dtype, {height_, width_}, fmt::format("f{}", tiles_.size()));
  }
  /// The magnitude that a value up to `bound` has after a store as `dtype`.
  static int64_t limit(DType dtype, int64_t bound) {
    if (bytes(dtype) == 1) return 255;
    return dtype == DType::bf16 || dtype == DType::f16 ? 2 * bound : bound;
  }
  static Value convert(DType to, const Value& value) {
    return value.dtype() == to ? value : cast(to, value);
  }
  /// Values that loops carry stay small whatever the number of rounds.
  Bounded clamped(const Bounded& value) {
    if (!is_repeated_ && value.bound <= kLargest) return value;
    return {max(min(value.value, kLargest), -kLargest), kLargest};
  }

  Value condition(const Value& i, const Value& j) {
    switch (between(0, 3)) {
      case 0:
        return (i + j) % pick<int64_t>({2, 3, 4, 8}) == 0;
      case 1:
        return j < between(1, width_);
      case 2:
        return row_ + i < *rows_ - dsl::Arg(1);
      default:
        return i % 2 == 1;
    }
  }

  /// An element of `tile` in a compute type; of a shared tile that nobody writes here, sometimes
  /// another one than (i, j).
  Bounded element(const Tile& tile, const Value& i, const Value& j, const Tile& target) {
    Value r = i;
    Value c = j;
    if (tile.is_shared && tile.ref.region().buffer != target.ref.region().buffer && chance(60)) {
      if (chance(50)) r = height_ - 1 - i;
      if (chance(50)) c = (j + between(0, width_)) % width_;
    }
    const DType type = tile.ref.dtype();
    const Value value = tile.ref(r, c);
    return {is_compute_type(type) ? value : cast(compute_type(), value), tile.bound};
  }

  Bounded leaf(const Value& i, const Value& j, const Tile& target) {
    switch (between(0, lines_.empty() ? 5 : 10)) {
      case 0:
        return {Value(k_.let("c", between(-5, 5))), 5};
      case 1:
        return {chance(50) ? i : j, 128};
      case 2:
        if (!counters_.empty()) return {counters_.back(), 4};
        return input_element(i, j);
      case 6:
      case 7:
      case 8:
      case 9:
      case 10: {
        const LineTile line = pick(lines_);
        return {line.ref(line.is_per_row ? i : j), line.bound};
      }
      default:
        return element(pick(tiles_), i, j, target);
    }
  }

  /// Read where a gather would: guarded on both sides.
  Bounded input_element(const Value& i, const Value& j) {
    const Ref from = pick(inputs_);
    const Value value = from(row_ + i * 3 - 2, column_ + j);
    return {convert(compute_type(), value), 8};
  }

  Bounded expression(const Value& i, const Value& j, const Tile& target, int depth) {
    if (depth == 0 || chance(25)) return leaf(i, j, target);
    Bounded a = expression(i, j, target, depth - 1);
    Bounded b = expression(i, j, target, depth - 1);
    if (a.bound > kExact / 4) a = {max(min(a.value, kLargest), -kLargest), kLargest};
    if (b.bound > kExact / 4) b = {max(min(b.value, kLargest), -kLargest), kLargest};
    if (a.value.dtype() != b.value.dtype()) b.value = cast(a.value.dtype(), b.value);
    const int64_t larger = std::max(a.bound, b.bound);
    switch (between(0, 9)) {
      case 0:
      case 1:
        return {a.value + b.value, a.bound + b.bound};
      case 2:
        return {a.value - b.value, a.bound + b.bound};
      case 3:
        return {chance(50) ? max(a.value, b.value) : min(a.value, b.value), larger};
      case 4:
        return {select(condition(i, j), a.value, b.value), larger};
      case 5:
        return {select(a.value < b.value, a.value, b.value), larger};
      case 6:
        return {Value(k_.let("v", a.value * 3)), a.bound * 3};
      case 7:
        if (a.value.dtype() == real_) return {rounded(a.value / 4), a.bound};
        return {a.value ^ b.value, 4 * larger};
      case 8:
        if (a.value.dtype() == real_) return {floor(a.value), a.bound};
        return {a.value >> 1, a.bound};
      default:
        if (a.value.dtype() == real_) return {a.value + b.value, a.bound + b.bound};
        return bits_of(a);
    }
  }

  Value rounded(const Value& x) { return chance(50) ? rint(x) : chance(50) ? ceil(x) : floor(x); }
  Bounded bits_of(const Bounded& a) {
    const Value bits = cast(DType::u32, a.value);
    if (chance(50)) return {chance(50) ? clz(bits) : ffs(bits), 32};
    return {mulhi(a.value, factor()), 1 + a.bound / 2};
  }
  int32_t factor() { return static_cast<int32_t>(between(-(1 << 30), 1 << 30)); }

  // The values that the program has so far.
  std::mt19937_64 random_;
  // By the seed alone, so that other programs stay as they were.
  const DType real_;           // of what it computes
  const bool signals_;         // a block waits for the one before
  const bool indexes_locals_;  // at run time
  const bool multiplies_;      // parts of tiles, as matrices
  const bool is_wide_;         // extents may be 2^31 and more
  dsl::Builder k_{"fuzz"};
  int64_t height_ = 0, width_ = 0, threads_ = 0, num_rows_ = 0, num_columns_ = 0;
  std::unique_ptr<dsl::Arg> rows_, columns_;
  Value row_, column_;
  std::vector<Ref> inputs_, outputs_;
  std::vector<Tile> tiles_;
  std::vector<LineTile> lines_;
  std::vector<Value> counters_;  // of the serial loops around
  bool is_repeated_ = false, has_stored_ = false;
};

}  // namespace tessera::test
