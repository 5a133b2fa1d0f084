// Uses of a fragment that need another layout than it has: staged through shared memory by the
// compiler, noted in `explain`.

#include <algorithm>

#include "codegen/lower.h"
#include "dsl/base/small_float.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Value;

namespace {

bool says(const ir::Kernel& kernel, const std::string& part) {
  const std::string text = codegen::explain(kernel);
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

HostTensor small_integers(DType dtype, Dims shape) {
  HostTensor tensor(dtype, shape);
  return tensor_by(dtype, shape, [](int64_t i) { return (i * 31 + i / 5) % 7 - 3; });
}

/// [m, k] * [k, n] of row-major values.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, int64_t m,
                            int64_t k, int64_t n) {
  std::vector<double> result(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        result[static_cast<size_t>(i * n + j)] +=
            a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a fragment written by 100 iterations and read by 256 keeps its whole shape (I10)",
          "[language]") {
  Builder k("partial");
  auto y = k.output("y", DType::i32, {256});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {256}, "f");
  k.fill(f, -1);
  k.parallel({100}, [&](Value i) { f(i) = i * 2; });
  k.parallel({256}, [&](Value i) { y(i) = f(i); });
  const HostTensor out(DType::i32, {256});
  run_kernel(k.finish(), {&out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i < 100 ? i * 2 : -1; }));
}

TEST_CASE("f[i] and f[(i + 1) mod N] in one loop see the values from before the loop (I11)",
          "[language]") {
  Builder k("neighbours");
  auto x = k.input("x", DType::i32, {256});
  auto y = k.output("y", DType::i32, {256});
  k.launch({1}, {.threads = 128});
  auto f = k.fragment(DType::i32, {256}, "f");
  k.copy(x, f);
  k.parallel({256}, [&](Value i) { f(i) = f((i + 1) % 256) - f(i); });
  k.copy(f, y);
  const ir::Kernel kernel = k.finish();
  CHECK(says(kernel, "'f' goes through shared memory"));
  const HostTensor in = tensor_by(DType::i32, {256}, [](int64_t i) { return i * i % 101; });
  const HostTensor out(DType::i32, {256});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) { return in.value((i + 1) % 256) - in.value(i); }));
}

TEST_CASE("a serial loop over a distributed axis reads through shared memory (I12)", "[language]") {
  // The product's layout spreads a row over four lanes; a loop of run-time length walks along it.
  Builder k("prefix");
  auto length = k.dim("length");
  auto x = k.input("x", DType::bf16, {16, 16});
  auto y = k.output("y", DType::f32, {16, length});
  k.launch({1}, {.threads = 32});
  auto left = k.shared(DType::bf16, {16, 16}, "left");
  auto sum = k.fragment(DType::f32, {16, 16}, "sum");
  k.copy(x, left);
  k.fill(sum, 0.0f);
  k.gemm(left, left.transposed(), sum);
  k.parallel({16}, [&](Value i) {
    auto total = k.var(DType::f32, 0.0f, "total");
    k.serial(0, length, [&](Value j) {
      k.assume(j < 16);
      total += sum(i, j);
    });
    y(i, 0) = total;
  });
  const ir::Kernel kernel = k.finish();
  CHECK(says(kernel, "'sum' goes through shared memory"));
  const HostTensor in = small_integers(DType::bf16, {16, 16});
  const HostTensor out(DType::f32, {16, 5});
  run_kernel(kernel, {&in, &out});
  for (int64_t i = 0; i < 16; ++i) {
    double want = 0;
    for (int64_t j = 0; j < 5; ++j) {
      for (int64_t l = 0; l < 16; ++l) want += in.value(i * 16 + l) * in.value(j * 16 + l);
    }
    CHECK(out.value(i * 5) == want);
  }
}

TEST_CASE("a serial inner index stays in the thread where the layout allows it (E15)",
          "[language]") {
  Builder k("inner");
  auto x = k.input("x", DType::f32, {128, 4});
  auto y = k.output("y", DType::f32, {128});
  k.launch({1}, {.threads = 128});
  auto f = k.fragment(DType::f32, {128, 4}, "f");
  k.copy(x, f);
  k.parallel({128}, [&](Value i) {
    auto total = k.var(DType::f32, 0.0f, "total");
    k.unrolled(4, [&](Value j) { total += f(i, j); });
    y(i) = total + f(i, 3);
  });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "arena") == 0);
  const HostTensor in = iota(DType::f32, {128, 4});
  const HostTensor out(DType::f32, {128});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 4 * (4 * i) + 6 + 4 * i + 3; }));
}

TEST_CASE("squares of a left operand are summed by column class where they are (E7)",
          "[language]") {
  Builder k("squares");
  auto x = k.input("x", DType::bf16, {32, 64});
  auto w = k.input("w", DType::f32, {32, 64});
  auto y = k.output("y", DType::f32, {32, 32});
  auto q = k.output("q", DType::f32, {32});
  k.launch({1}, {.threads = 128});
  auto right = k.shared(DType::f32, {32, 64}, "right");
  auto xf = k.fragment(DType::f32, {32, 64}, "xf");
  auto sum = k.fragment(DType::f32, {32, 32}, "sum");
  auto classes = k.fragment(DType::f32, {32, 4}, "classes");
  auto squares = k.fragment(DType::f32, {32}, "squares");
  k.copy(w, right);
  k.copy(x, xf);
  k.fill(sum, 0.0f);
  k.fill(classes, 0.0f);
  k.gemm(xf, right.transposed(), sum, {.warp_rows = 2, .tf32 = ir::Tf32::truncate});
  k.parallel({32, 4}, [&](Value i, Value c) {
    k.unrolled(16, [&](Value u) {
      const Value column = k.let("column", u * 4 + c);
      classes(i, c) = fma(xf(i, column), xf(i, column), classes(i, c));
    });
  });
  k.reduce_sum(classes, squares, Axis(1));
  k.copy(sum, y);
  k.copy(squares, q);
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "_staged") == 0);  // nothing moves: the squares are where the operand is
  CHECK(count(text, "__shfl_xor_sync") == 2);
  const HostTensor in = small_integers(DType::bf16, {32, 64});
  const HostTensor weights = small_integers(DType::f32, {32, 64});
  const HostTensor out(DType::f32, {32, 32});
  const HostTensor norms(DType::f32, {32});
  run_kernel(kernel, {&in, &weights, &out, &norms});
  CHECK_THAT(norms, HasValues([&](int64_t i) {
               double norm = 0;
               for (int64_t l = 0; l < 64; ++l) norm += in.value(i * 64 + l) * in.value(i * 64 + l);
               return norm;
             }));
  CHECK_THAT(out, HasValues([&](int64_t element) {
               const int64_t i = element / 32, j = element % 32;
               double want = 0;
               for (int64_t l = 0; l < 64; ++l) {
                 want += in.value(i * 64 + l) * weights.value(j * 64 + l);
               }
               return want;
             }));
}

TEST_CASE("a constant index of a distributed fragment is broadcast (I13)", "[language]") {
  Builder k("broadcast");
  auto x = k.input("x", DType::i32, {128});
  auto y = k.output("y", DType::i32, {128});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {128}, "f");
  k.copy(x, f);
  k.parallel({128}, [&](Value i) { y(i) = f(i) - f(2); });
  const HostTensor in = iota(DType::i32, {128});
  const HostTensor out(DType::i32, {128});
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i - 2; }));
}

TEST_CASE("a fragment read in a condition and as a gather index is held by every thread (I14, E13)",
          "[language]") {
  Builder k("gather");
  auto index = k.input("index", DType::i32, {8});
  auto x = k.input("x", DType::f32, {16, 64});
  auto y = k.output("y", DType::f32, {8, 64});
  k.launch({1}, {.threads = 64});
  auto rows = k.fragment(DType::i32, {8}, "rows");
  k.copy(index, rows);
  k.unrolled(8, [&](Value r) {
    const Value row = rows(r);
    k.if_else(
        row >= 0, [&] { k.parallel({64}, [&](Value j) { y(r, j) = x(row, j); }); },
        [&] { k.parallel({64}, [&](Value j) { y(r, j) = -1.0f; }); });
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "arena") == 0);
  CHECK(count(text, "load<4>(&rows") == 2);  // all threads load all eight
  const HostTensor at = tensor_of(DType::i32, {8}, {3, -1, 15, 0, 7, -5, 2, 3});
  const HostTensor in = iota(DType::f32, {16, 64});
  const HostTensor out(DType::f32, {8, 64});
  run_kernel(kernel, {&at, &in, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               const double row = at.value(i / 64);
               return row < 0 ? -1.0 : row * 64 + static_cast<double>(i % 64);
             }));
}

TEST_CASE("a large fragment, and a row sum, read by every thread (I14)", "[language]") {
  Builder k("row_sum");
  auto x = k.input("x", DType::f32, {8, 64});
  auto y = k.output("y", DType::f32, {8, 64});
  k.launch({1}, {.threads = 128});
  auto tile = k.fragment(DType::f32, {8, 64}, "tile");
  auto sums = k.fragment(DType::f32, {8}, "sums");
  k.copy(x, tile);
  k.reduce_sum(tile, sums, Axis(1));
  const Value first = tile(0, 0);
  const Value third = sums(3);
  k.parallel({8, 64}, [&](Value i, Value j) { y(i, j) = tile(i, j) * third + first; });
  const ir::Kernel kernel = k.finish();
  CHECK(says(kernel, "'tile' goes through shared memory"));
  CHECK(says(kernel, "'sums' goes through shared memory"));
  const HostTensor in = small_integers(DType::f32, {8, 64});
  const HostTensor out(DType::f32, {8, 64});
  run_kernel(kernel, {&in, &out});
  double sum = 0;
  for (int64_t j = 0; j < 64; ++j) sum += in.value(3 * 64 + j);
  CHECK_THAT(out, HasValues([&](int64_t i) { return in.value(i) * sum + in.value(0); }));
}

TEST_CASE("a product becomes the left operand of the next one (I15)", "[language][gemm][slow]") {
  // Once through an elementwise loop, once directly.
  for (const bool direct : {false, true}) {
    CAPTURE(direct);
    const DType operand = direct ? DType::f32 : DType::bf16;
    Builder k("chain");
    auto a = k.input("a", operand, {32, 16});
    auto b = k.input("b", operand, {16, 32});
    auto y = k.output("y", DType::f32, {32, 32});
    k.launch({1}, {.threads = 128});
    auto left = k.shared(operand, {32, 16}, "left");
    auto right = k.shared(operand, {16, 32}, "right");
    auto first = k.fragment(DType::f32, {32, 32}, "first");
    auto second = k.fragment(DType::f32, {32, 32}, "second");
    k.copy(a, left);
    k.copy(b, right);
    k.fill(first, 0.0f);
    k.fill(second, 0.0f);
    k.gemm(left, right, first);
    auto wide = k.shared(operand, {32, 32}, "wide");
    k.fill(wide, 1.0f);
    if (direct) {
      k.gemm(first, wide, second);
    } else {
      auto scaled = k.fragment(DType::bf16, {32, 32}, "scaled");
      k.parallel({32, 32},
                 [&](Value i, Value j) { scaled(i, j) = cast(DType::bf16, first(i, j) * 0.5f); });
      k.gemm(scaled, wide, second);
    }
    k.copy(second, y);
    const ir::Kernel kernel = k.finish();
    CHECK(says(kernel, direct ? "'first' goes through shared memory"
                              : "'scaled' goes through shared memory"));
    const HostTensor x = small_integers(operand, {32, 16});
    const HostTensor w = small_integers(operand, {16, 32});
    const HostTensor out(DType::f32, {32, 32});
    run_kernel(kernel, {&x, &w, &out});
    std::vector<double> middle = product(values_of(x), values_of(w), 32, 16, 32);
    for (double& value : middle) value *= direct ? 1.0 : 0.5;
    const std::vector<double> want = product(middle, std::vector<double>(32 * 32, 1.0), 32, 32, 32);
    CHECK(values_of(out) == want);
  }
}

TEST_CASE("what a loop narrows goes through shared memory narrow, computed once",
          "[language][gemm]") {
  // p = s + (largest of its row) / 4, as bf16, in one half of the columns or in all.
  const int64_t half = GENERATE(1, 2);
  CAPTURE(half);
  Builder k("narrowed");
  auto a = k.input("a", DType::bf16, {64, 64});
  auto v = k.input("v", DType::bf16, {64, 256});
  auto y = k.output("y", DType::f32, {64, 256});
  k.launch({1}, {.threads = 256});
  auto left = k.shared(DType::bf16, {64, 64}, "left");
  auto right = k.shared(DType::bf16, {64, 256}, "right");
  auto s = k.fragment(DType::f32, {64, 64}, "s");
  auto p = k.fragment(DType::bf16, {64, 64}, "p");
  auto most = k.fragment(DType::f32, {64}, "most");
  auto out = k.fragment(DType::f32, {64, 256}, "out");
  k.copy(a, left);
  k.copy(v, right);
  k.fill(s, 0.0f);
  k.fill(p, 1.0f);
  k.fill(out, 0.0f);
  k.gemm(left, left.transposed(), s);
  k.reduce_max(s, most, Axis(1));
  k.parallel({64, 64 / half},
             [&](Value i, Value j) { p(i, j) = cast(DType::bf16, s(i, j) + most(i) * 0.25f); });
  k.gemm(p, right, out);
  k.copy(out, y);
  const ir::Kernel kernel = k.finish();
  // A loop that does not overwrite the whole fragment reads what it converts from shared memory.
  CHECK(says(kernel, "'p' goes through shared memory") == (half == 1));
  int64_t staged = 0;
  for (const codegen::ArrayRef& array : codegen::lower(kernel, {8, 0, 0}).shared) {
    if (array->name.find("_staged") != std::string::npos)
      staged += array->size * bits(array->dtype) / 8;
  }
  CHECK(staged == (half == 1 ? 64 * 64 * 2 : 64 * 64 * 4 + 64 * 4));
  const HostTensor x = small_integers(DType::bf16, {64, 64});
  const HostTensor w = small_integers(DType::bf16, {64, 256});
  const HostTensor result(DType::f32, {64, 256});
  run_kernel(kernel, {&x, &w, &result});
  std::vector<double> transposed(64 * 64);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 64; ++j) transposed[j * 64 + i] = values_of(x)[i * 64 + j];
  }
  std::vector<double> middle = product(values_of(x), transposed, 64, 64, 64);
  for (size_t i = 0; i < 64; ++i) {
    const auto row = middle.begin() + static_cast<std::ptrdiff_t>(i * 64);
    const double largest = *std::max_element(row, row + 64);
    for (size_t j = 0; j < 64; ++j) {
      double& value = middle[i * 64 + j];
      const auto sum = static_cast<float>(value + largest * 0.25);
      value = j < 64 / static_cast<size_t>(half)
                  ? small_float::Bf16::decode(small_float::Bf16::encode(sum))
                  : 1.0;
    }
  }
  const std::vector<double> want = product(middle, values_of(w), 64, 64, 256);
  CHECK_THAT(result, HasValues([&](int64_t i) { return want[static_cast<size_t>(i)]; }));
}

TEST_CASE("unrelated statements in another order give the same layouts and the same text (I16)",
          "[language]") {
  const auto build = [](bool swapped) {
    Builder k("two");
    auto x = k.input("x", DType::f32, {64, 96});
    auto z = k.input("z", DType::f32, {32, 128});
    auto y = k.output("y", DType::f32, {64});
    auto v = k.output("v", DType::f32, {32});
    k.launch({1}, {.threads = 128});
    const auto rows = [&](const dsl::Ref& from, const dsl::Ref& to, int64_t r, int64_t c,
                          const std::string& name) {
      auto tile = k.fragment(DType::f32, {r, c}, name + "_tile");
      auto sums = k.fragment(DType::f32, {r}, name + "_sums");
      k.copy(from, tile);
      k.reduce_sum(tile, sums, Axis(1));
      k.copy(sums, to);
    };
    if (swapped) rows(z, v, 32, 128, "z");
    rows(x, y, 64, 96, "x");
    if (!swapped) rows(z, v, 32, 128, "z");
    return k.finish();
  };
  const auto layouts_of = [](const ir::Kernel& kernel) {
    std::vector<std::string> lines;
    std::string text = codegen::explain(kernel);
    text = text.substr(text.find("fragments\n") + 10);
    for (size_t at = 0; text.compare(at, 2, "  ") == 0; at = text.find('\n', at) + 1) {
      lines.push_back(text.substr(at, text.find('\n', at) - at));
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  CHECK(layouts_of(build(false)).size() == 4);
  CHECK(layouts_of(build(false)) == layouts_of(build(true)));
  const std::string text = cuda_text(build(false));
  cuda_text(build(true));
  CHECK(cuda_text(build(false)) == text);
}

TEST_CASE("the author's layout of a fragment gives 16-byte stores at a guarded edge (I17)",
          "[language]") {
  // A 4 x 4 patch per thread of a 64 x 64 tile.
  const auto patches = layout::from_function({64, 64}, [](const std::vector<int64_t>& at) {
    return layout::Place{at[0] / 4 * 16 + at[1] / 4, at[0] % 4 * 4 + at[1] % 4};
  });
  REQUIRE(patches.has_value());
  Builder k("edge");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {rows, 64});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 256});
  auto tile = k.fragment(DType::f32, *patches, "tile");
  k.copy(x.tile({at.x * 64, 0}, {64, 64}), tile);
  k.copy(tile, y.tile({at.x * 64, 0}, {64, 64}));
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "load_here_or_zero<4>") == 1);
  CHECK(count(text, "store<4>") == 1);
  CHECK(count(text, "s < 4") == 2);
  const HostTensor in = iota(DType::f32, {70, 64});
  const HostTensor out(DType::f32, {70, 64});
  run_kernel(kernel, {&in, &out});
  CHECK(values_of(out) == values_of(in));
}

TEST_CASE("the author's rows per lane hold 48 slots and are told what they cost (I18, E16)",
          "[language]") {
  const auto rows_in_turn = layout::from_function({64, 24}, [](const std::vector<int64_t>& at) {
    return layout::Place{at[0] % 32, at[0] / 32 * 24 + at[1]};
  });
  REQUIRE(rows_in_turn.has_value());
  Builder k("rows_in_turn");
  auto x = k.input("x", DType::f32, {64, 24});
  auto y = k.output("y", DType::f32, {64, 24});
  k.launch({1}, {.threads = 32});
  auto tile = k.fragment(DType::f32, *rows_in_turn, "tile");
  k.copy(x, tile);
  k.copy(tile, y);
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "float tile[48]") == 1);
  CHECK(says(kernel, "warnings: uncoalesced accesses"));
  CHECK(says(kernel, "'x': 32 sectors of 32 bytes per request, its bytes fill 16"));
  const HostTensor in = iota(DType::f32, {64, 24});
  const HostTensor out(DType::f32, {64, 24});
  run_kernel(kernel, {&in, &out});
  CHECK(values_of(out) == values_of(in));
}

TEST_CASE("index values by let stay digits: vectors, registers and guards see through them",
          "[language]") {
  Builder k("let");
  auto x = k.input("x", DType::f32, {4, 256});
  auto y = k.output("y", DType::f32, {4, 256});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {4, 256}, "tile");
  k.copy(x, tile);
  k.parallel({4, 2, 128}, [&](Value i, Value half, Value j) {
    const Value column = k.let("column", half * 128 + j);
    y(i, column) = tile(i, column) * 2.0f;
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "store<4>") == 1);
  CHECK(count(text, "arena") == 0);
  const HostTensor in = iota(DType::f32, {4, 256});
  const HostTensor out(DType::f32, {4, 256});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 2 * i; }));
}

TEST_CASE("two warp grids on one product are the author's conflict", "[language][gemm]") {
  const std::string text = error_of([] {
    Builder k("conflict");
    k.launch({1}, {.threads = 128});
    auto left = k.shared(DType::bf16, {64, 32}, "left");
    auto right = k.shared(DType::bf16, {32, 64}, "right");
    auto sum = k.fragment(DType::f32, {64, 64}, "sum");
    k.fill(left, 0.0f);
    k.fill(right, 0.0f);
    k.fill(sum, 0.0f);
    k.gemm(left, right, sum, {.warp_rows = 4});
    k.gemm(left, right, sum, {.warp_rows = 1});
    codegen::lower(k.finish());
  });
  CAPTURE(text);
  CHECK(text.find("[LAYOUT_CONFLICT]") != std::string::npos);
  CHECK(text.find("but the gemm needs") != std::string::npos);
}

TEST_CASE("work of the whole block inside a parallel loop is explained", "[language][gemm]") {
  const std::string text = error_of([] {
    Builder k("nested");
    k.launch({1}, {.threads = 32});
    auto left = k.shared(DType::bf16, {16, 16}, "left");
    auto sum = k.fragment(DType::f32, {16, 16}, "sum");
    k.parallel({16}, [&](Value) { k.gemm(left, left.transposed(), sum); });
    codegen::lower(k.finish());
  });
  CAPTURE(text);
  CHECK(text.find("[NESTED_PARALLEL]") != std::string::npos);
  CHECK(text.find("a matrix product inside a parallel loop") != std::string::npos);
}

TEST_CASE("a store to a fragment outside of parallel loops is explained", "[language]") {
  const std::string text = error_of([] {
    Builder k("outside");
    k.launch({1}, {.threads = 32});
    auto f = k.fragment(DType::f32, {32}, "f");
    f(0) = 1.0f;
    codegen::lower(k.finish());
  });
  CAPTURE(text);
  CHECK(text.find("[FRAG_OUTSIDE_PARALLEL]") != std::string::npos);
  CHECK(text.find("fragment 'f' is written outside a parallel loop") != std::string::npos);
  CHECK(text.find("write it in k.parallel({extents}, ...)") != std::string::npos);
}

TEST_CASE("views of one fragment may cut its rows into groups of 4 and of 3", "[language]") {
  const int threads = GENERATE(32, 96);
  CAPTURE(threads);
  Builder k("groups_of_two_sizes");
  auto x = k.input("x", DType::i32, {32, 24});
  auto fours = k.output("fours", DType::i32, {32, 6});
  auto threes = k.output("threes", DType::i32, {32, 8});
  k.launch({1}, {.threads = threads});
  auto tile = k.fragment(DType::i32, {32, 24}, "tile");
  auto sum_of_4 = k.fragment(DType::i32, {32, 6}, "sum_of_4");
  auto sum_of_3 = k.fragment(DType::i32, {32, 8}, "sum_of_3");
  k.copy(x, tile);
  k.reduce_sum(tile.reshape({32, 6, 4}), sum_of_4, dsl::Axis(2));
  k.reduce_sum(tile.reshape({32, 8, 3}), sum_of_3, dsl::Axis(2));
  k.copy(sum_of_4, fours);
  k.copy(sum_of_3, threes);
  const HostTensor source = iota(DType::i32, {32, 24});
  const HostTensor by_4(DType::i32, {32, 6});
  const HostTensor by_3(DType::i32, {32, 8});
  run_kernel(k.finish(), {&source, &by_4, &by_3});
  CHECK_THAT(by_4, HasValues([](int64_t i) { return 16 * i + 6; }));
  CHECK_THAT(by_3, HasValues([](int64_t i) { return 9 * i + 3; }));
}

TEST_CASE("parts of a product at constant places are read and written in registers", "[language]") {
  // Each part of 16 rows: the old values to y, then doubled. Parts of 16 rows at 8 do not fit.
  for (const int64_t first : {0, 8}) {
    CAPTURE(first);
    Builder k("parts");
    auto a = k.input("a", DType::bf16, {64, 16}), b = k.input("b", DType::bf16, {16, 32});
    auto y = k.output("y", DType::f32, {64, 32}), z = k.output("z", DType::f32, {64, 32});
    k.launch({1}, {.threads = 128});
    auto left = k.shared(DType::bf16, {64, 16}, "left");
    auto right = k.shared(DType::bf16, {16, 32}, "right");
    auto sum = k.fragment(DType::f32, {64, 32}, "sum");
    k.copy(a, left), k.copy(b, right), k.fill(sum, 0.0f);
    k.gemm(left, right, sum, {.warp_columns = 4});
    k.copy(sum, y);
    for (int64_t row = first; row + 16 <= 64; row += 16) {
      k.copy(sum.tile({row, 0}, {16, 32}), y.tile({row, 0}, {16, 32}));
      k.parallel({16, 32}, [&](Value i, Value j) { sum(i + row, j) *= 2.0f; });
    }
    k.copy(sum, z);
    const ir::Kernel kernel = k.finish();
    CHECK(says(kernel, "goes through shared memory") == (first != 0));
    const HostTensor in = small_integers(DType::bf16, {64, 16});
    const HostTensor weights = small_integers(DType::bf16, {16, 32});
    const HostTensor out(DType::f32, {64, 32}), twice(DType::f32, {64, 32});
    run_kernel(kernel, {&in, &weights, &out, &twice});
    const std::vector<double> want = product(values_of(in), values_of(weights), 64, 16, 32);
    CHECK(values_of(out) == want);
    CHECK_THAT(twice, HasValues([&](int64_t i) {
                 const bool is_doubled = i / 32 >= first && i / 32 < 64 - first;
                 return want[static_cast<size_t>(i)] * (is_doubled ? 2 : 1);
               }));
  }
}

TEST_CASE("parts of a fragment whose rows lie in threads are right too", "[language]") {
  for (const int threads : {32, 64, 128}) {
    CAPTURE(threads);
    Builder k("parts");
    auto x = k.input("x", DType::f32, {64, 8});
    auto y = k.output("y", DType::f32, {64, 8});
    k.launch({1}, {.threads = threads});
    auto f = k.fragment(DType::f32, {64, 8}, "f");
    k.copy(x, f);
    for (int64_t row = 16; row < 64; row += 16) {
      k.parallel({16, 8}, [&](Value i, Value j) { f(i + row, j) += 1.0f; });
    }
    k.parallel({32, 8}, [&](Value i, Value j) { f(32 + i, j) *= 2.0f; });
    k.copy(f, y);
    const HostTensor in = small_integers(DType::f32, {64, 8}), out(DType::f32, {64, 8});
    run_kernel(k.finish(), {&in, &out});
    CHECK_THAT(
        out, HasValues([&](int64_t i) { return (in.value(i) + (i >= 128)) * (i >= 256 ? 2 : 1); }));
  }
}
