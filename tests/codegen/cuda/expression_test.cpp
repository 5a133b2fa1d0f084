// How expressions read: precedence, literals, conversions, arithmetic that wraps.

#include <cmath>
#include <limits>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/literal.h"
#include "tests/codegen/cuda/thrown.h"
#include "tests/support/catch.h"
#include "tests/support/program_builder.h"

namespace tessera {
namespace {

using test::contains;
using test::thrown;

using ir::Expr;
using ir::Op;
using test::f32;
using test::number;
using test::ProgramBuilder;
using test::wide;

/// The text of the value stored by a kernel: what stands between "y[thread] = " and ";".
std::string printed(const std::function<Expr(ProgramBuilder&)>& build) {
  ProgramBuilder k("sample", 32);
  const Expr thread = k.thread();
  const Expr value = build(k);
  const test::ArrayRef y = k.output("y", value->type, {number(32)});
  k.store(y, wide(thread), value);
  const std::string text = codegen::cuda::emit_kernel_text(k.finish());
  const std::string before = "y[thread] = ";
  const size_t begin = text.find(before);
  if (begin == std::string::npos) return text;
  const size_t end = text.find(";\n", begin);
  return text.substr(begin + before.size(), end - begin - before.size());
}

/// The text of the i64 place that a kernel stores to, where nothing wraps.
std::string printed_place(const std::function<Expr(ProgramBuilder&)>& build) {
  ProgramBuilder k("sample", 32);
  const Expr place = build(k);
  k.store(k.output("y", DType::i32, {number(32)}), place, number(7));
  const std::string text = codegen::cuda::emit_kernel_text(k.finish());
  const size_t begin = text.find("y[") + 2, end = text.find("] = 7;\n", begin);
  return text.substr(begin, end - begin);
}

/// Three floats that no fold touches.
std::string printed_f32(const std::function<Expr(Expr, Expr, Expr)>& build) {
  return printed([&](ProgramBuilder& k) {
    return build(k.scalar("a", DType::f32), k.scalar("b", DType::f32), k.scalar("c", DType::f32));
  });
}

/// Two values of one dtype.
std::string printed_pair(DType type, const std::function<Expr(Expr, Expr)>& build) {
  return printed(
      [&](ProgramBuilder& k) { return build(k.scalar("a", type), k.scalar("b", type)); });
}

Expr call2(Op op, const Expr& a, const Expr& b) {
  return ir::binary(op, a, b);
}

TEST_CASE("a quotient with a constant far from overflow does not branch", "[codegen][cuda]") {
  using E = const Expr&;
  const auto floored = [](E x, double least) {
    return ir::binary(Op::max, x, ir::float_constant(DType::f32, least));
  };
  const auto constant = [](double value) { return ir::float_constant(DType::f32, value); };
  const auto of_x = [&](const std::function<Expr(E)>& build) {
    return printed([&](ProgramBuilder& k) { return build(k.scalar("x", DType::f32)); });
  };
  CHECK(of_x([&](E x) { return constant(448) / floored(x, 0.5); }) ==
        "quotient(448.0f, fmaxf(x, 0.5f))");
  CHECK(of_x([&](E x) { return floored(x, 0.5) / constant(6); }) ==
        "quotient_by(fmaxf(x, 0.5f), 6.0f, 0.16666667f)");
  // of these a division knows better: no floor or one too low, too large a quotient, no whole divisor
  CHECK(of_x([&](E x) { return constant(448) / x; }) == "448.0f / x");
  CHECK(of_x([&](E x) { return constant(448) / floored(x, 0x1p-125); }) ==
        "448.0f / fmaxf(x, 2.3509887e-38f)");
  CHECK(of_x([&](E x) { return constant(448) / floored(x, 0x1p-119); }) ==
        "448.0f / fmaxf(x, 1.5046328e-36f)");
  CHECK(of_x([&](E x) { return constant(448) / floored(x, -1); }) == "448.0f / fmaxf(x, -1.0f)");
  CHECK(of_x([&](E x) { return constant(1) / floored(x, 0.5); }) == "1.0f / fmaxf(x, 0.5f)");
  CHECK(of_x([&](E x) { return x / constant(6); }) == "x / 6.0f");
  CHECK(of_x([&](E x) { return floored(x, 0x1p-124) / constant(6); }) ==
        "fmaxf(x, 4.7019774e-38f) / 6.0f");
  CHECK(of_x([&](E x) { return floored(x, 0.5) / constant(0.75); }) == "fmaxf(x, 0.5f) / 0.75f");
}

TEST_CASE("parentheses stand only where they change the meaning", "[codegen][cuda]") {
  using E = const Expr&;
  CHECK(printed_f32([](E a, E b, E c) { return (a + b) + c; }) == "a + b + c");
  CHECK(printed_f32([](E a, E b, E c) { return a + (b + c); }) == "a + (b + c)");
  CHECK(printed_f32([](E a, E b, E c) { return a * b + c; }) == "a * b + c");
  CHECK(printed_f32([](E a, E b, E c) { return a * (b + c); }) == "a * (b + c)");
  CHECK(printed_f32([](E a, E b, E c) { return a - (b - c); }) == "a - (b - c)");
  CHECK(printed_f32([](E a, E b, E c) { return a / (b * c); }) == "a / (b * c)");
  CHECK(printed_f32([](E a, E b, E c) { return unary(Op::neg, a + b) * c; }) == "-(a + b) * c");
  CHECK(printed_f32([](E a, E b, E) { return unary(Op::neg, unary(Op::neg, a)) * b; }) ==
        "- -a * b");
  CHECK(printed_f32([](E a, E b, E c) { return select(a < b, b, c); }) == "a < b ? b : c");
  CHECK(printed_f32([](E a, E b, E c) { return select(a < b, b, c) + a; }) ==
        "(a < b ? b : c) + a");
  CHECK(printed_f32([](E a, E b, E c) { return select(a < b, select(b < c, a, b), c); }) ==
        "a < b ? (b < c ? a : b) : c");
  CHECK(printed_f32([](E a, E b, E c) { return select(a < b, a, select(b < c, b, c)); }) ==
        "a < b ? a : b < c ? b : c");
  CHECK(printed_pair(DType::u32, [](E a, E b) { return call2(Op::bit_and, a + b, b); }) ==
        "(a + b) & b");
  CHECK(printed_pair(DType::i32, [](E a, E b) {
          return call2(Op::logical_or, a < b && b < a, call2(Op::eq, a, b));
        }) == "a < b && b < a || a == b");
}

TEST_CASE("integer sums lose the parentheses of their order", "[codegen][cuda]") {
  CHECK(printed([](ProgramBuilder& k) {
          return k.thread() + (k.thread() * number(2) + number(5));
        }) == "thread + thread * 2 + 5");
}

TEST_CASE("a product keeps the parentheses of a right operand that divides first",
          "[codegen][cuda]") {
  using E = const Expr&;
  const auto seven = ir::constant(DType::u32, 7);
  CHECK(printed_pair(DType::u32, [&](E a, E b) { return a * (b * a); }) == "a * b * a");
  CHECK(printed_pair(DType::u32, [&](E a, E b) { return a * (b % seven * a); }) ==
        "a * (b % 7u * a)");
  CHECK(printed_pair(DType::u32, [&](E a, E b) { return a * (b / seven * a * b); }) ==
        "a * (b / 7u * a * b)");
  CHECK(printed_pair(DType::u32, [&](E a, E b) { return a * (b * (a / seven)); }) ==
        "a * b * (a / 7u)");
  CHECK(printed_place([](ProgramBuilder& k) {
          const Expr size = k.let("size", wide(k.dim("m")));
          return size * (wide(k.thread() / number(7)) * size);
        }) == "size * (thread / 7 * size)");
}

TEST_CASE("no int product or sum comes of the ints that lead an i64 chain", "[codegen][cuda]") {
  using E = const Expr&;
  const auto of_ints = [](const std::function<Expr(E, E, E)>& build) {
    return printed_place([&](ProgramBuilder& k) {
      return build(k.dim("a"), k.dim("b"), k.let("s", wide(k.dim("m"))));
    });
  };
  const auto five = ir::constant(DType::i64, 5);
  CHECK(of_ints([](E a, E, E s) { return wide(a) * s; }) == "a * s");
  CHECK(of_ints([](E a, E b, E s) { return wide(a) * (wide(b) * s); }) == "i64(a) * b * s");
  CHECK(of_ints([](E a, E b, E s) { return wide(a) + (wide(b) + s); }) == "i64(a) + b + s");
  CHECK(of_ints([&](E, E b, E s) { return five * (wide(b) * s); }) == "5ll * b * s");
  CHECK(of_ints([&](E a, E b, E s) { return wide(a) * (five * s * wide(b)); }) ==
        "i64(a) * 5 * s * b");
  CHECK(of_ints([](E a, E b, E s) { return wide(a) * (s * wide(b)); }) == "a * s * b");
  // Ints whose product is known to fit may lead.
  const auto large = ir::constant(DType::i64, 1 << 20);
  CHECK(of_ints([&](E, E, E s) { return five * (large * s); }) == "5 * 1048576 * s");
  CHECK(of_ints([&](E, E, E s) { return large * (large * s); }) == "1048576ll * 1048576 * s");
  const auto of_block = [&](int axis) {
    return printed_place([&](ProgramBuilder& k) {
      const Expr size = k.let("s", wide(k.dim("m")));
      return wide(k.block("block", axis)) * (five * size);
    });
  };
  CHECK(of_block(1) == "block * 5 * s");
  CHECK(of_block(0) == "i64(block) * 5 * s");
}

TEST_CASE("float literals denote exactly their value", "[codegen][cuda]") {
  using codegen::cuda::f32_literal;
  CHECK(f32_literal(448) == "448.0f");
  CHECK(f32_literal(0.5) == "0.5f");
  CHECK(f32_literal(static_cast<double>(0.1f)) == "0.1f");
  CHECK(f32_literal(-0.0) == "-0.0f");
  CHECK(f32_literal(std::ldexp(1.0, -149)) == "1e-45f");
  CHECK(f32_literal(static_cast<double>(std::numeric_limits<float>::max())) == "3.4028235e+38f");
  CHECK(f32_literal(std::numeric_limits<double>::infinity()) == "__uint_as_float(0x7F800000u)");
  CHECK(f32_literal(-std::numeric_limits<double>::infinity()) == "__uint_as_float(0xFF800000u)");
  CHECK(f32_literal(std::nan("")) == "__uint_as_float(0x7FFFFFFFu)");
  CHECK(contains(thrown([&] { f32_literal(0.1); }), "0.1 is not exact in f32"));
}

TEST_CASE("small float constants are bits with their value beside them", "[codegen][cuda]") {
  using codegen::cuda::float_literal;
  CHECK(float_literal(DType::bf16, 1) == "0x3F80 /* 1 */");
  CHECK(float_literal(DType::f16, -2) == "0xC000 /* -2 */");
  CHECK(float_literal(DType::f16, std::ldexp(1.0, -24)) == "0x0001 /* 5.960464477539063e-08 */");
  CHECK(float_literal(DType::f16, 65504) == "0x7BFF /* 65504 */");
  CHECK(float_literal(DType::e4m3, 448) == "0x7E /* 448 */");
  CHECK(float_literal(DType::e5m2, 57344) == "0x7B /* 57344 */");
  CHECK(float_literal(DType::e2m1, -6) == "0xF /* -6 */");
  CHECK(contains(thrown([&] { float_literal(DType::e4m3, 480); }), "480 is too large for e4m3"));
  CHECK(contains(thrown([&] { float_literal(DType::bf16, 1.001); }), "is not exact in bf16"));
}

TEST_CASE("every float constant has the bits that decode to it", "[codegen][cuda]") {
  // All positive finite codes, decoded here by definition.
  struct {
    DType type;
    int exponent_bits, fraction_bits, bias;
    uint32_t last;
  } formats[] = {{DType::f16, 5, 10, 15, 0x7BFF},
                 {DType::bf16, 8, 7, 127, 0x7F7F},
                 {DType::e4m3, 4, 3, 7, 0x7E},
                 {DType::e5m2, 5, 2, 15, 0x7B},
                 {DType::e2m1, 2, 1, 1, 7}};
  for (const auto& format : formats) {
    for (uint32_t code = 0; code <= format.last; ++code) {
      const int exponent = static_cast<int>(code >> format.fraction_bits);
      const double fraction = static_cast<double>(code & ((1u << format.fraction_bits) - 1)) /
                              static_cast<double>(1u << format.fraction_bits);
      const double value = exponent == 0 ? std::ldexp(fraction, 1 - format.bias)
                                         : std::ldexp(1 + fraction, exponent - format.bias);
      REQUIRE(codegen::cuda::float_bits(format.type, value) == code);
    }
  }
}

TEST_CASE("integer literals carry their type", "[codegen][cuda]") {
  using codegen::cuda::integer_literal;
  CHECK(integer_literal(DType::i32, -5) == "-5");
  CHECK(integer_literal(DType::i32, std::numeric_limits<int32_t>::min()) == "(-2147483647 - 1)");
  CHECK(integer_literal(DType::u32, 0xFFFFFFFF) == "0xFFFFFFFFu");
  CHECK(integer_literal(DType::u32, 0x7F800000, true) == "0x7F800000u");
  CHECK(integer_literal(DType::i64, 1) == "1ll");
  CHECK(integer_literal(DType::i64, std::numeric_limits<int64_t>::min()) ==
        "(-9223372036854775807ll - 1)");
  CHECK(integer_literal(DType::u64, -1) == "0xFFFFFFFFFFFFFFFFull");
  CHECK(integer_literal(DType::boolean, 1) == "true");
}

TEST_CASE("an i64 literal is bare only beside an i64", "[codegen][cuda]") {
  const auto five = [] { return ir::constant(DType::i64, 5); };
  CHECK(printed_pair(DType::i64, [&](const Expr& a, const Expr&) { return a < five(); }) ==
        "a < 5");
  CHECK(printed_pair(DType::i64, [&](const Expr& a, const Expr&) {
          return call2(Op::min, a, five());
        }) == "min(a, 5ll)");
  CHECK(printed_pair(DType::i64, [&](const Expr& a, const Expr& b) {
          return call2(Op::bit_xor, select(a < b, five(), ir::constant(DType::i64, 7)), a);
        }) == "(a < b ? 5ll : 7ll) ^ a");
}

TEST_CASE("signed arithmetic on data wraps and on places does not", "[codegen][cuda]") {
  CHECK(printed_pair(DType::i32, [](const Expr& a, const Expr& b) { return a + b; }) ==
        "wrapping_add(a, b)");
  CHECK(printed_pair(DType::i64, [](const Expr& a, const Expr&) { return unary(Op::neg, a); }) ==
        "wrapping_sub(0ll, a)");
  CHECK(printed_pair(DType::u32, [](const Expr& a, const Expr& b) { return a * b; }) == "a * b");
  CHECK(printed([](ProgramBuilder& k) { return k.thread() + number(1); }) == "thread + 1");
  // In blocks of 32 threads, of which there may be any number.
  CHECK(printed([](ProgramBuilder& k) { return k.thread() * number(69273666) / number(8); }) ==
        "thread * 69273666 / 8");  // 31 of them are 2^31 - 2
  CHECK(printed([](ProgramBuilder& k) { return k.thread() * number(69273667) / number(8); }) ==
        "wrapping_mul(thread, 69273667) / 8");
  CHECK(printed([](ProgramBuilder& k) { return k.block("block", 0) * number(2); }) ==
        "wrapping_mul(block, 2)");
  CHECK(printed([](ProgramBuilder& k) { return k.block("block", 1) * number(2); }) == "block * 2");
  CHECK(printed([](ProgramBuilder& k) {
          return k.let("n", k.dim("m") / number(16)) * number(15);
        }) == "n * 15");
  CHECK(printed([](ProgramBuilder& k) {
          return k.let("n", k.dim("m") / number(16)) * number(17);
        }) == "wrapping_mul(n, 17)");
  // The sums fit, but not in the order in which C++ adds without parentheses.
  CHECK(printed([](ProgramBuilder& k) {
          const Expr up = k.thread() * number(60'000'000);
          return up + (up + number(-2'000'000'000));
        }) == "wrapping_add(thread * 60000000, thread * 60000000 + -2000000000)");
  // The same sum in an address is plain: an index that overflows is a bug, not a number.
  ProgramBuilder k("sample", 32);
  const Expr base = k.scalar("base", DType::i32);
  const test::ArrayRef y = k.output("y", DType::f32, {number(32)});
  const Expr place = k.let("place", base + k.thread());
  k.store(y, wide(place), f32(0));
  CHECK(codegen::cuda::emit_kernel_text(k.finish()).find("const int place = base + thread;") !=
        std::string::npos);
}

TEST_CASE("narrow integers are computed as int and wrapped", "[codegen][cuda]") {
  CHECK(printed_pair(DType::u8, [](const Expr& a, const Expr& b) { return a + b; }) == "u8(a + b)");
  CHECK(printed_pair(DType::u16, [](const Expr& a, const Expr& b) { return a * b; }) ==
        "u16(u32(a) * b)");
  CHECK(printed_pair(DType::i8, [](const Expr& a, const Expr&) { return unary(Op::abs, a); }) ==
        "i8(abs(a))");
}

TEST_CASE("shifts are plain only by a constant below the width", "[codegen][cuda]") {
  const auto shift = [](DType type, Op op, Expr amount) {
    return printed([&](ProgramBuilder& k) { return ir::binary(op, k.scalar("a", type), amount); });
  };
  const auto amount = [](int64_t value) { return ir::constant(DType::u32, value); };
  CHECK(shift(DType::u32, Op::shl, amount(23)) == "a << 23");
  CHECK(shift(DType::u32, Op::shl, amount(32)) == "shift_left(a, 32u)");
  CHECK(shift(DType::u64, Op::shr, amount(32)) == "a >> 32");
  CHECK(shift(DType::i8, Op::shr, amount(9)) == "i8(shift_right(int(a), 9u))");
  CHECK(printed_pair(DType::u32, [](const Expr& a, const Expr& b) {
          return ir::binary(Op::shr, a, b);
        }) == "shift_right(a, b)");
}

TEST_CASE("small floats compute in f32 and touch only the sign bit", "[codegen][cuda]") {
  using E = const Expr&;
  CHECK(printed_pair(DType::bf16, [](E a, E b) { return a + b; }) ==
        "f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))");
  CHECK(printed_pair(DType::f16, [](E a, E) { return a * ir::float_constant(DType::f16, 0.5); }) ==
        "f32_to_f16(f16_to_f32(a) * 0.5f)");
  CHECK(printed_pair(DType::bf16, [](E a, E b) { return a < b; }) ==
        "bf16_to_f32(a) < bf16_to_f32(b)");
  CHECK(printed_pair(DType::bf16, [](E a, E b) { return call2(Op::max, a, b); }) ==
        "f32_to_bf16(fmaxf(bf16_to_f32(a), bf16_to_f32(b)))");
  CHECK(printed_pair(DType::bf16, [](E a, E) { return unary(Op::neg, a); }) == "a ^ 0x8000");
  CHECK(printed_pair(DType::e4m3, [](E a, E) { return unary(Op::abs, a); }) == "a & 0x7F");
  CHECK(printed_pair(DType::f16, [](E a, E b) {
          return call(Op::copysign, DType::f16, {a, b});
        }) == "(a & 0x7FFF) | (b & 0x8000)");
  CHECK(printed_pair(DType::f16, [](E a, E) { return unary(Op::is_nan, a); }) ==
        "is_nan(f16_to_f32(a))");
}

TEST_CASE("conversions take one rounding", "[codegen][cuda]") {
  const auto convert = [](DType from, DType to) {
    return printed([&](ProgramBuilder& k) { return ir::cast(to, k.scalar("a", from)); });
  };
  CHECK(convert(DType::f32, DType::e4m3) == "f32_to_e4m3(a)");
  CHECK(convert(DType::bf16, DType::f16) == "f32_to_f16(bf16_to_f32(a))");
  CHECK(convert(DType::i64, DType::f32) == "float(a)");
  CHECK(convert(DType::i64, DType::f16) == "f32_to_f16(i64_to_f32_odd(a))");
  CHECK(convert(DType::u64, DType::bf16) == "f32_to_bf16(u64_to_f32_odd(a))");
  CHECK(convert(DType::i16, DType::bf16) == "f32_to_bf16(float(a))");
  CHECK(convert(DType::boolean, DType::e5m2) == "f32_to_e5m2(float(a))");
  CHECK(convert(DType::f32, DType::i32) == "__float2int_rz(a)");
  CHECK(convert(DType::f32, DType::i64) == "f32_to_i64(a)");
  CHECK(convert(DType::e4m3, DType::u8) == "f32_to_u8(e4m3_to_f32(a))");
  CHECK(convert(DType::f32, DType::boolean) == "a != 0.0f");
  CHECK(convert(DType::i64, DType::boolean) == "a != 0");
  CHECK(convert(DType::i64, DType::i8) == "i8(a)");
}

TEST_CASE("the bits of a NaN are those of the language where they can be seen", "[codegen][cuda]") {
  using E = const Expr&;
  // Seen in memory: the sign alone changes, a widened NaN is canonical.
  CHECK(printed_f32([](E a, E, E) { return unary(Op::neg, a); }) == "flip_sign(a)");
  CHECK(printed_f32([](E a, E, E) { return unary(Op::abs, a); }) == "clear_sign(a)");
  CHECK(printed_pair(DType::bf16, [](E a, E) { return ir::cast(DType::f32, a); }) ==
        "canonical_nan(bf16_to_f32(a))");
  CHECK(printed_pair(DType::f16, [](E a, E) { return ir::cast(DType::f32, a); }) ==
        "f16_to_f32(a)");
  // Consumed by arithmetic: the fast forms.
  CHECK(printed_f32([](E a, E b, E) { return unary(Op::neg, a) * b; }) == "-a * b");
  CHECK(printed_f32([](E a, E b, E) { return call2(Op::max, unary(Op::abs, a), b); }) ==
        "fmaxf(fabsf(a), b)");
  CHECK(printed_pair(DType::bf16, [](E a, E b) {
          return ir::cast(DType::f32, a) * ir::cast(DType::f32, b);
        }) == "bf16_to_f32(a) * bf16_to_f32(b)");
  // Multiplication by one is no no-op.
  CHECK(printed_f32([](E a, E, E) { return a * f32(1); }) == "canonical_nan(a)");
  CHECK(printed_f32([](E a, E, E) { return f32(1) * a; }) == "canonical_nan(a)");
  CHECK(printed_f32([](E a, E, E) { return f32(1) / a; }) == "1.0f / a");
  CHECK(printed_f32([](E a, E, E) { return a - f32(0); }) == "canonical_nan(a)");
  CHECK(printed_f32([](E a, E, E) { return a + f32(0); }) == "a + 0.0f");
  // Nor is the larger of one number twice, or one number negated twice.
  CHECK(printed_f32([](E a, E, E) { return call2(Op::max, a, a); }) == "canonical_nan(a)");
  CHECK(printed_f32([](E a, E b, E) { return call2(Op::min, a + b, a + b); }) ==
        "canonical_nan(a + b)");
  CHECK(printed_f32([](E a, E b, E) { return call2(Op::max, a, b); }) == "fmaxf(a, b)");
  CHECK(printed_f32([](E a, E, E) { return a * f32(-1) * f32(-1); }) == "negated(negated(a))");
  CHECK(printed_f32([](E a, E, E) { return f32(-1) * (a / f32(-1)); }) == "negated(negated(a))");
  CHECK(printed_f32([](E a, E, E) { return f32(-0.0) - a; }) == "negated(a)");
  CHECK(printed_f32([](E a, E, E) { return f32(0) - a; }) == "0.0f - a");
}

TEST_CASE("bitcasts name the intrinsic or nothing", "[codegen][cuda]") {
  const auto bits = [](DType from, DType to) {
    return printed([&](ProgramBuilder& k) { return ir::bitcast(to, k.scalar("a", from)); });
  };
  CHECK(bits(DType::f32, DType::u32) == "__float_as_uint(a)");
  CHECK(bits(DType::f32, DType::i32) == "__float_as_int(a)");
  CHECK(bits(DType::i32, DType::f32) == "__int_as_float(a)");
  CHECK(bits(DType::bf16, DType::i16) == "i16(a)");
  CHECK(bits(DType::u8, DType::e4m3) == "e4m3(a)");
}

}  // namespace
}  // namespace tessera
