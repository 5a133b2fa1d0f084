// Persistent loops whose tiles are about 2^31 and more, and whose extents the kernel reads.

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

namespace tessera::codegen {
namespace {

using dsl::Builder;
using dsl::Value;
using test::HostTensor;

constexpr auto kI32 = DType::i32;
constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();

/// Lets the persistent loop of a kernel begin `skipped` tiles later: the executor does not run 2^31.
ir::Kernel without_first(ir::Kernel kernel, int64_t skipped) {
  for (ir::Stmt& stmt : kernel.body) {
    auto* loop = std::get_if<ir::Loop>(&stmt.node);
    if (loop == nullptr) continue;
    loop->begin = loop->begin + ir::constant(loop->begin->type, skipped);
    return kernel;
  }
  FAIL("no loop");
  return kernel;
}

HostTensor numbers(const std::vector<double>& values) {
  return test::tensor_of(kI32, {static_cast<int64_t>(values.size())}, values);
}

HostTensor zeros(const Dims& shape) {
  return test::tensor_of(kI32, shape,
                         std::vector<double>(static_cast<size_t>(num_elements(shape)), 0));
}

/// Counts the tiles of a walk over extents that the kernel reads: y has one of the last eight tiles per element. A tile
/// outside of the extents counts 1000.
ir::Kernel noting_kernel(int64_t first_row, int64_t first_column, dsl::PersistentOptions options) {
  Builder k("noting");
  auto ends = k.input("ends", kI32, {2});
  auto y = k.output("y", kI32, {8});
  k.launch({4}, {.threads = 32});
  auto rows = k.let("rows", ends(0)), columns = k.let("columns", ends(1));
  k.persistent(
      {rows, columns},
      [&](Value row, Value column) {
        auto place = k.let("place", row - first_row + (column - first_column));
        k.if_(k.thread() == 0,
              [&] { k.atomic_add(y(place), select(row < rows && column < columns, 1, 1000)); });
      },
      options);
  return k.finish();
}

void check_last_eight(const ir::Kernel& kernel, int64_t rows, int64_t columns) {
  const HostTensor ends = numbers({static_cast<double>(rows), static_cast<double>(columns)}),
                   y = zeros({8});
  test::run_kernel(without_first(kernel, rows * columns - 8), {&ends, &y});
  for (int64_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(y.value(i) == 1);
  }
}

}  // namespace

TEST_CASE("a persistent loop ends at an extent of 2^31 - 1 that the kernel reads", "[language]") {
  Builder k("line");
  auto ends = k.input("ends", kI32, {1});
  auto y = k.output("y", kI32, {8});
  k.launch({4}, {.threads = 32});
  k.persistent({k.let("end", ends(0))}, [&](Value tile) {
    k.if_(k.thread() == 0, [&] { k.atomic_add(y(tile - (kHighest - 8)), 1); });
  });
  const ir::Kernel kernel = k.finish();
  CHECK(test::count(test::cuda_text(kernel), "= next_index(") == 1);
  const HostTensor last = numbers({static_cast<double>(kHighest)}), counts = zeros({8});
  test::run_kernel(without_first(kernel, kHighest - 8), {&last, &counts});
  for (int64_t i = 0; i < 8; ++i) CHECK(counts.value(i) == 1);
}

TEST_CASE("2^32 tiles of extents that the kernel reads are walked to the last one", "[language]") {
  check_last_eight(noting_kernel(65535, 65529, {}), 65536, 65537);
  // The last group is one column wide: the tiles go down its rows.
  check_last_eight(noting_kernel(65528, 65536, {.group = 4}), 65536, 65537);
  CHECK(test::count(test::cuda_text(noting_kernel(0, 0, {})), "for (i64 tile") == 1);
}

TEST_CASE("a persistent loop has no tiles if an extent that the kernel reads is negative",
          "[language]") {
  const HostTensor ends = numbers({-2, -3}), y = zeros({8});
  test::run_kernel(noting_kernel(-2, -3, {}), {&ends, &y});
  for (int64_t i = 0; i < 8; ++i) CHECK(y.value(i) == 0);
}

TEST_CASE("blocks of a cluster share a walk over extents that the kernel reads", "[language]") {
  const auto tiles_of = [](bool is_read) {
    Builder k("sharing");
    auto rows = k.dim("rows"), columns = k.dim("columns");
    auto ends = k.input("ends", kI32, {2});
    auto y = k.output("y", kI32, {rows, columns});
    k.launch({4}, {.threads = 32, .cluster = 2});
    const auto note = [&](Value row, Value column) {
      k.if_(k.thread() == 0 && row < rows, [&] { k.atomic_add(y(row, column), 1); });
    };
    if (is_read) {
      k.persistent({k.let("rows_read", ends(0)), k.let("columns_read", ends(1))}, note,
                   {.group = 2, .share = 0});
    } else {
      k.persistent({rows, columns}, note, {.group = 2, .share = 0});
    }
    const HostTensor read = numbers({3, 5}), out = zeros({3, 5});
    test::run_kernel(k.finish(), {&read, &out});
    return out;
  };
  const HostTensor read = tiles_of(true), known = tiles_of(false);
  for (int64_t i = 0; i < 15; ++i) {
    CHECK(read.value(i) == 1);
    CHECK(known.value(i) == 1);
  }
}

}  // namespace tessera::codegen
