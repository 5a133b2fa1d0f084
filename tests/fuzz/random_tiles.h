#pragma once
// The statements of a random program that make tiles from tiles.

#include <fmt/format.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/random_values.h"

namespace tessera::test {

class RandomTiles : protected RandomValues {
 protected:
  using RandomValues::RandomValues;

  /// A tile of an input, sometimes shifted so that it reaches over the edge.
  void load_tile() {
    const Ref from = pick(inputs_);
    const bool is_shared = chance(30);
    const Ref to = new_tile(is_shared, chance(50) ? from.dtype() : compute_type());
    const Ref part = from.tile({row_ + shift(), column_ + shift()}, {height_, width_});
    if (chance(20)) {
      k_.copy(part, to, {.outside = between(0, 7)});
    } else {
      k_.copy(part, to);
    }
    tiles_.push_back({to, limit(to.dtype(), 8), is_shared});
  }
  int64_t shift() { return pick<int64_t>({0, 0, 0, 0, 1, -1, 4}); }

  /// Between registers and shared memory.
  void stage() {
    const Tile from = pick(tiles_);
    const Ref to = new_tile(!from.is_shared, chance(70) ? from.ref.dtype() : storage_type());
    k_.copy(from.ref, to);
    tiles_.push_back({to, limit(to.dtype(), from.bound), !from.is_shared});
  }

  void elementwise() {
    const bool is_new = chance(60);
    if (is_new) {
      const bool is_shared = chance(30);
      const Ref to = new_tile(is_shared, storage_type());
      Tile tile{to, 0, is_shared};
      tile.bound = write_all(tile);
      tiles_.push_back(tile);
    } else {
      const size_t at = static_cast<size_t>(between(0, std::ssize(tiles_) - 1));
      tiles_[at].bound = std::max(tiles_[at].bound, write_all(tiles_[at]));
    }
  }

  int64_t write_all(const Tile& to) {
    int64_t bound = 0;
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Bounded value = clamped(expression(i, j, to, 3));
      to.ref(i, j) = convert(to.ref.dtype(), value.value);
      bound = limit(to.ref.dtype(), value.bound);
    });
    return bound;
  }

  /// Part of a tile again, by a condition or as a box.
  void overwrite() {
    const size_t at = static_cast<size_t>(between(0, std::ssize(tiles_) - 1));
    Tile& to = tiles_[at];
    if (to.is_shared && chance(50)) {
      const int64_t h = between(1, height_);
      const int64_t w = between(1, width_);
      const Ref box = to.ref.tile({between(0, height_ - h), between(0, width_ - w)}, {h, w});
      k_.fill(box, between(0, 7));
      to.bound = std::max<int64_t>(to.bound, 7);
      return;
    }
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Bounded value = clamped(expression(i, j, to, 2));
      const Value test = condition(i, j);
      k_.if_(test, [&] { to.ref(i, j) = convert(to.ref.dtype(), value.value); });
      to.bound = std::max(to.bound, limit(to.ref.dtype(), value.bound));
    });
  }

  void reduce() {
    const Tile from = pick(tiles_);
    const bool is_per_row = chance(50);
    const int64_t length = is_per_row ? width_ : height_;
    const DType type = from.ref.dtype();
    if (from.is_shared || from.bound * length > kExact || !is_compute_type(type)) return;
    const Ref to = k_.fragment(type, {is_per_row ? height_ : width_});
    const int64_t bound = reduce(from.ref, to, dsl::Axis(is_per_row ? 1 : 0), from.bound, length);
    lines_.push_back({to, bound, is_per_row});
  }

  int64_t reduce(const Ref& from, const Ref& to, dsl::Axis axis, int64_t bound, int64_t length) {
    switch (between(0, 5)) {
      case 0:
        k_.reduce_max(from, to, axis);
        return bound;
      case 1:
        k_.reduce_min(from, to, axis);
        return bound;
      case 2:
        k_.reduce_absmax(from, to, axis);
        return bound;
      default:
        k_.reduce_sum(from, to, axis);
        return bound * length;
    }
  }

  /// Where the extreme of each line is; the first place wins.
  void places() {
    const Tile from = pick(tiles_);
    const DType type = from.ref.dtype();
    if (type == DType::i8 || type == DType::u8) return;
    const bool is_per_row = chance(50);
    const auto axis = dsl::Axis(is_per_row ? 1 : 0);
    const dsl::Tile tile(from.ref);
    const dsl::TileBest best = chance(50) ? k_.argmax(tile, axis) : k_.argmin(tile, axis);
    const Ref line = k_.fragment(DType::i32, {is_per_row ? height_ : width_}, "line");
    k_.store(best.index, line);
    lines_.push_back({line, is_per_row ? width_ : height_, is_per_row});
  }

  /// Constants of the code, chosen by place or by element.
  void look_up() {
    const Tile from = pick(tiles_);
    const int64_t size = between(1, 9);
    std::vector<dsl::Arg> constants;
    for (int64_t i = 0; i < size; ++i) constants.emplace_back(between(-8, 8));
    const DType type = compute_type();
    const dsl::Table table = k_.table(type, constants);
    const bool is_shared = chance(30), by_place = chance(50);
    const Ref to = new_tile(is_shared, type);
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Value element = max(min(convert(DType::i32, from.ref(i, j)), size - 1), 0);
      to(i, j) = table(by_place ? (i * 3 + j) % size : element);
    });
    tiles_.push_back({to, 8, is_shared});
  }

  /// Rows of an input that an index chooses, some of them outside.
  void gather() {
    const Ref from = pick(inputs_);
    const bool is_shared = chance(50);
    const Ref to = new_tile(is_shared, chance(50) ? from.dtype() : compute_type());
    const int64_t first = between(-2, 2), step = between(-1, 3);
    const auto place = [&](const Value& r) { return std::vector<Value>{row_ + first + r * step}; };
    k_.copy(from.rows(height_, place), to);
    tiles_.push_back({to, limit(to.dtype(), 8), is_shared});
  }

  /// Groups of columns through a reshaped view, and their result added to every element.
  void reduce_groups() {
    std::vector<int64_t> groups;
    for (const int64_t group : {2, 3, 4, 8, 12, 16, 32}) {
      if (width_ % group == 0) groups.push_back(group);
    }
    if (groups.empty()) return;
    const int64_t group = pick(groups);
    Tile& tile = tiles_[static_cast<size_t>(between(0, std::ssize(tiles_) - 1))];
    const DType type = tile.ref.dtype();
    if (tile.is_shared || tile.bound * (group + 1) > kExact || !is_compute_type(type)) return;
    const Ref view = tile.ref.reshape({height_, width_ / group, group});
    const Ref sums = k_.fragment(type, {height_, width_ / group});
    const int64_t bound = reduce(view, sums, dsl::Axis(2), tile.bound, group);
    k_.parallel({height_, width_ / group, group}, [&](Value i, Value j, Value u) {
      const Bounded sum = clamped({view(i, j, u) + sums(i, j), tile.bound + bound});
      view(i, j, u) = sum.value;
      tile.bound = std::max(tile.bound, sum.bound);
    });
  }
};

}  // namespace tessera::test
