// 8-bit and 4-bit floats, which are stored and converted but not computed with: what reductions give, what is refused, and
// that every function of a value either works or is refused by a code.

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kRows = 4, kColumns = 64;
constexpr ir::ReduceOp kExtremes[] = {ir::ReduceOp::max, ir::ReduceOp::min, ir::ReduceOp::absmax};

void reduce(Builder& k, ir::ReduceOp op, const Ref& from, const Ref& to, Axis axis) {
  if (op == ir::ReduceOp::max) k.reduce_max(from, to, axis);
  if (op == ir::ReduceOp::min) k.reduce_min(from, to, axis);
  if (op == ir::ReduceOp::absmax) k.reduce_absmax(from, to, axis);
  if (op == ir::ReduceOp::sum) k.reduce_sum(from, to, axis);
}

/// Row 0: negative numbers; 1: numbers and NaN; 2: NaN alone, where the dtype has it; 3: the largest and the smallest.
double element(DType dtype, int64_t row, int64_t column) {
  constexpr double kNumbers[] = {-3, -2, -1.5, -1, -0.5};  // all dtypes have them
  const double number = kNumbers[column % 5];
  const bool has_nan = dtype != DType::e2m1;
  const double largest = dtype == DType::e4m3 ? 448 : dtype == DType::e5m2 ? kInfinity : 6;
  if (row == 0) return number;
  if (row == 1) return has_nan && column % 3 == 0 ? kNaN : -number;
  if (row == 2) return has_nan ? kNaN : 0;
  return column == 7 ? largest : column == 50 ? -largest : number;
}

double extreme(DType dtype, ir::ReduceOp op, const std::vector<double>& values) {
  // Without numbers: the end of the dtype's range.
  const double end = dtype == DType::e4m3 ? 448 : dtype == DType::e5m2 ? kInfinity : 6;
  double result = op == ir::ReduceOp::max ? -end : op == ir::ReduceOp::min ? end : 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    if (op == ir::ReduceOp::max) result = std::max(result, value);
    if (op == ir::ReduceOp::min) result = std::min(result, value);
    if (op == ir::ReduceOp::absmax) result = std::max(result, std::fabs(value));
  }
  return result;
}

}  // namespace

TEST_CASE("max, min and absmax of 8-bit and 4-bit floats into their own dtype", "[language]") {
  for (const DType dtype : {DType::e4m3, DType::e5m2, DType::e2m1}) {
    CAPTURE(name(dtype));
    Builder k("stored_extremes");
    auto x = k.input("x", DType::f32, {kRows, kColumns});
    auto rows = k.output("rows", DType::f32, {3, kRows});
    auto columns = k.output("columns", DType::f32, {3, kColumns});
    k.launch({1}, {.threads = 64});
    auto f = k.fragment(dtype, {kRows, kColumns}, "f");
    k.copy(x, f);
    for (size_t i = 0; i < 3; ++i) {
      const auto at = static_cast<int64_t>(i);
      auto of_rows = k.fragment(dtype, {kRows}, "of_rows");
      auto of_columns = k.fragment(dtype, {kColumns}, "of_columns");
      reduce(k, kExtremes[i], f, of_rows, Axis(1));
      reduce(k, kExtremes[i], f, of_columns, Axis(0));
      k.copy(of_rows, rows(at));
      k.copy(of_columns, columns(at));
    }
    const HostTensor in = tensor_by(DType::f32, {kRows, kColumns}, [&](int64_t i) {
      return element(dtype, i / kColumns, i % kColumns);
    });
    const HostTensor by_row(DType::f32, {3, kRows}), by_column(DType::f32, {3, kColumns});
    run_kernel(k.finish(), {&in, &by_row, &by_column});
    CHECK_THAT(by_row, HasValues([&](int64_t i) {
                 std::vector<double> values;
                 for (int64_t c = 0; c < kColumns; ++c)
                   values.push_back(element(dtype, i % kRows, c));
                 return extreme(dtype, kExtremes[i / kRows], values);
               }));
    CHECK_THAT(by_column, HasValues([&](int64_t i) {
                 std::vector<double> values;
                 for (int64_t r = 0; r < kRows; ++r)
                   values.push_back(element(dtype, r, i % kColumns));
                 return extreme(dtype, kExtremes[i / kColumns], values);
               }));
  }
}

TEST_CASE("argmax and argmin of a tile of 8-bit floats", "[language]") {
  for (const DType dtype : {DType::e4m3, DType::e5m2}) {
    Builder k("stored_best");
    auto x = k.input("x", DType::f32, {kRows, kColumns});
    auto y = k.output("y", DType::i32, {2, kRows, 1});
    k.launch({1}, {.threads = 64});
    auto f = k.fragment(dtype, {kRows, kColumns}, "f");
    k.copy(x, f);
    const dsl::Tile tile(f);
    k.store(k.argmax(tile, Axis(1)).index, y(0));
    k.store(k.argmin(tile, Axis(1)).index, y(1));
    const HostTensor in = tensor_by(DType::f32, {kRows, kColumns}, [&](int64_t i) {
      return element(dtype, 3, (i + i / 64) % 64);
    });
    const HostTensor out(DType::i32, {2, kRows, 1});
    run_kernel(k.finish(), {&in, &out});
    CHECK_THAT(out, HasValues([](int64_t i) { return (i < kRows ? 7 : 50) - i % kRows; }));
  }
}

TEST_CASE("a sum of 8-bit or 4-bit floats into their own dtype is refused: sum in f32",
          "[language]") {
  for (const DType dtype : {DType::e4m3, DType::e5m2, DType::e2m1}) {
    Builder k("stored_sum");
    k.launch({1}, {.threads = 64});
    auto f = k.fragment(dtype, {kRows, kColumns}, "f"), sum = k.fragment(dtype, {kRows}, "sum");
    auto wide = k.fragment(DType::f32, {kRows}, "wide");
    CHECK(error_of([&] { k.reduce_sum(f, wide, Axis(1)); }) == "");
    const std::string text = error_of([&] { k.reduce_sum(f, sum, Axis(1)); });
    CAPTURE(text);
    CHECK(text.find("the sum 'sum' of 'f' is of a dtype that is stored, not computed with "
                    "[DTYPE]\n  expected  f32\n  got       " +
                    std::string(name(dtype)) +
                    "\n  hint      sum into a fragment of f32\n  at        ") != std::string::npos);
    CHECK(text.find("stored_floats_test.cpp") != std::string::npos);
    auto scanned = k.fragment(dtype, {kColumns}, "scanned");
    CHECK(error_of([&] { k.scan_sum(scanned, scanned, Axis(0)); }).find("[DTYPE]") !=
          std::string::npos);
    const bool has_infinity = dtype == DType::e5m2;
    const std::string filled = error_of([&] { k.fill(f, kInfinity); });
    CHECK((has_infinity ? filled.empty() : filled.find("[LITERAL]") != std::string::npos));
  }
}

namespace {

using Function = std::function<Value(Builder& k, const Value& x)>;

/// Functions of one value. Each is recorded for each dtype.
std::vector<std::pair<std::string, Function>> functions() {
  using dsl::cast;
  return {
      {"x + x", [](Builder&, const Value& x) { return x + x; }},
      {"x - x", [](Builder&, const Value& x) { return x - x; }},
      {"x * x", [](Builder&, const Value& x) { return x * x; }},
      {"x / x", [](Builder&, const Value& x) { return x / x; }},
      {"x % x", [](Builder&, const Value& x) { return x % x; }},
      {"-x", [](Builder&, const Value& x) { return -x; }},
      {"!x", [](Builder&, const Value& x) { return !x; }},
      {"x & x", [](Builder&, const Value& x) { return x & x; }},
      {"x ^ x", [](Builder&, const Value& x) { return x ^ x; }},
      {"x << 1", [](Builder&, const Value& x) { return x << 1; }},
      {"x >> 1", [](Builder&, const Value& x) { return x >> 1; }},
      {"x < x", [](Builder&, const Value& x) { return x < x; }},
      {"x == x", [](Builder&, const Value& x) { return x == x; }},
      {"max", [](Builder&, const Value& x) { return max(x, x); }},
      {"min", [](Builder&, const Value& x) { return min(x, x); }},
      {"max_nan", [](Builder&, const Value& x) { return max_nan(x, x); }},
      {"abs", [](Builder&, const Value& x) { return abs(x); }},
      {"fma", [](Builder&, const Value& x) { return fma(x, x, x); }},
      {"sqrt", [](Builder&, const Value& x) { return sqrt(x); }},
      {"rsqrt", [](Builder&, const Value& x) { return rsqrt(x); }},
      {"exp", [](Builder&, const Value& x) { return exp(x); }},
      {"log1p", [](Builder&, const Value& x) { return log1p(x); }},
      {"tanh", [](Builder&, const Value& x) { return tanh(x); }},
      {"floor", [](Builder&, const Value& x) { return floor(x); }},
      {"rint", [](Builder&, const Value& x) { return rint(x); }},
      {"copysign", [](Builder&, const Value& x) { return copysign(x, x); }},
      {"is_nan", [](Builder&, const Value& x) { return is_nan(x); }},
      {"is_inf", [](Builder&, const Value& x) { return is_inf(x); }},
      {"select", [](Builder&, const Value& x) { return select(true, x, x); }},
      {"clz", [](Builder&, const Value& x) { return clz(x); }},
      {"mulhi", [](Builder&, const Value& x) { return mulhi(x, x); }},
      {"ceil_div", [](Builder&, const Value& x) { return ceil_div(x, 3); }},
      {"f32", [](Builder&, const Value& x) { return f32(x); }},
      {"shuffle", [](Builder& k, const Value& x) { return k.shuffle(x, 0); }},
      {"shuffle_xor", [](Builder& k, const Value& x) { return k.shuffle_xor(x, 1); }},
      {"warp_sum", [](Builder& k, const Value& x) { return k.warp_sum(x); }},
      {"warp_max", [](Builder& k, const Value& x) { return k.warp_max(x); }},
      {"warp_min", [](Builder& k, const Value& x) { return k.warp_min(x); }},
      {"warp_and", [](Builder& k, const Value& x) { return k.warp_and(x); }},
      {"warp_or", [](Builder& k, const Value& x) { return k.warp_or(x); }},
      {"warp_any", [](Builder& k, const Value& x) { return k.warp_any(x); }},
      {"match_any", [](Builder& k, const Value& x) { return k.match_any(x); }},
      {"uniform", [](Builder& k, const Value& x) { return k.uniform(k.shuffle(x, 0)); }},
  };
}

/// Records `body`; a refusal has to have a code.
void record_or_refuse(const std::string& what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    CAPTURE(what, error.what());
    CHECK(!error.code().empty());
    CHECK(error.kind() == ErrorKind::program);
  }
}

}  // namespace

TEST_CASE("every function of a value takes a dtype or refuses it by a code", "[language]") {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    CAPTURE(name(dtype));
    Builder k("all_functions");
    auto y = k.output("y", DType::f32, {64});
    k.launch({1}, {.threads = 32});
    const Value x = k.let("x", cast(dtype, k.let("start", k.thread() * 0 + 1)));
    const auto use = [&](const Value& value) {
      const Value seen = k.let("seen", value);
      k.if_(cast(DType::i32, seen) == 77, [&] { y(k.thread()) = 1.0f; });
    };
    y(k.thread()) = 0.0f;
    for (const auto& function : functions()) {
      record_or_refuse(function.first, [&] { use(function.second(k, x)); });
    }
    for (int other = 0; other < kNumDTypes; ++other) {
      const auto to = static_cast<DType>(other);
      record_or_refuse(std::string(name(to)), [&] { use(cast(to, x)); });
    }
    const ir::Kernel kernel = k.finish();
    const HostTensor out(DType::f32, {64});
    CHECK(error_of([&] { run_kernel(kernel, {&out}); }) == "");
    CHECK(error_of([&] { cuda_text(kernel); }) == "");
  }
}

TEST_CASE("every reduction takes a dtype or refuses it by a code", "[language]") {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    CAPTURE(name(dtype));
    Builder k("all_reductions");
    auto y = k.output("y", DType::f32, {8, 2});  // a row for each reduction
    int64_t row = 0;
    k.launch({1}, {.threads = 32});
    auto f = k.fragment(dtype, {32, 2}, "f");
    k.fill(f, k.let("x", cast(dtype, k.let("start", k.thread() * 0 + 1))));
    for (const ir::ReduceOp op :
         {ir::ReduceOp::max, ir::ReduceOp::min, ir::ReduceOp::absmax, ir::ReduceOp::sum}) {
      for (const DType to : {dtype, DType::f32}) {
        const int64_t at = row++;
        record_or_refuse(std::string(name(op)), [&] {
          auto r = k.fragment(to, {2}, "r");
          reduce(k, op, f, r, Axis(0));
          k.parallel({2}, [&](const Value& i) { y(at, i) = cast(DType::f32, r(i)); });
        });
      }
    }
    const ir::Kernel kernel = k.finish();
    const HostTensor out(DType::f32, {8, 2});
    CHECK(error_of([&] { run_kernel(kernel, {&out}); }) == "");
    CHECK(error_of([&] { cuda_text(kernel); }) == "");
    CHECK(out.value(0) == 1);  // the maximum
    const bool has_sums = dtype != DType::boolean && (is_integer(dtype) || bits(dtype) > 8);
    if (has_sums) CHECK(out.value(6 * 2) == 32);
  }
}
