// Tile programs about atomics on shared and global memory.

#include <limits>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::MemoryOrder;
using dsl::Ref;
using dsl::Value;

namespace {

/// y[0] = what 3 blocks of 96 threads leave in one element that starts from `start`.
template <class Change>
double left_by(DType dtype, double start, const Change& change) {
  Builder k("counter");
  auto y = k.output("y", dtype, {1});
  auto at = k.launch({3}, {.threads = 96});
  change(k, y(0), cast(dtype, at.x * 96 + k.thread()));
  const HostTensor out = tensor_of(dtype, {1}, {start});
  run_kernel(k.finish(), {&out});
  return out.value(0);
}

std::string error_in(DType dtype, const std::function<void(Builder&, const Ref&)>& body) {
  Builder k("wrong");
  auto x = k.input("x", dtype, {8});
  auto y = k.output("y", dtype, {8});
  k.launch({1}, {.threads = 32});
  return error_of([&] { body(k, y); });
}

}  // namespace

TEST_CASE("atomics of every dtype on global memory", "[language][slow]") {
  const DType dtype =
      GENERATE(DType::i32, DType::u32, DType::i64, DType::u64, DType::f32, DType::f64);
  CAPTURE(name(dtype));
  const auto add = [](Builder& k, const Ref& e, const Value& v) { k.atomic_add(e, v); };
  const auto max = [](Builder& k, const Ref& e, const Value& v) { k.atomic_max(e, v); };
  const auto min = [](Builder& k, const Ref& e, const Value& v) { k.atomic_min(e, v); };
  CHECK(left_by(dtype, 5, add) == 5 + 287 * 288 / 2);
  CHECK(left_by(dtype, 5, max) == 287);
  CHECK(left_by(dtype, 5, min) == 0);
}

TEST_CASE("atomic sums of 16-bit floats", "[language]") {
  const DType dtype = GENERATE(DType::f16, DType::bf16);
  Builder k("small_floats");
  auto y = k.output("y", dtype, {8});
  k.launch({2}, {.threads = 32});
  auto s = k.shared(dtype, {8}, "s");
  k.fill(s, 0);
  k.atomic_add(s(k.thread() / 4), cast(dtype, k.thread() % 4));  // 6 in every element
  k.if_(k.thread() < 8, [&] { k.atomic_add(y(k.thread()), s(k.thread())); });
  const HostTensor out = tensor_of(dtype, {8}, std::vector<double>(8, 0.5));
  run_kernel(k.finish(), {&out});
  CHECK(values_of(out) == std::vector<double>(8, 12.5));
}

TEST_CASE("an f32 value added to a bf16 array is converted, not reinterpreted (V12)",
          "[language]") {
  Builder k("converted");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::bf16, {64});
  k.launch({1}, {.threads = 32});
  k.parallel({64}, [&](Value i) { k.atomic_add(y(i), cast(DType::bf16, x(i))); });
  const HostTensor in = iota(DType::f32, {64});
  const HostTensor out = tensor_of(DType::bf16, {64}, std::vector<double>(64, 1));
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i + 1; }));

  const std::string text =
      error_in(DType::bf16, [](Builder& b, const Ref& e) { b.atomic_add(e(0), f32(b.thread())); });
  CHECK(text.find("[DTYPE]") != std::string::npos);
  CHECK(text.find("cast(DType::bf16, value)") != std::string::npos);
}

TEST_CASE("ordered atomics stay single and are fenced (V13)", "[language]") {
  Builder k("ordered");
  auto y = k.output("y", DType::i32, {256});
  k.launch({1}, {.threads = 64});
  k.parallel({256}, [&](Value i) { k.atomic_add(y(i), i, MemoryOrder::acq_rel); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "__threadfence();") == 2);
  CHECK(count(text, "atomicAdd(&y[") == 1);
  const HostTensor out = iota(DType::i32, {256});
  run_kernel(kernel, {&out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 2 * i; }));
}

TEST_CASE("no barrier between atomics on shared counters (S15)", "[language]") {
  Builder k("histogram");
  auto x = k.input("x", DType::i32, {512});
  auto y = k.output("y", DType::i32, {2, 16});
  k.launch({1}, {.threads = 128});
  auto counts = k.shared(DType::i32, {16}, "counts");
  auto largest = k.shared(DType::i32, {16}, "largest");
  k.fill(counts, 0);
  k.fill(largest, -1);
  k.parallel({512}, [&](Value i) { k.atomic_add(counts(x(i) % 16), 1); });
  k.parallel({512}, [&](Value i) { k.atomic_add(counts(x(i) / 16 % 16), 1); });
  k.parallel({512}, [&](Value i) { k.atomic_max(largest(x(i) % 16), x(i)); });
  k.copy(counts, y(0));
  k.copy(largest, y(1));
  const ir::Kernel kernel = k.finish();
  // After the fills and before the copies.
  CHECK(count(cuda_text(kernel), "__syncthreads()") == 2);
  HostTensor in(DType::i32, {512});
  std::vector<double> expected(32, 0);
  for (int64_t i = 0; i < 512; ++i) {
    const int64_t value = i * 37 % 1000;
    in.set_value(i, static_cast<double>(value));
    ++expected[static_cast<size_t>(value % 16)];
    ++expected[static_cast<size_t>(value / 16 % 16)];
    double& most = expected[static_cast<size_t>(16 + value % 16)];
    most = std::max(most, static_cast<double>(value));
  }
  const HostTensor out(DType::i32, {2, 16});
  run_kernel(kernel, {&in, &out});
  CHECK(values_of(out) == expected);
}

TEST_CASE("the old values of an atomic number its callers", "[language]") {
  const DType dtype = GENERATE(DType::i32, DType::u32, DType::i64, DType::u64);
  Builder k("tickets");
  auto next = k.output("next", dtype, {1});
  auto taken = k.output("taken", DType::i32, {128});
  k.launch({2}, {.threads = 64});
  const Value ticket = k.atomic_fetch_add(next(0), 1);
  k.atomic_add(taken(i32(ticket)), 1);
  const HostTensor counter = iota(dtype, {1});
  const HostTensor slots = tensor_of(DType::i32, {128}, std::vector<double>(128, 0));
  run_kernel(k.finish(), {&counter, &slots});
  CHECK(counter.value(0) == 128);
  CHECK(values_of(slots) == std::vector<double>(128, 1));  // every ticket once
}

TEST_CASE("exchange and compare-exchange give what they found", "[language]") {
  const DType dtype =
      GENERATE(DType::i32, DType::u32, DType::i64, DType::u64, DType::f32, DType::f64);
  Builder k("swap");
  auto y = k.output("y", dtype, {32, 4});
  k.launch({1}, {.threads = 32});
  auto t = k.thread();
  y(t, 2) = k.atomic_exchange(y(t, 0), cast(dtype, t + 7));
  y(t, 3) = k.atomic_compare_exchange(y(t, 1), 3, cast(dtype, t + 50));
  HostTensor out(dtype, {32, 4});
  for (int64_t i = 0; i < 32; ++i) {
    out.set_value(4 * i, 1);
    out.set_value(4 * i + 1, static_cast<double>(i % 4));
  }
  run_kernel(k.finish(), {&out});
  CHECK_THAT(out, HasValues([](int64_t element) {
               const int64_t i = element / 4;
               const int64_t row[] = {i + 7, i % 4 == 3 ? i + 50 : i % 4, 1, i % 4};
               return row[element % 4];
             }));
}

TEST_CASE("float maxima drop NaN and know the sign of zero", "[language]") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Builder k("extremes");
  auto x = k.input("x", dtype, {32});
  auto high = k.output("high", dtype, {32});
  auto low = k.output("low", dtype, {32});
  k.launch({1}, {.threads = 32});
  k.atomic_max(high(k.thread()), x(k.thread()));
  k.atomic_min(low(k.thread()), x(k.thread()));
  std::vector<double> values(32, nan);
  values[0] = -3;
  values[1] = 0.0;
  const HostTensor in = tensor_of(dtype, {32}, values);
  std::vector<double> start(32, -0.0);
  start[0] = nan;
  const HostTensor most = tensor_of(dtype, {32}, start);
  const HostTensor least = tensor_of(dtype, {32}, start);
  run_kernel(k.finish(), {&in, &most, &least});
  CHECK(most.value(0) == -3);
  CHECK(least.value(0) == -3);
  CHECK_FALSE(std::signbit(most.value(1)));
  CHECK(std::signbit(least.value(1)));
  CHECK(std::signbit(most.value(2)));  // NaN changed nothing
}

TEST_CASE("global f32 sums flush subnormals, shared ones keep them", "[language]") {
  constexpr double kTiny = 0x1p-140;
  Builder k("subnormals");
  auto y = k.output("y", DType::f32, {2});
  k.launch({1}, {.threads = 32});
  auto s = k.shared(DType::f32, {1}, "s");
  k.if_(k.thread() == 0, [&] { s(0) = static_cast<float>(kTiny); });
  k.if_(k.thread() == 0, [&] { k.atomic_add(s(0), static_cast<float>(kTiny)); });
  k.if_(k.thread() == 0, [&] {
    k.atomic_add(y(0), static_cast<float>(kTiny));
    y(1) = s(0);
  });
  const HostTensor out = tensor_of(DType::f32, {2}, {kTiny, 0});
  run_kernel(k.finish(), {&out});
  CHECK(out.value(0) == 0);
  CHECK(out.value(1) == 2 * kTiny);
}

TEST_CASE("an atomic outside of a tensor does nothing and finds 0", "[language]") {
  Builder k("outside");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  auto old = k.output("old", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  old(k.thread()) = k.atomic_fetch_add(y(k.thread()), 1);
  const HostTensor out = tensor_of(DType::i32, {40}, std::vector<double>(40, 9));
  const HostTensor found(DType::i32, {64});
  run_kernel(k.finish(), {&out, &found});  // the canaries around both are checked
  CHECK(values_of(out) == std::vector<double>(40, 10));
  CHECK_THAT(found, HasValues([](int64_t i) { return i < 40 ? 9 : 0; }));
}

TEST_CASE("an atomic happens once per iteration in fewer iterations than threads", "[language]") {
  Builder k("copies");
  auto y = k.output("y", DType::i32, {1});
  k.launch({1}, {.threads = 128});
  k.parallel({48}, [&](Value i) { k.atomic_add(y(0), i * 0 + 1); });
  const HostTensor out = iota(DType::i32, {1});
  run_kernel(k.finish(), {&out});
  CHECK(out.value(0) == 48);

  Builder b("old_of_copies");
  auto z = b.output("z", DType::i32, {64});
  b.launch({1}, {.threads = 128});
  b.parallel({32}, [&](Value i) { z(i + 32) = b.atomic_fetch_add(z(i), 1); });
  const HostTensor counters = iota(DType::i32, {64});
  run_kernel(b.finish(), {&counters});
  CHECK_THAT(counters, HasValues([](int64_t i) { return i < 32 ? i + 1 : i - 32; }));
}

TEST_CASE("a plain access beside atomics needs a barrier", "[language][traps]") {
  Builder k("mixed");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {1}, "s");
  k.fill(s, 0);
  k.atomic_add(s(0), 1);
  y(k.thread()) = s(0);
  ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "__syncthreads()") == 2);
  const HostTensor out(DType::i32, {64});
  run_kernel(kernel, {&out});
  CHECK(values_of(out) == std::vector<double>(64, 64));
}

TEST_CASE("wrong atomics are refused where they are written", "[language]") {
  CHECK(error_in(DType::i32, [](Builder& k, const Ref& y) {
          k.atomic_add(y, 1);
        }).find("atomic_add of 'y' is not on one element") != std::string::npos);
  CHECK(error_in(DType::i8, [](Builder& k, const Ref& y) {
          k.atomic_add(y(0), 1);
        }).find("there is no atomic_add on 'y'") != std::string::npos);
  CHECK(error_in(DType::bf16, [](Builder& k, const Ref& y) {
          k.atomic_max(y(0), 1);
        }).find("there is no atomic_max on 'y'") != std::string::npos);
  CHECK(error_in(DType::i32, [](Builder& k, const Ref&) {
          auto own = k.local(DType::i32, {4}, "own");
          k.atomic_add(own(0), 1);
        }).find("atomic_add on 'own', which other threads cannot see") != std::string::npos);
  Builder k("reads");
  auto x = k.input("x", DType::i32, {8});
  k.launch({1}, {.threads = 32});
  CHECK(error_of([&] { k.atomic_add(x(0), 1); }).find("atomic_add writes the input tensor 'x'") !=
        std::string::npos);
}
