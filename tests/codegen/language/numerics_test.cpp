// Tile programs about numbers: what is computed is what is written, bit for bit.

#include <cmath>
#include <limits>

#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/elementary_functions.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Value;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// y[i] = compute(x[i]) for up to 64 values.
template <class Compute>
std::vector<double> mapped(DType to, const std::vector<double>& values, const Compute& compute,
                           std::string* text = nullptr) {
  const auto n = static_cast<int64_t>(values.size());
  Builder k("mapped");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", to, {n});
  k.launch({1}, {.threads = 64});
  k.if_(k.thread() < n, [&] { y(k.thread()) = compute(Value(x(k.thread()))); });
  const ir::Kernel kernel = k.finish();
  if (text != nullptr) *text = cuda_text(kernel);
  const HostTensor in = tensor_of(DType::f32, {n}, values);
  const HostTensor out(to, {n});
  run_kernel(kernel, {&in, &out});
  return values_of(out);
}

}  // namespace

TEST_CASE("a row gives the same bits in a grid of 1 and of 1000 (N01)", "[language]") {
  Builder k("rows");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n, 96});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({n}, {.threads = 32});
  auto row = k.fragment(DType::f32, {96}, "row");
  auto sum = k.fragment(DType::f32, {1}, "sum");
  k.copy(x(at.x), row);
  k.reduce_sum(row.reshape({1, 96}), sum, Axis(1));
  k.parallel({1}, [&](Value i) { y(at.x + i) = sum(i) / 3.0f; });
  const ir::Kernel kernel = k.finish();
  const auto value = [](int64_t i) { return 1.0 / static_cast<double>(1 + i * 31 % 97); };
  HostTensor one(DType::f32, {1, 96});
  HostTensor many(DType::f32, {1000, 96});
  for (int64_t i = 0; i < 96; ++i) one.set_value(i, value(i));
  for (int64_t i = 0; i < many.size(); ++i) {
    many.set_value(i, i < 96 ? value(i) : static_cast<double>(i * 7919 % 1013) - 500);
  }
  const HostTensor first(DType::f32, {1});
  const HostTensor all(DType::f32, {1000});
  run_kernel(kernel, {&one, &first});
  run_kernel(kernel, {&many, &all});
  CHECK(first.bits(0) == all.bits(0));
}

TEST_CASE("exp, rsqrt and the sigmoid are the precise ones (N02)", "[language]") {
  const std::vector<double> inputs = {0.5, 1.0, 2.0, 3.25, 10.0, 87.0};
  std::string text;
  const auto within = [&](const std::vector<double>& got, double (*exact)(double), double ulps) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double want = exact(inputs[i]);
      const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
      CHECK(std::fabs(got[i] - want) <= ulps * ulp);
    }
    for (const char* approximate :
         {"__expf", "ex2.approx", "__frsqrt", "__fdividef", "rcp.approx", "use_fast_math"}) {
      CHECK(count(text, approximate) == 0);
    }
  };
  // On the executor alone: the GPU approximates these, and is compared where operators use them.
  const auto run = [&](const auto& compute) {
    const ir::Kernel kernel = [&] {
      Builder b("function");
      auto in = b.input("x", DType::f32, {6});
      auto out = b.output("y", DType::f32, {6});
      b.launch({1}, {.threads = 32});
      b.if_(b.thread() < 6, [&] { out(b.thread()) = compute(Value(in(b.thread()))); });
      return b.finish();
    }();
    text = cuda_text(kernel);
    const HostTensor in = tensor_of(DType::f32, {6}, inputs);
    const HostTensor out(DType::f32, {6});
    const TensorView views[] = {in.view(), out.view()};
    const kernels::jit::TrapScope traps;
    kernels::jit::run(kernel, views, {}, nullptr);
    return values_of(out);
  };
  within(
      run([](const Value& v) { return exp(v); }), [](double v) { return std::exp(v); }, 1);
  CHECK(count(text, "expf(") == 1);
  within(
      run([](const Value& v) { return rsqrt(v); }), [](double v) { return 1 / std::sqrt(v); }, 1);
  CHECK(count(text, "rsqrtf(") == 1);
  within(
      run([](const Value& v) { return 1.0f / (1.0f + exp(-v)); }),
      [](double v) { return 1 / (1 + std::exp(-v)); }, 3);
  CHECK(count(text, "sigmoid(") == 1);
  within(
      run([](const Value& v) { return silu(v); }), [](double v) { return v / (1 + std::exp(-v)); },
      3);
  CHECK(count(text, "silu(") == 1);
}

TEST_CASE("elementary functions are the nearest value on the executor", "[language]") {
  constexpr int64_t kCount = 1000;
  const auto& functions = elementary_functions();
  const auto rows = static_cast<int64_t>(functions.size());
  const std::vector<float> inputs = elementary_inputs(kCount);
  const HostTensor x =
      tensor_of(DType::f32, {rows, kCount}, std::vector<double>(inputs.begin(), inputs.end()));
  const HostTensor y(DType::f32, {rows, kCount});
  const ir::Kernel kernel = elementary_kernel(kCount);
  run_on_executor(kernel, {x.view(), y.view()});
  for (int64_t i = 0; i < y.size(); ++i) {
    const ElementaryFunction& f = functions[static_cast<size_t>(i / kCount)];
    const float input = inputs[static_cast<size_t>(i)];
    CAPTURE(f.name, input);
    REQUIRE(test::error_of(f, input, static_cast<float>(y.value(i))) <= 1);
  }
  const std::string text = cuda_text(kernel);
  for (const char* callee :
       {" expf(", "exp2f(", "logf(", "log2f(", "log1pf(", "sinf(", "cosf(", "tanhf(", "erff(",
        "exp2_approx(", "log2_approx(", "sin_approx(", "cos_approx(", "tanh_approx("}) {
    CAPTURE(callee);
    CHECK(count(text, callee) > 0);
  }
}

TEST_CASE("floor, ceil and rint are exact and keep -0", "[language]") {
  const std::vector<double> inputs = {0.0,  -0.0, 0.5, -0.5,       1.5,        2.5,
                                      -2.5, -0.2, 1e9, 8388607.5F, -kInfinity, kInfinity};
  std::vector<double> floors, ceils, rints;
  for (const double v : inputs) {
    floors.push_back(std::floor(v));
    ceils.push_back(std::ceil(v));
    rints.push_back(std::nearbyint(v));
  }
  const auto same = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i] == want[i]);
      CHECK(std::signbit(got[i]) == std::signbit(want[i]));
    }
  };
  same(mapped(DType::f32, inputs, [](const Value& v) { return floor(v); }), floors);
  same(mapped(DType::f32, inputs, [](const Value& v) { return ceil(v); }), ceils);
  same(mapped(DType::f32, inputs, [](const Value& v) { return rint(v); }), rints);
  CHECK(std::isnan(mapped(DType::f32, {kNaN}, [](const Value& v) { return floor(v); })[0]));
  const auto in_bf16 = [](const Value& v) { return ceil(cast(DType::bf16, v)); };
  CHECK(mapped(DType::bf16, {-1.75, 2.25}, in_bf16) == std::vector<double>{-1, 3});
}

TEST_CASE("clz, ffs and mulhi are those of the machine", "[language]") {
  const std::vector<double> inputs = {0, 1, 2, 3, 255, 65536, 4026531840.0, 4294967295.0};
  const auto bits_of = [](const Value& v) { return cast(DType::u32, v); };
  const auto wide = [](const Value& v) { return cast(DType::u64, v) << 20; };
  const auto of = [&](const auto& compute) { return mapped(DType::i32, inputs, compute); };
  CHECK(of([&](const Value& v) { return clz(bits_of(v)); }) ==
        std::vector<double>{32, 31, 30, 30, 24, 15, 0, 0});
  CHECK(of([&](const Value& v) { return ffs(bits_of(v)); }) ==
        std::vector<double>{0, 1, 2, 1, 1, 17, 29, 1});
  // as floats, 4294967295 is 2^32
  const std::vector<double> some = {0, 1, 2, 3, 255, 65536};
  CHECK(mapped(DType::i32, some, [&](const Value& v) { return clz(wide(v)); }) ==
        std::vector<double>{64, 43, 42, 42, 36, 27});
  CHECK(mapped(DType::i32, some, [&](const Value& v) { return ffs(wide(v)); }) ==
        std::vector<double>{0, 21, 22, 21, 21, 37});
  const std::vector<double> factors = {0, 1, -1, 65536, -65536, 2147483520.0};
  CHECK(mapped(DType::i32, factors, [](const Value& v) { return mulhi(i32(v), i32(v)); }) ==
        std::vector<double>{0, 0, 0, 1, 1, 1073741696.0});
  CHECK(mapped(DType::i32, factors, [](const Value& v) { return mulhi(i32(v), -1); }) ==
        std::vector<double>{0, -1, 0, -1, 0, -1});
  const auto high = [](const Value& v) {
    const Value x = cast(DType::u64, i64(v));  // -1 is 2^64 - 1
    return cast(DType::i32, mulhi(x, x) >> 40);
  };
  CHECK(mapped(DType::i32, {-1}, high) == std::vector<double>{16777215});
  const auto high_signed = [](const Value& v) { return i32(mulhi(i64(v) << 40, i64(v) << 30)); };
  CHECK(mapped(DType::i32, {-100, 100}, high_signed) == std::vector<double>{640000, 640000});
}

TEST_CASE("functions refuse other dtypes", "[language]") {
  Builder k("dtypes");
  auto x = k.input("x", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  const Value v = x(k.thread());
  CHECK(error_of([&] { log2(v); }).find("operand of 'log2' has the wrong dtype") !=
        std::string::npos);
  CHECK(error_of([&] { exp2_approx(v); }).find("f32") != std::string::npos);
  CHECK(error_of([&] { clz(v); }).find("u32 or u64") != std::string::npos);
  CHECK(error_of([&] {
          mulhi(cast(DType::u8, v), cast(DType::u8, v));
        }).find("i32, u32, i64 or u64") != std::string::npos);
}

TEST_CASE("a product and a sum round twice, fma once (N03)", "[language]") {
  const float a = 1.0f + 0x1p-12f;
  std::string text;
  const std::vector<double> twice = mapped(
      DType::f32, {a}, [](const Value& v) { return v * v - 1.0f; }, &text);
  const float product = a * a;
  CHECK(twice[0] == static_cast<double>(product - 1.0f));
  CHECK(count(text, "fmaf") == 0);
  const std::vector<double> once = mapped(
      DType::f32, {a}, [](const Value& v) { return fma(v, v, -1.0f); }, &text);
  CHECK(once[0] == static_cast<double>(std::fmaf(a, a, -1.0f)));
  CHECK(count(text, "fmaf(") == 1);
  CHECK(twice[0] != once[0]);
}

TEST_CASE("scales round up to powers of two by their bits (N04)", "[language]") {
  // The exponent byte of the least power of two that is not below x.
  const auto exponent = [](const Value& v) {
    const Value bits = reinterpret(DType::u32, v);
    return i32((bits + 0x7FFFFFu) >> 23);
  };
  for (int first = -126; first < 127; first += 21) {
    std::vector<double> inputs, expected;
    for (int e = first; e < std::min(first + 21, 127); ++e) {
      inputs.push_back(std::ldexp(1.0, e));
      expected.push_back(e + 127);
      inputs.push_back(std::ldexp(1.0 + 0x1p-23, e));
      expected.push_back(e + 128);
      inputs.push_back(std::ldexp(2.0 - 0x1p-23, e));
      expected.push_back(e + 128);
    }
    CHECK(mapped(DType::i32, inputs, exponent) == expected);
  }
}

TEST_CASE("a bf16 sum in f32 rounds once, at the end (N05)", "[language]") {
  Builder k("bf16_sum");
  auto x = k.input("x", DType::bf16, {128});
  auto y = k.output("y", DType::bf16, {1});
  auto wide = k.output("wide", DType::f32, {1});
  k.launch({1}, {.threads = 32});
  auto row = k.fragment(DType::bf16, {1, 128}, "row");
  auto sum = k.fragment(DType::f32, {1}, "sum");
  k.copy(x, row.reshape({128}));
  k.reduce_sum(row, sum, Axis(1));
  k.parallel({1}, [&](Value i) {
    y(i) = cast(DType::bf16, sum(i));
    wide(i) = sum(i);
  });
  const HostTensor in = tensor_by(DType::bf16, {128},
                                  [](int64_t i) { return 1.0 + static_cast<double>(i % 5) / 128; });
  const HostTensor narrow(DType::bf16, {1});
  const HostTensor total(DType::f32, {1});
  run_kernel(k.finish(), {&in, &narrow, &total});
  double exact = 0;  // every partial sum is a multiple of 1/128 below 2^24 / 128: exact in f32
  for (int64_t i = 0; i < 128; ++i) exact += in.value(i);
  CHECK(total.value(0) == exact);
  HostTensor rounded(DType::bf16, {1});
  rounded.set_value(0, exact);
  CHECK(narrow.bits(0) == rounded.bits(0));
}

TEST_CASE("max drops NaN, max_nan keeps it (N06)", "[language]") {
  const std::vector<double> inputs = {1.0, kNaN, -kInfinity, 5.0};
  const auto drops = mapped(DType::f32, inputs, [](const Value& v) { return max(v, 2.0f); });
  CHECK(drops == std::vector<double>{2, 2, 2, 5});
  const auto keeps = mapped(DType::f32, inputs, [](const Value& v) { return max_nan(v, 2.0f); });
  CHECK(keeps[0] == 2);
  CHECK(std::isnan(keeps[1]));
  CHECK(keeps[2] == 2);
  CHECK(keeps[3] == 5);
  const auto least = mapped(DType::bf16, inputs,
                            [](const Value& v) { return min_nan(cast(DType::bf16, v), 2.0f); });
  CHECK(least[0] == 1);
  CHECK(std::isnan(least[1]));
  CHECK(least[2] == -kInfinity);
  CHECK(least[3] == 2);
}

TEST_CASE("max_nan and min_nan of f32 are one instruction", "[language]") {
  const std::vector<double> x = {1, kNaN, 3, kNaN, -0.0, 0.0, -kInfinity, 7};
  const std::vector<double> y = {2, 2, kNaN, kNaN, 0.0, -0.0, kInfinity, 7};
  const bool largest = GENERATE(true, false);
  Builder k("extremes");
  auto a = k.input("a", DType::f32, {8});
  auto b = k.input("b", DType::f32, {8});
  auto c = k.output("c", DType::f32, {8});
  k.launch({1}, {.threads = 32});
  k.parallel({8}, [&](Value i) { c(i) = largest ? max_nan(a(i), b(i)) : min_nan(a(i), b(i)); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, largest ? "max_nan(" : "min_nan(") == 1);
  CHECK(count(text, "is_nan(") == 0);
  const auto element = [](const std::vector<double>& from) {
    return [&from](int64_t i) { return from[static_cast<size_t>(i)]; };
  };
  const HostTensor in = tensor_by(DType::f32, {8}, element(x));
  const HostTensor other = tensor_by(DType::f32, {8}, element(y));
  const HostTensor out(DType::f32, {8});
  run_kernel(kernel, {&in, &other, &out});
  const HostTensor expected =
      tensor_by(DType::f32, {8},
                element(largest ? std::vector<double>{2, 0, 0, 0, 0.0, 0.0, kInfinity, 7}
                                : std::vector<double>{1, 0, 0, 0, -0.0, -0.0, -kInfinity, 7}));
  for (int64_t i = 0; i < 8; ++i) {
    CHECK(out.bits(i) == (i >= 1 && i <= 3 ? 0x7FFFFFFF : expected.bits(i)));
  }
}

TEST_CASE("f32 to e4m3 saturates and rounds to nearest even (N07)", "[language]") {
  const auto convert = [](const Value& v) { return cast(DType::e4m3, v); };
  const std::vector<double> inputs = {448,     464,      465,      kInfinity, kNaN,   -0.0,  0x1p-9,
                                      0x1p-10, 0x1.8p-9, 0x1.4p-9, -1e9,      1.0625, 1.1875};
  const std::vector<double> got = mapped(DType::e4m3, inputs, convert);
  const std::vector<double> expected = {448, 448,    448,    448,  kNaN, -0.0, 0x1p-9,
                                        0,   0x1p-8, 0x1p-9, -448, 1.0,  1.25};
  for (size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(inputs[i]);
    if (std::isnan(expected[i])) {
      CHECK(std::isnan(got[i]));
    } else {
      CHECK(got[i] == expected[i]);
      CHECK(std::signbit(got[i]) == std::signbit(expected[i]));
    }
  }
}

TEST_CASE("integers of thread and block indices wrap like all others", "[language]") {
  constexpr int64_t kLarge = 100'000'000;
  Builder k("places");
  auto y = k.output("y", DType::i32, {2, 64});
  auto z = k.output("z", DType::i64, {2, 64});
  auto at = k.launch({2}, {.threads = 64});
  y(at.x, k.thread()) = (k.thread() * kLarge - at.x * 2'000'000'000) / 8;
  z(at.x, k.thread()) = (i64(k.thread()) * (int64_t{1} << 58) + i64(at.x)) / 8;
  const HostTensor of_ints(DType::i32, {2, 64}), of_longs(DType::i64, {2, 64});
  run_kernel(k.finish(), {&of_ints, &of_longs});
  const auto wrap = [](uint32_t value) { return static_cast<int32_t>(value); };
  for (int64_t i = 0; i < 128; ++i) {
    CAPTURE(i);
    const auto block = static_cast<uint32_t>(i / 64), thread = static_cast<uint32_t>(i % 64);
    const uint32_t sum = thread * static_cast<uint32_t>(kLarge) - block * 2'000'000'000u;
    CHECK(static_cast<int32_t>(of_ints.bits(i)) == wrap(sum) / 8);
    const uint64_t wide = (uint64_t{thread} << 58) + block;
    CHECK(static_cast<int64_t>(of_longs.bits(i)) == static_cast<int64_t>(wide) / 8);
  }
}
