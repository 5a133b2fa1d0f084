// Atomics that CUDA has no function for, each giving the old value, and loads that acquire; reports; the order of kernels in
// a stream.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kAtomics[] = {
    {"report", "", R"(
// The number of a report that was made, for whoever asks; 0 = none.
extern "C" {
__device__ unsigned tessera_report;
}
__device__ __forceinline__ void report(unsigned number) { tessera_report = number; }
)"},
    {"wait_for_previous_kernel", "", R"(
// Before sm_90 kernels of a stream do not overlap.
__device__ __forceinline__ void wait_for_previous_kernel() {
$if has_pdl
  asm volatile("griddepcontrol.wait;" ::: "memory");
$end
}
)"},
    {"let_next_kernel_start", "", R"(
__device__ __forceinline__ void let_next_kernel_start() {
$if has_pdl
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
$end
}
)"},
    {"atomic_load_i32", "", R"(
// What other blocks released before they wrote the value is visible afterwards.
__device__ __forceinline__ int atomic_load_i32(const int* memory) {
  int value;
  asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(value) : "l"(memory) : "memory");
  return value;
}
)"},
    {"atomic_load_u32", "u32", R"(
// What other blocks released before they wrote the value is visible afterwards.
__device__ __forceinline__ u32 atomic_load_u32(const u32* memory) {
  u32 value;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(memory) : "memory");
  return value;
}
)"},
    {"atomic_add_i64", "i64 u64", R"(
__device__ __forceinline__ i64 atomic_add_i64(i64* memory, i64 value) {
  return i64(atomicAdd(reinterpret_cast<u64*>(memory), u64(value)));
}
)"},
    {"atomic_exchange_i64", "i64 u64", R"(
__device__ __forceinline__ i64 atomic_exchange_i64(i64* memory, i64 value) {
  return i64(atomicExch(reinterpret_cast<u64*>(memory), u64(value)));
}
)"},
    {"atomic_compare_exchange_i64", "i64 u64", R"(
__device__ __forceinline__ i64 atomic_compare_exchange_i64(i64* memory, i64 expected, i64 value) {
  return i64(atomicCAS(reinterpret_cast<u64*>(memory), u64(expected), u64(value)));
}
)"},
    {"atomic_compare_exchange_f32", "u32", R"(
// Compares bits.
__device__ __forceinline__ float atomic_compare_exchange_f32(float* memory, float expected,
                                                             float value) {
  return __uint_as_float(atomicCAS(reinterpret_cast<u32*>(memory), __float_as_uint(expected),
                                   __float_as_uint(value)));
}
)"},
    {"atomic_exchange_f64", "u64", R"(
__device__ __forceinline__ double atomic_exchange_f64(double* memory, double value) {
  const u64 old = atomicExch(reinterpret_cast<u64*>(memory), u64(__double_as_longlong(value)));
  return __longlong_as_double(old);
}
)"},
    {"atomic_compare_exchange_f64", "u64", R"(
// Compares bits.
__device__ __forceinline__ double atomic_compare_exchange_f64(double* memory, double expected,
                                                              double value) {
  const u64 old = atomicCAS(reinterpret_cast<u64*>(memory), u64(__double_as_longlong(expected)),
                            u64(__double_as_longlong(value)));
  return __longlong_as_double(old);
}
)"},
    {"atomic_max_f64", "atomic_compare_exchange_f64 max_f64", R"(
// Drops NaN, -0 is below +0.
__device__ __forceinline__ double atomic_max_f64(double* memory, double value) {
  double seen = *reinterpret_cast<volatile double*>(memory);
  for (;;) {
    const double wanted = max_f64(seen, value);
    if (__double_as_longlong(wanted) == __double_as_longlong(seen)) return seen;
    const double found = atomic_compare_exchange_f64(memory, seen, wanted);
    if (__double_as_longlong(found) == __double_as_longlong(seen)) return seen;
    seen = found;
  }
}
)"},
    {"atomic_min_f64", "atomic_compare_exchange_f64 min_f64", R"(
// Drops NaN, -0 is below +0.
__device__ __forceinline__ double atomic_min_f64(double* memory, double value) {
  double seen = *reinterpret_cast<volatile double*>(memory);
  for (;;) {
    const double wanted = min_f64(seen, value);
    if (__double_as_longlong(wanted) == __double_as_longlong(seen)) return seen;
    const double found = atomic_compare_exchange_f64(memory, seen, wanted);
    if (__double_as_longlong(found) == __double_as_longlong(seen)) return seen;
    seen = found;
  }
}
)"},
    {"atomic_max_f32", "u32", R"(
// Drops NaN, -0 is below +0.
__device__ __forceinline__ float atomic_max_f32(float* memory, float value) {
  u32 seen = *reinterpret_cast<volatile u32*>(memory);
  for (;;) {
    const u32 wanted = __float_as_uint(fmaxf(__uint_as_float(seen), value));
    if (wanted == seen) return __uint_as_float(seen);
    const u32 found = atomicCAS(reinterpret_cast<u32*>(memory), seen, wanted);
    if (found == seen) return __uint_as_float(seen);
    seen = found;
  }
}
)"},
    {"atomic_min_f32", "u32", R"(
// Drops NaN, -0 is below +0.
__device__ __forceinline__ float atomic_min_f32(float* memory, float value) {
  u32 seen = *reinterpret_cast<volatile u32*>(memory);
  for (;;) {
    const u32 wanted = __float_as_uint(fminf(__uint_as_float(seen), value));
    if (wanted == seen) return __uint_as_float(seen);
    const u32 found = atomicCAS(reinterpret_cast<u32*>(memory), seen, wanted);
    if (found == seen) return __uint_as_float(seen);
    seen = found;
  }
}
)"},
    {"atomic_add_f16", "f16", R"(
// Rounds to nearest even, keeps subnormals.
__device__ __forceinline__ f16 atomic_add_f16(f16* memory, f16 value) {
  f16 old;
  asm volatile("atom.add.noftz.f16 %0, [%1], %2;"
               : "=h"(old) : "l"(memory), "h"(value) : "memory");
  return old;
}
)"},
    {"atomic_add_bf16", "bf16 bf16_to_f32 f32_to_bf16", R"(
// Rounds to nearest even, keeps subnormals.
$if has_bf16_arithmetic
__device__ __forceinline__ bf16 atomic_add_bf16(bf16* memory, bf16 value) {
  bf16 old;
  asm volatile("atom.add.noftz.bf16 %0, [%1], %2;"
               : "=h"(old) : "l"(memory), "h"(value) : "memory");
  return old;
}
$else
__device__ __forceinline__ bf16 atomic_add_bf16(bf16* memory, bf16 value) {
  bf16 seen = *reinterpret_cast<volatile bf16*>(memory);
  for (;;) {
    const bf16 found =
        atomicCAS(memory, seen, f32_to_bf16(bf16_to_f32(seen) + bf16_to_f32(value)));
    if (found == seen) return seen;
    seen = found;
  }
}
$end
)"},
    {"add_run_f32", "", R"(
// to[i] += from[i] in global memory, each element by itself indivisible; so do the others. Flushes
// subnormals.
template <int kCount>
__device__ __forceinline__ void add_run_f32(float* to, const float* from) {
$if has_vector_reductions
  const size_t memory = __cvta_generic_to_global(to);
  if constexpr (kCount == 4) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(memory), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3])
                 : "memory");
  } else {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
                 :: "l"(memory), "f"(from[0]), "f"(from[1]) : "memory");
  }
$else
#pragma unroll
  for (int i = 0; i < kCount; ++i) atomicAdd(to + i, from[i]);
$end
}
)"},
    {"add_run_f16", "f16 u32", R"(
// Rounds to nearest even, keeps subnormals.
template <int kCount>
__device__ __forceinline__ void add_run_f16(f16* to, const f16* from) {
  const size_t memory = __cvta_generic_to_global(to);
  u32 pair[kCount / 2];
  memcpy(pair, from, sizeof(pair));
$if has_vector_reductions
  if constexpr (kCount == 8) {
    asm volatile("red.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};"
                 :: "l"(memory), "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3]) : "memory");
  } else if constexpr (kCount == 4) {
    asm volatile("red.global.add.noftz.v2.f16x2 [%0], {%1, %2};"
                 :: "l"(memory), "r"(pair[0]), "r"(pair[1]) : "memory");
  } else
$end
  {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      asm volatile("red.global.add.noftz.f16x2 [%0], %1;"
                   :: "l"(memory + 4 * i), "r"(pair[i]) : "memory");
    }
  }
}
)"},
    {"add_run_bf16", "bf16 u32 atomic_add_bf16", R"(
// Rounds to nearest even, keeps subnormals. Before sm_90 there is no instruction for a bf16.
template <int kCount>
__device__ __forceinline__ void add_run_bf16(bf16* to, const bf16* from) {
$if has_vector_reductions
  const size_t memory = __cvta_generic_to_global(to);
  u32 pair[kCount / 2];
  memcpy(pair, from, sizeof(pair));
  if constexpr (kCount == 8) {
    asm volatile("red.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};"
                 :: "l"(memory), "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3]) : "memory");
  } else if constexpr (kCount == 4) {
    asm volatile("red.global.add.noftz.v2.bf16x2 [%0], {%1, %2};"
                 :: "l"(memory), "r"(pair[0]), "r"(pair[1]) : "memory");
  } else {
    asm volatile("red.global.add.noftz.bf16x2 [%0], %1;"
                 :: "l"(memory), "r"(pair[0]) : "memory");
  }
$else
#pragma unroll
  for (int i = 0; i < kCount; ++i) atomic_add_bf16(to + i, from[i]);
$end
}
)"},
    {"add_shared_run_f16", "f16 u32", R"(
// to[i] += from[i] in shared memory, each element by itself indivisible. Rounds to nearest even, keeps subnormals.
template <int kCount>
__device__ __forceinline__ void add_shared_run_f16(f16* to, const f16* from) {
  const u32 memory = u32(__cvta_generic_to_shared(to));
  u32 pair[kCount / 2];
  memcpy(pair, from, sizeof(pair));
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    asm volatile("red.shared.add.noftz.f16x2 [%0], %1;"
                 :: "r"(memory + 4 * i), "r"(pair[i]) : "memory");
  }
}
)"},
    {"add_shared_run_bf16", "bf16 u32 atomic_add_bf16", R"(
// to[i] += from[i] in shared memory, each element by itself indivisible. Rounds to nearest even, keeps subnormals.
template <int kCount>
__device__ __forceinline__ void add_shared_run_bf16(bf16* to, const bf16* from) {
$if has_bf16_arithmetic
  const u32 memory = u32(__cvta_generic_to_shared(to));
  u32 pair[kCount / 2];
  memcpy(pair, from, sizeof(pair));
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    asm volatile("red.shared.add.noftz.bf16x2 [%0], %1;"
                 :: "r"(memory + 4 * i), "r"(pair[i]) : "memory");
  }
$else
#pragma unroll
  for (int i = 0; i < kCount; ++i) atomic_add_bf16(to + i, from[i]);
$end
}
)"},
};

}  // namespace

std::span<const Snippet> atomic_snippets() {
  return kAtomics;
}

}  // namespace tessera::codegen::cuda
