// The test equipment: comparisons say what differs, guards see stray writes.

#include "tests/support/compare.h"

#include <limits>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

HostTensor f32_tensor(const std::vector<double>& values) {
  HostTensor tensor(DType::f32, {std::ssize(values)});
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, values[static_cast<size_t>(i)]);
  }
  return tensor;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("compare_bits reports the first mismatch, the count and the distance", "[support]") {
  HostTensor want(DType::e4m3, {2, 3});
  for (int64_t i = 0; i < 6; ++i) want.set_bits(i, 0x40 + static_cast<uint64_t>(i));
  HostTensor got = want;
  CHECK_THAT(got, EqualsBits(want));
  got.set_bits(4, 0x46);
  got.set_bits(5, 0x46);
  CHECK(compare_bits(got.view(), want.view()).report ==
        "first mismatch at [1, 1]: got 0x46 (3.5), want 0x44 (3); 2 of 6 differ, at most 2 ulp");
  const HostTensor other(DType::e4m3, {3, 2});
  CHECK(compare_bits(other.view(), want.view()).report == "got e4m3[3, 2], want e4m3[2, 3]");
  HostTensor placed(DType::e4m3, {2, 3}, {1, 4});
  for (int64_t i = 0; i < 6; ++i) placed.set_bits(i, want.bits(i));
  CHECK(compare_bits(placed.view(), want.view()).report ==
        "got strides [1, 4], want strides [3, 1]");
}

TEST_CASE("compare_values reports the first mismatch and the count", "[support]") {
  const HostTensor got = f32_tensor({0, 2, 5, 6.5, kNan});
  CHECK_THAT(f32_tensor({-0.0, 2, 4}), HasValues([](int64_t i) { return 2 * i; }));
  CHECK_THAT(got, !HasValues([&](int64_t i) { return got.value(i); }));  // for its NaN
  CHECK(compare_values(got.view(), [](int64_t i) { return 2.0 * static_cast<double>(i); }).report ==
        "first mismatch at [2]: got 0x40a00000 (5), want 4; 3 of 5 differ");
}

TEST_CASE("compare_bits tells zeros and NaN payloads apart", "[support]") {
  CHECK_FALSE(compare_bits(f32_tensor({0.0}).view(), f32_tensor({-0.0}).view()).ok);
  HostTensor payload = f32_tensor({kNan});
  payload.set_bits(0, 0x7FC00001);
  CHECK_FALSE(compare_bits(payload.view(), f32_tensor({kNan}).view()).ok);
}

TEST_CASE("tolerant comparisons accept up to their limit", "[support]") {
  const HostTensor want = f32_tensor({1.0, 0.0, kNan, kInfinity});
  CHECK_THAT(f32_tensor({1.0 + 0x1p-23, -0.0, kNan, kInfinity}), WithinUlp(want, 1));
  CHECK_THAT(f32_tensor({1.0 + 0x1p-22, 0.0, kNan, kInfinity}), !WithinUlp(want, 1));
  CHECK_THAT(f32_tensor({1.0, 0.0, 1.0, kInfinity}), !WithinUlp(want, 1000));
  CHECK_THAT(f32_tensor({1.01, 0.001, kNan, kInfinity}), AllClose(want, 0.01, 0.0011));
  CHECK_THAT(f32_tensor({1.03, 0.001, kNan, kInfinity}), !AllClose(want, 0.01, 0.0011));
  CHECK_THAT(f32_tensor({1.0, 0.0, kNan, -kInfinity}), !AllClose(want, 1, 1));
  CHECK_THAT(f32_tensor({1.0, 0.0, 0.0, kInfinity}), !AllClose(want, 1, 1));
  const HostTensor numbers = f32_tensor({3.0, 4.0});
  CHECK_THAT(f32_tensor({3.0, 4.0}), CalcDiff(numbers, 0));
  CHECK_THAT(f32_tensor({3.0, 4.1}), CalcDiff(numbers, 1e-3));
  CHECK_THAT(f32_tensor({3.0, 5.0}), !CalcDiff(numbers, 1e-3));
  CHECK_THAT(f32_tensor({kNan, 4.0}), !CalcDiff(numbers, 1));
  CHECK_THAT(f32_tensor({0.0}), CalcDiff(f32_tensor({0.0}), 0));
}

TEST_CASE("sorted rows compare as sets with counts", "[support]") {
  HostTensor want(DType::i64, {2, 3}), got(DType::i64, {2, 3});
  const int64_t a[] = {5, 1, 1, -1, 7, 2};
  const int64_t b[] = {1, 5, 1, 2, -1, 7};
  for (int64_t i = 0; i < 6; ++i) {
    want.set_bits(i, static_cast<uint64_t>(a[i]));
    got.set_bits(i, static_cast<uint64_t>(b[i]));
  }
  CHECK(compare_sorted_rows(got.view(), want.view()).ok);
  got.set_bits(0, 5);
  CHECK(compare_sorted_rows(got.view(), want.view()).report == "row 0 holds other elements");
}

TEST_CASE("quantised results may be one step off, seldom", "[support]") {
  HostTensor want(DType::e4m3, {100});
  for (int64_t i = 0; i < 100; ++i) want.set_bits(i, 0x30);
  HostTensor got = want;
  got.set_bits(3, 0x31);
  got.set_bits(4, 0x2F);
  CHECK(compare_quantised(got.view(), want.view()).ok);
  got.set_bits(5, 0x31);
  CHECK(compare_quantised(got.view(), want.view()).report ==
        "3 of 100 codes are one step off, 2 are allowed");
  got.set_bits(5, 0x32);
  CHECK(compare_quantised(got.view(), want.view()).report == "code 5 is 2 steps off, 1 is allowed");
  HostTensor around_zero =
      want;  // +0 and -0 are the same step, the smallest of each sign two apart
  around_zero.set_bits(0, 0x01);
  HostTensor negative = around_zero;
  negative.set_bits(0, 0x81);
  CHECK_FALSE(compare_quantised(negative.view(), around_zero.view()).ok);

  const HostTensor scales = f32_tensor({1.0, 2.0, 3.0});
  CHECK(compare_quantised(f32_tensor({1.0, 4.0, 3.0}).view(), scales.view()).ok);
  CHECK_FALSE(compare_quantised(f32_tensor({2.0, 4.0, 3.0}).view(), scales.view()).ok);
  CHECK_FALSE(compare_quantised(f32_tensor({1.1, 2.0, 3.0}).view(), scales.view()).ok);
}

TEST_CASE("a HostTensor notices stray writes and dirty padding", "[support]") {
  HostTensor tensor(DType::f32, {3, 2}, {1, 4}, 8);
  CHECK(tensor.damage().empty());
  CHECK(tensor.padding_other_than(kUnset).empty());
  CHECK(tensor.padding_other_than(std::byte{0}) ==
        "padding byte 12 of the storage is 0x7b, not 0x00");
  auto* data = static_cast<std::byte*>(tensor.view().data);
  data[32] = std::byte{1};
  CHECK(tensor.damage() == "byte 0 after the tensor was written");
  data[-1] = std::byte{1};
  CHECK(tensor.damage() == "byte 1 before the tensor was written");
  const uint64_t before = tensor.checksum();
  data[5] = std::byte{9};
  CHECK(tensor.checksum() != before);
}

TEST_CASE("random tensors repeat and hold what they promise", "[support]") {
  const HostTensor a = random_tensor(DType::bf16, {64, 64}, Values::nasty, 5);
  CHECK_THAT(a, EqualsBits(random_tensor(DType::bf16, {64, 64}, Values::nasty, 5)));
  CHECK_THAT(a, !EqualsBits(random_tensor(DType::bf16, {64, 64}, Values::nasty, 6)));
  int infinities = 0, nans = 0, minus_zeros = 0, subnormals = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double v = a.value(i);
    infinities += std::isinf(v) ? 1 : 0;
    nans += std::isnan(v) ? 1 : 0;
    minus_zeros += v == 0 && std::signbit(v) ? 1 : 0;
    subnormals += v != 0 && std::fabs(v) < 0x1p-126 ? 1 : 0;
  }
  CHECK(infinities > 0);
  CHECK(nans > 0);
  CHECK(minus_zeros > 0);
  CHECK(subnormals > 0);
  const HostTensor normal = random_tensor(DType::f32, {10000}, Values::normal, 7);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < normal.size(); ++i) {
    sum += normal.value(i);
    squares += normal.value(i) * normal.value(i);
  }
  CHECK(std::fabs(sum / 10000) < 0.05);
  CHECK(std::fabs(squares / 10000 - 1) < 0.05);
}
