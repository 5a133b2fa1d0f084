// Tile programs about reducers and their life cycle.

#include "codegen/lower.h"
#include "dsl/layout/layout.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::ReduceOp;
using dsl::Reducer;
using dsl::ReducerKind;
using dsl::Value;

namespace {

std::string state_error(const std::function<void(Builder&, const Reducer&)>& body) {
  Builder k("states");
  k.launch({1}, {.threads = 64});
  const Reducer total = k.reducer(ReduceOp::sum, DType::i32, {1}, {}, "total");
  return error_of([&] { body(k, total); });
}

/// Row sums of `x` [8, 64] f32 by 128 threads, once per kind.
HostTensor row_sums(ReducerKind kind, DType dtype) {
  Builder k("row_sums");
  auto x = k.input("x", dtype, {8, 64});
  auto y = k.output("y", dtype, {8});
  k.launch({1}, {.threads = 128});
  auto sums = k.fragment(dtype, {8}, "sums");
  const Reducer total = k.reducer(ReduceOp::sum, dtype, {8}, {.kind = kind}, "total");
  total.init();
  k.parallel({8, 64}, [&](Value r, Value c) { total.update(r, x(r, c)); });
  total.finalize(sums);
  k.copy(sums, y);
  HostTensor in(dtype, {8, 64});
  for (int64_t i = 0; i < 512; ++i) in.set_value(i, static_cast<double>(i % 97) * 0.125 * 8);
  HostTensor out(dtype, {8});
  run_kernel(k.finish(), {&in, &out});
  return out;
}

}  // namespace

TEST_CASE("a reducer sums 96 values once with 128 and 256 threads (R01)", "[language][slow]") {
  const int threads = GENERATE(96, 128, 256, 100);
  const DType dtype = GENERATE(DType::i32, DType::i64, DType::f32);
  CAPTURE(threads, name(dtype));
  Builder k("once");
  auto x = k.input("x", dtype, {96});
  auto y = k.output("y", dtype, {threads});
  k.launch({1}, {.threads = threads});
  const Reducer total = k.reducer(ReduceOp::sum, dtype);
  total.init();
  k.parallel({96}, [&](Value i) { total.update(x(i)); });
  y(k.thread()) = total.finalize();
  const HostTensor in = iota(dtype, {96});
  const HostTensor out(dtype, {threads});
  run_kernel(k.finish(), {&in, &out});
  CHECK(values_of(out) == std::vector<double>(static_cast<size_t>(threads), 95 * 96 / 2));
}

TEST_CASE("a start value is added once (R02)", "[language]") {
  Builder k("start");
  auto y = k.output("y", DType::i32, {2});
  k.launch({1}, {.threads = 128});
  const Reducer total = k.reducer(ReduceOp::sum, DType::i32);
  auto pair = k.fragment(DType::i32, {2}, "pair");
  const Reducer both = k.reducer(ReduceOp::max, DType::i32, {2});
  total.init(10);
  both.init(40);
  k.parallel({2, 24}, [&](Value i, Value j) {
    total.update(1);
    both.update(i, i * 24 + j);
  });
  both.finalize(pair);
  const Value sum = total.finalize();
  k.parallel({2}, [&](Value i) { y(i) = pair(i) * 100 + sum; });
  const HostTensor out(DType::i32, {2});
  run_kernel(k.finish(), {&out});
  CHECK(values_of(out) == std::vector<double>{4058, 4758});
}

TEST_CASE("a call out of order is refused with both places (R03)", "[language]") {
  auto in_loop = [](Builder& k, const Reducer& r) {
    k.parallel({64}, [&](Value i) { r.update(i); });
  };
  auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find("reducer 'total' is " + part) != std::string::npos);
  };
  has(state_error([](Builder&, const Reducer& r) { r.value(); }), "read without a result");
  has(state_error([&](Builder& k, const Reducer& r) {
        r.init();
        in_loop(k, r);
        r.value();
      }),
      "read before it is finalized");
  has(state_error(in_loop), "updated while it is not open");
  has(state_error([&](Builder& k, const Reducer& r) {
        r.init();
        r.finalize();
        in_loop(k, r);
      }),
      "updated while it is not open");
  has(state_error([](Builder&, const Reducer& r) { r.finalize(); }),
      "finalized while it is not open");
  has(state_error([](Builder&, const Reducer& r) {
        r.init();
        r.init();
      }),
      "opened twice");
  has(state_error([](Builder&, const Reducer& r) {
        r.init();
        r.update(1);
      }),
      "updated outside of a parallel loop");
  has(state_error([](Builder& k, const Reducer& r) { k.parallel({64}, [&](Value) { r.init(); }); }),
      "opened inside a parallel loop");
  has(state_error([](Builder& k, const Reducer& r) {
        r.init();
        k.serial(0, 4, [&](Value) { r.finalize(); });
      }),
      "finalized in another loop or branch than it was opened in");
  // The whole text, once.
  Builder k("states");
  k.launch({1}, {.threads = 64});
  const Reducer total = k.reducer(ReduceOp::sum, DType::i32, {1}, {}, "total");
  const std::string text = error_of([&] { total.finalize(); });
  CHECK(text.find("  expected  init(), then updates, then finalize()\n"
                  "  got       not initialised") != std::string::npos);
}

TEST_CASE("the smallest index of the largest value (R04)", "[language]") {
  const int threads = GENERATE(32, 128);
  Builder k("first_of_ties");
  auto x = k.input("x", DType::f32, {200});
  auto y = k.output("y", DType::i32, {3});
  k.launch({1}, {.threads = threads});
  auto scores = k.fragment(DType::f32, {200}, "scores");
  k.copy(x, scores);
  k.serial(0, 3, [&](Value round) {
    const Reducer best = k.reducer(ReduceOp::max, DType::f32, {1}, {}, "best");
    const Reducer where = k.reducer(ReduceOp::min, DType::i32, {1}, {}, "where");
    best.init();
    k.parallel({200}, [&](Value i) { best.update(scores(i)); });
    const Value top = best.finalize();
    where.init();
    k.parallel({200}, [&](Value i) { k.if_(scores(i) == top, [&] { where.update(i); }); });
    const Value winner = where.finalize();
    k.if_(k.thread() == 0, [&] { y(round) = winner; });
    k.parallel({200}, [&](Value i) { k.if_(i == winner, [&] { scores(i) = -1.0f; }); });
  });
  HostTensor in(DType::f32, {200});
  for (int64_t i = 0; i < 200; ++i) in.set_value(i, static_cast<double>(i * 7 % 50));
  in.set_value(150, 80);
  in.set_value(31, 80);
  const HostTensor out(DType::i32, {3});
  run_kernel(k.finish(), {&in, &out});
  CHECK(values_of(out) == std::vector<double>{31, 150, 7});  // 49 = 7 * 7 first at index 7
}

TEST_CASE("counters of a persistent loop leave by one atomic per block (R05)", "[language]") {
  Builder k("counters");
  auto n = k.dim("n");
  auto x = k.input("x", DType::i64, {n});
  auto y = k.output("y", DType::i64, {1});
  k.launch({3}, {.threads = 64});
  const Reducer total = k.reducer(ReduceOp::sum, DType::i64);
  total.init();
  k.persistent({ceil_div(n, 128)}, [&](Value tile) {
    k.parallel({128}, [&](Value i) { total.update(x(tile * 128 + i)); });
  });
  const Value sum = total.finalize();
  k.if_(k.thread() == 0, [&] { k.atomic_add(y(0), sum); });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "atomic_add_i64(") == 1);
  const int64_t n_value = 1000;
  HostTensor in(DType::i64, {n_value});
  for (int64_t i = 0; i < n_value; ++i) in.set_value(i, static_cast<double>(i) * 4294967296.0);
  const HostTensor out = iota(DType::i64, {1});
  run_kernel(kernel, {&in, &out});
  CHECK(out.value(0) == 4294967296.0 * (999.0 * 1000 / 2));
}

TEST_CASE("both kinds give the same integers and the documented float tree (R06)", "[language]") {
  CHECK(values_of(row_sums(ReducerKind::narrow, DType::i32)) ==
        values_of(row_sums(ReducerKind::wide, DType::i32)));
  CHECK(values_of(row_sums(ReducerKind::narrow, DType::i64)) ==
        values_of(row_sums(ReducerKind::wide, DType::i64)));

  // 128 values, 32 threads: 4 own values in ascending order, then xor 16, 8, 4, 2, 1.
  Builder k("tree");
  auto x = k.input("x", DType::f32, {128});
  auto y = k.output("y", DType::f32, {32});
  k.launch({1}, {.threads = 32});
  const Reducer total = k.reducer(ReduceOp::sum, DType::f32);
  total.init(0.5f);
  k.parallel({128}, [&](Value i) { total.update(x(i)); });
  y(k.thread()) = total.finalize();
  HostTensor in(DType::f32, {128});
  for (int64_t i = 0; i < 128; ++i) in.set_value(i, 1.0 / static_cast<double>(3 + i * i % 71));
  const HostTensor out(DType::f32, {32});
  run_kernel(k.finish(), {&in, &out});
  std::vector<float> part(32, 0.0f);
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 4; ++i) {
      part[lane] += static_cast<float>(in.value(static_cast<int64_t>(lane * 4 + i)));
    }
  }
  for (size_t reach = 16; reach > 0; reach /= 2) {
    std::vector<float> next(32);
    for (size_t lane = 0; lane < 32; ++lane) next[lane] = part[lane] + part[lane ^ reach];
    part = next;
  }
  CHECK(out.value(0) == static_cast<double>(0.5f + part[0]));
}

TEST_CASE("a wide reducer takes any index", "[language]") {
  Builder k("bins");
  auto x = k.input("x", DType::i32, {300});
  auto y = k.output("y", DType::i32, {8});
  k.launch({1}, {.threads = 64});
  auto bins = k.fragment(DType::i32, {8}, "bins");
  const Reducer count_of =
      k.reducer(ReduceOp::sum, DType::i32, {8}, {.kind = ReducerKind::wide}, "count_of");
  count_of.init();
  k.parallel({300}, [&](Value i) { count_of.update(x(i) % 8, 1); });
  count_of.finalize(bins);
  k.copy(bins, y);
  const HostTensor in = iota(DType::i32, {300});
  const HostTensor out(DType::i32, {8});
  run_kernel(k.finish(), {&in, &out});
  CHECK(values_of(out) == std::vector<double>{38, 38, 38, 38, 37, 37, 37, 37});

  Builder b("too_wide");
  b.launch({1}, {.threads = 64});
  CHECK(error_of([&] {
          b.reducer(ReduceOp::sum, DType::i32, {65}, {.kind = ReducerKind::wide});
        }).find("wide reducer 'reducer' has too many elements") != std::string::npos);
}

TEST_CASE("a reducer over tiles keeps the layout of the loops that fill it", "[language]") {
  // Columns of a [rows, 64] matrix, 16 rows at a time.
  Builder k("column_sums");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 128});
  auto tile = k.fragment(DType::f32, {16, 64}, "tile");
  auto sums = k.fragment(DType::f32, {64}, "sums");
  const Reducer total = k.reducer(ReduceOp::sum, DType::f32, {64});
  total.init();
  k.serial(0, ceil_div(rows, 16), [&](Value t) {
    k.copy(x.tile({t * 16, 0}, {16, 64}), tile);
    k.parallel({16, 64}, [&](Value r, Value c) { total.update(c, tile(r, c)); });
  });
  total.finalize(sums);
  k.copy(sums, y);
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "load_or_zero<4>") == 1);  // still 16 bytes at a time
  CHECK(count(text, "__syncthreads()") <= 2);  // one exchange, after the loop
  const HostTensor in = tensor_by(DType::f32, {40, 64}, [](int64_t i) { return i % 64 + i / 64; });
  const HostTensor out(DType::f32, {64});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t c) { return 40 * c + 39 * 20; }));
}

TEST_CASE("a reducer without contributions gives its start value", "[language]") {
  Builder k("nothing");
  auto y = k.output("y", DType::i32, {4});
  k.launch({1}, {.threads = 32});
  auto four = k.fragment(DType::i32, {4}, "four");
  const Reducer total = k.reducer(ReduceOp::min, DType::i32, {4});
  total.init(7);
  total.finalize(four);
  k.copy(four, y);
  const HostTensor out(DType::i32, {4});
  run_kernel(k.finish(), {&out});
  CHECK(values_of(out) == std::vector<double>(4, 7));
}

TEST_CASE("reducers of what does not exist are refused", "[language]") {
  Builder k("kinds");
  CHECK(error_of([&] { k.reducer(ReduceOp::sum, DType::i32); }).find("[NO_LAUNCH]") !=
        std::string::npos);
  k.launch({1}, {.threads = 32});
  CHECK(error_of([&] {
          k.reducer(ReduceOp::sum, DType::bf16);
        }).find("reducer 'reducer' is of a kind that does not exist") != std::string::npos);
  auto wrong = k.fragment(DType::i32, {5}, "wrong");
  const Reducer four = k.reducer(ReduceOp::sum, DType::i32, {4}, {}, "four");
  four.init();
  CHECK(error_of([&] { four.finalize(wrong); })
            .find("reducer 'four' cannot close into "
                  "'wrong'") != std::string::npos);
  CHECK(error_of([&] { four.finalize(); }).find("[RANK]") != std::string::npos);
  CHECK(error_of([&] { k.parallel({4}, [&](Value i) { four.update(i); }); }).find("[RANK]") !=
        std::string::npos);
}
