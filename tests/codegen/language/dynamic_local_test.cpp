// Tile programs with local arrays that are indexed at run time.

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

/// y[t, v] = how often v is among x[t, 0 .. 16).
ir::Kernel histogram(int64_t values) {
  Builder k("histogram");
  auto x = k.input("x", DType::i32, {64, 16});
  auto y = k.output("y", DType::i32, {64, 8});
  k.launch({1}, {.threads = 64});
  auto t = k.thread();
  auto seen = k.local(DType::i32, {values}, {.dynamic = true}, "seen");
  k.unrolled(values, [&](Value v) { seen(v) = 0; });
  k.serial(0, 16, [&](Value i) { seen(x(t, i)) += 1; });
  k.serial(0, values, [&](Value v) { y(t, v) = seen(v); });
  return k.finish();
}

HostTensor digits(int64_t values) {
  HostTensor x(DType::i32, {64, 16});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, static_cast<double>((i / 16 + i * i % 5) % values));
  }
  return x;
}

}  // namespace

TEST_CASE("a dynamic local array takes any index", "[language]") {
  const ir::Kernel kernel = histogram(8);
  const HostTensor x = digits(8);
  std::vector<double> expected(64 * 8, 0);
  for (int64_t i = 0; i < x.size(); ++i) {
    ++expected[static_cast<size_t>(i / 16 * 8 + static_cast<int64_t>(x.value(i)))];
  }
  const HostTensor y(DType::i32, {64, 8});
  run_kernel(kernel, {&x, &y});
  CHECK(values_of(y) == expected);
  CHECK(codegen::explain(kernel).find("seen: 8 x i32 in local memory, indexed at run time") !=
        std::string::npos);
}

TEST_CASE("a dynamic local array of two dimensions, by vectors and in parallel loops",
          "[language]") {
  Builder k("rotated");
  auto x = k.input("x", DType::f32, {32, 16});
  auto by = k.input("by", DType::i32, {32});
  auto y = k.output("y", DType::f32, {32, 16});
  k.launch({1}, {.threads = 32});
  auto t = k.thread();
  auto own = k.local(DType::f32, {4, 4}, {.dynamic = true}, "own");
  k.unrolled(4, [&](Value r) { k.vectorized(4, [&](Value c) { own(r, c) = x(t, r * 4 + c); }); });
  const Value shift = k.let("shift", by(t));
  k.unrolled(4, [&](Value r) {
    k.vectorized(4, [&](Value c) { y(t, r * 4 + c) = own((r + shift) % 4, c); });
  });
  const HostTensor in = iota(DType::f32, {32, 16});
  HostTensor steps(DType::i32, {32});
  for (int64_t i = 0; i < 32; ++i) steps.set_value(i, static_cast<double>(i % 4));
  const HostTensor out(DType::f32, {32, 16});
  run_kernel(k.finish(), {&in, &steps, &out});
  CHECK_THAT(out, HasValues([](int64_t i) {
               const int64_t thread = i / 16, row = i / 4 % 4;
               return thread * 16 + (row + thread % 4) % 4 * 4 + i % 4;
             }));
}

TEST_CASE("an index outside of a dynamic local array traps", "[language][traps]") {
  const ir::Kernel kernel = histogram(8);
  HostTensor x = digits(8);
  x.set_value(40, 8);
  const HostTensor y(DType::i32, {64, 8});
  const std::string text = error_of([&] { run_on_executor(kernel, {x.view(), y.view()}); });
  CHECK(text.find("[OOB]") != std::string::npos);
  CHECK(text.find("seen[8] is out of bounds: extent 8") != std::string::npos);
}

TEST_CASE("other local arrays refuse such an index and name the word", "[language]") {
  Builder k("refused");
  auto x = k.input("x", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto own = k.local(DType::i32, {8}, "own");
  k.unrolled(8, [&](Value i) { own(i) = 0; });
  own(x(k.thread()) % 8) = 1;
  const std::string text = error_of([&] { codegen::lower(k.finish()); });
  CHECK(text.find("[REGISTER_INDEX]") != std::string::npos);
  CHECK(text.find("{.dynamic = true}") != std::string::npos);
}
