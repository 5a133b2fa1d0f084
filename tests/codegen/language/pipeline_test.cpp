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
