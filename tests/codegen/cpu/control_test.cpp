// Masks, branches and loops.

#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

/// Runs `build` with one i32 output per thread, preset to -1, and returns the output.
std::vector<int32_t> run_threads(int threads,
                                 const std::function<void(ThreadKernel&, ArrayRef)>& build,
                                 bool traps = true) {
  ThreadKernel k(threads);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(threads)});
  build(k, out);
  std::vector<int32_t> output(static_cast<size_t>(threads), -1);
  Options options;
  options.traps = traps;
  k.run({argument(output, DType::i32)}, options);
  return output;
}

}  // namespace

TEST_CASE("each thread of a block runs, whatever the block size", "[cpu][control]") {
  const int threads = GENERATE(1, 31, 32, 96, 128, 1024);
  CAPTURE(threads);
  const auto output = run_threads(threads, [](ThreadKernel& k, const ArrayRef& out) {
    k.store(out, {k.thread()}, k.thread() * integer(3));
  });
  for (int i = 0; i < threads; ++i) CHECK(output[static_cast<size_t>(i)] == 3 * i);
}

TEST_CASE("nested branches split the threads", "[cpu][control]") {
  const bool traps = GENERATE(false, true);
  const auto output = run_threads(
      96,
      [](ThreadKernel& k, const ArrayRef& out) {
        const Expr t = k.thread();
        const auto put = [&](int64_t value) { k.store(out, {t}, integer(value)); };
        k.branch(
            less(t, integer(50)),
            [&] {
              k.branch(
                  less(t, integer(10)), [&] { put(0); },
                  [&] {
                    k.branch(ir::binary(ir::Op::eq, t % integer(2), integer(0)), [&] { put(1); });
                  });
            },
            [&] {
              k.branch(
                  less(integer(1000), t), [&] { put(2); }, [&] { put(3); });
            });
      },
      traps);
  for (int i = 0; i < 96; ++i) {
    const int want = i >= 50 ? 3 : i < 10 ? 0 : i % 2 == 0 ? 1 : -1;
    CHECK(output[static_cast<size_t>(i)] == want);
  }
}

TEST_CASE("a branch within a sparse mask keeps the others out", "[cpu][control]") {
  const auto output = run_threads(64, [](ThreadKernel& k, const ArrayRef& out) {
    const auto divides = [&](int64_t n) {
      return ir::binary(ir::Op::eq, k.thread() % integer(n), integer(0));
    };
    const auto put = [&](int64_t value) { k.store(out, {k.thread()}, integer(value)); };
    k.branch(divides(2), [&] {
      k.branch(
          divides(3), [&] { put(6); }, [&] { put(2); });
      k.store(out, {k.thread()}, integer(10), divides(5));
    });
  });
  for (int t = 0; t < 64; ++t) {
    const int want = t % 2 != 0 ? -1 : t % 5 == 0 ? 10 : t % 3 == 0 ? 6 : 2;
    CHECK(output[static_cast<size_t>(t)] == want);
  }
}

TEST_CASE("a uniform branch takes one side", "[cpu][control]") {
  for (const int64_t n : {0, 5}) {
    ThreadKernel k(32);
    const ArrayRef out = k.tensor("out", DType::i32, {integer(32)});
    const Expr dim = k.dim("n");
    k.branch(
        less(integer(0), dim), [&] { k.store(out, {k.thread()}, integer(1)); },
        [&] { k.store(out, {k.thread()}, integer(2)); });
    std::vector<int32_t> output(32);
    k.run({argument(output, DType::i32), argument(n)});
    CHECK(output == std::vector<int32_t>(32, n > 0 ? 1 : 2));
  }
}

TEST_CASE("a uniform loop runs once for the block", "[cpu][control]") {
  const auto output = run_threads(64, [](ThreadKernel& k, const ArrayRef& out) {
    const ArrayRef sum = k.registers("sum", DType::i32, 1, true);
    k.loop(integer(2), integer(11), integer(3), [&](const Expr& i) {
      const Expr old = k.load(sum, {integer(0)});
      k.store(sum, {integer(0)}, old + i * k.thread());
    });
    k.store(out, {k.thread()}, k.load(sum, {integer(0)}));
  });
  for (int t = 0; t < 64; ++t) CHECK(output[static_cast<size_t>(t)] == t * (2 + 5 + 8));
}

TEST_CASE("a loop with thread-dependent bounds runs while any thread is left", "[cpu][control]") {
  const bool traps = GENERATE(false, true);
  const auto output = run_threads(
      96,
      [](ThreadKernel& k, const ArrayRef& out) {
        const ArrayRef sum = k.registers("sum", DType::i32, 1, true);
        k.loop(k.thread() % integer(4), k.thread(), integer(2), [&](const Expr& i) {
          // A nested loop whose trip count depends on the outer index.
          k.loop(integer(0), i, integer(1), [&](const Expr&) {
            k.store(sum, {integer(0)}, k.load(sum, {integer(0)}) + integer(1));
          });
        });
        k.store(out, {k.thread()}, k.load(sum, {integer(0)}));
      },
      traps);
  for (int t = 0; t < 96; ++t) {
    int want = 0;
    for (int i = t % 4; i < t; i += 2) want += i;
    CHECK(output[static_cast<size_t>(t)] == want);
  }
}

TEST_CASE("loops without iterations do nothing", "[cpu][control]") {
  const auto output = run_threads(32, [](ThreadKernel& k, const ArrayRef& out) {
    const auto fail = [&](const Expr&) { k.store(out, {k.thread()}, integer(7)); };
    k.loop(integer(3), integer(3), integer(1), fail);
    k.loop(k.thread(), integer(0), integer(1), fail);
    k.branch(less(k.thread(), integer(0)), [&] { k.store(out, {k.thread()}, integer(8)); });
  });
  CHECK(output == std::vector<int32_t>(32, -1));
}

TEST_CASE("registers of inactive threads keep their values", "[cpu][control]") {
  const auto output = run_threads(64, [](ThreadKernel& k, const ArrayRef& out) {
    const ArrayRef from = k.registers("from", DType::i32, 2);
    const ArrayRef into = k.registers("into", DType::i32, 2, true);
    k.store(from, {integer(0)}, integer(5));
    k.store(from, {integer(1)}, k.thread());
    const auto odd = ir::binary(ir::Op::eq, k.thread() % integer(2), integer(1));
    k.branch(odd, [&] { k.convert(into, from, 2); });
    k.store(out, {k.thread()}, k.load(into, {integer(0)}) + k.load(into, {integer(1)}));
  });
  for (int t = 0; t < 64; ++t) CHECK(output[static_cast<size_t>(t)] == (t % 2 == 1 ? t + 5 : 0));
}

TEST_CASE("a loop that would not end is refused", "[cpu][control]") {
  ThreadKernel k(32);
  k.loop(integer(0), integer(4), integer(0), [](const Expr&) {});
  CHECK_THROWS_AS(Executable(k.program()), Error);
}

TEST_CASE("a variable outside its scope is refused", "[cpu][control]") {
  ThreadKernel k(32);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(32)});
  Expr inner;
  k.branch(less(k.thread(), integer(4)), [&] { inner = k.let(k.thread() + integer(1)); });
  k.store(out, {k.thread()}, inner);
  try {
    const Executable executable(k.program());
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::trap);
    CHECK(error.fields().code == "UNINITIALISED");
    CHECK(error.fields().what == "variable 'v2' is read where it is not bound");
  }
}

}  // namespace tessera::codegen::cpu
