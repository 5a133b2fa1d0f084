// Tile programs in f64: bits of plain C++, and an optimizer with f64 moments.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Ref;
using dsl::Tile;
using dsl::Value;

namespace {

constexpr DType kF64 = DType::f64;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint64_t kNan = 0x7FFFFFFFFFFFFFFF;

/// Numbers of every size, both zeros, infinities and NaN; each beside each of a few others.
std::vector<double> numbers() {
  std::vector<double> list = {0.0,        -0.0,      1.0,    -1.5,  0.1,          kInfinity,
                              -kInfinity, 0x1p-1074, 1e-308, 1e308, std::nan(""), -std::nan("")};
  std::mt19937_64 random(5);
  while (list.size() < 256) {
    const auto number = std::bit_cast<double>(random());
    list.push_back(list.size() % 2 == 0 ? number : static_cast<double>(random() % 1000) / 7);
  }
  return list;
}

uint64_t bits_of(double value) {
  return std::isnan(value) ? kNan : std::bit_cast<uint64_t>(value);
}

/// The bits of body(a, b) for 256 pairs.
std::vector<uint64_t> results(DType to, const std::vector<double>& a, const std::vector<double>& b,
                              const std::function<Value(const Value&, const Value&)>& body) {
  Builder k("binary");
  auto x = k.input("x", kF64, {256});
  auto y = k.input("y", kF64, {256});
  auto z = k.output("z", to, {256});
  k.launch({1}, {.threads = 64});
  k.parallel({256}, [&](Value i) { z(i) = body(x(i), y(i)); });
  const HostTensor left = tensor_of(kF64, {256}, a), right = tensor_of(kF64, {256}, b);
  const HostTensor out(to, {256});
  run_kernel(k.finish(), {&left, &right, &out});
  std::vector<uint64_t> bits;
  for (int64_t i = 0; i < 256; ++i) bits.push_back(out.bits(i));
  return bits;
}

template <class F>
std::vector<uint64_t> expected(const std::vector<double>& a, const std::vector<double>& b,
                               const F& f) {
  std::vector<uint64_t> bits;
  for (size_t i = 0; i < a.size(); ++i) bits.push_back(bits_of(f(a[i], b[i])));
  return bits;
}

double extreme(double a, double b, bool wants_largest) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) == wants_largest ? b : a;
  return (a > b) == wants_largest ? a : b;
}

}  // namespace

TEST_CASE("f64 arithmetic has the bits of C++", "[language]") {
  const std::vector<double> a = numbers();
  const size_t distance = GENERATE(size_t{0}, size_t{1}, size_t{3}, size_t{7});
  CAPTURE(distance);
  std::vector<double> b = a;
  std::rotate(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(distance), b.end());
  const auto is_same = [&](const auto& body, const auto& plain) {
    return results(kF64, a, b, body) == expected(a, b, plain);
  };
  using V = const Value&;
  CHECK(is_same([](V x, V y) { return x + y; }, [](double x, double y) { return x + y; }));
  CHECK(is_same([](V x, V y) { return x - y; }, [](double x, double y) { return x - y; }));
  CHECK(is_same([](V x, V y) { return x * y; }, [](double x, double y) { return x * y; }));
  CHECK(is_same([](V x, V y) { return x / y; }, [](double x, double y) { return x / y; }));
  CHECK(is_same([](V x, V y) { return x * y + 0.1; },
                [](double x, double y) {
                  const volatile double product = x * y;  // rounded by itself
                  return product + 0.1;
                }));
  CHECK(is_same([](V x, V y) { return fma(x, y, -0.1); },
                [](double x, double y) { return std::fma(x, y, -0.1); }));
  CHECK(is_same([](V x, V) { return sqrt(x); }, [](double x, double) { return std::sqrt(x); }));
  CHECK(is_same([](V x, V) { return floor(x); }, [](double x, double) { return std::floor(x); }));
  CHECK(is_same([](V x, V) { return ceil(x); }, [](double x, double) { return std::ceil(x); }));
  CHECK(
      is_same([](V x, V) { return rint(x); }, [](double x, double) { return std::nearbyint(x); }));
  CHECK(is_same([](V x, V y) { return max(x, y); },
                [](double x, double y) { return extreme(x, y, true); }));
  CHECK(is_same([](V x, V y) { return min(x, y); },
                [](double x, double y) { return extreme(x, y, false); }));
  CHECK(is_same([](V x, V y) { return select(x < y, x - 0.0, y * 1.0); },
                [](double x, double y) { return x < y ? x : y; }));
}

TEST_CASE("f64 signs, comparisons and bits", "[language]") {
  const std::vector<double> a = numbers();
  std::vector<double> b = a;
  std::rotate(b.begin(), b.begin() + 1, b.end());
  using V = const Value&;
  const auto flags = [&](const std::function<Value(V, V)>& body, const auto& plain) {
    const std::vector<uint64_t> got = results(DType::boolean, a, b, body);
    for (size_t i = 0; i < a.size(); ++i) {
      if (got[i] != (plain(a[i], b[i]) ? 1u : 0u)) return false;
    }
    return true;
  };
  CHECK(flags([](V x, V y) { return x < y; }, [](double x, double y) { return x < y; }));
  CHECK(flags([](V x, V y) { return x <= y; }, [](double x, double y) { return x <= y; }));
  CHECK(flags([](V x, V y) { return x == y; }, [](double x, double y) { return x == y; }));
  CHECK(flags([](V x, V y) { return x != y; }, [](double x, double y) { return x != y; }));
  CHECK(flags([](V x, V) { return is_nan(x); }, [](double x, double) { return std::isnan(x); }));
  CHECK(flags([](V x, V) { return is_inf(x); }, [](double x, double) { return std::isinf(x); }));
  // The sign alone changes, of a NaN too.
  const auto raw = [&](const std::function<Value(V, V)>& body, const auto& plain) {
    const std::vector<uint64_t> got = results(kF64, a, b, body);
    for (size_t i = 0; i < a.size(); ++i) {
      if (got[i] != plain(std::bit_cast<uint64_t>(a[i]), std::bit_cast<uint64_t>(b[i])))
        return false;
    }
    return true;
  };
  constexpr uint64_t kSign = uint64_t{1} << 63;
  CHECK(raw([](V x, V) { return -x; }, [&](uint64_t x, uint64_t) { return x ^ kSign; }));
  CHECK(raw([](V x, V) { return abs(x); }, [&](uint64_t x, uint64_t) { return x & ~kSign; }));
  CHECK(raw([](V x, V y) { return copysign(x, y); },
            [&](uint64_t x, uint64_t y) { return (x & ~kSign) | (y & kSign); }));
  CHECK(raw([](V x, V) { return reinterpret(DType::f64, reinterpret(DType::i64, x)); },
            [&](uint64_t x, uint64_t) { return x; }));
}

TEST_CASE("f64 fragments are reduced over rows, columns, warps and shared memory", "[language]") {
  const bool over_rows = GENERATE(false, true);
  const int threads = GENERATE(64, 256);
  constexpr int64_t kRows = 16, kColumns = 48;
  const int64_t lines = over_rows ? kColumns : kRows, length = over_rows ? kRows : kColumns;
  Builder k("reduced");
  auto x = k.input("x", kF64, {kRows, kColumns});
  auto y = k.output("y", kF64, {4, lines});
  k.launch({1}, {.threads = threads});
  auto tile = k.fragment(kF64, {kRows, kColumns}, "tile");
  k.copy(x.tile({0, 0}, {kRows, kColumns}), tile);
  const auto axis = Axis(over_rows ? 0 : 1);
  auto folded = k.fragment(kF64, {lines}, "folded");
  const auto keep = [&](int64_t row) { k.copy(folded, y(row)); };
  k.reduce_sum(tile, folded, axis);
  keep(0);
  k.reduce_max(tile, folded, axis);
  keep(1);
  k.reduce_min(tile, folded, axis);
  keep(2);
  k.reduce_absmax(tile, folded, axis);
  keep(3);
  const ir::Kernel kernel = k.finish();
  HostTensor in(kF64, {kRows, kColumns});
  // Sums that are exact in f64, and not in f32.
  for (int64_t i = 0; i < in.size(); ++i) {
    in.set_value(i, static_cast<double>(i * 7919 % 1009 - 504) * (1 + 0x1p-30));
  }
  const HostTensor out(kF64, {4, lines});
  run_kernel(kernel, {&in, &out});
  for (int64_t line = 0; line < lines; ++line) {
    double sum = 0, most = -kInfinity, least = kInfinity;
    for (int64_t i = 0; i < length; ++i) {
      const double v = in.value(over_rows ? i * kColumns + line : line * kColumns + i);
      sum += v;
      most = std::max(most, v);
      least = std::min(least, v);
    }
    CHECK(out.value(line) == sum);
    CHECK(out.value(lines + line) == most);
    CHECK(out.value(2 * lines + line) == least);
    CHECK(out.value(3 * lines + line) == std::max(most, -least));
  }
}

TEST_CASE("f64 in reducers, also of one value", "[language]") {
  constexpr int64_t kRows = 8, kColumns = 96;
  Builder k("reducers");
  auto x = k.input("x", kF64, {kRows, kColumns});
  auto y = k.output("y", kF64, {kRows});
  auto most = k.output("most", kF64, {1});
  k.launch({1}, {.threads = 128});
  auto total = k.reducer(dsl::ReduceOp::sum, kF64, {kRows});
  auto largest = k.reducer(dsl::ReduceOp::max, kF64);
  total.init();
  largest.init();
  k.parallel({kRows, kColumns}, [&](Value r, Value c) {
    total.update(r, x(r, c));
    largest.update(x(r, c));
  });
  auto sums = k.fragment(kF64, {kRows}, "sums");
  total.finalize(sums);
  k.copy(sums, y);
  const Value best = largest.finalize();
  k.if_(k.thread() == 0, [&] { most(0) = best; });
  HostTensor in(kF64, {kRows, kColumns});
  std::vector<double> expected(kRows, 0);
  for (int64_t i = 0; i < in.size(); ++i) {
    in.set_value(i, static_cast<double>(i * 31 % 500) * (1 + 0x1p-30));
    expected[static_cast<size_t>(i / kColumns)] += in.value(i);
  }
  const HostTensor out(kF64, {kRows}), one(kF64, {1});
  run_kernel(k.finish(), {&in, &out, &one});
  CHECK(values_of(out) == expected);
  CHECK(one.value(0) == 499 * (1 + 0x1p-30));
}

TEST_CASE("f64 scans are exact where the sums are, in both places and directions", "[language]") {
  const bool exclusive = GENERATE(false, true);
  const bool from_end = GENERATE(false, true);
  const int64_t lines = GENERATE(int64_t{1}, int64_t{6});
  CAPTURE(exclusive, from_end, lines);
  constexpr int64_t kLength = 100;
  Builder k("scans");
  auto x = k.input("x", kF64, {lines, kLength});
  auto sums = k.output("sums", kF64, {lines, kLength});
  auto most = k.output("most", kF64, {lines, kLength});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(kF64, {lines, kLength}, "tile");
  auto place = k.shared(kF64, {lines, kLength}, "place");
  k.copy(x, tile);
  k.copy(x, place);
  const dsl::ScanOptions options{.exclusive = exclusive, .from_end = from_end};
  k.scan_max(place, place, Axis(1), options);
  k.scan_sum(tile, tile, Axis(1), options);
  k.copy(tile, sums);
  k.copy(place, most);
  HostTensor in(kF64, {lines, kLength});
  for (int64_t i = 0; i < in.size(); ++i) {
    in.set_value(i, static_cast<double>(i * 7919 % 1009 - 504) * (1 + 0x1p-30));
  }
  const HostTensor out(kF64, {lines, kLength}), largest(kF64, {lines, kLength});
  run_kernel(k.finish(), {&in, &out, &largest});
  for (int64_t line = 0; line < lines; ++line) {
    double sum = 0, best = -kInfinity;
    for (int64_t i = 0; i < kLength; ++i) {
      const int64_t at = line * kLength + (from_end ? kLength - 1 - i : i);
      const double old_sum = sum, old_best = best;
      sum += in.value(at);
      best = std::max(best, in.value(at));
      CHECK(out.value(at) == (exclusive ? old_sum : sum));
      CHECK(largest.value(at) == (exclusive ? old_best : best));
    }
  }
}

TEST_CASE("f64 in vectors, shared memory, atomics, scalars and prints", "[language]") {
  Builder k("places");
  auto scale = k.scalar("scale", kF64);
  auto x = k.input("x", kF64, {256});
  auto y = k.output("y", kF64, {256});
  auto total = k.output("total", kF64, {1});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(kF64, {256}, "tile");
  k.copy(x.tile({0}, {256}), tile);
  k.parallel({256}, [&](Value i) { y(i) = tile(255 - i) * scale; });
  k.atomic_add(total(0), k.warp_sum(x(k.thread())) / 32.0);
  k.if_(k.thread() == 1, [&] { k.print("{}", {x(1) / 10.0}); });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "load<2>(") >= 1);  // 16 bytes
  HostTensor in = iota(kF64, {256});
  for (int64_t i = 0; i < 256; ++i) in.set_value(i, static_cast<double>(i) + 0x1p-40);
  const HostTensor out(kF64, {256});
  const HostTensor sum = tensor_of(kF64, {1}, {0.25});
  const codegen::cpu::Argument arguments[] = {
      {.tensor = in.view()}, {.tensor = out.view()}, {.tensor = sum.view()}, {.number = 0.1}};
  std::string printed;
  codegen::cpu::Options options;
  options.traps = true;
  options.print = [&](std::string_view text) { printed += text; };
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, options);
  CHECK(printed == "0.10000000000009095\n");
  CHECK_THAT(out,
             HasValues([](int64_t i) { return (static_cast<double>(255 - i) + 0x1p-40) * 0.1; }));
  CHECK(sum.value(0) == 0.25 + 63 * 64 / 2 + 64 * 0x1p-40);
}

TEST_CASE("an AdamW step with f64 moments", "[language]") {
  constexpr int64_t kSize = 1000;
  constexpr double kRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8, kDecay = 0.01;
  constexpr double kUnbias1 = 1 - kBeta1, kUnbias2 = 1 - kBeta2;  // of the first step
  Builder k("adamw");
  auto n = k.dim("n", {.multiple_of = 8});
  auto gradient = k.input("gradient", DType::bf16, {n});
  auto weight = k.output("weight", DType::f32, {n});
  auto mean = k.output("mean", kF64, {n});
  auto square = k.output("square", kF64, {n});
  auto at = k.launch({ceil_div(n, 256)}, {.threads = 64});
  k.parallel({256}, [&](Value i) {
    const Value e = k.let("e", at.x * 256 + i);
    const Value g = k.let("g", f64(gradient(e)));
    const Value m = k.let("m", mean(e) * kBeta1 + g * (1 - kBeta1));
    const Value v = k.let("v", square(e) * kBeta2 + g * g * (1 - kBeta2));
    const Value w = k.let("w", f64(weight(e)));
    mean(e) = m;
    square(e) = v;
    const Value step = (m / kUnbias1) / (sqrt(v / kUnbias2) + kEpsilon);
    weight(e) = f32(w - kRate * (step + kDecay * w));
  });
  const ir::Kernel kernel = k.finish();
  HostTensor g(DType::bf16, {kSize}), w(DType::f32, {kSize}), m(kF64, {kSize}), v(kF64, {kSize});
  std::mt19937 random(3);
  const auto draw = [&] { return static_cast<double>(random() % 2001) / 1000 - 1; };
  std::vector<float> weights;
  std::vector<double> means, squares;
  for (int64_t i = 0; i < kSize; ++i) {
    g.set_value(i, draw());
    w.set_value(i, draw());
    m.set_value(i, draw());
    v.set_value(i, std::fabs(draw()));
    const double old = w.value(i), slope = g.value(i);
    const double first = m.value(i) * kBeta1, second = slope * (1 - kBeta1);
    means.push_back(first + second);
    const double third = v.value(i) * kBeta2, fourth = slope * slope * (1 - kBeta2);
    squares.push_back(third + fourth);
    const double step =
        (means.back() / kUnbias1) / (std::sqrt(squares.back() / kUnbias2) + kEpsilon);
    const double decayed = kDecay * old;
    const double change = kRate * (step + decayed);
    weights.push_back(static_cast<float>(old - change));
  }
  run_kernel(kernel, {&g, &w, &m, &v});
  int64_t wrong = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    const auto at_i = static_cast<size_t>(i);
    if (w.value(i) != static_cast<double>(weights[at_i]) || m.value(i) != means[at_i] ||
        v.value(i) != squares[at_i]) {
      ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("what f64 does not have is refused where it is written", "[language]") {
  Builder k("refused");
  auto x = k.input("x", kF64, {64, 64});
  k.launch({1}, {.threads = 32});
  const std::string approximated = error_of([&] { exp(x(0, 0)); });
  CHECK(approximated.find("operand of 'exp' has the wrong dtype") != std::string::npos);
  CHECK(approximated.find("f32, f16 or bf16") != std::string::npos);
  CHECK(approximated.find("convert it with f32(value)") != std::string::npos);
  CHECK(error_of([&] { x(0, 0) + dsl::cast(DType::f32, 1); }).find("[DTYPE]") != std::string::npos);
  auto a = k.shared(kF64, {32, 32}, "a");
  auto c = k.fragment(kF64, {32, 32}, "c");
  CHECK(error_of([&] { k.gemm(a, a, c); }).find("[DTYPE]") != std::string::npos);
}
