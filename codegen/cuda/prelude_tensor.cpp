// Tensor maps, tensor copies and tensor stores, from sm_90 on.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kTensorCopies[] = {
    {"tensor_map", "u64", R"(
// Made by the host.
struct alignas(64) tensor_map {
  u64 words[16];
};
)"},
    {"prefetch_map", "tensor_map", R"(
__device__ __forceinline__ void prefetch_map(const tensor_map* map) {
$if has_tensor_copies
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
$end
}
)"},
    {"copy_tensor", "u32 u64 tensor_map", R"(
// All lanes of a warp name the same box, the innermost coordinate first; lane 0 copies it. The current phase of
// the mbarrier waits for all of its bytes.
__device__ __forceinline__ void copy_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                            int c0) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3}], [%2];" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))), "r"(c0)
      : "memory");
$end
}
__device__ __forceinline__ void copy_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                            int c0, int c1) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))), "r"(c0), "r"(c1)
      : "memory");
$end
}
__device__ __forceinline__ void copy_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                            int c0, int c1, int c2) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
$end
}
__device__ __forceinline__ void copy_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                            int c0, int c1, int c2, int c3) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
$end
}
__device__ __forceinline__ void copy_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                            int c0, int c1, int c2, int c3, int c4) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
$end
}
)"},
    {"expect_and_copy_tensor", "u64 copy_tensor expect_bytes", R"(
template <int kBytes, class... Coordinate>
__device__ __forceinline__ void expect_and_copy_tensor(u64* mbarrier, void* shared,
                                                       const tensor_map* map,
                                                       Coordinate... coordinates) {
  if (threadIdx.x % 32 == 0) expect_bytes<kBytes>(mbarrier);
  copy_tensor(mbarrier, shared, map, coordinates...);
}
)"},
    {"begin_map", "u64 tensor_map", R"(
// Lane 0 of a warp writes a map to global memory: the given one, with another address. set_map_extent and
// set_map_stride complete it, 0 for the innermost dimension; strides of the dimensions from 1 on in bytes.
__device__ __forceinline__ void begin_map(u64* to, const tensor_map* map, u64 address) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  const u64* const from = reinterpret_cast<const u64*>(map);
#pragma unroll
  for (int i = 0; i < 16; ++i) to[i] = from[i];
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(to), "l"(address) : "memory");
$end
}
)"},
    {"set_map_extent", "u32 u64", R"(
template <int kDimension>
__device__ __forceinline__ void set_map_extent(u64* map, u32 extent) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], %1, %2;" ::"l"(map), "n"(kDimension), "r"(extent) : "memory");
$end
}
)"},
    {"set_map_stride", "u64", R"(
template <int kStride>
__device__ __forceinline__ void set_map_stride(u64* map, u64 bytes) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], %1, %2;" ::"l"(map), "n"(kStride), "l"(bytes) : "memory");
$end
}
)"},
    {"acquire_map", "u64", R"(
// Tensor copies that lane 0 starts from here on see the map that it wrote.
__device__ __forceinline__ void acquire_map(const u64* map) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
$end
}
)"},
    {"multicast_tensor", "u32 u64 tensor_map", R"(
// As copy_tensor, into the same place of each block of the cluster whose bit is set in kBlocks; the mbarriers in
// the same place wait for the bytes.
template <int kBlocks>
__device__ __forceinline__ void multicast_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                                 int c0, int c1) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))),
      "h"(static_cast<unsigned short>(kBlocks)), "r"(c0), "r"(c1)
      : "memory");
$end
}
template <int kBlocks>
__device__ __forceinline__ void multicast_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                                 int c0, int c1, int c2) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))),
      "h"(static_cast<unsigned short>(kBlocks)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
$end
}
template <int kBlocks>
__device__ __forceinline__ void multicast_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                                 int c0, int c1, int c2, int c3) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))),
      "h"(static_cast<unsigned short>(kBlocks)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
$end
}
template <int kBlocks>
__device__ __forceinline__ void multicast_tensor(u64* mbarrier, void* shared, const tensor_map* map,
                                                 int c0, int c1, int c2, int c3, int c4) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))),
      "l"(map), "r"(static_cast<u32>(__cvta_generic_to_shared(mbarrier))),
      "h"(static_cast<unsigned short>(kBlocks)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
$end
}
)"},
    {"expect_and_multicast_tensor", "u64 multicast_tensor expect_bytes", R"(
// kBytes: of the parts of all blocks.
template <int kBytes, int kBlocks, class... Coordinate>
__device__ __forceinline__ void expect_and_multicast_tensor(u64* mbarrier, void* shared,
                                                            const tensor_map* map,
                                                            Coordinate... coordinates) {
  if (threadIdx.x % 32 == 0) expect_bytes<kBytes>(mbarrier);
  multicast_tensor<kBlocks>(mbarrier, shared, map, coordinates...);
}
)"},
    {"store_tensor", "u32 tensor_map", R"(
// All lanes of a warp name the same box, the innermost coordinate first; lane 0 stores it from shared memory.
// What is outside of the tensor is dropped.
__device__ __forceinline__ void store_tensor(const tensor_map* map, int c0, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0)
      : "memory");
$end
}
__device__ __forceinline__ void store_tensor(const tensor_map* map, int c0, int c1, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1)
      : "memory");
$end
}
__device__ __forceinline__ void store_tensor(const tensor_map* map, int c0, int c1, int c2, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
$end
}
__device__ __forceinline__ void store_tensor(const tensor_map* map, int c0, int c1, int c2, int c3, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
$end
}
__device__ __forceinline__ void store_tensor(const tensor_map* map, int c0, int c1, int c2, int c3, int c4, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
$end
}
)"},
    {"add_tensor", "u32 tensor_map", R"(
// As store_tensor, but adds each element to that of the tensor.
__device__ __forceinline__ void add_tensor(const tensor_map* map, int c0, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0)
      : "memory");
$end
}
__device__ __forceinline__ void add_tensor(const tensor_map* map, int c0, int c1, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1)
      : "memory");
$end
}
__device__ __forceinline__ void add_tensor(const tensor_map* map, int c0, int c1, int c2, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
$end
}
__device__ __forceinline__ void add_tensor(const tensor_map* map, int c0, int c1, int c2, int c3, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
$end
}
__device__ __forceinline__ void add_tensor(const tensor_map* map, int c0, int c1, int c2, int c3, int c4, const void* shared) {
$if has_tensor_copies
  if (threadIdx.x % 32 != 0) return;
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
$end
}
)"},
    {"commit_stores", "", R"(
// Closes the group of the tensor stores that this thread has started.
__device__ __forceinline__ void commit_stores() {
$if has_tensor_copies
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
$end
}
)"},
    {"wait_for_stores", "", R"(
// Until what at most kPending groups of this thread store is not in memory yet.
template <int kPending>
__device__ __forceinline__ void wait_for_stores() {
$if has_tensor_copies
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
$end
}
)"},
    {"wait_for_store_reads", "", R"(
// Until the shared memory of all but kPending groups has been read.
template <int kPending>
__device__ __forceinline__ void wait_for_store_reads() {
$if has_tensor_copies
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
$end
}
)"},
};

}  // namespace

std::span<const Snippet> tensor_snippets() {
  return kTensorCopies;
}

}  // namespace tessera::codegen::cuda
