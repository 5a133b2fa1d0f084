// The blocks wanted, or as many as an SM holds: by their threads, and any.
inline constexpr int threads_per_sm = 2048;
inline constexpr int places_per_sm = 32;
template <int kThreads>
inline constexpr int fit_in_sm = threads_per_sm / kThreads < places_per_sm ? threads_per_sm / kThreads : places_per_sm;
template <int kWanted, int kThreads>
inline constexpr int blocks_per_sm = kWanted < fit_in_sm<kThreads> ? kWanted : fit_in_sm<kThreads>;

// transpose_tile: grid (1), 1024 threads, 4352 bytes of shared memory
extern "C" __global__ void __launch_bounds__(1024, blocks_per_sm<2, 1024>)
tessera_transpose_tile(const float* __restrict__ x, const float* __restrict__ bias, float* y) {
  const int thread = threadIdx.x;
  extern __shared__ __align__(128) unsigned char arena[];
  float* const tile = reinterpret_cast<float*>(arena);
  float* const row_bias = reinterpret_cast<float*>(arena + 4224);
  const int row = thread / 32;
  const int col = thread % 32;

  // copy x to tile  (sample.cpp:12)
  tile[row * 33 + col] = x[thread];

  // copy bias to row_bias  (sample.cpp:13)
  if (thread < 32) {
    row_bias[thread] = bias[thread];
  }
  __syncthreads();

  // copy tile to y, transposed  (sample.cpp:14)
  y[thread] = tile[col * 33 + row] + row_bias[col];
}
