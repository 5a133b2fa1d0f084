// Arithmetic on whole tiles: the loops that it stands for, bit for bit.

#include <cmath>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Ref;
using dsl::Tile;
using dsl::Value;

namespace {

/// The statements between launch and finish of a kernel from x to y, both [4, 96] of f32.
template <class Body>
ir::Kernel over_rows(DType in, DType out, const Body& body) {
  Builder k("rows");
  auto x = k.input("x", in, {4, 96});
  auto y = k.output("y", out, {4, 96});
  auto at = k.launch({4}, {.threads = 32});
  body(k, x, y, at.x);
  return k.finish();
}

HostTensor inputs(DType dtype) {
  HostTensor x(dtype, {4, 96});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, static_cast<double>(i * 7919 % 101) / 16 - 3);
  }
  return x;
}

/// Both kernels leave the same bits, on the executor and, unless a GPU approximates what they compute, there.
void check_equal(const ir::Kernel& short_form, const ir::Kernel& long_form, DType in, DType out,
                 bool is_approximated = false) {
  const HostTensor x = inputs(in);
  const HostTensor a(out, {4, 96}), b(out, {4, 96});
  for (const auto& [kernel, result] : {std::pair(&short_form, &a), std::pair(&long_form, &b)}) {
    if (is_approximated) {
      run_on_executor(*kernel, {x.view(), result->view()});
    } else {
      run_kernel(*kernel, {&x, result});
    }
  }
  CHECK(a.raw() == b.raw());
}

}  // namespace

TEST_CASE("softmax in three statements is softmax in loops", "[language]") {
  const auto short_form =
      over_rows(DType::f32, DType::f32, [](Builder& k, const Ref& x, const Ref& y, Value at) {
        auto row = k.load(x(at));
        auto e = k.evaluate(exp(row - k.reduce_max(row)));
        k.store(e / k.reduce_sum(e), y(at));
      });
  const auto long_form =
      over_rows(DType::f32, DType::f32, [](Builder& k, const Ref& x, const Ref& y, Value at) {
        auto row = k.fragment(DType::f32, {1, 96}, "row");
        auto top = k.fragment(DType::f32, {1}, "top");
        auto sum = k.fragment(DType::f32, {1}, "sum");
        k.copy(x.tile({at, 0}, {1, 96}), row);
        k.reduce_max(row, top, Axis(1));
        k.parallel({1, 96}, [&](Value r, Value c) { row(r, c) = exp(row(r, c) - top(r)); });
        k.reduce_sum(row, sum, Axis(1));
        k.parallel({1, 96}, [&](Value r, Value c) { y(at + r, c) = row(r, c) / sum(r); });
      });
  check_equal(short_form, long_form, DType::f32, DType::f32, true);
  CHECK(count(cuda_text(short_form), "__syncthreads") ==
        count(cuda_text(long_form), "__syncthreads"));
}

TEST_CASE("tiles of several rows meet what is left of a reduction", "[language]") {
  Builder k("centred");
  auto x = k.input("x", DType::bf16, {64, 48});
  auto w = k.input("w", DType::f32, {48});
  auto rows = k.output("rows", DType::f32, {64, 48});
  auto columns = k.output("columns", DType::i32, {1, 48});
  auto tops = k.output("tops", DType::f32, {64});
  k.launch({1}, {.threads = 128});
  auto tile = k.load(x.tile({0, 0}, {64, 48}));
  auto scale = k.load(w);
  CHECK(tile.dtype() == DType::bf16);
  auto top = k.reduce_absmax(tile);
  CHECK(top.shape() == std::vector<int64_t>{64, 1});
  CHECK(top.dtype() == DType::f32);
  k.store((f32(tile) + 1.0f) / max(top, 0.5f) * scale, rows);
  auto is_large = select(f32(tile) > 1.0f, i32(f32(tile)), 0);
  k.store(k.reduce_sum(is_large, Axis(0)), columns);
  k.store(top, tops);
  const ir::Kernel kernel = k.finish();
  HostTensor in(DType::bf16, {64, 48}), scales(DType::f32, {48});
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, static_cast<double>(i % 37) / 4 - 4);
  for (int64_t i = 0; i < 48; ++i) scales.set_value(i, static_cast<double>(i) - 20);
  const HostTensor out(DType::f32, {64, 48}), sums(DType::i32, {1, 48}), largests(DType::f32, {64});
  run_kernel(kernel, {&in, &scales, &out, &sums, &largests});
  std::vector<double> expected(48);
  for (int64_t r = 0; r < 64; ++r) {
    double largest = 0;
    for (int64_t c = 0; c < 48; ++c) largest = std::max(largest, std::fabs(in.value(r * 48 + c)));
    REQUIRE(largests.value(r) == largest);
    for (int64_t c = 0; c < 48; ++c) {
      const auto v = static_cast<float>(in.value(r * 48 + c));
      const auto by = static_cast<float>(std::max(largest, 0.5));
      const float want = (v + 1.0f) / by * static_cast<float>(scales.value(c));
      REQUIRE(out.value(r * 48 + c) == static_cast<double>(want));
      if (v > 1.0f) expected[static_cast<size_t>(c)] += std::trunc(v);
    }
  }
  CHECK(values_of(sums) == expected);
}

TEST_CASE("every operator of tiles is that of its elements", "[language]") {
  struct Case {
    Tile (*of_tiles)(const Tile&, const Tile&);
    Value (*of_values)(const Value&, const Value&);
  };
#define TESSERA_CASE(EXPRESSION)                                                            \
  Case {                                                                                    \
    [](const Tile& a, [[maybe_unused]] const Tile& b) -> Tile { return EXPRESSION; },       \
        [](const Value& a, [[maybe_unused]] const Value& b) -> Value { return EXPRESSION; } \
  }
  using dsl::f32, dsl::i32, dsl::cast;
  const Case cases[] = {
      TESSERA_CASE(a + b),
      TESSERA_CASE(a - b * 2.0f),
      TESSERA_CASE(2.0f / a),
      TESSERA_CASE(1.0f - a),
      TESSERA_CASE(max(a, b) + min(a, 0.25f) - max(0.5f, b)),
      TESSERA_CASE(-abs(a) + copysign(1.0f, b)),
      TESSERA_CASE(fma(a, b, b)),
      TESSERA_CASE(floor(a) + ceil(b) * rint(a)),
      TESSERA_CASE(sqrt(abs(a))),
      TESSERA_CASE(select((a < b && !(a == b)) || is_nan(a), a, b)),
      TESSERA_CASE(select(a >= b, b, 1.0f)),
      TESSERA_CASE(f32((i32(a) & 3) + (i32(b) | 4) - (i32(a) ^ i32(b)) + i32(a) % 5)),
      TESSERA_CASE(f32(cast(DType::bf16, a))),
  };
#undef TESSERA_CASE
  for (const Case& c : cases) {
    CAPTURE(&c - cases);
    const auto body = [&](bool of_tiles) {
      return over_rows(
          DType::f32, DType::f32, [&](Builder& k, const Ref& x, const Ref& y, Value at) {
            if (of_tiles) {
              auto a = k.load(x(at)), b = k.load(x(3 - at));
              return k.store(c.of_tiles(a, b), y(at));
            }
            k.parallel({96}, [&](Value i) { y(at, i) = c.of_values(x(at, i), x(3 - at, i)); });
          });
    };
    check_equal(body(true), body(false), DType::f32, DType::f32);
  }
}

TEST_CASE("a tile is evaluated into the dtype and place it is stored to", "[language]") {
  const auto short_form =
      over_rows(DType::bf16, DType::e4m3, [](Builder& k, const Ref& x, const Ref& y, Value at) {
        auto shared = k.shared(DType::f32, {96});
        k.store(f32(k.load(x(at))) * 2.0f, shared);
        k.store(Tile(shared) + 1.0f, shared);
        k.store(Tile(shared), y(at));
      });
  const auto long_form =
      over_rows(DType::bf16, DType::e4m3, [](Builder& k, const Ref& x, const Ref& y, Value at) {
        k.parallel({96},
                   [&](Value i) { y(at, i) = cast(DType::e4m3, f32(x(at, i)) * 2.0f + 1.0f); });
      });
  check_equal(short_form, long_form, DType::bf16, DType::e4m3);
}

TEST_CASE("copies drop extents of 1, and all keeps a dimension", "[language]") {
  Builder k("middle");
  auto q = k.input("q", DType::f32, {2, 32, 3, 8});
  auto y = k.output("y", DType::f32, {2, 3, 32, 8});
  auto at = k.launch({2, 3}, {.threads = 32});
  auto tile = k.fragment(DType::f32, {32, 8}, "tile");
  auto shared = k.shared(DType::f32, {1, 32, 1, 8});
  k.copy(q(at.x, k.all, at.y), tile);
  k.copy(tile, shared);
  k.copy(shared, y(at.x, at.y));
  const ir::Kernel kernel = k.finish();
  const HostTensor in = iota(DType::f32, {2, 32, 3, 8});
  const HostTensor out(DType::f32, {2, 3, 32, 8});
  run_kernel(kernel, {&in, &out});
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t i = 0; i < 256; ++i) {
        REQUIRE(out.value((b * 3 + h) * 256 + i) ==
                static_cast<double>(b * 768 + i / 8 * 24 + h * 8 + i % 8));
      }
    }
  }
}

TEST_CASE("a copy of one element copies it", "[language]") {
  Builder k("one");
  auto x = k.input("x", DType::f32, {3, 5, 4});
  auto y = k.output("y", DType::f32, {3, 1, 2});
  auto at = k.launch({3}, {.threads = 32});
  auto tile = k.shared(DType::f32, {1}), seven = k.shared(DType::f32, {1, 1});
  k.fill(seven, 7.0f);
  k.copy(x.tile({at.x, 2, 3}, {1, 1, 1}), tile);
  k.copy(tile, y.tile({at.x, 0, 0}, {1, 1, 1}));
  k.copy(seven, y.tile({at.x, 0, 1}, {1, 1, 1}));
  const HostTensor in = iota(DType::f32, {3, 5, 4}), out(DType::f32, {3, 1, 2});
  run_kernel(k.finish(), {&in, &out});
  CHECK(values_of(out) == std::vector<double>{11, 7, 31, 7, 51, 7});
}

namespace {

/// Values and indices of argmax or argmin over an axis of x.
std::pair<std::vector<double>, std::vector<double>> best_of(const HostTensor& x, DType value_dtype,
                                                            int axis, bool is_max, int threads) {
  const Dims shape = x.view().shape;
  Dims rest = shape;
  rest[(axis + shape.rank) % shape.rank] = 1;
  Builder k("best");
  const std::vector<dsl::Arg> extents(shape.begin(), shape.end());
  const std::vector<dsl::Arg> of_rest(rest.begin(), rest.end());
  auto in = k.input("x", x.view().dtype, extents);
  auto values = k.output("values", value_dtype, of_rest);
  auto indices = k.output("indices", DType::i32, of_rest);
  k.launch({1}, {.threads = threads});
  const Tile tile = k.load(in.tile(std::vector<dsl::Arg>(extents.size(), 0),
                                   std::vector<int64_t>(shape.begin(), shape.end())));
  auto [value, index] = is_max ? k.argmax(tile, Axis(axis)) : k.argmin(tile, Axis(axis));
  k.store(value, values);
  k.store(index, indices);
  const HostTensor best(value_dtype, rest), place(DType::i32, rest);
  run_kernel(k.finish(), {&x, &best, &place});
  return {values_of(best), values_of(place)};
}

}  // namespace

TEST_CASE("argmax and argmin give the lowest index of the best value", "[language]") {
  const bool is_max = GENERATE(true, false);
  const int axis = GENERATE(0, 1, -1);
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::i32);
  CAPTURE(is_max, axis, name(dtype));
  constexpr int64_t kRows = 12, kColumns = 96;
  HostTensor x(dtype, {kRows, kColumns});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, static_cast<double>(i * 7919 % 11) - 5);  // many are equal
  }
  std::vector<double> values, indices;
  const bool is_down = axis == 0;
  for (int64_t line = 0; line < (is_down ? kColumns : kRows); ++line) {
    const auto at = [&](int64_t i) {
      return x.value(is_down ? i * kColumns + line : line * kColumns + i);
    };
    int64_t best = 0;
    for (int64_t i = 1; i < (is_down ? kRows : kColumns); ++i) {
      if (is_max ? at(i) > at(best) : at(i) < at(best)) best = i;
    }
    values.push_back(at(best));
    indices.push_back(static_cast<double>(best));
  }
  const auto got =
      best_of(x, dtype == DType::i32 ? dtype : DType::f32, axis, is_max, GENERATE(32, 64));
  CHECK(got.first == values);
  CHECK(got.second == indices);
}

TEST_CASE("argmax drops NaN, and takes zeros of both signs for equal", "[language]") {
  HostTensor x(DType::f32, {4, 33});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, i / 33 == 2 ? -INFINITY : -7);
  for (int64_t c = 0; c < 33; ++c) x.set_value(c, NAN);
  for (int64_t c : {0, 3, 31}) x.set_value(33 + c, NAN);
  x.set_value(2 * 33, NAN);
  x.set_value(3 * 33 + 9, -0.0);
  x.set_value(3 * 33 + 17, 0.0);
  CHECK(best_of(x, DType::f32, 1, true, 32).second == std::vector<double>{32, 1, 1, 9});
}

TEST_CASE("argmax of an expression over the only dimension", "[language]") {
  const HostTensor x = inputs(DType::f32);
  const HostTensor place(DType::i32, {4});
  Builder k("line");
  auto in = k.input("x", DType::f32, {4, 96});
  auto out = k.output("place", DType::i32, {4});
  auto at = k.launch({4}, {.threads = 64});
  k.store(k.argmax(-k.load(in(at.x))).index, out.tile({at.x}, {1}));
  run_kernel(k.finish(), {&x, &place});
  for (int64_t r = 0; r < 4; ++r) {
    int64_t best = 0;
    for (int64_t c = 1; c < 96; ++c) {
      if (x.value(r * 96 + c) < x.value(r * 96 + best)) best = c;
    }
    CHECK(place.value(r) == static_cast<double>(best));
  }
}

TEST_CASE("blocks add whole tiles to one place", "[language]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::i32);
  CAPTURE(name(dtype));
  Builder k("add_tiles");
  auto x = k.input("x", DType::i32, {4, 96});
  auto rows = k.dim("rows");
  auto y = k.output("y", dtype, {rows, 48});
  auto at = k.launch({2}, {.threads = 32});
  auto part = k.load(x.tile({0, at.x * 48}, {4, 48}));  // the last row has no place in y
  k.atomic_add(y.tile({0, 0}, {4, 48}), part * 2);
  const HostTensor in = tensor_by(DType::i32, {4, 96}, [](int64_t i) { return i % 7; });
  const HostTensor out = tensor_by(dtype, {3, 48}, [](int64_t) { return 1; });
  run_kernel(k.finish(), {&in, &out});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t first = i / 48 * 96 + i % 48;
    CHECK(out.value(i) == 1 + 2 * (in.value(first) + in.value(first + 48)));
  }
}

TEST_CASE("operations on tiles with wrong shapes, dtypes or memory are refused", "[language]") {
  Builder k("wrong");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {64, 32});
  auto open = k.input("open", DType::f32, {n});
  auto y = k.output("y", DType::f32, {64, 32});
  k.launch({1}, {.threads = 32});
  auto a = k.load(x.tile({0, 0}, {64, 32}));
  auto b = k.load(x.tile({0, 0}, {32, 16}));
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(error_of([&] { a + b; }), "tiles of an expression have different shapes");
  has(error_of([&] { k.load(open); }), "constant extents");
  has(error_of([&] { k.load(x(0, 0)); }), "one element of 'x' is no tile");
  has(error_of([&] { k.reduce_sum(a, Axis(2)); }), "expected -2 .. 1, got 2");
  has(error_of([&] { k.store(b, y); }), "a tile goes to 'y' of another shape");
  has(error_of([&] { (a + 1.0f).ref(); }), "an expression of tiles is used as a buffer");
  has(error_of([&] { a % 2; }), "operand of '%' has the wrong dtype");
  has(error_of([&] { k.let("v", k.all); }), "k.all is used as a value");
  has(error_of([&] { k.copy(x.tile({0, 0}, {64, 1}), k.fragment(DType::f32, {32})); }), "SHAPE");
  // the fragment is written after the tile was named
  const Tile old(a.ref());
  k.store(old * 2.0f, a.ref());
  has(error_of([&] { k.store(old, y); }), "STALE_ELEMENT");
  k.serial(0, 4, [&](Value) {
    const Tile now(a.ref());
    k.store(now + 1.0f, a.ref());
  });
  const Tile before(a.ref());
  has(error_of([&] { k.serial(0, 4, [&](Value) { k.store(before + 1.0f, a.ref()); }); }),
      "STALE_ELEMENT");
}

TEST_CASE("the parts of whole warps are exchanged once per warp and read in runs", "[language]") {
  const int threads = GENERATE(64, 96, 256);
  const int64_t rows = GENERATE(int64_t{1}, int64_t{3});
  CAPTURE(threads, rows);
  const int64_t columns = 4 * int64_t{threads};
  Builder k("row_sums");
  auto x = k.input("x", DType::f32, {rows, columns});
  auto y = k.output("y", DType::f32, {rows});
  k.launch({1}, {.threads = threads});
  auto tile = k.fragment(DType::f32, {rows, columns}, "tile");
  auto sums = k.fragment(DType::f32, {rows}, "sums");
  k.copy(x, tile);
  k.reduce_sum(tile, sums, dsl::Axis(1));
  k.copy(sums, y);
  const ir::Kernel kernel = k.finish();
  const codegen::Program program = codegen::lower(kernel);
  CHECK(program.shared.size() == 1);
  CHECK(program.shared[0]->size == rows * threads / 32);
  HostTensor in(DType::f32, {rows, columns});
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, static_cast<double>(i * 31 % 97 - 40));
  const HostTensor out(DType::f32, {rows});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([&](int64_t row) {
               double sum = 0;
               for (int64_t c = 0; c < columns; ++c) sum += in.value(row * columns + c);
               return sum;
             }));
}

TEST_CASE("a fragment is a tile in arithmetic, one element of it a value", "[language][tiles]") {
  const auto short_form =
      over_rows(DType::f32, DType::f32, [](Builder& k, const Ref& x, const Ref& y, Value at) {
        auto row = k.fragment(DType::f32, {1, 96}, "row"), half = k.fragment(DType::f32, {1, 96});
        auto tile = k.shared(DType::f32, {96}, "tile");
        k.copy(x.tile({at, 0}), row);
        k.store(row * 0.5f, half), k.store(row, tile);
        k.store(max(half + row, tile) - tile(3) + select(row < half, row, 1.0f), y.tile({at, 0}));
      });
  const auto long_form =
      over_rows(DType::f32, DType::f32, [](Builder& k, const Ref& x, const Ref& y, Value at) {
        auto tile = k.shared(DType::f32, {96}, "tile");
        k.copy(x.tile({at, 0}, {1, 96}), tile);
        k.parallel({96}, [&](Value c) {
          const Value v = tile(c), half = v * 0.5f;
          y(at, c) = max(half + v, v) - tile(3) + select(v < half, v, 1.0f);
        });
      });
  check_equal(short_form, long_form, DType::f32, DType::f32);
}

TEST_CASE("a mask on a whole tile asks for the index of each element", "[language][tiles]") {
  const auto kernel_of = [](bool is_short) {
    Builder k("masked");
    auto x = k.input("x", DType::f32, {4, 96});
    auto y = k.output("y", DType::f32, {4, 96});
    k.launch({1}, {.threads = 64});
    auto tile = k.fragment(DType::f32, {4, 96}, "tile");
    k.copy(x, tile);
    if (is_short) {
      const Tile row = k.index(Axis(0)), column = k.index();
      k.store(select(column <= row + 40, tile, -1.0f) + f32(column % 7), y);
    } else {
      k.parallel({4, 96}, [&](Value r, Value c) {
        y(r, c) = select(c <= r + 40, tile(r, c), -1.0f) + f32(c % 7);
      });
    }
    return k.finish();
  };
  check_equal(kernel_of(true), kernel_of(false), DType::f32, DType::f32);
}

TEST_CASE("the axes of an index are those of the statement", "[language][tiles]") {
  const auto kernel_of = [](bool is_short) {
    Builder k("axes");
    k.input("x", DType::i32, {4, 96});
    auto y = k.output("y", DType::i32, {4, 96});
    k.launch({1}, {.threads = 64});
    auto line = k.fragment(DType::i32, {96}, "line");
    k.fill(line, 1000);
    if (is_short) {
      k.store(k.index(Axis(0)) * 100 + k.index() + line, y);
    } else {
      k.parallel({4, 96}, [&](Value r, Value c) { y(r, c) = r * 100 + c + 1000; });
    }
    return k.finish();
  };
  check_equal(kernel_of(true), kernel_of(false), DType::i32, DType::i32);
  Builder k("alone");
  auto y = k.output("y", DType::i32, {4, 96});
  k.launch({1}, {.threads = 64});
  k.store(k.index(Axis(0)), y);
  const HostTensor result(DType::i32, {4, 96});
  run_kernel(k.finish(), {&result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i / 96; }));
}

TEST_CASE("indices have no extents and no axes of their own", "[language][tiles]") {
  Builder k("masked");
  auto y = k.output("y", DType::i32, {96});
  k.launch({1}, {.threads = 64});
  const std::string alone = error_of([&] { k.evaluate(k.index() + 1); });
  CHECK(alone.find("a tile of indices has no extents of its own [SHAPE]") != std::string::npos);
  const std::string open = error_of([&] { k.store(k.index(), y.tile({0})); });
  CHECK(open.find("a tile of indices has no extents of its own [SHAPE]") != std::string::npos);
  const std::string axis = error_of([&] { k.store(k.index(Axis(1)), y); });
  CHECK(axis.find("along an axis that the statement does not have [SHAPE]") != std::string::npos);
  CHECK(axis.find("-1 .. 0") != std::string::npos);
}

TEST_CASE("a copy takes its extents from the side that has them", "[language][tiles]") {
  const auto kernel_of = [](bool is_short) {
    Builder k("extents");
    auto x = k.input("x", DType::f32, {4, 96});
    auto y = k.output("y", DType::f32, {4, 96});
    auto at = k.launch({4}, {.threads = 32});
    auto one = k.shared(DType::f32, {32}, "one"), two = k.shared(DType::f32, {1, 64}, "two");
    if (is_short) {
      k.copy(x.tile({at.x, 0}), one);  // a dimension less
      auto copied = k.copy_async(x.tile({at.x, 32}), two);
      k.wait(copied);
      k.copy(one, y.tile({at.x, 64}));
      k.copy(two, y.tile({at.x, 0}));
    } else {
      k.copy(x.tile({at.x, 0}, {1, 32}), one);
      auto copied = k.copy_async(x.tile({at.x, 32}, {1, 64}), two);
      k.wait(copied);
      k.copy(one, y.tile({at.x, 64}, {1, 32}));
      k.copy(two, y.tile({at.x, 0}, {1, 64}));
    }
    return k.finish();
  };
  check_equal(kernel_of(true), kernel_of(false), DType::f32, DType::f32);
  Builder k("open");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n, 96});
  auto y = k.output("y", DType::f32, {n, 96});
  k.launch({1}, {.threads = 32});
  const std::string both = error_of([&] { k.copy(x, y.tile({0, 0})); });
  CHECK(both.find("the extents of 'x' are not constant [REGION]") != std::string::npos);
  auto tile = k.shared(DType::f32, {2, 2, 8}, "tile");
  const std::string rank = error_of([&] { k.copy(x.tile({0, 0}), tile); });
  CHECK(rank.find("2 offsets, 3 extents") != std::string::npos);
}

TEST_CASE("a product takes a tile that is computed for it", "[language][tiles]") {
  const auto kernel_of = [](bool is_short) {
    Builder k("product");
    auto x = k.input("x", DType::f32, {64, 64});
    auto w = k.input("w", DType::bf16, {64, 64});
    auto y = k.output("y", DType::f32, {64, 64});
    k.launch({1}, {.threads = 128});
    auto sum = k.fragment(DType::f32, {64, 64}, "sum"), tile = k.fragment(DType::f32, {64, 64});
    auto weights = k.shared(DType::bf16, {64, 64}, "weights");
    k.copy(x, tile), k.copy(w, weights), k.fill(sum, 0.0f);
    if (is_short) {
      k.gemm(cast(DType::bf16, tile * 2.0f), weights, sum);
    } else {
      k.gemm(k.evaluate(cast(DType::bf16, tile * 2.0f)).ref(), weights, sum);
    }
    k.copy(sum, y);
    return k.finish();
  };
  HostTensor x(DType::f32, {64, 64}), w(DType::bf16, {64, 64});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, static_cast<double>(i % 13 - 6));
    w.set_value(i, static_cast<double>(i % 7 - 3));
  }
  const HostTensor a(DType::f32, {64, 64}), b(DType::f32, {64, 64});
  run_kernel(kernel_of(true), {&x, &w, &a});
  run_kernel(kernel_of(false), {&x, &w, &b});
  CHECK(a.raw() == b.raw());
}

TEST_CASE("a loop over a tile has an index for each of its dimensions", "[language]") {
  const auto kernel_of = [](bool by_tile) {
    return over_rows(DType::f32, DType::f32, [&](Builder& k, const Ref& x, const Ref& y, Value at) {
      auto row = k.fragment(DType::f32, {4, 24}, "row");
      const auto from = x(at).tile({0}, {96});
      const auto body = [&](Value i, Value j) { row(i, j) = from(i * 24 + j) * 2.0f; };
      if (by_tile) {
        k.parallel(row, body);
        k.parallel(from, [&](Value c) { y(at, c) = row(c / 24, c % 24); });
      } else {
        k.parallel({4, 24}, body);
        k.parallel({96}, [&](Value c) { y(at, c) = row(c / 24, c % 24); });
      }
    });
  };
  check_equal(kernel_of(true), kernel_of(false), DType::f32, DType::f32);
  Builder k("open");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {n});
  k.launch({1}, {.threads = 32});
  CHECK(error_of([&] {
          k.parallel(y, [&](Value i) { y(i) = x(i); });
        }).find("the extents of 'y' are not constant [REGION]") != std::string::npos);
}
