// Tile programs about asynchronous copies and pipelined loops.

#include <fmt/format.h>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Arg;
using dsl::AsyncToken;
using dsl::Builder;
using dsl::Value;

namespace {

/// y[r] = sum over tiles of x[tile, 63 - r]: every tile goes through shared memory, and each thread
/// reads what another one has copied.
ir::Kernel sum_of_tiles(int stages, int64_t static_tiles) {
  Builder k("sum_of_tiles");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", DType::i32, {tiles, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  const Arg end = static_tiles < 0 ? Arg(tiles - 1) : Arg(static_tiles);
  k.pipelined(0, end, stages, [&](Value i) {
    k.copy(x(i), tile);
    k.parallel({64}, [&](Value r) { sum(r) += tile(63 - r); });
  });
  k.copy(sum, y);
  return k.finish();
}

}  // namespace

TEST_CASE("P01 a pipelined loop equals the serial one for any depth and trip count", "[language]") {
  const int stages = GENERATE(1, 2, 3);
  const int trips = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8);
  const bool dynamic = GENERATE(false, true);
  CAPTURE(stages, trips, dynamic);
  const HostTensor x = iota(DType::i32, {trips + 1, 64});
  HostTensor y(DType::i32, {64});
  const ir::Kernel kernel = sum_of_tiles(stages, dynamic ? -1 : trips);
  run_kernel(kernel, {&x, &y});
  for (int64_t r = 0; r < 64; ++r) {
    double want = 0;
    for (int64_t tile = 0; tile < trips; ++tile) want += x.value(tile * 64 + 63 - r);
    CHECK(y.value(r) == want);
  }
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "copy_async<4>(") + count(text, "copy_async_or_zero<4>(") == 2);
  CHECK(count(text, fmt::format("wait_for_copies<{}>();", stages - 1)) == 1);
}

TEST_CASE("P01 a pipelined matrix product equals the product", "[language]") {
  constexpr int64_t kRows = 32, kColumns = 32, kDepth = 96;
  Builder k("pipelined_product");
  auto a = k.input("a", DType::bf16, {kRows, kDepth});
  auto b = k.input("b", DType::bf16, {kDepth, kColumns});
  auto c = k.output("c", DType::f32, {kRows, kColumns});
  k.launch({1}, {.threads = 64});
  auto a_tile = k.shared(DType::bf16, {kRows, 32}, "a_tile");
  auto b_tile = k.shared(DType::bf16, {32, kColumns}, "b_tile");
  auto sum = k.fragment(DType::f32, {kRows, kColumns}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, kDepth / 32, 2, [&](Value i) {
    k.copy(a.tile({0, i * 32}, {kRows, 32}), a_tile);
    k.copy(b.tile({i * 32, 0}, {32, kColumns}), b_tile);
    k.gemm(a_tile, b_tile, sum);
  });
  k.copy(sum, c);
  const ir::Kernel kernel = k.finish();
  HostTensor x(DType::bf16, {kRows, kDepth}), y(DType::bf16, {kDepth, kColumns});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, static_cast<double>(i % 7) - 3);
  for (int64_t i = 0; i < y.size(); ++i) y.set_value(i, static_cast<double>(i % 5) - 2);
  HostTensor result(DType::f32, {kRows, kColumns});
  run_kernel(kernel, {&x, &y, &result});
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      double want = 0;
      for (int64_t d = 0; d < kDepth; ++d) {
        want += x.value(row * kDepth + d) * y.value(d * kColumns + column);
      }
      CHECK(result.value(row * kColumns + column) == want);
    }
  }
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "copy_async<16>(") + count(text, "copy_async_or_zero<16>(") == 4);
}
