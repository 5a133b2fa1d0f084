// Tensor-core instructions of one warp.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kMatrix[] = {
    {"round_tf32", "u32", R"(
// To 10 mantissa bits, ties away from zero. Where only products read the result, which ignore the others, the
// compiler drops the mask: two instructions.
__device__ __forceinline__ float round_tf32(float x) {
  u32 bits = __float_as_uint(x);
  asm("{ .reg .pred is_number; setp.num.f32 is_number, %1, %1; @is_number add.u32 %0, %0, 0x1000; }"
      : "+r"(bits) : "f"(x));
  // Of an infinity the mask takes away what the addition put in.
  return __uint_as_float(bits & 0xFFFFE000u);
}
)"},
    {"computed_here", "", R"(
// x; what it takes to compute it stays before this place, and out of later loops.
__device__ __forceinline__ float computed_here(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
)"},
    {"load_matrix", "u32", R"(
// kCount matrices of eight 16-byte rows from shared memory; lane l names row l % 8 of matrix l / 8.
template <int kCount, class T>
__device__ __forceinline__ void load_matrix(T* registers, const T* row) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(row));
  u32 words[kCount];
  if constexpr (kCount == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
  }
  memcpy(registers, words, sizeof(words));
}
)"},
    {"load_matrix_transposed", "u32", R"(
// As load_matrix, each matrix of 16-bit elements transposed.
template <int kCount, class T>
__device__ __forceinline__ void load_matrix_transposed(T* registers, const T* row) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(row));
  u32 words[kCount];
  if constexpr (kCount == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
  }
  memcpy(registers, words, sizeof(words));
}
)"},
    {"mma_tf32", "u32", R"(
// c += a * b of one warp: 16 x 8 += 16 x 8 * 8 x 8. The tensor cores ignore the low 13 bits.
__device__ __forceinline__ void mma_tf32(float* c, const float* a, const float* b) {
  u32 x[4], y[2];
  memcpy(x, a, sizeof(x));
  memcpy(y, b, sizeof(y));
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
)"},
    {"mma_bf16", "bf16 u32", R"(
// c += a * b of one warp: 16 x 8 += 16 x 16 * 16 x 8.
__device__ __forceinline__ void mma_bf16(float* c, const bf16* a, const bf16* b) {
  u32 x[4], y[2];
  memcpy(x, a, sizeof(x));
  memcpy(y, b, sizeof(y));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
)"},
    {"mma_f16", "f16 u32", R"(
// c += a * b of one warp: 16 x 8 += 16 x 16 * 16 x 8.
__device__ __forceinline__ void mma_f16(float* c, const f16* a, const f16* b) {
  u32 x[4], y[2];
  memcpy(x, a, sizeof(x));
  memcpy(y, b, sizeof(y));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
)"},
    {"mma_i8", "i8 u32", R"(
// c += a * b of one warp: 16 x 8 += 16 x 32 * 32 x 8, wrapping.
__device__ __forceinline__ void mma_i8(int* c, const i8* a, const i8* b) {
  u32 x[4], y[2];
  memcpy(x, a, sizeof(x));
  memcpy(y, b, sizeof(y));
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}
)"},
    {"matrix_in_shared", "u32 u64", R"(
// Descriptor of a matrix in shared memory, the same for all threads: rows of kSpan bytes, swizzled, in groups of
// eight; kNextPanel bytes from one panel to the next.
template <int kSpan, int kNextPanel>
__device__ __forceinline__ u64 matrix_at(u32 address) {
  constexpr u64 kMode = kSpan == 128 ? 1 : kSpan == 64 ? 2 : 3;
  constexpr u64 kForm = kMode << 62 | u64(8 * kSpan / 16) << 32 | u64(kNextPanel / 16) << 16;
  return kForm | (address & 0x3FFFF) >> 4;
}
template <int kSpan, int kNextPanel>
__device__ __forceinline__ u64 matrix_in_shared(const void* first) {
  return matrix_at<kSpan, kNextPanel>(static_cast<u32>(__cvta_generic_to_shared(first)));
}
)"},
    {"matrix_of_warp", "matrix_in_shared", R"(
// The same where only the threads of a warp agree, which the compiler does not know.
template <int kSpan, int kNextPanel>
__device__ __forceinline__ u64 matrix_of_warp(const void* first) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(first));
  return matrix_at<kSpan, kNextPanel>(__shfl_sync(0xFFFFFFFFu, address, 0));
}
)"},
    {"fence_wgmma", "", R"(
__device__ __forceinline__ void fence_wgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
)"},
    {"await_wgmma", "", R"(
// Until at most kPending groups run on.
template <int kPending>
__device__ __forceinline__ void await_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(kPending) : "memory");
}
)"},
    {"start_wgmma", "fence_wgmma", R"(
// Nothing that touches these registers moves beyond this place.
__device__ __forceinline__ void keep_here(float& x) { asm volatile("" : "+f"(x) :: "memory"); }
__device__ __forceinline__ void keep_here(int& x) { asm volatile("" : "+r"(x) :: "memory"); }
template <int kCount, class T>
__device__ __forceinline__ void start_wgmma(T* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) keep_here(sums[i]);
  fence_wgmma();
}
)"},
    {"commit_wgmma", "", R"(
__device__ __forceinline__ void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
)"},
    {"compute_above", "u32", R"(
// The values of these registers, of 16 of them at most, are computed above this place. To the assembler they are the condition
// of a sleep of no time, which it does not move.
template <int kCount, class T>
__device__ __forceinline__ void compute_above(const T* values) {
  constexpr int kStep = kCount > 16 ? kCount / 16 : 1;
  u32 mixed = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += kStep) {
    u32 bits;
    memcpy(&bits, values + i, sizeof bits);
    mixed ^= bits;
  }
  asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0x7FC12345; @p nanosleep.u32 0; }" :: "r"(mixed) : "memory");
}
)"},
    {"wait_for_wgmma", "start_wgmma await_wgmma", R"(
// Until at most kPending groups run on; what they summed up may be used.
template <int kPending, int kCount, class T>
__device__ __forceinline__ void wait_for_wgmma(T* sums) {
  await_wgmma<kPending>();
#pragma unroll
  for (int i = 0; i < kCount; ++i) keep_here(sums[i]);
}
)"},
    {"mma_f16_steps", "e4m3 e5m2 f16 mma_f16 e4m3_to_f32 e5m2_to_f32 f32_to_f16", R"(
// A step of 32 bytes as two steps of 16 halves, for targets without 8-bit matrix instructions. A
// product may take k in any order as long as both operands take the same.
template <f16 (*kLeft)(unsigned char), f16 (*kRight)(unsigned char)>
__device__ __forceinline__ void mma_f16_steps(float* c, const unsigned char* a,
                                              const unsigned char* b) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    f16 x[8], y[4];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = kLeft(a[i / 2 * 4 + half * 2 + i % 2]);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = kRight(b[i / 2 * 4 + half * 2 + i % 2]);
    mma_f16(c, x, y);
  }
}
// Exact.
__device__ __forceinline__ f16 e4m3_to_f16(e4m3 x) { return f32_to_f16(e4m3_to_f32(x)); }
__device__ __forceinline__ f16 e5m2_to_f16(e5m2 x) { return f32_to_f16(e5m2_to_f32(x)); }
)"},
#define TESSERA_MMA_8_BIT(function, left, right)                                                   \
  {                                                                                                \
    function, "u32 mma_f16_steps",                                                                 \
        "\n// c += a * b of one warp: 16 x 8 += 16 x 32 * 32 x 8.\n"                               \
        "__device__ __forceinline__ void " function "(float* c, const " left "* a, const " right   \
        "* b) {\n"                                                                                 \
        "$if has_fp8\n"                                                                            \
        "  u32 x[4], y[2];\n"                                                                      \
        "  memcpy(x, a, sizeof(x));\n"                                                             \
        "  memcpy(y, b, sizeof(y));\n"                                                             \
        "  asm volatile(\n"                                                                        \
        "      \"mma.sync.aligned.m16n8k32.row.col.f32." left "." right                            \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, \"\n"                                            \
        "      \"{%8, %9}, {%0, %1, %2, %3};\"\n"                                                  \
        "      : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"                         \
        "      : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(y[0]), \"r\"(y[1]));\n" \
        "$else\n"                                                                                  \
        "  mma_f16_steps<" left "_to_f16, " right                                                  \
        "_to_f16>(c, a, b);\n"                                                                     \
        "$end\n"                                                                                   \
        "}\n"                                                                                      \
  }
    TESSERA_MMA_8_BIT("mma_e4m3", "e4m3", "e4m3"),
    TESSERA_MMA_8_BIT("mma_e5m2", "e5m2", "e5m2"),
    TESSERA_MMA_8_BIT("mma_e4m3_e5m2", "e4m3", "e5m2"),
    TESSERA_MMA_8_BIT("mma_e5m2_e4m3", "e5m2", "e4m3"),
#undef TESSERA_MMA_8_BIT
};

}  // namespace

std::span<const Snippet> matrix_snippets() {
  return kMatrix;
}

}  // namespace tessera::codegen::cuda
