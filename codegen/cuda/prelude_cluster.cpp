// Blocks of a cluster: where they meet, and the way to each other's shared memory. From sm_90 on.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kCluster[] = {
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
};

}  // namespace

std::span<const Snippet> cluster_snippets() {
  return kCluster;
}

}  // namespace tessera::codegen::cuda
