using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

__device__ __forceinline__ int wrapping_mul(int a, int b) { return int(u32(a) * u32(b)); }
__device__ __forceinline__ i64 wrapping_mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }

// Amounts of the width and above give 0, or the sign of a signed value, as the instruction does.
__device__ __forceinline__ u32 shift_right(u32 x, u32 amount) {
  u32 result;
  asm("shr.u32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ u64 shift_right(u64 x, u32 amount) {
  u64 result;
  asm("shr.u64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ int shift_right(int x, u32 amount) {
  int result;
  asm("shr.s32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ i64 shift_right(i64 x, u32 amount) {
  i64 result;
  asm("shr.s64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(amount));
  return result;
}

__device__ __forceinline__ u16 low_half(u32 word) {
  u16 half;
  asm("{ .reg .b16 other; mov.b32 {%0, other}, %1; }" : "=h"(half) : "r"(word));
  return half;
}

// integers: grid (1), 32 threads
extern "C" __global__ void __launch_bounds__(32)
tessera_integers(const i64* __restrict__ seeds, const u32* __restrict__ amounts, i64* hashes,
    u16* small) {
  const int thread = threadIdx.x;
  const i64 place = i64(thread * 3 % 32);
  const i64 seed = seeds[place];
  const u32 amount = amounts[thread];
  const i64 mixed = wrapping_mul(seed, 712544676207699905ll) ^ seed;
  const i64 shifted = shift_right(mixed, amount) % 97;
  hashes[place] = shifted;
  const u16 low = low_half(amount & 0xFFFFu);
  small[place] = u16(u32(low) * low);
}
