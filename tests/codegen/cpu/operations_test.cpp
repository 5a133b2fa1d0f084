// Every operation of the expression language, with the results of the GPU where C++ differs.

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "codegen/cpu/arithmetic/column_ops.h"
#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

using ir::Op;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::bit_cast<float>(0xFFC12345u);  // not the canonical one
constexpr uint32_t kCanonical = 0x7FFFFFFFu;

template <class Result, class T>
Result apply(Op op, DType type, T a, T b = {}, T c = {}) {
  Result result{};
  const ColumnOp loop = find_op(op, type);
  REQUIRE(loop != nullptr);
  loop(&result, &a, &b, &c, 1);
  return result;
}
float f32(Op op, float a, float b = 0, float c = 0) {
  return apply<float>(op, DType::f32, a, b, c);
}
uint32_t f32_bits(Op op, float a, float b = 0, float c = 0) {
  return std::bit_cast<uint32_t>(f32(op, a, b, c));
}
int32_t i32(Op op, int32_t a, int32_t b = 0) {
  return apply<int32_t>(op, DType::i32, a, b);
}
bool test(Op op, float a, float b = 0) {
  return apply<uint8_t>(op, DType::f32, a, b) != 0;
}

}  // namespace

TEST_CASE("f32 arithmetic rounds once and makes canonical NaNs", "[cpu][ops]") {
  CHECK(f32(Op::add, 1.0f, 2.0f) == 3.0f);
  CHECK(f32(Op::sub, 1.0f, 2.0f) == -1.0f);
  CHECK(f32(Op::mul, 3.0f, 0.5f) == 1.5f);
  CHECK(f32(Op::div, 1.0f, 3.0f) == 1.0f / 3.0f);
  CHECK(f32(Op::div, 1.0f, 0.0f) == kInf);
  CHECK(f32(Op::sqrt, 2.0f) == std::sqrt(2.0f));
  CHECK(f32(Op::mul, 1e-30f, 1e-10f) == 1e-30f * 1e-10f);  // a subnormal survives
  for (const Op op : {Op::add, Op::sub, Op::mul, Op::div}) {
    CAPTURE(name(op));
    CHECK(f32_bits(op, kNan, 1.0f) == kCanonical);
    CHECK(f32_bits(op, 1.0f, kNan) == kCanonical);
  }
  CHECK(f32_bits(Op::div, 0.0f, 0.0f) == kCanonical);
  CHECK(f32_bits(Op::sub, kInf, kInf) == kCanonical);
  CHECK(f32_bits(Op::sqrt, -1.0f) == kCanonical);
  CHECK(f32_bits(Op::fma, kNan, 1.0f, 1.0f) == kCanonical);
  for (const Op op :
       {Op::sqrt,        Op::rsqrt,       Op::exp,        Op::silu,       Op::exp2,
        Op::log,         Op::log2,        Op::log1p,      Op::sin,        Op::cos,
        Op::tanh,        Op::erf,         Op::floor,      Op::ceil,       Op::rint,
        Op::exp2_approx, Op::log2_approx, Op::sin_approx, Op::cos_approx, Op::tanh_approx}) {
    CAPTURE(name(op));
    CHECK(f32_bits(op, kNan) == kCanonical);
  }
}

TEST_CASE("fma rounds once, a multiply and an add round twice", "[cpu][ops]") {
  const float a = 1.0f + 0x1p-12f, c = -(1.0f + 0x1p-11f);
  CHECK(f32(Op::fma, a, a, c) == 0x1p-24f);
  CHECK(f32(Op::add, f32(Op::mul, a, a), c) == 0.0f);
}

TEST_CASE("min and max drop NaN and order the zeros", "[cpu][ops]") {
  CHECK(f32(Op::min, 1.0f, 2.0f) == 1.0f);
  CHECK(f32(Op::max, 1.0f, 2.0f) == 2.0f);
  CHECK(f32(Op::min, -1.0f, -2.0f) == -2.0f);
  CHECK(f32(Op::max, -1.0f, -2.0f) == -1.0f);
  for (const Op op : {Op::min, Op::max}) {
    CHECK(f32(op, kNan, 5.0f) == 5.0f);
    CHECK(f32(op, 5.0f, kNan) == 5.0f);
    CHECK(f32(op, -kInf, kNan) == -kInf);
    CHECK(f32(op, kInf, kNan) == kInf);
    CHECK(f32_bits(op, kNan, kNan) == kCanonical);
  }
  CHECK(std::signbit(f32(Op::min, 0.0f, -0.0f)));
  CHECK(std::signbit(f32(Op::min, -0.0f, 0.0f)));
  CHECK_FALSE(std::signbit(f32(Op::max, 0.0f, -0.0f)));
  CHECK_FALSE(std::signbit(f32(Op::max, -0.0f, 0.0f)));
}

TEST_CASE("f16x2_toward_zero truncates two floats to one word", "[cpu][ops]") {
  const auto halves = [](float high, float low) {
    return apply<uint32_t>(Op::f16x2_toward_zero, DType::f32, high, low);
  };
  CHECK(halves(1.0f, -2.0f) == 0x3C00C000);
  CHECK(halves(0x1.FFFp0f, -0x1.FFFp0f) == 0x3FFFBFFF);
  CHECK(halves(70000.0f, -70000.0f) == 0x7BFFFBFF);
  CHECK(halves(kInf, -kInf) == 0x7C00FC00);
  CHECK(halves(0x1.8p-24f, -0x1.8p-25f) == 0x00018000);  // subnormal, and below
  CHECK(halves(kNan, 0.0f) == 0x7FFF0000);
}

TEST_CASE("neg, abs and copysign touch the sign bit only", "[cpu][ops]") {
  CHECK(f32_bits(Op::neg, kNan) == 0x7FC12345u);
  CHECK(f32_bits(Op::abs, kNan) == 0x7FC12345u);
  CHECK(f32_bits(Op::copysign, std::bit_cast<float>(0x7FC12345u), -1.0f) == 0xFFC12345u);
  CHECK(f32_bits(Op::neg, 0.0f) == 0x80000000u);
  CHECK(apply<uint16_t>(Op::neg, DType::bf16, uint16_t{0x3F80}) == 0xBF80);
  CHECK(apply<uint16_t>(Op::abs, DType::f16, uint16_t{0xFE01}) == 0x7E01);
  CHECK(apply<uint16_t>(Op::copysign, DType::f16, uint16_t{0x3C00}, uint16_t{0x8000}) == 0xBC00);
}

TEST_CASE("float comparisons are false with NaN, except ne", "[cpu][ops]") {
  CHECK(test(Op::lt, 1, 2));
  CHECK_FALSE(test(Op::lt, 2, 2));
  CHECK(test(Op::le, 2, 2));
  CHECK(test(Op::eq, 0.0f, -0.0f));
  CHECK_FALSE(test(Op::ne, 0.0f, -0.0f));
  for (const Op op : {Op::lt, Op::le, Op::eq}) CHECK_FALSE(test(op, kNan, kNan));
  CHECK(test(Op::ne, kNan, kNan));
  CHECK(test(Op::is_nan, kNan));
  CHECK_FALSE(test(Op::is_nan, kInf));
  CHECK(test(Op::is_inf, -kInf));
  CHECK_FALSE(test(Op::is_inf, kNan));
  CHECK_FALSE(test(Op::is_inf, std::numeric_limits<float>::max()));
}

TEST_CASE("half precision computes in f32 and rounds to nearest even", "[cpu][ops]") {
  // f16: 2048 + 1 is a tie between 2048 and 2050, the even one is 2048; 2048 + 3 gives 2052.
  CHECK(apply<uint16_t>(Op::add, DType::f16, uint16_t{0x6800}, uint16_t{0x3C00}) == 0x6800);
  CHECK(apply<uint16_t>(Op::add, DType::f16, uint16_t{0x6800}, uint16_t{0x4200}) == 0x6802);
  // bf16: 256 + 1 ties down to 256; 1 / 3 = 0x3EAB.
  CHECK(apply<uint16_t>(Op::add, DType::bf16, uint16_t{0x4380}, uint16_t{0x3F80}) == 0x4380);
  CHECK(apply<uint16_t>(Op::div, DType::bf16, uint16_t{0x3F80}, uint16_t{0x4040}) == 0x3EAB);
  CHECK(apply<uint16_t>(Op::add, DType::f16, uint16_t{0x7BFF}, uint16_t{0x7BFF}) == 0x7C00);
  CHECK(apply<uint16_t>(Op::add, DType::f16, uint16_t{0xFE01}, uint16_t{0}) == 0x7FFF);
  CHECK(apply<uint16_t>(Op::mul, DType::bf16, uint16_t{0x7F80}, uint16_t{0}) == 0x7FFF);
  CHECK(apply<uint16_t>(Op::max, DType::bf16, uint16_t{0xFFC1}, uint16_t{0xC000}) == 0xC000);
  CHECK(apply<uint8_t>(Op::lt, DType::bf16, uint16_t{0xC000}, uint16_t{0x3F80}) == 1);
  CHECK(apply<uint8_t>(Op::is_inf, DType::f16, uint16_t{0xFC00}) == 1);
}

TEST_CASE("approximated functions are within one ulp", "[cpu][ops]") {
  const auto ulps = [](float got, long double want) {
    const auto rounded = static_cast<float>(want);
    const long double ulp = std::nextafter(std::fabs(rounded), kInf) - std::fabs(rounded);
    return std::fabs(static_cast<long double>(got) - want) / ulp;
  };
  for (float x = -20.0f; x < 20.0f; x += 0.0371f) {
    CAPTURE(x);
    CHECK(ulps(f32(Op::exp, x), std::exp(static_cast<long double>(x))) <= 1);
    CHECK(ulps(f32(Op::tanh, x), std::tanh(static_cast<long double>(x))) <= 1);
    if (x > -1) CHECK(ulps(f32(Op::log1p, x), std::log1p(static_cast<long double>(x))) <= 1);
    if (x > 0) CHECK(ulps(f32(Op::rsqrt, x), 1 / std::sqrt(static_cast<long double>(x))) <= 1);
  }
  for (const float x : {-88.9f, -88.0f, -3.5f, -1e-30f, 0.25f, 7.0f, 90.0f, kInf}) {
    CHECK(f32(Op::silu, x) == x / (1.0f + f32(Op::exp, -x)));
  }
  CHECK(f32_bits(Op::silu, -0.0f) == 0x80000000u);
  CHECK(f32_bits(Op::silu, -1e30f) == 0x80000000u);
  CHECK(f32_bits(Op::silu, -kInf) == kCanonical);
  CHECK(f32(Op::exp, -kInf) == 0.0f);
  CHECK(f32(Op::exp, 1000.0f) == kInf);
  CHECK(f32(Op::rsqrt, 0.0f) == kInf);
  CHECK(f32(Op::rsqrt, -0.0f) == -kInf);
  CHECK(f32_bits(Op::rsqrt, -1.0f) == kCanonical);
  CHECK(f32_bits(Op::log1p, -2.0f) == kCanonical);
}

TEST_CASE("integers wrap", "[cpu][ops]") {
  CHECK(i32(Op::add, INT32_MAX, 1) == INT32_MIN);
  CHECK(i32(Op::sub, INT32_MIN, 1) == INT32_MAX);
  CHECK(i32(Op::mul, 65536, 65537) == 65536);
  CHECK(i32(Op::neg, INT32_MIN) == INT32_MIN);
  CHECK(i32(Op::abs, -7) == 7);
  CHECK(i32(Op::abs, INT32_MIN) == INT32_MIN);
  CHECK(apply<uint8_t>(Op::add, DType::u8, uint8_t{200}, uint8_t{100}) == 44);
  CHECK(apply<int8_t>(Op::mul, DType::i8, int8_t{100}, int8_t{3}) == 44);
  CHECK(apply<uint16_t>(Op::mul, DType::u16, uint16_t{0xFFFF}, uint16_t{0xFFFF}) == 1);
  CHECK(apply<int64_t>(Op::add, DType::i64, INT64_MAX, int64_t{1}) == INT64_MIN);
  CHECK(apply<uint64_t>(Op::sub, DType::u64, uint64_t{0}, uint64_t{1}) == UINT64_MAX);
}

TEST_CASE("division truncates and survives zero and the lowest value", "[cpu][ops]") {
  CHECK(i32(Op::div, -7, 2) == -3);
  CHECK(i32(Op::mod, -7, 2) == -1);
  CHECK(i32(Op::div, 7, 0) == -1);
  CHECK(i32(Op::mod, 7, 0) == 7);
  CHECK(i32(Op::div, INT32_MIN, -1) == INT32_MIN);
  CHECK(i32(Op::mod, INT32_MIN, -1) == 0);
  CHECK(apply<uint32_t>(Op::div, DType::u32, 7u, 0u) == UINT32_MAX);
  CHECK(apply<uint64_t>(Op::div, DType::u64, UINT64_MAX, uint64_t{10}) == UINT64_MAX / 10);
  CHECK(apply<int64_t>(Op::div, DType::i64, INT64_MIN, int64_t{-1}) == INT64_MIN);
  CHECK(apply<int8_t>(Op::div, DType::i8, int8_t{-128}, int8_t{-1}) == -128);
}

TEST_CASE("integer min, max, bits and comparisons", "[cpu][ops]") {
  CHECK(i32(Op::min, -1, 1) == -1);
  CHECK(i32(Op::max, -1, 1) == 1);
  CHECK(apply<uint32_t>(Op::max, DType::u32, ~0u, 1u) == ~0u);
  CHECK(i32(Op::bit_and, 12, 10) == 8);
  CHECK(i32(Op::bit_or, 12, 10) == 14);
  CHECK(i32(Op::bit_xor, 12, 10) == 6);
  CHECK(apply<uint8_t>(Op::lt, DType::i32, -1, 1) == 1);
  CHECK(apply<uint8_t>(Op::lt, DType::u32, ~0u, 1u) == 0);
  CHECK(apply<uint8_t>(Op::le, DType::i64, int64_t{3}, int64_t{3}) == 1);
  CHECK(apply<uint8_t>(Op::eq, DType::u8, uint8_t{3}, uint8_t{4}) == 0);
  CHECK(apply<uint8_t>(Op::ne, DType::i16, int16_t{3}, int16_t{4}) == 1);
  CHECK(apply<int32_t>(Op::popcount, DType::u32, 0xF0F0u) == 8);
  CHECK(apply<int32_t>(Op::popcount, DType::u64, ~uint64_t{0}) == 64);
  CHECK(apply<int32_t>(Op::clz, DType::u64, uint64_t{1}) == 63);
  CHECK(apply<int32_t>(Op::ffs, DType::u32, 0u) == 0);
  CHECK(i32(Op::mulhi, INT32_MIN, INT32_MIN) == 0x40000000);
  CHECK(i32(Op::mulhi, INT32_MIN, 1) == -1);
  CHECK(apply<uint32_t>(Op::mulhi, DType::u32, ~0u, ~0u) == 0xFFFFFFFEu);
  CHECK(apply<uint64_t>(Op::mulhi, DType::u64, ~uint64_t{0}, ~uint64_t{0}) == ~uint64_t{1});
  CHECK(apply<int64_t>(Op::mulhi, DType::i64, INT64_MIN, int64_t{-1}) == 0);
}

TEST_CASE("shifts clamp as in PTX", "[cpu][ops]") {
  const auto shift = [](Op op, DType type, auto value, uint32_t amount) {
    decltype(value) result{};
    find_op(op, type)(&result, &value, &amount, nullptr, 1);
    return result;
  };
  CHECK(shift(Op::shl, DType::u32, 1u, 31) == 0x80000000u);
  CHECK(shift(Op::shl, DType::u32, 1u, 32) == 0u);
  CHECK(shift(Op::shl, DType::i32, -1, 33) == 0);
  CHECK(shift(Op::shr, DType::u32, ~0u, 32) == 0u);
  CHECK(shift(Op::shr, DType::i32, -8, 1) == -4);
  CHECK(shift(Op::shr, DType::i32, -8, 40) == -1);
  CHECK(shift(Op::shr, DType::i32, 8, 40) == 0);
  CHECK(shift(Op::shl, DType::u32, 1u, 0xFFFFFFFFu) == 0u);  // -1 as an i32 amount
  CHECK(shift(Op::shl, DType::u64, uint64_t{1}, 63) == uint64_t{1} << 63);
  CHECK(shift(Op::shr, DType::i64, int64_t{-1}, 64) == -1);
  CHECK(shift(Op::shl, DType::u8, uint8_t{3}, 7) == 0x80);
  CHECK(shift(Op::shl, DType::u8, uint8_t{3}, 8) == 0);
}

TEST_CASE("booleans", "[cpu][ops]") {
  const auto boolean = [](Op op, bool a, bool b = false) {
    return apply<uint8_t>(op, DType::boolean, static_cast<uint8_t>(a), static_cast<uint8_t>(b));
  };
  for (const bool a : {false, true}) {
    CHECK(boolean(Op::logical_not, a) == (a ? 0 : 1));
    for (const bool b : {false, true}) {
      CHECK(boolean(Op::logical_and, a, b) == (a && b));
      CHECK(boolean(Op::logical_or, a, b) == (a || b));
      CHECK(boolean(Op::eq, a, b) == (a == b));
      CHECK(boolean(Op::ne, a, b) == (a != b));
      CHECK(boolean(Op::bit_xor, a, b) == (a != b));
    }
  }
}

TEST_CASE("an expression gives the same value per thread and once per block", "[cpu][ops]") {
  // The same formula over a column, over a scalar parameter, and over both.
  ThreadKernel k(64);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(64)});
  const ArrayRef out = k.tensor("out", DType::f32, {integer(64), integer(3)});
  const Expr s = k.scalar("s", DType::f32);
  const Expr v = k.load(x, {k.thread()});
  const auto formula = [](const Expr& a, const Expr& b) {
    const Expr large = ir::select(less(a, b), ir::unary(Op::exp, a), a * b + number(0.25));
    return ir::binary(Op::max, ir::cast(DType::f32, ir::cast(DType::bf16, large)), number(-1.5));
  };
  k.store(out, {k.thread(), integer(0)}, formula(v, v));
  k.store(out, {k.thread(), integer(1)}, formula(s, s));
  k.store(out, {k.thread(), integer(2)}, formula(v, s));
  std::vector<float> input(64, -0.75f), output(192, 99.0f);
  Argument scalar;
  scalar.number = -0.75;
  k.run({argument(input, DType::f32), argument(output, DType::f32), scalar});
  for (const float value : output) CHECK(value == output[0]);
  CHECK(output[0] == 0.8125f);  // 0.5625 + 0.25
}

TEST_CASE("bitcast and select keep the bits of a NaN", "[cpu][ops]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(32)});
  const ArrayRef out = k.tensor("out", DType::u32, {integer(32)});
  const Expr v = k.load(x, {k.thread()});
  const Expr chosen = ir::select(less(k.thread(), integer(16)), v, number(1.0));
  k.store(out, {k.thread()}, ir::bitcast(DType::u32, chosen));
  std::vector<float> input(32, kNan);
  std::vector<uint32_t> output(32);
  k.run({argument(input, DType::f32), argument(output, DType::u32)});
  CHECK(output[15] == 0xFFC12345u);
  CHECK(output[16] == 0x3F800000u);
}

TEST_CASE("arithmetic on a storage-only dtype is refused", "[cpu][ops]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::e4m3, {integer(32)});
  const Expr v = k.load(x, {k.thread()});
  k.let(v + v);
  try {
    const Executable executable(k.program());
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK(error.fields().what == "add of e4m3 is not defined");
    CHECK(error.got() == "v2 + v2");
  }
}

}  // namespace tessera::codegen::cpu
