// The timeline of a block: each of its warps notes the marks that it comes to.
//
// The first lane of a warp keeps the place of its next mark in a register, so that a mark is a read of the clock and a
// store, which nobody waits for. All other lanes and blocks have no place. The clock is that of the multiprocessor, the
// same for all warps of a block. kernels/jit/timeline.cpp reads the array after the launch.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kMarks[] = {
    {"marks_of_warp", "u64", R"(
// The marks of each warp of a block: 1023 at most, the others 0, then the number of those that did not fit.
extern "C" {
__device__ u64 tessera_marks[32 * 1024];
}
// The place of the warp's first mark, for its first lane in that block; else null.
__device__ __forceinline__ u64* marks_of_warp(u64 block) {
  const u64 number = blockIdx.x + u64(gridDim.x) * (blockIdx.y + u64(gridDim.y) * blockIdx.z);
  return number == block && threadIdx.x % 32 == 0 ? tessera_marks + threadIdx.x * 32 : nullptr;
}
)"},
    {"note_mark", "u64 u32 marks_of_warp", R"(
// The clock, and the event in the low 8 bits.
__device__ __forceinline__ void note_mark(u64*& next, u32 event) {
  if (next == nullptr) return;
  u64 now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now) :: "memory");
  u64* const last = tessera_marks + threadIdx.x * 32 + 1023;
  if (next < last) {
    *next++ = now << 8 | event;
  } else {
    ++*last;
  }
}
)"},
};

}  // namespace

std::span<const Snippet> mark_snippets() {
  return kMarks;
}

}  // namespace tessera::codegen::cuda
