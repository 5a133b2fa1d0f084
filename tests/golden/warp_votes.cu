using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f16 = unsigned short;  // bits of an IEEE half
inline constexpr u32 all_lanes = 0xFFFFFFFFu;

__device__ __forceinline__ int wrapping_add(int a, int b) { return int(u32(a) + u32(b)); }
__device__ __forceinline__ i64 wrapping_add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }

// Amounts of the width and above give 0, as the instruction does.
__device__ __forceinline__ u32 shift_left(u32 x, u32 amount) {
  u32 result;
  asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ u64 shift_left(u64 x, u32 amount) {
  u64 result;
  asm("shl.b64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ int shift_left(int x, u32 amount) {
  return int(shift_left(u32(x), amount));
}
__device__ __forceinline__ i64 shift_left(i64 x, u32 amount) {
  return i64(shift_left(u64(x), amount));
}

// warp_votes: grid (1), 32 threads
extern "C" __global__ void __launch_bounds__(32)
tessera_warp_votes(const i64* __restrict__ keys, const f16* __restrict__ halves, bool* flags,
    int* counts, f16* last) {
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  const i64 key = keys[lane];
  const u32 peers = __match_any_sync(all_lanes, key);
  const bool chosen = key < 5;
  const bool any = __any_sync(all_lanes, chosen) != 0;
  const u32 ballot = __ballot_sync(all_lanes, chosen);
  const u32 before = ballot & (shift_left(1u, u32(lane)) - 1u);
  const int rank = __popc(before);
  const int most = __reduce_max_sync(all_lanes, rank);
  const int bits = int(__reduce_or_sync(all_lanes, u32(rank)));
  const f16 from_eight = __shfl_sync(all_lanes, halves[lane], 7, 8);
  __all_sync(all_lanes, chosen);
  __syncwarp();
  flags[lane] = any;
  counts[lane] = wrapping_add(wrapping_add(__popc(peers), most), bits);
  last[lane] = from_eight;
}
