using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using bf16 = unsigned short;  // bits of a bfloat16
using e4m3 = unsigned char;  // bits of an 8-bit float: no infinity, max 448
inline constexpr u32 all_lanes = 0xFFFFFFFFu;

// What one access of kBytes bytes moves.
template <int kBytes> struct WordOf;
template <> struct WordOf<1> { using type = u8; };
template <> struct WordOf<2> { using type = u16; };
template <> struct WordOf<4> { using type = u32; };
template <> struct WordOf<8> { using type = uint2; };
template <> struct WordOf<16> { using type = uint4; };
template <int kBytes> using Word = typename WordOf<kBytes>::type;

// word = *memory, global memory that nobody writes while the kernel runs; 0 where `inside` is false. One
// instruction with a predicate: loads that branches stand between would not come together.
__device__ __forceinline__ void read_or_zero(bool inside, u16& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; mov.b16 %0, 0;\n"
      "  @inside ld.global.nc.u16 %0, [%1]; }" : "=&h"(word) : "l"(memory), "r"(int(inside)));
}
__device__ __forceinline__ void read_or_zero(bool inside, u8& word, const void* memory) {
  u16 wide;
  asm("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; mov.b16 %0, 0;\n"
      "  @inside ld.global.nc.u8 %0, [%1]; }" : "=&h"(wide) : "l"(memory), "r"(int(inside)));
  word = u8(wide);
}
__device__ __forceinline__ void read_or_zero(bool inside, u32& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; mov.b32 %0, 0;\n"
      "  @inside ld.global.nc.u32 %0, [%1]; }" : "=&r"(word) : "l"(memory), "r"(int(inside)));
}
__device__ __forceinline__ void read_or_zero(bool inside, uint2& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0;\n"
      "  @inside ld.global.nc.v2.u32 {%0, %1}, [%2]; }"
      : "=&r"(word.x), "=&r"(word.y) : "l"(memory), "r"(int(inside)));
}
__device__ __forceinline__ void read_or_zero(bool inside, uint4& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0;\n"
      "  mov.b32 %2, 0; mov.b32 %3, 0; @inside ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(word.x), "=&r"(word.y), "=&r"(word.z), "=&r"(word.w) : "l"(memory), "r"(int(inside)));
}

// As load of such memory, but reads nothing and gives zeros where `inside` is false.
template <int kCount, class T>
__device__ __forceinline__ void load_or_zero(bool inside, T* registers, const T* memory) {
  read_or_zero(inside, *reinterpret_cast<Word<kCount * sizeof(T)>*>(registers), memory);
}

// memory[0..kCount) = registers[0..kCount) in one access; memory is aligned to its size.
template <int kCount, class T>
__device__ __forceinline__ void store(T* memory, const T* registers) {
  using Words = Word<kCount * sizeof(T)>;
  *reinterpret_cast<Words*>(memory) = *reinterpret_cast<const Words*>(registers);
}

// into[0], into[1] = even, odd. Saturates to +-448, infinities too; NaN becomes 0x7F.
__device__ __forceinline__ void f32_to_e4m3x2(e4m3* into, float even, float odd) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(odd), "f"(even));
  memcpy(into, &pair, sizeof(pair));
}

// into[0..4) = from[0..4), in one word
__device__ __forceinline__ void f32_to_e4m3x4(e4m3* into, const float* from) {
  u32 word;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "  cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
      : "=r"(word) : "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
  memcpy(into, &word, sizeof(word));
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

// a / b for 4 <= a <= 2^20 and 2^-124 <= b, where a / b < 2^127: as the division does it out of the way of
// its special cases. A quarter of b has a normal reciprocal.
__device__ __forceinline__ float quotient(float a, float b) {
  const float x = a * 0.25f, y = b * 0.25f;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = fmaxf(r, 0x1p-126f);
  r = fmaf(r, fmaf(-y, r, 1.0f), r);
  float q = x * r;
  q = fmaf(r, fmaf(-y, q, x), q);
  q = fmaf(r, fmaf(-y, q, x), q);
  return fmaxf(q, 0.0f);  // of an infinite b q is -infinity here
}

// a / b for a whole number b <= 2^20 with the reciprocal r, and a >= b * 2^-126: a remainder is exact. Of an
// infinite a it is infinite.
__device__ __forceinline__ float quotient_by(float a, float b, float r) {
  const float q = fminf(a * r, 0x1.fffffep127f);
  return fmaf(r, fmaf(-b, q, a), q);
}

__device__ __forceinline__ int wrapping_add(int a, int b) { return int(u32(a) + u32(b)); }
__device__ __forceinline__ i64 wrapping_add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }

__device__ __forceinline__ int wrapping_mul(int a, int b) { return int(u32(a) * u32(b)); }
__device__ __forceinline__ i64 wrapping_mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }

// cast_rows: grid (56, (tokens + 15) / 16), 256 threads
extern "C" __global__ void __launch_bounds__(256, 4)
tessera_cast_rows(int tokens, const bf16* __restrict__ x, e4m3* out, float* out_sf) {
  const int group = blockIdx.x;
  const int block_row = blockIdx.y;
  const int thread = threadIdx.x;
  const int row = block_row * 16 + thread / 16;
  const int col = thread % 16 * 8;
  const bool inside = row < tokens;

  // copy x to x_frag  (sample.cpp:31)
  alignas(16) bf16 x_frag[8];
  const i64 offset = i64(row) * 7168 + wrapping_add(wrapping_mul(group, 128), col);
  load_or_zero<8>(inside, &x_frag[0], &x[offset]);

  // reduce_absmax x_frag over columns  (sample.cpp:32)
  float amax = 0.0f;
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    amax = fmaxf(amax, bf16_to_f32(x_frag[i] & 0x7FFF));
  }
  const float other = __shfl_xor_sync(all_lanes, amax, 8);
  amax = fmaxf(amax, other);
  const float other_2 = __shfl_xor_sync(all_lanes, amax, 4);
  amax = fmaxf(amax, other_2);
  const float other_3 = __shfl_xor_sync(all_lanes, amax, 2);
  amax = fmaxf(amax, other_3);
  const float other_4 = __shfl_xor_sync(all_lanes, amax, 1);
  amax = fmaxf(amax, other_4);

  // scale and store  (sample.cpp:35)
  const float bounded = fmaxf(amax, 0.0001f);
  const float sf = quotient_by(bounded, 448.0f, 0.002232143f);
  const float inverse = quotient(448.0f, bounded);
  float scaled[8];
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    scaled[i] = bf16_at(x_frag, i) * inverse;
  }
  alignas(16) e4m3 q[8];
  #pragma unroll
  for (int i = 0; i < 8; i += 4) {
    f32_to_e4m3x4(&q[i], &scaled[i]);
  }
  if (inside) store<8>(&out[offset], &q[0]);
  if (inside && col == 0) out_sf[i64(row) * 56 + group] = sf;
}
