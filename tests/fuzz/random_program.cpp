#include "tests/fuzz/random_program.h"

#include "tests/fuzz/random_collectives.h"

namespace tessera::test {
namespace {

class Generator : RandomCollectives {
 public:
  explicit Generator(uint64_t seed) : RandomCollectives(seed) {}

  RandomProgram make() {
    signature();
    load_tile();
    const int64_t statements = between(2, 7);
    for (int64_t i = 0; i < statements; ++i) statement(2);
    for (const Ref& output : outputs_) store(output);
    if (signals_) hand_over();
    if (multiplies_ && threads_ != 96) product();
    RandomProgram program{k_.finish(), {}};
    for (Tensor& tensor : tensors_) program.tensors.push_back(std::move(tensor.data));
    return program;
  }

 private:
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
    if (chance(70)) rows_ = std::make_unique<dsl::Arg>(k_.dim("n", {.wide = is_wide_}));
    if (chance(70)) columns_ = std::make_unique<dsl::Arg>(k_.dim("m", {.multiple_of = multiple}));
    for (int64_t i = between(1, 2); i > 0; --i) inputs_.push_back(tensor("x", true));
    for (int64_t i = between(1, 3); i > 0; --i) outputs_.push_back(tensor("y", false));
    num_blocks_ = ceil_to(num_rows_, height_) / height_ * (ceil_to(num_columns_, width_) / width_);
    const bool has_lanes = chance(30);
    if (has_lanes) {
      lanes_ = std::make_unique<Ref>(k_.output("lanes", DType::i32, {num_blocks_, threads_}));
      tensors_.push_back({HostTensor(DType::i32, {num_blocks_, threads_})});
    }
    if (multiplies_) product_ = blank("product", DType::f32, {num_blocks_, kMatrix, kMatrix});
    if (signals_) {
      cells_ = chained("cells", {num_blocks_ + 1});
      handed_ = chained("handed", {num_blocks_ + 1, kHanded});
    }
    const dsl::BlockIndex at = k_.launch({ceil_div(*rows_, height_), ceil_div(*columns_, width_)},
                                         {.threads = static_cast<int>(threads_)});
    row_ = at.x * height_;
    column_ = at.y * width_;
    if (has_lanes) lanes(at);
  }

  std::unique_ptr<Ref> blank(const char* name, DType dtype, std::vector<int64_t> shape) {
    HostTensor data(dtype, Dims(shape));
    data.fill_bytes(std::byte{0});
    tensors_.push_back({std::move(data)});
    return std::make_unique<Ref>(
        k_.output(name, dtype, std::vector<dsl::Arg>(shape.begin(), shape.end())));
  }
  /// The values that blocks hand over from one to the next.
  std::unique_ptr<Ref> chained(const char* name, std::vector<int64_t> shape) {
    auto result = blank(name, DType::i32, std::move(shape));
    tensors_.back().data.set_value(0, 1);
    return result;
  }
  /// Two products of parts of tiles to a part of a fragment, or to all of it.
  void product() {
    const DType dtype = pick<DType>({DType::bf16, DType::f16});
    const int64_t depth = pick<int64_t>({32, 64});
    const Ref a = matrix(dtype, kMatrix, depth), b = matrix(dtype, kMatrix, depth);
    const Ref c = k_.fragment(DType::f32, {kMatrix, kMatrix}, "c");
    k_.fill(c, 1.0f);
    const bool is_whole = chance(40);
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t rows = is_whole ? kMatrix : kMatrix / 2, first = is_whole ? 0 : i * rows;
      const int64_t from = chance(50) ? 0 : depth / 2, taken = depth - from;
      k_.gemm(a.tile({first, from}, {rows, taken}),
              b.tile({0, from}, {kMatrix, taken}).transposed(),
              c.tile({first, 0}, {rows, kMatrix}));
    }
    const Value across = (*rows_ + dsl::Arg(height_ - 1)) / dsl::Arg(height_);
    const Value block = k_.let("matrix", column_ / width_ * across + row_ / height_);
    k_.copy(c, product_->tile({block, 0, 0}, {1, kMatrix, kMatrix}));
  }
  /// A shared tile of small integers.
  Ref matrix(DType dtype, int64_t rows, int64_t columns) {
    const Ref tile = k_.shared(dtype, {rows, columns}, "m");
    const int64_t down = between(1, 6), right = between(1, 6);
    k_.parallel({rows, columns}, [&](Value i, Value j) {
      tile(i, j) = cast(dtype, (i * down + j * right + row_) % 7 - 3);
    });
    return tile;
  }
  /// The blocks one after the other, in the order of their indices.
  void hand_over() {
    const Value across = (*rows_ + dsl::Arg(height_ - 1)) / dsl::Arg(height_);
    const Value block = k_.let("block", column_ / width_ * across + row_ / height_);
    const Value found = k_.wait_until((*cells_)(block), [](const Value& cell) { return cell > 0; });
    k_.parallel({kHanded},
                [&](Value i) { (*handed_)(block + 1, i) = (*handed_)(block, i) + found; });
    k_.signal((*cells_)(block + 1), found % 5 + between(1, 3));
  }

  static int64_t ceil_to(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  Ref tensor(const char* letter, bool is_input) {
    const DType dtype =
        pick<DType>({real_, DType::i32, DType::bf16, DType::f16, DType::i8, DType::u8});
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
    switch (between(0, depth > 0 ? 20 : 16)) {
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
        return pipeline();
      case 9:
        return scan();
      case 10:
        return reducer();
      case 11:
        return count();
      case 12:
        return transpose();
      case 13:
        return halves();
      case 14:
        return places();
      case 15:
        return look_up();
      case 16:
        return gather();
      case 17:
      case 18:
        return repeat(depth);
      default:
        return branch(depth);
    }
  }
  void repeat(int depth) {
    const int64_t trips = between(0, 3);
    const bool is_dynamic = chance(40);
    const size_t tiles = tiles_.size();
    const size_t lines = lines_.size();
    const bool was_repeated = is_repeated_;
    is_repeated_ = true;
    const dsl::Arg end = is_dynamic ? dsl::Arg(min(*rows_, dsl::Arg(trips))) : dsl::Arg(trips);
    const auto round = [&](Value i) {
      counters_.push_back(i);
      for (int64_t s = between(1, 3); s > 0; --s) statement(depth - 1);
      counters_.pop_back();
    };
    const auto counted = [&](Value i) {
      round(i);
      if (!chance(25)) return;
      k_.break_if((row_ / height_ + i) % 3 == 1);
      if (chance(50)) statement(depth - 1);
    };
    const int64_t form = between(0, 3);
    if (form == 0) {
      k_.loop([&](Value i) {
        if (chance(50)) statement(depth - 1);
        k_.break_if(i >= end);
        round(i);
        if (chance(30)) k_.break_if((row_ / height_ + i) % 2 == 0);
        if (chance(30)) statement(depth - 1);
      });
    } else if (form == 1) {
      k_.serial(end - 1, -1, counted, -1);
    } else {
      k_.serial(0, end, counted);
    }
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
    // Another layout may give an element to another thread, and no barrier orders stores to a tensor unasked.
    if (is_repeated_ || has_stored_) k_.sync();
    has_stored_ = true;
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
    if (indexes_locals_) {
      const Ref own = k_.local(DType::i32, {4}, {.dynamic = true}, "own");
      for (int64_t i = 0; i < 4; ++i) own(i) = t * i + at.y;
      sum = sum + own((t + at.x) % 4);
    }
    const Value blocks = (*columns_ + dsl::Arg(width_ - 1)) / dsl::Arg(width_);
    (*lanes_)(at.x * blocks + at.y, t) = sum;
  }
  struct Tensor {
    HostTensor data;
  };

  std::vector<Tensor> tensors_;
  static constexpr int64_t kHanded = 4;   // elements
  static constexpr int64_t kMatrix = 64;  // rows and columns
  std::unique_ptr<Ref> lanes_, cells_, handed_, product_;
  int64_t num_blocks_ = 0;
};

}  // namespace

RandomProgram random_program(uint64_t seed) {
  return Generator(seed).make();
}

}  // namespace tessera::test
