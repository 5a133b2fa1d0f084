// Copies of whole rows into shared memory: bulk copies from sm_90 on.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kRows[] = {
    {"fence_stores", "", R"(
// What this thread has stored comes before the bulk copies behind the next barrier.
__device__ __forceinline__ void fence_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
)"},
    {"RowCopies", "u32 u64", R"(
// Copies of whole rows, in groups as those of copy_async: all threads close and await the same
// groups. Before sm_90 the lanes of the warp copy pieces. From then on one instruction copies a row,
// and the barriers in shared memory stand for the groups in turn: a group has landed when all warps
// have closed it and all of its bytes are there. No warp closes a group before it has awaited the
// last one of that barrier.
// kPieces: there are copies by copy_async, too.
template <int kGroups, int kWarps, bool kPieces>
struct RowCopies {
  u32 barriers;
  u32 closed = 0, landed = 0;  // groups

  __device__ __forceinline__ explicit RowCopies(u64* shared)
      : barriers(static_cast<u32>(__cvta_generic_to_shared(shared))) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      for (int i = 0; i < kGroups; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barriers + 8 * i), "r"(kWarps)
                     : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
#endif
  }

  __device__ __forceinline__ u32 barrier(u32 group) const { return barriers + group % kGroups * 8; }

  // All lanes of a warp name the same row; zeros where `inside` is false.
  template <int kBytes>
  __device__ __forceinline__ void copy(bool inside, void* shared, const void* global) const {
    const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
#if __CUDA_ARCH__ >= 900
    if (!inside) return clear<kBytes>(to);
    if (threadIdx.x % 32 != 0) return;
    expect<kBytes>();
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to), "l"(__cvta_generic_to_global(global)), "n"(kBytes), "r"(barrier(closed))
        : "memory");
#else
    copy_pieces<kBytes>(inside, to, global);
#endif
  }
  template <int kBytes, class Hint>
  __device__ __forceinline__ void copy(bool inside, void* shared, const void* global) const {
#if __CUDA_ARCH__ >= 900
    const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
    if (!inside) return clear<kBytes>(to);
    if (threadIdx.x % 32 != 0) return;
    expect<kBytes>();
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
        "%2, [%3], %4;" ::"r"(to), "l"(__cvta_generic_to_global(global)), "n"(kBytes),
        "r"(barrier(closed)), "l"(Hint::policy())
        : "memory");
#else
    copy<kBytes>(inside, shared, global);
#endif
  }

  // Closes the group of the copies that were started since the last one.
  __device__ __forceinline__ void commit() {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 == 0) {
      asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(
                       barrier(closed))
                   : "memory");
    }
    ++closed;
    wait_until<kGroups - 1>();
    if (kPieces) asm volatile("cp.async.commit_group;" ::: "memory");
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }

  // Waits until at most kPending groups are under way.
  template <int kPending>
  __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
    wait_until<kPending>();
    if (kPieces) asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
  }

  template <u32 kPending>
  __device__ __forceinline__ void wait_until() {
    for (; closed - landed > kPending; ++landed) {
      u32 done;
      do {
        asm volatile(
            "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "  selp.u32 %0, 1, 0, done; }"
            : "=r"(done) : "r"(barrier(landed)), "r"(landed / kGroups % 2) : "memory");
      } while (done == 0);
    }
  }
  template <int kBytes>
  __device__ __forceinline__ void expect() const {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier(closed)),
                 "n"(kBytes)
                 : "memory");
  }
  // The zeros are stored by the lanes, and the next row comes by the asynchronous way.
  template <int kBytes>
  static __device__ __forceinline__ void clear(u32 to) {
    for (u32 i = threadIdx.x % 32 * 16; i < kBytes; i += 512) {
      asm volatile("st.shared.v4.u32 [%0], {0, 0, 0, 0};" ::"r"(to + i) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  template <int kBytes>
  static __device__ __forceinline__ void copy_pieces(bool inside, u32 to, const void* global) {
    const char* from = static_cast<const char*>(global);
    for (u32 i = threadIdx.x % 32 * 16; i < kBytes; i += 512) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i), "l"(from + i),
                   "r"(inside ? 16 : 0)
                   : "memory");
    }
  }
};
)"},
};

}  // namespace

std::span<const Snippet> row_snippets() {
  return kRows;
}

}  // namespace tessera::codegen::cuda
