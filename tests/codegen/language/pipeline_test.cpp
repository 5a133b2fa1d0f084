// Tile programs about asynchronous copies and pipelined loops.

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Arg;
using dsl::AsyncToken;
using dsl::Builder;
using dsl::PipelineOptions;
using dsl::Ref;
using dsl::Value;

namespace {

/// y[r] = sum over tiles of x[tile, 63 - r]: every tile goes through shared memory, and each thread
/// reads what another one has copied.
ir::Kernel sum_of_tiles(PipelineOptions options, int64_t static_tiles) {
  Builder k("sum_of_tiles");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", DType::i32, {tiles, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  const Arg end = static_tiles < 0 ? Arg(tiles - 1) : Arg(static_tiles);
  k.pipelined(0, end, options, [&](Value i) {
    k.copy(x(i), tile);
    k.parallel({64}, [&](Value r) { sum(r) += tile(63 - r); });
  });
  k.copy(sum, y);
  return k.finish();
}

}  // namespace

TEST_CASE("a pipelined loop equals the serial one for any depth and trip count (P01)",
          "[language][slow]") {
  const int stages = GENERATE(1, 2, 3);
  const int trips = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8);
  const bool dynamic = GENERATE(false, true);
  const bool in_place = GENERATE(false, true);
  CAPTURE(stages, trips, dynamic, in_place);
  const HostTensor x = iota(DType::i32, {trips + 1, 64});
  HostTensor y(DType::i32, {64});
  const ir::Kernel kernel = sum_of_tiles(
      {.stages = in_place ? stages : stages + 1, .in_place = in_place}, dynamic ? -1 : trips);
  run_kernel(kernel, {&x, &y});
  CHECK_THAT(y, HasValues([&](int64_t r) {
               double want = 0;
               for (int64_t tile = 0; tile < trips; ++tile) want += x.value(tile * 64 + 63 - r);
               return want;
             }));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "copy_async<16>(") + count(text, "copy_async_or_zero<16>(") == 2);
  CHECK(count(text, fmt::format("wait_for_copies<{}>();", stages - 1)) == 1);
}

TEST_CASE("a pipelined matrix product equals the product (P01)", "[language][slow]") {
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
  k.pipelined(0, kDepth / 32, 3, [&](Value i) {
    k.copy(a.tile({0, i * 32}, {kRows, 32}), a_tile);
    k.copy(b.tile({i * 32, 0}, {32, kColumns}), b_tile);
    k.gemm(a_tile, b_tile, sum);
  });
  k.copy(sum, c);
  const ir::Kernel kernel = k.finish();
  const HostTensor x = tensor_by(DType::bf16, {kRows, kDepth}, [](int64_t i) { return i % 7 - 3; });
  const HostTensor y =
      tensor_by(DType::bf16, {kDepth, kColumns}, [](int64_t i) { return i % 5 - 2; });
  HostTensor result(DType::f32, {kRows, kColumns});
  run_kernel(kernel, {&x, &y, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               const int64_t row = i / kColumns, column = i % kColumns;
               double want = 0;
               for (int64_t d = 0; d < kDepth; ++d) {
                 want += x.value(row * kDepth + d) * y.value(d * kColumns + column);
               }
               return want;
             }));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "copy_async<16>(") + count(text, "copy_async_or_zero<16>(") == 4);
}

namespace {

/// y[r] = w[r] * (sum of x[tile, 63 - r]), with `between` after the loads of w and before the loop.
/// What the copies use is defined before the loads or, `defined_late`, behind them.
ir::Kernel weighted_sum(
    const std::function<void(Builder&, const Ref& out, const Value& tiles)>& between,
    bool defined_late = false) {
  Builder k("weighted_sum");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", DType::i32, {tiles, 64});
  auto w = k.input("w", DType::i32, {64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  auto weight = k.fragment(DType::i32, {64}, "weight");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  std::optional<Value> last;
  if (!defined_late) last = k.let("last", tiles - 1);
  k.copy(w, weight);
  if (defined_late) last = k.let("last", tiles - 1);
  if (between) between(k, y, tiles);
  k.fill(sum, 0);
  k.pipelined(0, tiles, 2, [&](Value i) {
    k.copy(x(*last - i), tile);
    k.parallel({64}, [&](Value r) { sum(r) += tile(63 - r); });
  });
  k.parallel({64}, [&](Value r) { y(r) = weight(r) * sum(r); });
  return k.finish();
}

/// Whether the first copy stands before the load of the weights.
bool copies_first(const ir::Kernel& kernel) {
  const std::string text = cuda_text(kernel);
  const size_t copy = text.find("copy_async<"), load = text.find("copy w -> weight");
  REQUIRE(copy != std::string::npos);
  REQUIRE(load != std::string::npos);
  return copy < load;
}

}  // namespace

TEST_CASE("the first copies of a pipelined loop are issued before what only fills registers",
          "[language]") {
  const ir::Kernel kernel = weighted_sum({});
  const HostTensor x = iota(DType::i32, {3, 64}), w = iota(DType::i32, {64});
  HostTensor y(DType::i32, {64});
  run_kernel(kernel, {&x, &w, &y});
  CHECK_THAT(y, HasValues([&](int64_t r) {
               double sum = 0;
               for (int64_t tile = 0; tile < 3; ++tile) sum += x.value(tile * 64 + 63 - r);
               return w.value(r) * sum;
             }));
  const std::string text = cuda_text(kernel);
  CHECK(text.find(" last = ") < text.find("copy_async<"));  // what the copies use stays in front
  CHECK(copies_first(kernel));
  CHECK(codegen::explain(kernel).find("the first copies are issued before pipeline_test.cpp") !=
        std::string::npos);
}

TEST_CASE("the first copies of a pipelined loop do not pass a wait, a return or a store",
          "[language]") {
  CHECK_FALSE(copies_first(weighted_sum({}, true)));  // nor what they use
  CHECK_FALSE(copies_first(
      weighted_sum([](Builder& k, const Ref&, const Value&) { k.wait_for_previous_kernel(); })));
  CHECK_FALSE(copies_first(weighted_sum([](Builder& k, const Ref&, const Value&) { k.sync(); })));
  CHECK_FALSE(copies_first(
      weighted_sum([](Builder& k, const Ref&, const Value& tiles) { k.return_if(tiles == 7); })));
  CHECK_FALSE(
      copies_first(weighted_sum([](Builder& k, const Ref& y, const Value&) { k.fill(y, 0); })));
  CHECK_FALSE(copies_first(
      weighted_sum([](Builder& k, const Ref&, const Value& tiles) { k.assume(tiles > 0); })));
}

TEST_CASE("copies with readers of their own keep other groups in flight (P02)", "[language]") {
  const bool in_place = GENERATE(false, true);
  CAPTURE(in_place);
  Builder k("two_tiles");
  auto x = k.input("x", DType::i32, {6, 64});
  auto z = k.input("z", DType::i32, {6, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto a = k.shared(DType::i32, {64}, "a");
  auto b = k.shared(DType::i32, {64}, "b");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, 6, {.stages = in_place ? 2 : 3, .in_place = in_place}, [&](Value i) {
    k.copy(x(i), a);
    k.copy(z(i), b);
    k.parallel({64}, [&](Value r) { sum(r) += a(63 - r); });
    k.parallel({64}, [&](Value r) { sum(r) += 2 * b(63 - r); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor first = iota(DType::i32, {6, 64});
  const HostTensor second = iota(DType::i32, {6, 64});
  HostTensor result(DType::i32, {64});
  run_kernel(kernel, {&first, &second, &result});
  CHECK_THAT(result, HasValues([&](int64_t r) {
               double want = 0;
               for (int64_t i = 0; i < 6; ++i) want += 3 * first.value(i * 64 + 63 - r);
               return want;
             }));
  // In place both groups are issued at the end: the second one is waited for with one less under way.
  CHECK(count(cuda_text(kernel), "wait_for_copies<3>();") == (in_place ? 1 : 2));
  CHECK(count(cuda_text(kernel), "wait_for_copies<2>();") == (in_place ? 1 : 0));
}

TEST_CASE("a pipelined loop in place overwrites a tile behind its last reader", "[language]") {
  constexpr int64_t kTiles = 7;
  Builder k("in_place");
  auto x = k.input("x", DType::i32, {kTiles, 64});
  auto y = k.output("y", DType::i32, {kTiles, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  auto turned = k.shared(DType::i32, {64}, "turned");
  k.pipelined(0, kTiles, {.stages = 2, .in_place = true}, [&](Value i) {
    k.copy(x(i), tile);
    k.parallel({64}, [&](Value r) { turned(r) = tile(63 - r); });
    k.parallel({64}, [&](Value r) { y(i, r) = 2 * turned((r + 1) % 64) + tile(r); });
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {kTiles, 64});
  HostTensor result(DType::i32, {kTiles, 64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return 2 * source.value(i / 64 * 64 + 63 - (i % 64 + 1) % 64) + source.value(i);
             }));
  const std::string text = cuda_text(kernel);
  const size_t loop = text.find("for (int s ");
  REQUIRE(loop != std::string::npos);
  const size_t last_read = text.find("y[", loop);
  REQUIRE(last_read != std::string::npos);
  CHECK(text.find("copy x -> tile", loop) > last_read);
  CHECK(codegen::explain(kernel).find("2 iterations ahead, 2 versions") != std::string::npos);
  CHECK(codegen::lower(kernel).shared_bytes == (2 + 1) * 64 * 4);
}

TEST_CASE("a tile that is read before it is overwritten stays where it is (P03)", "[language]") {
  Builder k("read_first");
  auto x = k.input("x", DType::i32, {5, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, 5, 3, [&](Value i) {
    k.if_(i > 0, [&] { k.parallel({64}, [&](Value r) { sum(r) += tile(63 - r); }); });
    k.copy(x(i), tile);
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {5, 64});
  HostTensor result(DType::i32, {64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t r) {
               double want = 0;
               for (int64_t i = 0; i < 4; ++i) want += source.value(i * 64 + 63 - r);
               return want;
             }));
  CHECK(codegen::explain(kernel).find("not ahead: 'tile' is read first") != std::string::npos);
}

TEST_CASE("a guarded tail is copied asynchronously and reads as zero (P04)", "[language]") {
  Builder k("tail");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  auto sum = k.fragment(DType::f32, {64}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, ceil_div(n, 64), 3, [&](Value i) {
    k.copy(x.tile({i * 64}, {64}), tile);
    k.parallel({64}, [&](Value r) { sum(r) += tile(63 - r); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::f32, {150});
  HostTensor result(DType::f32, {64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t r) {
               double want = 0;
               for (int64_t i = 63 - r; i < 150; i += 64) want += source.value(i);
               return want;
             }));
  CHECK(count(cuda_text(kernel), "copy_async_or_zero<4>(") == 2);
}

TEST_CASE("a conditional copy keeps the count of groups (P05)", "[language]") {
  const bool in_place = GENERATE(false, true);
  CAPTURE(in_place);
  Builder k("every_other");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", DType::i32, {tiles, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto a = k.shared(DType::i32, {64}, "a");
  auto b = k.shared(DType::i32, {64}, "b");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, tiles, {.stages = in_place ? 2 : 3, .in_place = in_place}, [&](Value i) {
    k.if_(i % 2 == 0, [&] { k.copy(x(i), a); });
    k.copy(x(i), b);
    k.if_(i % 2 == 0, [&] { k.parallel({64}, [&](Value r) { sum(r) += a(63 - r); }); });
    k.parallel({64}, [&](Value r) { sum(r) += b(63 - r); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {7, 64});
  HostTensor result(DType::i32, {64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t r) {
               double want = 0;
               for (int64_t i = 0; i < 7; ++i) {
                 want += (i % 2 == 0 ? 2 : 1) * source.value(i * 64 + 63 - r);
               }
               return want;
             }));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "commit_copies();") == 4);
  CHECK(count(text, "wait_for_copies<3>();") == (in_place ? 1 : 2));
}

TEST_CASE("an asynchronous copy of two bytes is rejected (P06)", "[language]") {
  Builder k("two_bytes");
  auto n = k.dim("n");
  auto x = k.input("x", DType::bf16, {n, 65});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::bf16, {8, 64}, "tile");
  k.copy_async(x.tile({0, 0}, {8, 64}), tile);
  const ir::Kernel kernel = k.finish();
  const std::string error = error_of([&] { codegen::lower(kernel); });
  CHECK(error.find("CPASYNC_WIDTH") != std::string::npos);
  CHECK(error.find("aligned runs of 4, 8 or 16 bytes") != std::string::npos);
  CHECK(error.find("1 x bf16, 16 bits") != std::string::npos);
}

TEST_CASE("explicit copies are waited for in the order in which they were started (P07)",
          "[language]") {
  const auto program = [](bool wait_first) {
    Builder k("two_copies");
    auto x = k.input("x", DType::i32, {2, 64});
    auto y = k.output("y", DType::i32, {2, 64});
    k.launch({1}, {.threads = 64});
    auto a = k.shared(DType::i32, {64}, "a");
    auto b = k.shared(DType::i32, {64}, "b");
    const AsyncToken first = k.copy_async(x(0), a);
    const AsyncToken second = k.copy_async(x(1), b);
    if (wait_first) k.wait(first);
    k.parallel({64}, [&](Value i) { y(0, i) = a(63 - i); });
    k.wait(second);
    k.parallel({64}, [&](Value i) { y(1, i) = b(63 - i); });
    return k.finish();
  };
  const HostTensor source = iota(DType::i32, {2, 64});
  HostTensor result(DType::i32, {2, 64});
  const ir::Kernel kernel = program(true);
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i < 64 ? 63 - i : 191 - i; }));
  const std::string text = cuda_text(kernel);
  CHECK(text.find("wait_for_copies<1>();") < text.find("wait_for_copies<0>();"));
  CHECK(count(text, "__syncthreads();") == 2);
  CHECK(error_of([&] {
          run_kernel(program(false), {&source, &result});
        }).find("ASYNC_PENDING") != std::string::npos);
}

TEST_CASE("a token is only good in the body that started its copy (P07)", "[language]") {
  Builder k("escaped_token");
  auto x = k.input("x", DType::i32, {64});
  auto at = k.launch({1}, {.threads = 64});
  auto a = k.shared(DType::i32, {64}, "a");
  std::optional<AsyncToken> token;
  k.if_(at.x > 0, [&] { token = k.copy_async(x.tile({0}, {64}), a); });
  CHECK(error_of([&] { k.wait(*token); }).find("ASYNC_TOKEN") != std::string::npos);
}

TEST_CASE("a value loaded per iteration is loaded again where the copy is issued (P08)",
          "[language]") {
  Builder k("gather");
  auto count_of_rows = k.dim("rows");
  auto order = k.input("order", DType::i32, {count_of_rows});
  auto x = k.input("x", DType::i32, {8, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, count_of_rows, 3, [&](Value i) {
    auto row = k.let("row", order(i) % 8);
    k.copy(x(row), tile);
    k.parallel({64}, [&](Value r) { sum(r) += tile(63 - r) * row; });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor rows = tensor_of(DType::i32, {5}, {3, 1, 7, 7, 2});
  const HostTensor source = iota(DType::i32, {8, 64});
  HostTensor result(DType::i32, {64});
  run_kernel(kernel, {&rows, &source, &result});
  CHECK_THAT(result, HasValues([&](int64_t r) {
               double want = 0;
               for (const double row : values_of(rows)) {
                 want += source.value(static_cast<int64_t>(row) * 64 + 63 - r) * row;
               }
               return want;
             }));
  CHECK(count(cuda_text(kernel), "copy_async") >= 2);
}

TEST_CASE(
    "a copy whose place a call, a reducer, an atomic or an address gives stays where it is (P08)",
    "[language]") {
  // y[i] = x[3 - i], reversed; `place` finds the row.
  using Place = std::function<Value(Builder&, Value i, const Ref& order, const Ref& count)>;
  const auto check = [](const Place& place) {
    Builder k("found_rows");
    auto x = k.input("x", DType::i32, {4, 32});
    auto order = k.input("order", DType::i32, {4, 32});
    auto count_of_rows = k.output("count_of_rows", DType::i32, {1});
    auto y = k.output("y", DType::i32, {4, 32});
    k.launch({1}, {.threads = 32});
    auto tile = k.shared(DType::i32, {32}, "tile");
    k.pipelined(0, 4, 3, [&](Value i) {
      k.copy(x(place(k, i, order, count_of_rows)), tile);
      k.parallel({32}, [&](Value c) { y(i, c) = tile(31 - c); });
    });
    const ir::Kernel kernel = k.finish();
    CHECK(codegen::explain(kernel).find("not ahead: where it reads depends on what") !=
          std::string::npos);
    const HostTensor source = iota(DType::i32, {4, 32});
    const HostTensor rows = tensor_by(DType::i32, {4, 32}, [](int64_t e) { return 3 - e / 32; });
    const HostTensor counter = tensor_by(DType::i32, {1}, [](int64_t) { return 3; });
    HostTensor result(DType::i32, {4, 32});
    run_kernel(kernel, {&source, &rows, &counter, &result});
    CHECK_THAT(result, HasValues([](int64_t e) { return (3 - e / 32) * 32 + 31 - e % 32; }));
  };
  static const dsl::ExternFunction kFromEnd{
      .name = "from_end",
      .source = "__device__ int from_end(int i) { return 3 - i; }\n",
      .result = DType::i32,
      .params = {DType::i32},
      .model = [](void* result, const void* const* args) {
        *static_cast<int32_t*>(result) = 3 - *static_cast<const int32_t*>(args[0]);
      }};
  check([](Builder& k, Value i, const Ref&, const Ref&) { return k.call(kFromEnd, {i}); });
  check([](Builder& k, Value i, const Ref& order, const Ref&) {
    auto most = k.reducer(dsl::ReduceOp::max, DType::i32);
    most.init();
    k.parallel({32}, [&](Value c) { most.update(order(i, c)); });
    return most.finalize();
  });
  check([](Builder& k, Value i, const Ref&, const Ref& count_of_rows) {
    k.if_(k.thread() == 0, [&] { k.atomic_add(count_of_rows(0), 0); });
    return k.shuffle(k.atomic_fetch_max(count_of_rows(0), 0) - i, 0);
  });
}

TEST_CASE("a tile at an address of the iteration is copied where the address is (P08)",
          "[language]") {
  Builder k("tiles_at_addresses");
  auto n = k.dim("n");
  auto table = k.input("table", DType::u64, {n});
  auto y = k.output("y", DType::i32, {n, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {64}, "tile");
  k.pipelined(0, n, 3, [&](Value i) {
    k.copy(k.tensor_at(table(i), DType::i32, {64}, {.align = 16}, "row"), tile);
    k.parallel({64}, [&](Value c) { y(i, c) = tile(63 - c); });
  });
  const ir::Kernel kernel = k.finish();
  CHECK(codegen::explain(kernel).find("not ahead: the iteration computes its address") !=
        std::string::npos);
  CHECK(count(cuda_text(kernel), "__syncthreads();") > 0);
}

TEST_CASE("the body of a pipelined loop is emitted once (P09)", "[language]") {
  Builder k("large_body");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", DType::f32, {tiles, 128, 64});
  auto y = k.output("y", DType::f32, {128, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {128, 64}, "tile");
  auto sum = k.fragment(DType::f32, {128, 64}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, tiles, 4, [&](Value i) {
    k.copy(x(i), tile);
    k.parallel({128, 64}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
  });
  k.copy(sum, y);
  CHECK(count(cuda_text(k.finish()), "// parallel") == 1);
}

TEST_CASE("a run of eight at the end of nine reads nothing past the end (G07)", "[language]") {
  const bool async = GENERATE(false, true);
  CAPTURE(async);
  Builder k("last_of_nine");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {8});
  k.launch({1}, {.threads = 32});
  auto tile = k.shared(DType::f32, {8}, "tile");
  if (async) {
    k.wait(k.copy_async(x.tile({8}, {8}), tile));
  } else {
    k.copy(x.tile({8}, {8}), tile);
  }
  k.copy(tile, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::f32, {9});
  HostTensor result(DType::f32, {8});
  run_kernel(kernel, {&source, &result});  // traps on a read past the end
  CHECK(values_of(result) == std::vector<double>{8, 0, 0, 0, 0, 0, 0, 0});
  CHECK(count(cuda_text(kernel), "copy_async_or_zero<4>(") == (async ? 1 : 0));
}

TEST_CASE("a pipelined loop runs whose copies are all too narrow to go on by themselves",
          "[language][pipeline]") {
  Builder k("narrow_pipeline");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", DType::u8, {tiles, 33}, {.align = 1});
  auto y = k.output("y", DType::i32, {33});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::u8, {33}, "tile");
  auto sum = k.fragment(DType::i32, {33}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, tiles, 3, [&](Value t) {
    k.copy(x(t), tile);
    k.parallel({33}, [&](Value i) { sum(i) += i32(tile(i)); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "copy_async") == 0);
  const HostTensor source = iota(DType::u8, {5, 33});
  const HostTensor result(DType::i32, {33});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return 5 * i + 330; }));
}

TEST_CASE("copy_async of a short row takes a width that the hardware copies", "[language][slow]") {
  const int64_t elements = GENERATE(128, 256, 512, 576, 1024);
  const int threads = GENERATE(128, 256);
  CAPTURE(elements, threads);
  Builder k("short_row");
  auto x = k.input("x", DType::bf16, {elements});
  auto y = k.output("y", DType::bf16, {elements});
  k.launch({1}, {.threads = threads});
  auto t = k.shared(DType::bf16, {elements}, "t");
  k.wait(k.copy_async(x, t));
  k.copy(t, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::bf16, {elements});
  const HostTensor result(DType::bf16, {elements});
  run_kernel(kernel, {&source, &result});
  CHECK(values_of(result) == values_of(source));
  CHECK(cuda_text(kernel).find("copy_async<16>(") != std::string::npos);
}

TEST_CASE("a pipelined loop copies short rows in the background, or explain says why not",
          "[language]") {
  const auto program = [](int64_t elements, DType tile, int64_t align) {
    Builder k("short_rows");
    auto x = k.input("x", DType::bf16, {8, elements}, {.align = align});
    auto y = k.output("y", DType::f32, {8, 256});
    k.launch({1}, {.threads = 256});
    auto t = k.shared(tile, {elements}, "t");
    k.pipelined(0, 8, 3, [&](Value i) {
      k.copy(x(i), t);
      k.parallel({256},
                 [&](Value c) { y(i, c) = cast(DType::f32, t(c % static_cast<int>(elements))); });
    });
    return k.finish();
  };
  const ir::Kernel kernel = program(256, DType::bf16, 16);
  const HostTensor source = iota(DType::bf16, {8, 256});
  const HostTensor result(DType::f32, {8, 256});
  run_kernel(kernel, {&source, &result});
  CHECK(values_of(result) == values_of(source));
  CHECK(cuda_text(kernel).find("copy_async<16>(") != std::string::npos);
  CHECK(codegen::explain(kernel).find("waits for its loads") == std::string::npos);
  CHECK(
      codegen::explain(program(256, DType::bf16, 2))
          .find("copy x -> t: waits for its loads: runs of 16 bits, the hardware copies 4, 8 or 16 "
                "bytes") != std::string::npos);
  CHECK(codegen::explain(program(256, DType::f32, 16))
            .find("copy x -> t: waits for its loads: it converts bf16 to f32") !=
        std::string::npos);
}

TEST_CASE("explain names copies inside of an inner loop that do not go ahead", "[language]") {
  Builder k("gather");
  auto rows = k.dim("rows"), n = k.dim("n", {.multiple_of = 64});
  auto x = k.input("x", DType::bf16, {rows, 64});
  auto index = k.input("index", DType::i32, {n});
  auto y = k.output("y", DType::bf16, {n, 64});
  k.launch({1}, {.threads = 128});
  auto t = k.shared(DType::bf16, {64, 64}, "t");
  k.pipelined(0, n / 64, 3, [&](Value b) {
    k.unrolled(64, [&](Value i) { k.copy(x(index(b * 64 + i)).bulk(), t(i)); });
    k.copy(t, y.tile({b * 64, 0}, {64, 64}));
  });
  CHECK(codegen::explain(k.finish())
            .find("copy x -> t: not ahead: it stands in a loop of the iteration") !=
        std::string::npos);
}
