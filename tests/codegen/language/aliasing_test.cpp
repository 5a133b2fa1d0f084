// Tensors that may share memory: what the compiler assumes of others must not be assumed of them.

#include <string>
#include <vector>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// Both names of one memory.
std::vector<TensorView> twice(const HostTensor& tensor) {
  return {tensor.view(), tensor.view()};
}

/// y = x + 1 through shared memory, 64 rows in a pipelined loop.
ir::Kernel pipelined_rows(bool may_alias) {
  Builder k("pipelined_rows");
  auto x = k.input("x", DType::f32, {64, 32}, {.may_alias = may_alias});
  auto y = k.output("y", DType::f32, {64, 32}, {.may_alias = may_alias});
  k.launch({1}, {.threads = 32});
  auto tile = k.shared(DType::f32, {1, 32}, "tile");
  k.pipelined(0, 64, 3, [&](Value row) {
    k.copy(x.tile({row, 0}, {1, 32}), tile);
    k.parallel({32}, [&](Value c) { y(row, c) = tile(0, c) + 1.0f; });
  });
  return k.finish();
}

/// y(i) = x(i) + 1, several at a time.
ir::Kernel plus_one(bool may_alias) {
  Builder k("plus_one");
  auto n = k.dim("n", {.multiple_of = 4});
  auto x = k.input("x", DType::f32, {n}, {.may_alias = may_alias});
  auto y = k.output("y", DType::f32, {n}, {.may_alias = may_alias});
  auto at = k.launch({ceil_div(n, 256)}, {.threads = 64});
  k.parallel({256}, [&](Value i) { y(at.x * 256 + i) = x(at.x * 256 + i) + 1.0f; });
  return k.finish();
}

}  // namespace

TEST_CASE("tensors that may alias are not restrict and not read as constant memory", "[language]") {
  const std::string apart = cuda_text(plus_one(false)), aliased = cuda_text(plus_one(true));
  CHECK(count(apart, "const float* __restrict__ x") == 1);
  CHECK(count(aliased, "const float* x") == 1);
  CHECK(count(aliased, "__restrict__ x") == 0);
  const HostTensor in = iota(DType::f32, {100}), out(DType::f32, {100});
  run_kernel(plus_one(true), {&in, &out});
  CHECK(out.value(99) == 100);
  const HostTensor both = iota(DType::f32, {100});
  run_on_executor(plus_one(true), twice(both));
  CHECK(both.value(99) == 100);
}

TEST_CASE("a pipelined loop does not copy ahead what may be the memory that it writes",
          "[language]") {
  CHECK(count(codegen::explain(pipelined_rows(false)), "2 iterations ahead") == 1);
  CHECK(count(codegen::explain(pipelined_rows(true)), "not ahead: the loop writes 'x'") == 1);
}

TEST_CASE("a value of memory that may be written is not the same in all threads", "[language]") {
  const auto kernel = [](bool may_alias) {
    Builder k("stops");
    auto x = k.input("x", DType::f32, {64}, {.may_alias = may_alias});
    auto y = k.output("y", DType::f32, {64}, {.may_alias = may_alias});
    k.launch({1}, {.threads = 64});
    auto shared = k.shared(DType::f32, {64}, "shared");
    k.if_(x(0) > 0.0f, [&] {
      shared(k.thread()) = 1.0f;
      y(k.thread()) = shared(63 - k.thread());  // behind a barrier
    });
    return k.finish();
  };
  CHECK(error_of([&] { cuda_text(kernel(false)); }).empty());
  CHECK(count(error_of([&] { cuda_text(kernel(true)); }), "[SYNC_DIVERGENT]") == 1);
}

TEST_CASE("what is read behind a store to memory of two names is what was stored", "[language]") {
  Builder k("stored_first");
  auto x = k.input("x", DType::f32, {256}, {.may_alias = true});
  auto y = k.output("y", DType::f32, {256}, {.may_alias = true});
  auto z = k.output("z", DType::f32, {256});
  k.launch({1}, {.threads = 64});
  k.parallel({256}, [&](Value i) {
    y(i) = 5.0f;
    z(i) = x(i);
  });
  const HostTensor both = iota(DType::f32, {256}), out(DType::f32, {256});
  run_on_executor(k.finish(), {both.view(), both.view(), out.view()});
  CHECK(values_of(out) == std::vector<double>(256, 5));
}

TEST_CASE("iterations that update memory of two names in place run once each", "[language]") {
  Builder k("few_iterations");
  auto x = k.input("x", DType::f32, {8}, {.may_alias = true});
  auto y = k.output("y", DType::f32, {8}, {.may_alias = true});
  k.launch({1}, {.threads = 64});  // more threads than iterations
  k.parallel({8}, [&](Value i) { y(i) = x(i) + 1.0f; });
  const HostTensor both = iota(DType::f32, {8});
  run_on_executor(k.finish(), twice(both));
  CHECK(values_of(both) == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a race through a name of another element size is seen", "[language]") {
  Builder k("halves");
  auto x = k.input("x", DType::u16, {128}, {.may_alias = true});
  auto y = k.output("y", DType::u32, {64}, {.may_alias = true});
  k.launch({1}, {.threads = 64});
  k.parallel({64}, [&](Value i) { y(i) = dsl::cast(DType::u32, x(127 - i)); });
  std::vector<uint32_t> memory(64);
  const std::vector<TensorView> views = {TensorView(memory.data(), DType::u16, {128}),
                                         TensorView(memory.data(), DType::u32, {64})};
  const ir::Kernel kernel = k.finish();
  CHECK(count(error_of([&] { run_on_executor(kernel, views); }), "[RACE]") == 1);
}

TEST_CASE("rows that may be the memory of an output are not copied in bulk", "[language]") {
  Builder k("rows");
  auto x = k.input("x", DType::f32, {64, 32}, {.may_alias = true});
  k.launch({1}, {.threads = 32});
  const std::string text = error_of([&] { x.bulk(); });
  CHECK(count(text, "[CPASYNC_ROWS]") == 1);
  CHECK(count(text, "got       one that may be the memory of an output") == 1);
}
