using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using bf16 = unsigned short;  // bits of a bfloat16
using f16 = unsigned short;  // bits of an IEEE half
using e2m1 = unsigned char;  // code 0..15 of a 4-bit float
using e2m1x2 = unsigned char;  // two codes, the even element in the low nibble

// What one access of kBytes bytes moves.
template <int kBytes> struct WordOf;
template <> struct WordOf<1> { using type = u8; };
template <> struct WordOf<2> { using type = u16; };
template <> struct WordOf<4> { using type = u32; };
template <> struct WordOf<8> { using type = uint2; };
template <> struct WordOf<16> { using type = uint4; };
template <int kBytes> using Word = typename WordOf<kBytes>::type;

// registers[0..kCount) = memory[0..kCount) in one access; memory is aligned to its size.
template <int kCount, class T>
__device__ __forceinline__ void load(T* registers, const T* memory) {
  using Words = Word<kCount * sizeof(T)>;
  *reinterpret_cast<Words*>(registers) = *reinterpret_cast<const Words*>(memory);
}

// memory[0..kCount) = registers[0..kCount) in one access; memory is aligned to its size.
template <int kCount, class T>
__device__ __forceinline__ void store(T* memory, const T* registers) {
  using Words = Word<kCount * sizeof(T)>;
  *reinterpret_cast<Words*>(memory) = *reinterpret_cast<const Words*>(registers);
}

// Packs codes[0..kCount), an even number of them, in one access. Codes that one conversion has packed already stay so.
template <int kCount>
__device__ __forceinline__ void store_e2m1(e2m1x2* memory, const e2m1* codes) {
  constexpr int kRun = kCount < 8 ? kCount : 8;  // codes of one word
  alignas(4) e2m1x2 pairs[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount; i += kRun) {
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < kRun; ++j) word |= u32(codes[i + j]) << j * 4;
    memcpy(&pairs[i / 2], &word, kRun / 2);
  }
  store<kCount / 2>(memory, pairs);
}

// NaN becomes 0x7FFF.
__device__ __forceinline__ bf16 f32_to_bf16(float x) {
  bf16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// into[0], into[1] = even, odd
__device__ __forceinline__ void f32_to_f16x2(f16* into, float even, float odd) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  memcpy(into, &pair, sizeof(pair));
}

// into[0], into[1] = even, odd. Saturates to +-6, infinities too; NaN becomes code 7.
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

__device__ __forceinline__ u8 f32_to_u8(float x) {
  return min(max(__float2int_rz(x), 0), 255);
}

__device__ __forceinline__ float bf16_to_f32(bf16 x) {
  return __uint_as_float(u32(x) << 16);
}

// x[i], from the word that holds it and its neighbour
__device__ __forceinline__ float bf16_at(const bf16* x, int i) {
  u32 pair;
  memcpy(&pair, &x[i & ~1], sizeof(pair));
  return __uint_as_float(i & 1 ? pair & 0xFFFF0000u : pair << 16);
}

__device__ __forceinline__ float f16_to_f32(f16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}

// into[0..8) = from[0..8), as by f32, in one word
__device__ __forceinline__ void f16x8_to_e2m1x8(e2m1* into, const f16* from) {
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
}

// Rounds toward zero and sets the last bit if that was inexact: rounding the result to a small
// float is then as good as rounding x.
__device__ __forceinline__ float i64_to_f32_odd(i64 x) {
  const float truncated = __ll2float_rz(x);
  return __uint_as_float(__float_as_uint(truncated) | u32(__float2ll_rz(truncated) != x));
}

__device__ __forceinline__ int wrapping_mul(int a, int b) { return int(u32(a) * u32(b)); }
__device__ __forceinline__ i64 wrapping_mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }

// conversions: grid (1), 32 threads
extern "C" __global__ void __launch_bounds__(32)
tessera_conversions(const bf16* __restrict__ x, const i64* __restrict__ ids, f16* halves,
    e2m1x2* codes, bf16* rounded, u8* bytes) {
  const int thread = threadIdx.x;
  const i64 offset = i64(thread) * 8;
  alignas(16) bf16 x_frag[8];
  load<8>(&x_frag[0], &x[offset]);
  alignas(16) f16 half_frag[8];
  #pragma unroll
  for (int part = 0; part < 2; ++part) {
    #pragma unroll
    for (int i = 0; i < 4; i += 2) {
      f32_to_f16x2(&half_frag[wrapping_mul(part, 4) + i],
          bf16_to_f32(x_frag[wrapping_mul(part, 4) + i]),
          bf16_to_f32(x_frag[wrapping_mul(part, 4) + i + 1]));
    }
  }
  store<8>(&halves[offset], &half_frag[0]);
  alignas(16) e2m1 code_frag[8];
  f16x8_to_e2m1x8(&code_frag[0], &half_frag[0]);
  store_e2m1<8>(&codes[offset >> 1], &code_frag[0]);
  rounded[thread] = f32_to_bf16(i64_to_f32_odd(ids[thread]));
  bytes[thread] = f32_to_u8(bf16_to_f32(f32_to_bf16(bf16_at(x_frag, 0) + bf16_at(x_frag, 1))));
}
