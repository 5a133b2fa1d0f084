// Threads that meet by name, and blocks that run together. Of a cluster: where they meet, and the way to each other's shared
// memory, from sm_90 on. Of a grid that was launched cooperatively: where they meet.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kCluster[] = {
    {"named_barrier", "", R"(
template <int id, int threads>
__device__ __forceinline__ void named_barrier() {
  asm volatile("barrier.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}
)"},
    {"arrive_at_barrier", "", R"(
template <int id, int threads>
__device__ __forceinline__ void arrive_at_barrier() {
  asm volatile("barrier.arrive %0, %1;" ::"n"(id), "n"(threads) : "memory");
}
)"},
    {"arrive_cluster", "", R"(
__device__ __forceinline__ void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
)"},
    {"wait_cluster", "", R"(
__device__ __forceinline__ void wait_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
)"},
    {"sync_cluster", "arrive_cluster wait_cluster", R"(
__device__ __forceinline__ void sync_cluster() {
  arrive_cluster();
  wait_cluster();
}
)"},
    {"of_block", "", R"(
// What stands in the place of `mine`, in shared memory, in the block of that rank of the cluster. A
// generic address, as `mine` is.
template <class T>
__device__ __forceinline__ T* of_block(T* mine, int rank) {
  T* place;
  asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(mine), "r"(rank));
  return place;
}
)"},
    {"sync_grid", "u32", R"(
// barrier[0] counts the blocks that have come, the last one takes it back to 0; barrier[1] counts
// the meetings.
__device__ __forceinline__ void sync_grid(u32* barrier) {
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 meeting, before;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(meeting) : "l"(barrier + 1) : "memory");
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(barrier) : "memory");
    if (before + 1 == gridDim.x * gridDim.y * gridDim.z) {
      asm volatile("st.relaxed.gpu.u32 [%0], 0;" ::"l"(barrier) : "memory");
      asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(barrier + 1), "r"(meeting + 1) : "memory");
    } else {
      u32 now;
      do {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(barrier + 1) : "memory");
      } while (now == meeting);
    }
  }
  __syncthreads();
}
)"},
};

}  // namespace

std::span<const Snippet> cluster_snippets() {
  return kCluster;
}

}  // namespace tessera::codegen::cuda
