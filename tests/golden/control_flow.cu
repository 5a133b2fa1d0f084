using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

__device__ __forceinline__ int wrapping_add(int a, int b) { return int(u32(a) + u32(b)); }
__device__ __forceinline__ i64 wrapping_add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }

__device__ __forceinline__ int wrapping_mul(int a, int b) { return int(u32(a) * u32(b)); }
__device__ __forceinline__ i64 wrapping_mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }

// control_flow: grid (1), 64 threads
extern "C" __global__ void __launch_bounds__(64)
tessera_control_flow(int count, int limit, const int* __restrict__ x, int* y) {
  const int thread = threadIdx.x;
  int total = 0;
  for (int i = thread; i < count; i += 64) {
    const int element = x[i];
    if (element < limit) {
      total = wrapping_add(total, element);
    } else if (element == limit) {
      y[i] = element;
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int i_2 = i; i_2 < 4; i_2 += 2) {
      y[wrapping_add(wrapping_mul(i, 4), i_2)] = total;
    }
  }
}
