// Conversions between element types. Widening is exact. Narrowing rounds to nearest even; where the
// target lacks the instruction a branch-free integer form gives the same bits.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kNarrowing[] = {
    {"f32_to_bf16", "bf16", R"(
// NaN becomes 0x7FFF.
__device__ __forceinline__ bf16 f32_to_bf16(float x) {
  bf16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
)"},
    {"f32_to_bf16x2", "bf16 u32", R"(
// into[0], into[1] = even, odd
__device__ __forceinline__ void f32_to_bf16x2(bf16* into, float even, float odd) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  memcpy(into, &pair, sizeof(pair));
}
)"},
    {"f32_to_f16", "f16", R"(
// Overflow becomes infinity, NaN becomes 0x7FFF.
__device__ __forceinline__ f16 f32_to_f16(float x) {
  f16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
)"},
    {"f32_to_f16x2", "f16 u32", R"(
// into[0], into[1] = even, odd
__device__ __forceinline__ void f32_to_f16x2(f16* into, float even, float odd) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  memcpy(into, &pair, sizeof(pair));
}
)"},
    {"f16x2_toward_zero", "u32", R"(
// Beyond 65504 what is finite stays so, NaN becomes 0x7FFF.
__device__ __forceinline__ u32 f16x2_toward_zero(float high, float low) {
  u32 pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
)"},
    {"f32_to_e4m3x2", "e4m3 u16 u32", R"(
// into[0], into[1] = even, odd. Saturates to +-448, infinities too; NaN becomes 0x7F.
$if has_fp8
__device__ __forceinline__ void f32_to_e4m3x2(e4m3* into, float even, float odd) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(odd), "f"(even));
  memcpy(into, &pair, sizeof(pair));
}
$else
__device__ __forceinline__ e4m3 round_to_e4m3(float x) {
  const float magnitude = fminf(fabsf(x), 448.0f);
  const u32 bits = __float_as_uint(magnitude);
  // Normal results: round the fraction to 3 bits (a carry goes into the exponent), move the bias.
  const u32 normal = ((bits + 0x7FFFFu + (bits >> 20 & 1u)) >> 20) - ((127u - 7u) << 3);
  // Below 2^-6 codes are multiples of 2^-9, the unit in the last place of 2^14.
  const u32 subnormal = __float_as_uint(magnitude + 16384.0f) - __float_as_uint(16384.0f);
  const u32 code = magnitude < 0.015625f ? subnormal : normal;
  return x != x ? 0x7Fu : code | (__float_as_uint(x) >> 24 & 0x80u);
}
__device__ __forceinline__ void f32_to_e4m3x2(e4m3* into, float even, float odd) {
  into[0] = round_to_e4m3(even);
  into[1] = round_to_e4m3(odd);
}
$end
)"},
    {"f32_to_e4m3x4", "f32_to_e4m3x2", R"(
// into[0..4) = from[0..4), in one word
__device__ __forceinline__ void f32_to_e4m3x4(e4m3* into, const float* from) {
$if has_fp8
  u32 word;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "  cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
      : "=r"(word) : "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
  memcpy(into, &word, sizeof(word));
$else
  f32_to_e4m3x2(into, from[0], from[1]);
  f32_to_e4m3x2(into + 2, from[2], from[3]);
$end
}
)"},
    {"f32_to_e4m3", "f32_to_e4m3x2", R"(
__device__ __forceinline__ e4m3 f32_to_e4m3(float x) {
  e4m3 pair[2];
  f32_to_e4m3x2(pair, x, 0.0f);
  return pair[0];
}
)"},
    {"f32_to_e5m2", "e5m2 u32", R"(
// What rounds above 57344 becomes infinity (the instruction would saturate), NaN becomes 0x7F.
__device__ __forceinline__ e5m2 f32_to_e5m2(float x) {
  const float magnitude = fminf(fabsf(x), 65536.0f);
  const u32 bits = __float_as_uint(magnitude);
  // Normal results: round the fraction to 2 bits (a carry goes into the exponent), move the bias.
  const u32 normal = ((bits + 0xFFFFFu + (bits >> 21 & 1u)) >> 21) - ((127u - 15u) << 2);
  // Below 2^-14 codes are multiples of 2^-16, the unit in the last place of 2^7.
  const u32 subnormal = __float_as_uint(magnitude + 128.0f) - __float_as_uint(128.0f);
  const u32 code = magnitude < 0x1p-14f ? subnormal : normal;
  return x != x ? 0x7Fu : code | (__float_as_uint(x) >> 24 & 0x80u);
}
)"},
    {"f32_to_e5m2x2", "f32_to_e5m2", R"(
// into[0], into[1] = even, odd
__device__ __forceinline__ void f32_to_e5m2x2(e5m2* into, float even, float odd) {
  into[0] = f32_to_e5m2(even);
  into[1] = f32_to_e5m2(odd);
}
)"},
    {"f32_to_e2m1x2", "e2m1 u16 u32", R"(
// into[0], into[1] = even, odd. Saturates to +-6, infinities too; NaN becomes code 7.
$if has_fp4
__device__ __forceinline__ void f32_to_e2m1x2(e2m1* into, float even, float odd) {
  u16 pair;
  asm("{ .reg .b8 pair; cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2; cvt.u16.u8 %0, pair; }"
      : "=h"(pair) : "f"(odd), "f"(even));
  into[0] = pair & 15;
  into[1] = pair >> 4 & 15;
}
$else
// The code of |x|, 0 to 7, beside 12582912: the bits of a float whose last place is one.
__device__ __forceinline__ u32 magnitude_of_e2m1(float x) {
  // Codes are 1/2 apart up to 2, 1 up to 4 and 2 from there on: the code is the lowest of three lines. Their
  // last place is one, so that each sum rounds. On the third there are two codes, 6 up to 5.
  const float magnitude = fabsf(x);
  const float halves = fmaf(magnitude, 2.0f, 12582912.0f), ones = magnitude + 12582914.0f;
  float six;  // 1 or 0
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(six) : "f"(magnitude), "f"(-0x1p21f), "f"(10485761.0f));
  return __float_as_uint(fminf(fminf(halves, ones), 12582919.0f - six));
}
__device__ __forceinline__ u32 sign_of_e2m1(float x) {
  return __float_as_uint(fminf(x, 6.0f));  // in the highest bit; NaN has none
}
__device__ __forceinline__ e2m1 round_to_e2m1(float x) {
  return (magnitude_of_e2m1(x) & 7u) | (sign_of_e2m1(x) >> 28 & 8u);
}
__device__ __forceinline__ void f32_to_e2m1x2(e2m1* into, float even, float odd) {
  into[0] = round_to_e2m1(even);
  into[1] = round_to_e2m1(odd);
}
$end
)"},
    {"f32_to_e2m1x4", "f32_to_e2m1x2", R"(
// into[0..4) = from[0..4)
__device__ __forceinline__ void f32_to_e2m1x4(e2m1* into, const float* from) {
$if not has_fp4
  u32 magnitudes = 0, signs = 0;
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    magnitudes = magnitudes * 16 + magnitude_of_e2m1(from[i]);
    signs = __funnelshift_l(sign_of_e2m1(from[i]), signs, 4);
  }
  const u32 codes = (magnitudes & 0x7777u) | (signs & 0x8888u);  // 12582912 is below no code: its low 16 bits are 0
#pragma unroll
  for (int i = 0; i < 4; ++i) into[i] = codes >> i * 4 & 15u;
$else
  f32_to_e2m1x2(into, from[0], from[1]);
  f32_to_e2m1x2(into + 2, from[2], from[3]);
$end
}
)"},
    {"f32_to_e2m1", "f32_to_e2m1x2", R"(
__device__ __forceinline__ e2m1 f32_to_e2m1(float x) {
  e2m1 pair[2];
  f32_to_e2m1x2(pair, x, 0.0f);
  return pair[0];
}
)"},
    {"f32_to_i8", "i8", R"(
// Truncates and saturates, NaN becomes 0; so do the others.
__device__ __forceinline__ i8 f32_to_i8(float x) {
  return min(max(__float2int_rz(x), -128), 127);
}
)"},
    {"f32_to_u8", "u8", R"(
__device__ __forceinline__ u8 f32_to_u8(float x) {
  return min(max(__float2int_rz(x), 0), 255);
}
)"},
    {"f32_to_i16", "i16", R"(
__device__ __forceinline__ i16 f32_to_i16(float x) {
  return min(max(__float2int_rz(x), -32768), 32767);
}
)"},
    {"f32_to_u16", "u16", R"(
__device__ __forceinline__ u16 f32_to_u16(float x) {
  return min(max(__float2int_rz(x), 0), 65535);
}
)"},
    {"f32_to_i64", "i64", R"(
// The instruction gives the least integer for NaN.
__device__ __forceinline__ i64 f32_to_i64(float x) {
  return x != x ? 0 : __float2ll_rz(x);
}
)"},
    {"f32_to_u64", "u64", R"(
// The instruction gives 2^63 for NaN.
__device__ __forceinline__ u64 f32_to_u64(float x) {
  return x != x ? 0 : __float2ull_rz(x);
}
)"},
};

constexpr Snippet kWidening[] = {
    {"bf16_to_f32", "bf16 u32", R"(
__device__ __forceinline__ float bf16_to_f32(bf16 x) {
  return __uint_as_float(u32(x) << 16);
}
)"},
    {"bf16_at", "bf16 u32", R"(
// x[i], from the word that holds it and its neighbour
__device__ __forceinline__ float bf16_at(const bf16* x, int i) {
  u32 pair;
  memcpy(&pair, &x[i & ~1], sizeof(pair));
  return __uint_as_float(i & 1 ? pair & 0xFFFF0000u : pair << 16);
}
)"},
    {"f16_to_f32", "f16", R"(
__device__ __forceinline__ float f16_to_f32(f16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}
)"},
    {"e4m3_to_f32", "e4m3 f16_to_f32 u16 u32", R"(
$if has_fp8
__device__ __forceinline__ float e4m3_to_f32(e4m3 x) {
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(u16(x)));
  return f16_to_f32(f16(halves));
}
$else
__device__ __forceinline__ float e4m3_to_f32(e4m3 x) {
  const u32 code = x & 0x7Fu;
  // The exponent's bias is 120 less than a float's; the product also normalises subnormals.
  const u32 magnitude = __float_as_uint(__uint_as_float(code << 20) * 0x1p120f);
  return __uint_as_float(code == 0x7Fu ? 0x7FFFFFFFu : magnitude | (x & 0x80u) << 24);
}
$end
)"},
    {"e4m3x2_to_f16x2", "e4m3_to_f32 f32_to_f16", R"(
// into[0], into[1] = from[0], from[1]
__device__ __forceinline__ void e4m3x2_to_f16x2(f16* into, const e4m3* from) {
$if has_fp8
  u16 pair;
  memcpy(&pair, from, sizeof(pair));
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  memcpy(into, &halves, sizeof(halves));
$else
  into[0] = f32_to_f16(e4m3_to_f32(from[0]));
  into[1] = f32_to_f16(e4m3_to_f32(from[1]));
$end
}
)"},
    {"f16x8_to_e2m1x8", "f32_to_e2m1x2 f16_to_f32 u32", R"(
// into[0..8) = from[0..8), as by f32, in one word
__device__ __forceinline__ void f16x8_to_e2m1x8(e2m1* into, const f16* from) {
$if not has_fp4
  // The lowest of three lines as in magnitude_of_e2m1; one is the last place of an f16 from 1024 on. Most of it
  // is arithmetic, which has twice the rate of logic. A product has no sign where it is NaN.
  u32 codes[2];  // of a pair in bytes 1 and 3
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    u32 pairs[2];
    memcpy(pairs, &from[i * 4], sizeof(pairs));
    u32 magnitudes[2], signs[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      asm("{ .reg .b32 x, halves, ones, six;\n"
          "  abs.f16x2 x, %2; mul.rn.f16x2 %1, %2, %4;\n"
          "  fma.rn.f16x2 halves, x, %3, %5; add.rn.f16x2 ones, x, %6;\n"
          "  fma.rn.sat.f16x2 six, x, %7, %8; sub.rn.f16x2 six, %9, six;\n"
          "  min.f16x2 halves, halves, ones; min.f16x2 %0, halves, six; }"
          : "=r"(magnitudes[j]), "=r"(signs[j])
          : "r"(pairs[j]), "r"(0x40004000u), "r"(0x38003800u), "r"(0x64006400u), "r"(0x64026402u),
            "r"(0xDC00DC00u), "r"(0x65016501u), "r"(0x64076407u));
    }
    const u32 magnitude = __byte_perm(magnitudes[0], magnitudes[1], 0x6420);
    const u32 sign = __byte_perm(signs[0], signs[1], 0x7531) & 0x80808080u;
    codes[i] = (magnitude * 16 + sign) * 17;
  }
  const u32 word = __byte_perm(codes[0], codes[1], 0x7531);
#pragma unroll
  for (int i = 0; i < 8; ++i) into[i] = word >> i * 4 & 15u;
$else
#pragma unroll
  for (int i = 0; i < 8; i += 2) f32_to_e2m1x2(into + i, f16_to_f32(from[i]), f16_to_f32(from[i + 1]));
$end
}
)"},
    {"e4m3_at", "e4m3_to_f32", R"(
// x[i], converted together with its neighbour
__device__ __forceinline__ float e4m3_at(const e4m3* x, int i) {
$if has_fp8
  u16 pair;
  memcpy(&pair, &x[i & ~1], sizeof(pair));
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  return f16_to_f32(f16(i & 1 ? halves >> 16 : halves));
$else
  return e4m3_to_f32(x[i]);
$end
}
)"},
    {"e5m2_to_f32", "e5m2 f16_to_f32", R"(
// An e5m2 is the upper byte of a half.
__device__ __forceinline__ float e5m2_to_f32(e5m2 x) {
  return f16_to_f32(f16(x << 8));
}
)"},
    {"e2m1_to_f32", "e2m1 u32", R"(
__device__ __forceinline__ float e2m1_to_f32(e2m1 x) {
  // The exponent's bias is 126 less than a float's; the product also normalises 1/2.
  const u32 magnitude = __float_as_uint(__uint_as_float((x & 7u) << 22) * 0x1p126f);
  return __uint_as_float(magnitude | (x & 8u) << 28);
}
)"},
    {"i64_to_f32_odd", "i64 u32", R"(
// Rounds toward zero and sets the last bit if that was inexact: rounding the result to a small
// float is then as good as rounding x.
__device__ __forceinline__ float i64_to_f32_odd(i64 x) {
  const float truncated = __ll2float_rz(x);
  return __uint_as_float(__float_as_uint(truncated) | u32(__float2ll_rz(truncated) != x));
}
)"},
    {"u64_to_f32_odd", "u64 u32", R"(
__device__ __forceinline__ float u64_to_f32_odd(u64 x) {
  const float truncated = __ull2float_rz(x);
  return __uint_as_float(__float_as_uint(truncated) | u32(__float2ull_rz(truncated) != x));
}
)"},
};

}  // namespace

std::span<const Snippet> narrowing_snippets() {
  return kNarrowing;
}
std::span<const Snippet> widening_snippets() {
  return kWidening;
}

}  // namespace tessera::codegen::cuda
