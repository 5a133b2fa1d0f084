// mbarriers and bulk copies, from sm_90 on.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kMbarriers[] = {
    {"fence_proxy", "", R"(
// What this thread has stored to shared memory comes before bulk copies and reads of the tensor cores
// behind the next barrier.
__device__ __forceinline__ void fence_proxy() {
$if has_bulk_copies
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
$end
}
)"},
    {"fence_proxy_of_cluster", "", R"(
// The same for shared memory of all blocks of the cluster.
__device__ __forceinline__ void fence_proxy_of_cluster() {
$if has_bulk_copies
  asm volatile("fence.proxy.async.shared::cluster;" ::: "memory");
$end
}
)"},
    {"fence_proxy_of_all", "", R"(
// The same for global memory too.
__device__ __forceinline__ void fence_proxy_of_all() {
$if has_bulk_copies
  asm volatile("fence.proxy.async;" ::: "memory");
$end
}
)"},
    {"init_mbarriers", "u32 u64", R"(
template <int kCount>
__device__ __forceinline__ void init_mbarriers(u64* first, u32 arrivals) {
$if has_bulk_copies
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(first));
  for (int i = 0; i < kCount; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at + 8 * i), "r"(arrivals)
                 : "memory");
  }
$end
}
)"},
    {"expect_bytes", "u32 u64", R"(
// The current phase ends after kBytes more.
template <int kBytes>
__device__ __forceinline__ void expect_bytes(u64* mbarrier) {
$if has_bulk_copies
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(at), "n"(kBytes)
               : "memory");
$end
}
)"},
    {"arrive", "u32 u64", R"(
__device__ __forceinline__ void arrive(u64* mbarrier) {
$if has_bulk_copies
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(at)
               : "memory");
$end
}
)"},
    {"wait_for_phase", "u32 u64", R"(
// Until this phase, counted from 0, has ended.
__device__ __forceinline__ void wait_for_phase(u64* mbarrier, u32 phase) {
$if has_bulk_copies
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  u32 done;
  do {
    asm volatile(
        "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, done; }"
        : "=r"(done) : "r"(at), "r"(phase % 2) : "memory");
  } while (done == 0);
$end
}
)"},
    {"copy_bulk", "u32 u64", R"(
// All lanes of a warp name the same bytes. From sm_90 on lane 0 copies them, and the current phase of the
// mbarrier waits for them. Before, the lanes copy pieces in groups as copy_async does.
template <int kBytes>
__device__ __forceinline__ void copy_pieces(void* shared, const void* global) {
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  const char* from = static_cast<const char*>(global);
  for (u32 i = threadIdx.x % 32 * 16; i < kBytes; i += 512) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i)
                 : "memory");
  }
}
template <int kBytes>
__device__ __forceinline__ void copy_bulk(u64* mbarrier, void* shared, const void* global) {
$if has_bulk_copies
  if (threadIdx.x % 32 != 0) return;
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to), "l"(__cvta_generic_to_global(global)), "n"(kBytes), "r"(at)
      : "memory");
$else
  copy_pieces<kBytes>(shared, global);
$end
}
template <int kBytes, class Hint>
__device__ __forceinline__ void copy_bulk(u64* mbarrier, void* shared, const void* global) {
$if has_bulk_copies
  if (threadIdx.x % 32 != 0) return;
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
      "%2, [%3], %4;" ::"r"(to), "l"(__cvta_generic_to_global(global)), "n"(kBytes), "r"(at),
      "l"(Hint::policy())
      : "memory");
$else
  copy_pieces<kBytes>(shared, global);
$end
}
)"},
    {"expect_and_copy_bulk", "u64 copy_bulk expect_bytes", R"(
// Any hint follows kBytes.
template <int kBytes, class... Hint>
__device__ __forceinline__ void expect_and_copy_bulk(u64* mbarrier, void* shared,
                                                     const void* global) {
  if (threadIdx.x % 32 == 0) expect_bytes<kBytes>(mbarrier);
  copy_bulk<kBytes, Hint...>(mbarrier, shared, global);
}
)"},
    {"init_ring", "u32 u64", R"(
// mbarriers of a ring, which GPUs before sm_90 have, too.
template <int kCount>
__device__ __forceinline__ void init_ring(u64* first, u32 arrivals) {
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(first));
  for (int i = 0; i < kCount; ++i) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at + 8 * i), "r"(arrivals) : "memory");
  }
}
)"},
    {"arrive_at_ring", "u32 u64", R"(
__device__ __forceinline__ void arrive_at_ring(u64* mbarrier) {
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(at) : "memory");
}
)"},
    {"arrive_after_copies", "u32 u64", R"(
// Arrives once what copy_async of this thread has started is there.
__device__ __forceinline__ void arrive_after_copies(u64* mbarrier) {
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
}
)"},
    {"wait_at_ring", "u32 u64", R"(
// Until this phase, counted from 0, has ended; phase -1 has.
__device__ __forceinline__ void wait_at_ring(u64* mbarrier, u32 phase) {
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  u32 done;
  do {
$if has_bulk_copies
    asm volatile(
        "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, done; }"
        : "=r"(done) : "r"(at), "r"(phase % 2) : "memory");
$else
    asm volatile(
        "{ .reg .pred done; mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, done; }"
        : "=r"(done) : "r"(at), "r"(phase % 2) : "memory");
$end
  } while (done == 0);
}
)"},
    {"fence_mbarrier_init", "", R"(
// Other blocks of the cluster see what init_ring has made after the next barrier of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
$if has_bulk_copies
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
$end
}
)"},
    {"arrive_at_block", "u32 u64", R"(
// At the mbarrier in the same place of the block of that rank of the cluster.
__device__ __forceinline__ void arrive_at_block(u64* mbarrier, u32 rank) {
$if has_bulk_copies
  const u32 mine = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  asm volatile(
      "{ .reg .b32 at; mapa.shared::cluster.u32 at, %0, %1;\n"
      "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [at]; }" ::"r"(mine), "r"(rank)
      : "memory");
$end
}
)"},
    {"wait_for_cluster", "u32 u64", R"(
// As wait_at_ring, at an mbarrier at which threads of the whole cluster arrive.
__device__ __forceinline__ void wait_for_cluster(u64* mbarrier, u32 phase) {
$if has_bulk_copies
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(mbarrier));
  u32 done;
  do {
    asm volatile(
        "{ .reg .pred done; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, done; }"
        : "=r"(done) : "r"(at), "r"(phase % 2) : "memory");
  } while (done == 0);
$end
}
)"},
    {"fill_bulk", "expect_and_copy_bulk", R"(
// A bulk copy into a ring. Before sm_90 the lanes copy, and the arrival of their warp follows.
template <int kBytes, class... Hint>
__device__ __forceinline__ void fill_bulk(u64* mbarrier, void* shared, const void* global) {
$if has_bulk_copies
  expect_and_copy_bulk<kBytes, Hint...>(mbarrier, shared, global);
$else
  for (int i = threadIdx.x % 32 * 16; i < kBytes; i += 512) {
    *reinterpret_cast<uint4*>(static_cast<char*>(shared) + i) =
        *reinterpret_cast<const uint4*>(static_cast<const char*>(global) + i);
  }
$end
}
)"},
    {"set_registers", "", R"(
// Each thread of the group of four warps has kRegisters from here on; there are kLaunched at first.
template <int kRegisters, int kLaunched>
__device__ __forceinline__ void set_registers() {
$if moves_registers
  if (kRegisters > kLaunched) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
$end
}
)"},
};

}  // namespace

std::span<const Snippet> mbarrier_snippets() {
  return kMbarriers;
}

}  // namespace tessera::codegen::cuda
