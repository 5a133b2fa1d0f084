using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using bf16 = unsigned short;  // bits of a bfloat16
inline constexpr u32 all_lanes = 0xFFFFFFFFu;

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

// into[0], into[1] = even, odd
__device__ __forceinline__ void f32_to_bf16x2(bf16* into, float even, float odd) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  memcpy(into, &pair, sizeof(pair));
}

// x[i], from the word that holds it and its neighbour
__device__ __forceinline__ float bf16_at(const bf16* x, int i) {
  u32 pair;
  memcpy(&pair, &x[i & ~1], sizeof(pair));
  return __uint_as_float(i & 1 ? pair & 0xFFFF0000u : pair << 16);
}

// rms_norm: grid (rows), 256 threads, 32 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256)
tessera_rms_norm(const bf16* __restrict__ x, const bf16* __restrict__ weight, bf16* y, int rows) {
  const int block_x = blockIdx.x;
  const int thread = threadIdx.x;
  extern __shared__ __align__(128) unsigned char arena[];
  float* const reduced_exchange = reinterpret_cast<float*>(arena);
  alignas(16) bf16 x_2[32];

  // copy x -> x  (06_rms_norm.cpp:20)
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (thread * 8 + s * 2048 < 7168) {
      load<8>(&x_2[s * 8], &x[i64(block_x) * 7168 + (thread * 8 + s * 2048)]);
    }
  }
  float tile[32];

  // parallel  (06_rms_norm.cpp:21)
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (thread * 8 + s * 2048 < 7168) {
      #pragma unroll
      for (int lane = 0; lane < 8; ++lane) {
        tile[s * 8 + lane] = bf16_at(x_2, s * 8 + lane) * bf16_at(x_2, s * 8 + lane);
      }
    }
  }
  float reduced;

  // reduce_sum tile -> reduced  (06_rms_norm.cpp:21)
  reduced = 0.0f;
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    #pragma unroll
    for (int s_2 = 0; s_2 < 8; ++s_2) {
      if (thread * 8 + s * 2048 + s_2 < 7168) {
        reduced = reduced + tile[s * 8 + s_2];
      }
    }
  }
  const float reduced_mine = reduced;
  const float reduced_other = __shfl_xor_sync(all_lanes, reduced_mine, 16);
  reduced = reduced_mine + reduced_other;
  const float reduced_mine_2 = reduced;
  const float reduced_other_2 = __shfl_xor_sync(all_lanes, reduced_mine_2, 8);
  reduced = reduced_mine_2 + reduced_other_2;
  const float reduced_mine_3 = reduced;
  const float reduced_other_3 = __shfl_xor_sync(all_lanes, reduced_mine_3, 4);
  reduced = reduced_mine_3 + reduced_other_3;
  const float reduced_mine_4 = reduced;
  const float reduced_other_4 = __shfl_xor_sync(all_lanes, reduced_mine_4, 2);
  reduced = reduced_mine_4 + reduced_other_4;
  const float reduced_mine_5 = reduced;
  const float reduced_other_5 = __shfl_xor_sync(all_lanes, reduced_mine_5, 1);
  reduced = reduced_mine_5 + reduced_other_5;
  if (thread % 32 == 0) {
    reduced_exchange[thread / 32] = reduced;
  }
  reduced = 0.0f;
  __syncthreads();
  #pragma unroll
  for (int p = 0; p < 2; ++p) {
    alignas(16) float reduced_others[4];
    load<4>(&reduced_others[0], &reduced_exchange[p * 4]);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      reduced = reduced + reduced_others[i];
    }
  }
  alignas(16) bf16 weight_2[32];

  // copy weight -> weight  (06_rms_norm.cpp:22)
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (thread * 8 + s * 2048 < 7168) {
      load<8>(&weight_2[s * 8], &weight[thread * 8 + s * 2048]);
    }
  }

  // parallel  (06_rms_norm.cpp:22)
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (thread * 8 + s * 2048 < 7168) {
      alignas(16) bf16 y_vec[8];
      float y_f32[8];
      #pragma unroll
      for (int lane = 0; lane < 8; ++lane) {
        y_f32[lane] = bf16_at(x_2, s * 8 + lane) * rsqrtf(reduced / 7168.0f + 9.536743e-07f) *
            bf16_at(weight_2, s * 8 + lane);
      }
      #pragma unroll
      for (int i = 0; i < 8; i += 2) {
        f32_to_bf16x2(&y_vec[i], y_f32[i], y_f32[i + 1]);
      }
      store<8>(&y[i64(block_x) * 7168 + (thread * 8 + s * 2048)], &y_vec[0]);
    }
  }
}
