// Tile programs whose 16-bit arithmetic goes two lanes at a time: what is emitted, and that no bit
// differs from one lane at a time.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/reference/numeric.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// Numbers of every kind: NaN, infinities, zeros and subnormals of both signs, ties, and bits at
/// random.
HostTensor all_kinds(DType dtype, Dims shape, uint64_t seed) {
  HostTensor tensor(dtype, shape);
  std::mt19937_64 random(seed);
  const uint32_t special[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x7F80, 0xFF80,
                              0x7FC1, 0xFFFF, 0x7C00, 0xFC00, 0x3C00, 0x3F80, 0x03FF, 0x7BFF};
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint64_t bits = random();
    tensor.set_bits(i, bits % 4 == 0 ? special[bits / 4 % 16] : bits >> 16 & 0xFFFF);
  }
  return tensor;
}

/// One operation with two roundings, as the language defines it, on the values of two elements.
uint64_t rounded(DType dtype, float result) {
  return reference::encode(dtype, result);
}

float larger(float a, float b) {
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return std::fmax(a, b);
}
float smaller(float a, float b) {
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return std::fmin(a, b);
}

}  // namespace

TEST_CASE("16-bit arithmetic goes two lanes at a time and keeps its bits", "[language][packed]") {
  const DType dtype = GENERATE(DType::bf16, DType::f16);
  CAPTURE(dtype);
  const Dims shape{32, 64};
  Builder k("pairs");
  auto a = k.input("a", dtype, {32, 64});
  auto b = k.input("b", dtype, {32, 64});
  std::vector<dsl::Ref> out;
  for (const char* name : {"sum", "difference", "product", "low", "high", "magnitude"}) {
    out.push_back(k.output(name, dtype, {32, 64}));
  }
  k.launch({1}, {.threads = 64});
  k.parallel({32, 64}, [&](Value i, Value j) { out[0](i, j) = a(i, j) + b(i, j); });
  k.parallel({32, 64}, [&](Value i, Value j) { out[1](i, j) = a(i, j) - b(i, j); });
  k.parallel({32, 64}, [&](Value i, Value j) { out[2](i, j) = a(i, j) * b(i, j); });
  k.parallel({32, 64}, [&](Value i, Value j) { out[3](i, j) = min(a(i, j), b(i, j)); });
  k.parallel({32, 64}, [&](Value i, Value j) { out[4](i, j) = max(a(i, j), b(i, j)); });
  k.parallel({32, 64}, [&](Value i, Value j) { out[5](i, j) = abs(a(i, j)); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  for (const char* op : {"add", "sub", "mul", "min", "max"}) {
    CHECK(count(text, fmt::format("in_pairs<{}_{}x2, 8>(", op, name(dtype))) == 1);
  }
  CHECK(count(text, "in_pairs<abs_x2, 8>(") == 1);

  const HostTensor x = all_kinds(dtype, shape, 1);
  const HostTensor y = all_kinds(dtype, shape, 2);
  std::vector<HostTensor> results(6, HostTensor(dtype, shape));
  std::vector<const HostTensor*> tensors = {&x, &y};
  for (const HostTensor& result : results) tensors.push_back(&result);
  run_kernel(kernel, tensors);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto p = static_cast<float>(x.value(i));
    const auto q = static_cast<float>(y.value(i));
    CAPTURE(i, x.bits(i), y.bits(i));
    CHECK(results[0].bits(i) == rounded(dtype, p + q));
    CHECK(results[1].bits(i) == rounded(dtype, p - q));
    CHECK(results[2].bits(i) == rounded(dtype, p * q));
    CHECK(results[3].bits(i) == rounded(dtype, smaller(p, q)));
    CHECK(results[4].bits(i) == rounded(dtype, larger(p, q)));
    CHECK(results[5].bits(i) == (x.bits(i) & 0x7FFF));
  }
}

TEST_CASE("maxima of 16- and 8-bit floats are found in pairs, in and between threads",
          "[language][packed][slow]") {
  const DType dtype = GENERATE(DType::bf16, DType::f16, DType::e4m3);
  const DType pair = dtype == DType::e4m3 ? DType::f16 : dtype;
  const int sign = bits(dtype) - 1;
  const int threads = GENERATE(32, 128);  // several outputs per thread along the rows, and one
  CAPTURE(dtype, threads);
  constexpr int64_t kRows = 32, kCols = 64;
  Builder k("extremes");
  auto x = k.input("x", dtype, {kRows, kCols});
  auto along = k.output("along", DType::f32, {3, kRows});
  auto across = k.output("across", DType::f32, {3, kCols});
  k.launch({1}, {.threads = threads});
  auto tile = k.fragment(dtype, layout::split({kRows, kCols}, threads, 8), "tile");
  k.copy(x.tile({0, 0}, {kRows, kCols}), tile);
  for (const int axis : {1, 0}) {
    const int64_t extent = axis == 1 ? kRows : kCols;
    const dsl::Ref& out = axis == 1 ? along : across;
    auto greatest = k.fragment(DType::f32, {extent}, "greatest");
    auto least = k.fragment(DType::f32, {extent}, "least");
    auto magnitude = k.fragment(DType::f32, {extent}, "magnitude");
    k.reduce_max(tile, greatest, dsl::Axis(axis));
    k.reduce_min(tile, least, dsl::Axis(axis));
    k.reduce_absmax(tile, magnitude, dsl::Axis(axis));
    k.parallel({extent}, [&](Value i) { out(0, i) = greatest(i); });
    k.parallel({extent}, [&](Value i) { out(1, i) = least(i); });
    k.parallel({extent}, [&](Value i) { out(2, i) = magnitude(i); });
  }
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, fmt::format("in_pairs<max_{}x2, ", name(pair))) > 3);
  CHECK(count(text, fmt::format("in_pairs<min_{}x2, ", name(pair))) > 1);
  CHECK(count(text, fmt::format("in_pairs<max_abs_{}x2, ", name(pair))) == 2);

  HostTensor values = all_kinds(dtype, {kRows, kCols}, 3);
  for (int64_t j = 0; j < kCols; ++j)
    values.set_bits(3 * kCols + j, (2u << sign) - 1);  // nothing but NaN
  for (int64_t j = 0; j < kCols; ++j)
    values.set_bits(4 * kCols + j, static_cast<uint64_t>(j % 2) << sign);  // zeros
  HostTensor row_results(DType::f32, {3, kRows}), column_results(DType::f32, {3, kCols});
  run_kernel(kernel, {&values, &row_results, &column_results});
  const float infinity = std::numeric_limits<float>::infinity();
  const auto check = [&](const HostTensor& results, int64_t i, int64_t first, int64_t step,
                         int64_t number) {
    float most = -infinity, fewest = infinity, magnitude = 0;
    for (int64_t n = 0; n < number; ++n) {
      const auto value = static_cast<float>(values.value(first + n * step));
      most = larger(most, value);
      fewest = smaller(fewest, value);
      magnitude = larger(magnitude, std::fabs(value));
    }
    CAPTURE(i, number);
    const int64_t outputs = results.size() / 3;
    CHECK(results.bits(i) == reference::bits_of(most));
    CHECK(results.bits(outputs + i) == reference::bits_of(fewest));
    CHECK(results.bits(2 * outputs + i) == reference::bits_of(magnitude));
  };
  for (int64_t i = 0; i < kRows; ++i) check(row_results, i, i * kCols, 1, kCols);
  for (int64_t j = 0; j < kCols; ++j) check(column_results, j, j, kCols, kRows);
}

TEST_CASE("a fragment is updated in pairs in place, with constants", "[language][packed]") {
  const DType dtype = GENERATE(DType::bf16, DType::f16);
  Builder k("update_in_pairs");
  auto x = k.input("x", dtype, {3, 16, 64});
  auto y = k.output("y", dtype, {16, 64});
  k.launch({1}, {.threads = 128});
  auto sum = k.fragment(dtype, {16, 64}, "sum");
  k.fill(sum, 0);
  k.serial(0, 3, [&](Value t) {
    k.parallel({16, 64},
               [&](Value i, Value j) { sum(i, j) = max(sum(i, j), abs(x(t, i, j)) + 0.5f); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, fmt::format("in_pairs<max_{}x2, 8>(sum", name(dtype))) +
            count(text, fmt::format("in_pairs<max_{}x2, 8>(&sum", name(dtype))) ==
        1);
  CHECK(count(text, fmt::format("in_pairs<add_{}x2, 8>(", name(dtype))) == 1);
  const HostTensor source = tensor_by(dtype, {3, 16, 64}, [](int64_t i) { return i % 9 - 4; });
  const HostTensor result(dtype, {16, 64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               double most = 0;
               for (int64_t t = 0; t < 3; ++t) {
                 most = std::max(most, std::fabs(source.value(t * 1024 + i)) + 0.5);
               }
               return most;
             }));
}

TEST_CASE("what the body reads elsewhere is the value before an update in pairs",
          "[language][packed]") {
  Builder k("read_before");
  auto x = k.input("x", DType::bf16, {16, 64});
  auto y = k.output("y", DType::bf16, {16, 64});
  auto z = k.output("z", DType::f32, {16, 64});
  k.launch({1}, {.threads = 128});
  auto kept = k.fragment(DType::bf16, {16, 64}, "kept");
  k.copy(x, kept);
  k.parallel({16, 64}, [&](Value i, Value j) {
    z(i, j) = f32(kept(i, j));
    kept(i, j) = kept(i, j) * x(i, j);
  });
  k.copy(kept, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = tensor_by(DType::bf16, {16, 64}, [](int64_t i) { return i % 13; });
  const HostTensor squares(DType::bf16, {16, 64});
  const HostTensor before(DType::f32, {16, 64});
  run_kernel(kernel, {&source, &squares, &before});
  CHECK_THAT(before, HasValues([](int64_t i) { return i % 13; }));
  CHECK_THAT(squares, HasValues([](int64_t i) { return (i % 13) * (i % 13); }));
}

TEST_CASE("a NaN that is converted on may come as it is, one that is kept may not",
          "[language][packed]") {
  constexpr int64_t kRows = 16, kCols = 64;
  Builder k("converted");
  auto x = k.input("x", DType::bf16, {kRows, kCols});
  auto codes = k.output("codes", DType::e4m3, {kRows, kCols});
  auto wide = k.output("wide", DType::f32, {kRows, kCols});
  k.launch({1}, {.threads = 128});
  auto tile = k.fragment(DType::bf16, {kRows, kCols}, "tile");
  k.copy(x, tile);
  k.parallel({kRows, kCols},
             [&](Value i, Value j) { codes(i, j) = cast(DType::e4m3, f32(tile(i, j))); });
  k.parallel({kRows, kCols}, [&](Value i, Value j) { wide(i, j) = f32(tile(i, j)); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "= bf16_at(tile, ") == 1);
  CHECK(count(text, "= canonical_nan(") == 1);

  const HostTensor values = all_kinds(DType::bf16, {kRows, kCols}, 4);
  const HostTensor small(DType::e4m3, {kRows, kCols}), large(DType::f32, {kRows, kCols});
  run_kernel(kernel, {&values, &small, &large});
  for (int64_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values.value(i));
    CAPTURE(i, values.bits(i));
    CHECK(small.bits(i) == rounded(DType::e4m3, value));
    CHECK(large.bits(i) == (std::isnan(value) ? 0x7FFFFFFFu : reference::bits_of(value)));
  }
}

TEST_CASE("small floats are scaled as halves and rounded to e2m1", "[language][packed]") {
  constexpr int64_t kRows = 64, kCols = 64;
  Builder k("halves");
  auto x = k.input("x", DType::e4m3, {kRows, kCols});
  auto factors = k.input("factors", DType::f16, {kRows, 2});
  auto out = k.output("out", DType::e2m1, {kRows, kCols});
  auto products = k.output("products", DType::f16, {kRows, kCols});
  k.launch({1}, {.threads = 128});
  auto tile = k.fragment(DType::e4m3, layout::split({kRows, kCols}, 128, 8), "tile");
  auto factor = k.fragment(DType::f16, {kRows, 2}, "factor");  // one for 32 columns
  auto scaled = k.fragment(DType::f16, {kRows, kCols}, "scaled");
  auto codes = k.fragment(DType::e2m1, {kRows, kCols}, "codes");
  k.copy(x.tile({0, 0}, {kRows, kCols}), tile);
  k.parallel({kRows, 2}, [&](Value r, Value g) { factor(r, g) = factors(r, g); });
  k.parallel({kRows, kCols},
             [&](Value r, Value c) { scaled(r, c) = cast(DType::f16, tile(r, c)); });
  k.parallel({kRows, kCols},
             [&](Value r, Value c) { scaled(r, c) = scaled(r, c) * factor(r, c / 32); });
  k.parallel({kRows, kCols},
             [&](Value r, Value c) { codes(r, c) = cast(DType::e2m1, scaled(r, c)); });
  k.copy(codes, out.tile({0, 0}, {kRows, kCols}));
  k.copy(scaled, products.tile({0, 0}, {kRows, kCols}));
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "  e4m3x2_to_f16x2(") == 1);
  CHECK(count(text, "in_pairs<mul_f16x2, 8>(") == 1);
  CHECK(count(text, "  f16x8_to_e2m1x8(") == 1);
  CHECK(count(text, "f32") == 0);

  HostTensor codes_in(DType::e4m3, {kRows, kCols});
  for (int64_t i = 0; i < codes_in.size(); ++i) {
    codes_in.set_bits(i, static_cast<uint64_t>(i) % 256);
  }
  const HostTensor by = all_kinds(DType::f16, {kRows, 2}, 3);
  const HostTensor got(DType::e2m1, {kRows, kCols}), product(DType::f16, {kRows, kCols});
  run_kernel(kernel, {&codes_in, &by, &got, &product});
  for (int64_t i = 0; i < codes_in.size(); ++i) {
    CAPTURE(i, codes_in.bits(i), by.bits(i / 32));
    const uint64_t want = rounded(
        DType::f16, static_cast<float>(codes_in.value(i)) * static_cast<float>(by.value(i / 32)));
    CHECK(product.bits(i) == want);
    const uint64_t code = got.bits(i / 2) >> (i % 2 * 4) & 15;  // two to a byte
    CHECK(code == reference::encode(DType::e2m1,
                                    reference::decode(DType::f16, static_cast<uint32_t>(want))));
  }
}
