// Tile programs whose point is where the compiler puts elements: plain splits, reductions, ragged
// shapes, broadcasts.

#include <cmath>

#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Value;

namespace {

/// y[r] = reduction of x[r, :] over one block of `threads`.
ir::Kernel reduce_rows(int64_t rows, int64_t cols, int threads, ir::ReduceOp op,
                       DType dtype = DType::f32) {
  Builder k("reduce_rows");
  auto x = k.input("x", dtype, {rows, cols});
  auto y = k.output("y", dtype, {rows});
  k.launch({1}, {.threads = threads});
  auto tile = k.fragment(dtype, {rows, cols}, "tile");
  auto result = k.fragment(dtype, {rows}, "result");
  k.copy(x, tile);
  if (op == ir::ReduceOp::sum) k.reduce_sum(tile, result, Axis(1));
  if (op == ir::ReduceOp::max) k.reduce_max(tile, result, Axis(1));
  if (op == ir::ReduceOp::min) k.reduce_min(tile, result, Axis(1));
  if (op == ir::ReduceOp::absmax) k.reduce_absmax(tile, result, Axis(1));
  k.copy(result, y);
  return k.finish();
}

ir::Kernel reduce_columns(int64_t rows, int64_t cols, int threads, bool take_max) {
  Builder k("reduce_columns");
  auto x = k.input("x", DType::i32, {rows, cols});
  auto y = k.output("y", DType::i32, {cols});
  k.launch({1}, {.threads = threads});
  auto tile = k.fragment(DType::i32, {rows, cols}, "tile");
  auto result = k.fragment(DType::i32, {cols}, "result");
  k.copy(x, tile);
  if (take_max) {
    k.reduce_max(tile, result, Axis(0));
  } else {
    k.reduce_sum(tile, result, Axis(0));
  }
  k.copy(result, y);
  return k.finish();
}

}  // namespace

TEST_CASE("copy, scale and copy back of 64 x 128 uses 16-byte vectors and no barrier (I01)",
          "[language]") {
  Builder k("scale");
  auto x = k.input("x", DType::f32, {64, 128});
  auto y = k.output("y", DType::f32, {64, 128});
  k.launch({1}, {.threads = 256});
  auto tile = k.fragment(DType::f32, {64, 128}, "tile");
  k.copy(x, tile);
  k.parallel({64, 128}, [&](Value i, Value j) { tile(i, j) = tile(i, j) * 2.0f; });
  k.copy(tile, y);
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "load<4>") == 1);
  CHECK(count(text, "store<4>") == 1);
  CHECK(count(text, "s < 8") == 3);  // 8 vectors per thread in each of the three loops
  CHECK(count(text, "__syncthreads") == 0);
  const HostTensor in = iota(DType::f32, {64, 128});
  const HostTensor out(DType::f32, {64, 128});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 2 * i; }));
}

TEST_CASE("row sum of 64 x 128 follows the documented tree without shared memory (I02)",
          "[language]") {
  const ir::Kernel kernel = reduce_rows(64, 128, 256, ir::ReduceOp::sum);
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "arena") == 0);
  CHECK(count(text, "__syncthreads") == 0);
  const HostTensor in =
      tensor_by(DType::f32, {64, 128}, [](int64_t i) { return 1.0 / static_cast<double>(i + 3); });
  const HostTensor out(DType::f32, {64});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([&](int64_t row) {
               float lanes[32] = {};
               for (int64_t i = 0; i < 128; ++i) {
                 lanes[i / 4] += static_cast<float>(in.value(row * 128 + i));
               }
               for (int distance = 16; distance > 0; distance /= 2) {
                 float next[32];
                 for (int l = 0; l < 32; ++l) next[l] = lanes[l] + lanes[l ^ distance];
                 std::copy(next, next + 32, lanes);
               }
               return lanes[0];
             }));
}

TEST_CASE("column sum crosses warps with at most two barriers (I03)", "[language]") {
  const ir::Kernel kernel = reduce_columns(64, 128, 256, false);
  CHECK(count(cuda_text(kernel), "__syncthreads") <= 2);
  const HostTensor in = iota(DType::i32, {64, 128});
  const HostTensor out(DType::i32, {128});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t j) { return 64 * j + 128 * (63 * 64 / 2); }));
}

TEST_CASE("rows that span all warps need one exchange (I04)", "[language]") {
  const ir::Kernel kernel = reduce_rows(8, 1024, 256, ir::ReduceOp::sum, DType::i32);
  CHECK(count(cuda_text(kernel), "__syncthreads") <= 2);
  const HostTensor in = iota(DType::i32, {8, 1024});
  const HostTensor out(DType::i32, {8});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t r) { return r * 1024 * 1024 + 1024 * 1023 / 2; }));
}

TEST_CASE("ragged shapes compile and reduce every element once (I05)", "[language][slow]") {
  struct Shape {
    int64_t rows, cols;
    int threads;
  };
  for (const Shape& s :
       {Shape{64, 96, 256}, Shape{1, 229, 128}, Shape{1, 96, 128}, Shape{3, 50, 64},
        Shape{5, 7, 96}, Shape{1, 1, 32}, Shape{33, 3, 128}, Shape{2, 640, 128}}) {
    CAPTURE(s.rows, s.cols, s.threads);
    HostTensor in(DType::i32, {s.rows, s.cols});
    std::vector<double> sums(static_cast<size_t>(s.rows), 0.0);
    std::vector<double> lowest(static_cast<size_t>(s.rows), 1e9);
    for (int64_t i = 0; i < in.size(); ++i) {
      const double value = static_cast<double>((i * 7919) % 1001 + 5);
      in.set_value(i, value);
      const auto row = static_cast<size_t>(i / s.cols);
      sums[row] += value;
      lowest[row] = std::min(lowest[row], value);
    }
    const HostTensor out(DType::i32, {s.rows});
    run_kernel(reduce_rows(s.rows, s.cols, s.threads, ir::ReduceOp::sum, DType::i32), {&in, &out});
    CHECK(values_of(out) == sums);
    run_kernel(reduce_rows(s.rows, s.cols, s.threads, ir::ReduceOp::min, DType::i32), {&in, &out});
    CHECK(values_of(out) == lowest);
  }
}

TEST_CASE("maximum over the first axis for block sizes that are not powers of two (I06)",
          "[language]") {
  for (const int threads : {96, 192, 256}) {
    CAPTURE(threads);
    const HostTensor in = iota(DType::i32, {32, 3});
    const HostTensor out(DType::i32, {3});
    run_kernel(reduce_columns(32, 3, threads, true), {&in, &out});
    CHECK(values_of(out) == std::vector<double>{93, 94, 95});
  }
}

TEST_CASE("48 threads along the reduced axis add 1 to 48 to 1176 (I07)", "[language]") {
  std::vector<double> values;
  for (int i = 1; i <= 48; ++i) values.push_back(i);
  const HostTensor in = tensor_of(DType::i32, {1, 48}, values);
  const HostTensor out(DType::i32, {1});
  run_kernel(reduce_rows(1, 48, 96, ir::ReduceOp::sum, DType::i32), {&in, &out});
  CHECK(out.value(0) == 1176);
}

TEST_CASE("grouped sums through a reshaped fragment count nothing twice (I08)", "[language]") {
  Builder k("grouped");
  auto x = k.input("x", DType::i32, {2, 192});
  auto y = k.output("y", DType::i32, {2, 6});
  k.launch({1}, {.threads = 128});
  auto tile = k.fragment(DType::i32, {2, 192}, "tile");
  auto sums = k.fragment(DType::i32, {2, 6}, "sums");
  k.copy(x, tile);
  k.reduce_sum(tile.reshape({2, 6, 32}), sums, Axis(2));
  k.copy(sums, y);
  const HostTensor in = iota(DType::i32, {2, 192});
  const HostTensor out(DType::i32, {2, 6});
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t g) { return g * 32 * 32 + 31 * 16; }));
}

TEST_CASE("a row value and a column value are broadcast without shared memory (I09)",
          "[language]") {
  Builder k("broadcast");
  auto x = k.input("x", DType::f32, {64, 128});
  auto c = k.input("c", DType::f32, {128});
  auto y = k.output("y", DType::f32, {64, 128});
  k.launch({1}, {.threads = 256});
  auto f = k.fragment(DType::f32, {64, 128}, "f");
  auto m = k.fragment(DType::f32, {64}, "m");
  auto scale = k.fragment(DType::f32, {128}, "scale");
  k.copy(x, f);
  k.reduce_max(f, m, Axis(1));
  k.copy(c, scale);
  k.parallel({64, 128}, [&](Value i, Value j) { f(i, j) = (f(i, j) - m(i)) * scale(j); });
  k.copy(f, y);
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "arena") == 0);
  const HostTensor in = iota(DType::f32, {64, 128});
  const HostTensor column = iota(DType::f32, {128});
  const HostTensor out(DType::f32, {64, 128});
  run_kernel(kernel, {&in, &column, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return (i % 128 - 127) * (i % 128); }));
}

TEST_CASE("reductions drop NaN, and absmax of bf16 may be folded in f32", "[language]") {
  Builder k("absmax");
  auto x = k.input("x", DType::bf16, {4, 64});
  auto y = k.output("y", DType::f32, {4});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::bf16, {4, 64}, "tile");
  auto amax = k.fragment(DType::f32, {4}, "amax");
  k.copy(x, tile);
  k.reduce_absmax(tile, amax, Axis(1));
  k.copy(amax, y);
  HostTensor in(DType::bf16, {4, 64});
  for (int64_t i = 0; i < in.size(); ++i)
    in.set_value(i, i % 64 == 9 ? -static_cast<double>(i) : 0.25);
  for (int64_t i = 128; i < 192; ++i) in.set_bits(i, 0x7FC0);  // a row of NaN
  const HostTensor out(DType::f32, {4});
  run_kernel(k.finish(), {&in, &out});
  CHECK(values_of(out) == std::vector<double>{9, 73, 0, 201});
}

TEST_CASE("a fragment with the author's layout is kept, and a collision is named", "[language]") {
  const auto cyclic = layout::from_function({64}, [](const std::vector<int64_t>& i) {
    return layout::Place{i[0] % 32, i[0] / 32};
  });
  REQUIRE(cyclic.has_value());
  Builder k("own_layout");
  auto x = k.input("x", DType::i32, {64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 32});
  auto tile = k.fragment(DType::i32, *cyclic, "tile");
  k.copy(x, tile);
  k.copy(tile, y);
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "load<") == 0);  // a cyclic layout leaves no vectors
  const HostTensor in = iota(DType::i32, {64});
  const HostTensor out(DType::i32, {64});
  run_kernel(kernel, {&in, &out});
  CHECK(values_of(out) == values_of(in));

  Builder bad("bad_layout");
  bad.launch({1}, {.threads = 32});
  const layout::Layout colliding({64}, {{0, 1, 32, 1, 0}});
  const std::string text = error_of([&] { bad.fragment(DType::i32, colliding, "tile"); });
  CHECK(text.find("[LAYOUT_NOT_INJECTIVE]") != std::string::npos);
  CHECK(text.find("(0) and (32) both in thread 0 slot 0") != std::string::npos);
}

TEST_CASE("a layout of more threads than the block has is refused, before launch() as behind it",
          "[language]") {
  const layout::Layout wide = layout::split({256}, 256, 1);
  const auto message = [&](int threads, bool before) {
    return error_of([&] {
      Builder k("wide_layout");
      if (before) k.fragment(DType::f32, wide, "tile");
      k.launch({1}, {.threads = threads});
      if (!before) k.fragment(DType::f32, wide, "tile");
    });
  };
  const bool before = GENERATE(true, false);
  CAPTURE(before);
  const std::string text = message(128, before);
  CHECK(text.find("[LAYOUT_THREADS]") != std::string::npos);
  CHECK(text.find("at most 128") != std::string::npos);
  CHECK(text.find("layouts_test.cpp") != std::string::npos);
  CHECK(message(256, before).empty());
}

TEST_CASE("the same program gives the same text after others were lowered", "[language]") {
  const std::string first = cuda_text(reduce_rows(64, 96, 256, ir::ReduceOp::sum));
  for (int64_t cols = 8; cols < 64; cols += 8)
    cuda_text(reduce_rows(4, cols, 64, ir::ReduceOp::max));
  CHECK(cuda_text(reduce_rows(64, 96, 256, ir::ReduceOp::sum)) == first);
}

TEST_CASE("two e2m1 codes of a byte stay in one thread where the other side has no vectors",
          "[language]") {
  Builder k("pack");
  auto rows = k.dim("rows");
  auto stride = k.stride("stride");  // of no known multiple
  auto x = k.input("x", DType::f32, {rows, 64}, {.strides = {stride, 1}, .align = 4});
  auto y = k.output("y", DType::e2m1, {rows, 64});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {4, 64}, "tile");
  k.copy(x.tile({at.x * 4, 0}, {4, 64}), tile);
  k.copy(tile, y.tile({at.x * 4, 0}, {4, 64}));
  HostTensor in(DType::f32, {5, 64}, {67, 1});
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, values[i * 5 % 8]);
  const HostTensor out(DType::i8, {5, 32});
  const TensorView views[] = {in.view(), {out.view().data, DType::e2m1, {5, 64}}};
  kernels::jit::run(k.finish(), views, {}, nullptr);
  for (int64_t i = 0; i < out.size(); ++i) {
    REQUIRE(out.bits(i) == static_cast<uint64_t>(i * 10 % 8 + (i * 10 + 5) % 8 * 16));
  }
}

TEST_CASE("a thread's 4 x 4 piece is read along rows and written along columns, as vectors",
          "[language]") {
  Builder k("turn");
  auto x = k.input("x", DType::f32, {32, 32});
  auto y = k.output("y", DType::f32, {32, 32});
  k.launch({1}, {.threads = 64});
  // registers: row * 4 + col; eight threads down, eight across
  const layout::Layout pieces({32, 32},
                              {{0, 1, 4, 0, 4}, {0, 4, 8, 1, 0}, {1, 1, 4, 0, 1}, {1, 4, 8, 8, 0}});
  auto tile = k.fragment(DType::f32, pieces, "tile");
  k.copy(x, tile);
  k.parallel({32, 32}, [&](Value col, Value row) { y(col, row) = tile(row, col) * 2.0f; });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "load<4>(") == 1);
  CHECK(count(text, "store<4>(&y[") == 1);
  const HostTensor in = iota(DType::f32, {32, 32});
  const HostTensor out(DType::f32, {32, 32});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 2 * (i % 32 * 32 + i / 32); }));
}

TEST_CASE("runs of 8 bytes where runs of 16 suit one loop only", "[language]") {
  // Runs of 8 bf16 do not suit the weights, whose layout the sums of both axes share.
  constexpr int64_t kColumns = 1024;
  Builder k("scaled_rows");
  auto x = k.input("x", DType::bf16, {2, kColumns});
  auto w = k.input("w", DType::f32, {kColumns});
  auto y = k.output("y", DType::bf16, {2, kColumns});
  auto columns = k.output("columns", DType::f32, {kColumns});
  k.launch({1}, {.threads = 256});
  auto weights = k.fragment(DType::f32, {kColumns}, "weights");
  auto f = k.fragment(DType::f32, {2, kColumns}, "f"), sum = k.fragment(DType::f32, {2}, "sum");
  auto part = k.fragment(DType::f32, {kColumns}, "part");
  k.copy(w, weights);
  k.copy(x, f);
  k.reduce_sum(f, sum, Axis(1));
  k.parallel({2, kColumns}, [&](Value i, Value j) {
    const Value scaled = f(i, j) * weights(j);
    y(i, j) = dsl::cast(DType::bf16, scaled - sum(i));
  });
  k.reduce_sum(f, part, Axis(0));
  k.copy(part, columns);
  const ir::Kernel kernel = k.finish();
  const std::string explained = codegen::explain(kernel);
  CHECK(count(explained, ": x: 4 x bf16, proved") == 1);
  CHECK(count(explained, ": y: 4 x bf16, proved") == 1);
  const HostTensor in = tensor_by(DType::bf16, {2, kColumns}, [](int64_t i) { return i % 3 - 1; });
  const HostTensor scale = tensor_by(DType::f32, {kColumns}, [](int64_t i) { return i % 5; });
  const HostTensor out(DType::bf16, {2, kColumns}), sums(DType::f32, {kColumns});
  run_kernel(kernel, {&in, &scale, &out, &sums});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               double row = 0;
               for (int64_t j = 0; j < kColumns; ++j) row += in.value(i / kColumns * kColumns + j);
               return in.value(i) * scale.value(i % kColumns) - row;
             }));
  CHECK_THAT(sums, HasValues([&](int64_t j) { return in.value(j) + in.value(kColumns + j); }));
}
