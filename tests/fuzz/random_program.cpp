#include "tests/fuzz/random_program.h"

#include <fmt/format.h>

#include <functional>
#include <random>

#include "dsl/builder.h"

namespace tessera::test {
namespace {

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
struct Line {
  Ref ref;
  int64_t bound = 0;
  bool is_per_row = false;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  RandomProgram make() {
    signature();
    load_tile();
    const int64_t statements = between(2, 7);
    for (int64_t i = 0; i < statements; ++i) statement(2);
    for (const Ref& output : outputs_) store(output);
    RandomProgram program{k_.finish(), {}};
    for (Tensor& tensor : tensors_) program.tensors.push_back(std::move(tensor.data));
    return program;
  }

 private:
  // ---- choices
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, std::ssize(from) - 1))];
  }

  // ---- tensors: [rows, columns], each extent constant or dynamic
  void signature() {
    height_ = pick<int64_t>({1, 2, 3, 8, 16, 32, 64});
    width_ = pick<int64_t>({1, 4, 8, 16, 24, 32, 64, 96, 128});
    while (height_ * width_ > 2048) height_ /= 2;
    threads_ = pick<int64_t>({32, 64, 96, 128, 256});
    const int64_t multiple = pick<int64_t>({1, 1, 2, 4, 8});
    num_rows_ = between(1, 2 * height_ + 1);
    num_columns_ = ceil_to(between(1, 2 * width_ + 1), multiple);
    rows_ = std::make_unique<dsl::Arg>(num_rows_);
    columns_ = std::make_unique<dsl::Arg>(num_columns_);
    if (chance(70)) rows_ = std::make_unique<dsl::Arg>(k_.dim("n"));
    if (chance(70)) columns_ = std::make_unique<dsl::Arg>(k_.dim("m", {.multiple_of = multiple}));
    for (int64_t i = between(1, 2); i > 0; --i) inputs_.push_back(tensor("x", true));
    for (int64_t i = between(1, 3); i > 0; --i) outputs_.push_back(tensor("y", false));
    const bool has_lanes = chance(30);
    if (has_lanes) {
      num_blocks_ =
          ceil_to(num_rows_, height_) / height_ * (ceil_to(num_columns_, width_) / width_);
      lanes_ = std::make_unique<Ref>(k_.output("lanes", DType::i32, {num_blocks_, threads_}));
      tensors_.push_back({HostTensor(DType::i32, {num_blocks_, threads_})});
    }
    const dsl::BlockIndex at = k_.launch({ceil_div(*rows_, height_), ceil_div(*columns_, width_)},
                                         {.threads = static_cast<int>(threads_)});
    row_ = at.x * height_;
    column_ = at.y * width_;
    if (has_lanes) lanes(at);
  }

  static int64_t ceil_to(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  Ref tensor(const char* letter, bool is_input) {
    const DType dtype =
        pick<DType>({DType::f32, DType::i32, DType::bf16, DType::f16, DType::i8, DType::u8});
    const std::string name = fmt::format("{}{}", letter, tensors_.size());
    dsl::TensorOptions options;
    int64_t stride = num_columns_;
    if (chance(25)) {
      const int64_t multiple = pick<int64_t>({1, 2, 4, 16});
      stride = ceil_to(num_columns_ + between(0, 9), multiple);
      options.strides = {k_.stride(name + "_stride", {.multiple_of = multiple}), 1};
    }
    options.align = pick<int64_t>({16, 16, bytes(dtype)});
    HostTensor data(dtype, {num_rows_, num_columns_}, {stride, 1});
    if (is_input) {
      for (int64_t i = 0; i < data.size(); ++i) {
        data.set_value(i, static_cast<double>(between(is_signed(dtype) ? -8 : 0, 8)));
      }
    } else {
      data.fill_bytes(std::byte{0x11});
    }
    tensors_.push_back({std::move(data)});
    return is_input ? k_.input(name, dtype, {*rows_, *columns_}, options)
                    : k_.output(name, dtype, {*rows_, *columns_}, options);
  }

  // ---- statements
  void statement(int depth) {
    switch (between(0, depth > 0 ? 11 : 7)) {
      case 0:
        return load_tile();
      case 1:
        return stage();
      case 2:
      case 3:
        return elementwise();
      case 4:
        return reduce();
      case 5:
        return reduce_groups();
      case 6:
        return overwrite();
      case 7:
        return store(pick(outputs_));
      case 8:
      case 9:
        return repeat(depth);
      default:
        return branch(depth);
    }
  }

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
    if (from.is_shared || from.bound * length > kExact ||
        (type != DType::f32 && type != DType::i32))
      return;
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
    if (tile.is_shared || tile.bound * (group + 1) > kExact ||
        (type != DType::f32 && type != DType::i32))
      return;
    const Ref view = tile.ref.reshape({height_, width_ / group, group});
    const Ref sums = k_.fragment(type, {height_, width_ / group});
    const int64_t bound = reduce(view, sums, dsl::Axis(2), tile.bound, group);
    k_.parallel({height_, width_ / group, group}, [&](Value i, Value j, Value u) {
      const Bounded sum = clamped({view(i, j, u) + sums(i, j), tile.bound + bound});
      view(i, j, u) = sum.value;
      tile.bound = std::max(tile.bound, sum.bound);
    });
  }

  void repeat(int depth) {
    const int64_t trips = between(0, 3);
    const bool is_dynamic = chance(40);
    const size_t tiles = tiles_.size();
    const size_t lines = lines_.size();
    const bool was_repeated = is_repeated_;
    is_repeated_ = true;
    const dsl::Arg end = is_dynamic ? dsl::Arg(min(*rows_, dsl::Arg(trips))) : dsl::Arg(trips);
    k_.serial(0, end, [&](Value i) {
      counters_.push_back(i);
      for (int64_t s = between(1, 3); s > 0; --s) statement(depth - 1);
      counters_.pop_back();
    });
    is_repeated_ = was_repeated;
    forget(tiles, lines);
  }

  void branch(int depth) {
    const Value test =
        chance(50) ? (row_ / height_ + column_ / width_) % 2 == 0 : row_ < column_ + 3;
    const size_t tiles = tiles_.size();
    const size_t lines = lines_.size();
    k_.if_(test, [&] {
      for (int64_t s = between(1, 2); s > 0; --s) statement(depth - 1);
    });
    forget(tiles, lines);
  }

  /// Tiles born in a loop or branch end with it.
  void forget(size_t tiles, size_t lines) {
    tiles_.erase(tiles_.begin() + static_cast<int64_t>(tiles), tiles_.end());
    lines_.erase(lines_.begin() + static_cast<int64_t>(lines), lines_.end());
  }

  void store(const Ref& to) {
    const Tile from = pick(tiles_);
    if (chance(50)) return k_.copy(from.ref, to.tile({row_, column_}, {height_, width_}));
    k_.parallel({height_, width_}, [&](Value i, Value j) {
      const Value value = convert(to.dtype(), expression(i, j, from, 2).value);
      if (chance(30)) {
        k_.if_(condition(i, j), [&] { to(row_ + i, column_ + j) = value; });
      } else {
        to(row_ + i, column_ + j) = value;
      }
    });
  }

  /// Threads by name: a shared array read in another order, and a warp collective.
  void lanes(const dsl::BlockIndex& at) {
    const Value t = k_.thread();
    const Ref s = k_.shared(DType::i32, {threads_}, "by_thread");
    s(t) = t * between(1, 5) + at.x;
    Ref sum = k_.var(DType::i32, s((t + between(1, 31)) % threads_));
    if (chance(50)) sum = k_.warp_sum(sum);
    if (chance(50)) {
      s(threads_ - 1 - t) = sum;
      sum = sum + s(t);
    }
    const Value blocks = (*columns_ + dsl::Arg(width_ - 1)) / dsl::Arg(width_);
    (*lanes_)(at.x * blocks + at.y, t) = sum;
  }

  // ---- values
  DType compute_type() { return chance(50) ? DType::f32 : DType::i32; }
  DType storage_type() {
    return pick<DType>(
        {DType::f32, DType::f32, DType::i32, DType::i32, DType::bf16, DType::f16, DType::i8});
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

  /// An element of `tile` in f32 or i32; of a shared tile that nobody writes here, sometimes another one than (i, j).
  Bounded element(const Tile& tile, const Value& i, const Value& j, const Tile& target) {
    Value r = i;
    Value c = j;
    if (tile.is_shared && tile.ref.region().buffer != target.ref.region().buffer && chance(60)) {
      if (chance(50)) r = height_ - 1 - i;
      if (chance(50)) c = (j + between(0, width_)) % width_;
    }
    const DType type = tile.ref.dtype();
    const Value value = tile.ref(r, c);
    return {type == DType::f32 || type == DType::i32 ? value : cast(compute_type(), value),
            tile.bound};
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
        const Line line = pick(lines_);
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
    switch (between(0, a.value.dtype() == DType::i32 ? 8 : 6)) {
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
        return {a.value ^ b.value, 4 * larger};
      default:
        return {a.value >> 1, a.bound};
    }
  }

  struct Tensor {
    HostTensor data;
  };

  std::mt19937_64 random_;
  dsl::Builder k_{"fuzz"};
  int64_t height_ = 0, width_ = 0, threads_ = 0, num_rows_ = 0, num_columns_ = 0, num_blocks_ = 0;
  std::unique_ptr<dsl::Arg> rows_, columns_;
  Value row_, column_;
  std::vector<Tensor> tensors_;
  std::vector<Ref> inputs_, outputs_;
  std::unique_ptr<Ref> lanes_;
  std::vector<Tile> tiles_;
  std::vector<Line> lines_;
  std::vector<Value> counters_;  // of the serial loops around
  bool is_repeated_ = false;
};

}  // namespace

RandomProgram random_program(uint64_t seed) {
  return Generator(seed).make();
}

}  // namespace tessera::test
