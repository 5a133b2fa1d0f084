// Types of the generated text, and moves between memory and registers.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

// The small floats are their bits: arithmetic on them is written with conversions, so a plain
// operator never hides one.
constexpr Snippet kTypes[] = {
    {"blocks_per_sm", "", R"(
// The blocks wanted, or as many as an SM holds: by their threads, and any.
inline constexpr int threads_per_sm = $threads;
inline constexpr int places_per_sm = $blocks;
template <int kThreads>
inline constexpr int fit_in_sm = threads_per_sm / kThreads < places_per_sm ? threads_per_sm / kThreads : places_per_sm;
template <int kWanted, int kThreads>
inline constexpr int blocks_per_sm = kWanted < fit_in_sm<kThreads> ? kWanted : fit_in_sm<kThreads>;
)"},
    {"i8", "", "using i8 = signed char;\n"},
    {"u8", "", "using u8 = unsigned char;\n"},
    {"i16", "", "using i16 = short;\n"},
    {"u16", "", "using u16 = unsigned short;\n"},
    {"u32", "", "using u32 = unsigned int;\n"},
    {"i64", "", "using i64 = long long;\n"},
    {"u64", "", "using u64 = unsigned long long;\n"},
    {"bf16", "", "using bf16 = unsigned short;  // bits of a bfloat16\n"},
    {"f16", "", "using f16 = unsigned short;  // bits of an IEEE half\n"},
    {"e4m3", "", "using e4m3 = unsigned char;  // bits of an 8-bit float: no infinity, max 448\n"},
    {"e5m2", "", "using e5m2 = unsigned char;  // bits of an 8-bit float with infinities\n"},
    {"e2m1", "", "using e2m1 = unsigned char;  // code 0..15 of a 4-bit float\n"},
    {"e2m1x2", "",
     "using e2m1x2 = unsigned char;  // two codes, the even element in the low nibble\n"},
    {"all_lanes", "u32", "inline constexpr u32 all_lanes = 0xFFFFFFFFu;\n"},
};

constexpr Snippet kMemory[] = {
    {"Word", "u8 u16 u32", R"(
// What one access of kBytes bytes moves.
template <int kBytes> struct WordOf;
template <> struct WordOf<1> { using type = u8; };
template <> struct WordOf<2> { using type = u16; };
template <> struct WordOf<4> { using type = u32; };
template <> struct WordOf<8> { using type = uint2; };
template <> struct WordOf<16> { using type = uint4; };
template <int kBytes> using Word = typename WordOf<kBytes>::type;
)"},
    {"load", "Word", R"(
// registers[0..kCount) = memory[0..kCount) in one access; memory is aligned to its size.
template <int kCount, class T>
__device__ __forceinline__ void load(T* registers, const T* memory) {
  using Words = Word<kCount * sizeof(T)>;
  *reinterpret_cast<Words*>(registers) = *reinterpret_cast<const Words*>(memory);
}
)"},
    {"keep_whole", "u8 u16 u32", R"(
// No instruction; but the compiler may no longer look into the word, and guard each of its elements.
__device__ __forceinline__ void keep_whole(u8&) {}
__device__ __forceinline__ void keep_whole(u16&) {}
__device__ __forceinline__ void keep_whole(u32& word) { asm("" : "+r"(word)); }
__device__ __forceinline__ void keep_whole(uint2& word) { asm("" : "+r"(word.x), "+r"(word.y)); }
__device__ __forceinline__ void keep_whole(uint4& word) {
  asm("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
}
)"},
    {"load_here_or_zero", "Word keep_whole", R"(
// As load, but reads no memory and gives zeros where `inside` is false. In its place between other accesses.
template <int kCount, class T>
__device__ __forceinline__ void load_here_or_zero(bool inside, T* registers, const T* memory) {
  Word<kCount * sizeof(T)> word = {};
  if (inside) word = *reinterpret_cast<const Word<kCount * sizeof(T)>*>(memory);
  keep_whole(word);
  memcpy(registers, &word, sizeof(word));
}
)"},
    {"load_or_zero", "Word", R"(
// word = *memory, global memory that nobody writes while the kernel runs; 0 where `inside` is false. One
// instruction with a predicate: loads that branches stand between would not come together.
__device__ __forceinline__ void read_or_zero(bool inside, u16& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; mov.b16 %0, 0;\n"
      "  @inside ld.global.nc.u16 %0, [%1]; }" : "=&h"(word) : "l"(memory), "r"(int(inside)));
}
__device__ __forceinline__ void read_or_zero(bool inside, u8& word, const void* memory) {
  u16 wide;
  asm("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; mov.b16 %0, 0;\n"
      "  @inside ld.global.nc.u8 %0, [%1]; }" : "=&h"(wide) : "l"(memory), "r"(int(inside)));
  word = u8(wide);
}
__device__ __forceinline__ void read_or_zero(bool inside, u32& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %2, 0; mov.b32 %0, 0;\n"
      "  @inside ld.global.nc.u32 %0, [%1]; }" : "=&r"(word) : "l"(memory), "r"(int(inside)));
}
__device__ __forceinline__ void read_or_zero(bool inside, uint2& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0;\n"
      "  @inside ld.global.nc.v2.u32 {%0, %1}, [%2]; }"
      : "=&r"(word.x), "=&r"(word.y) : "l"(memory), "r"(int(inside)));
}
__device__ __forceinline__ void read_or_zero(bool inside, uint4& word, const void* memory) {
  asm("{ .reg .pred inside; setp.ne.s32 inside, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0;\n"
      "  mov.b32 %2, 0; mov.b32 %3, 0; @inside ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(word.x), "=&r"(word.y), "=&r"(word.z), "=&r"(word.w) : "l"(memory), "r"(int(inside)));
}

// As load of such memory, but reads nothing and gives zeros where `inside` is false.
template <int kCount, class T>
__device__ __forceinline__ void load_or_zero(bool inside, T* registers, const T* memory) {
  read_or_zero(inside, *reinterpret_cast<Word<kCount * sizeof(T)>*>(registers), memory);
}
)"},
    {"store", "Word", R"(
// memory[0..kCount) = registers[0..kCount) in one access; memory is aligned to its size.
template <int kCount, class T>
__device__ __forceinline__ void store(T* memory, const T* registers) {
  using Words = Word<kCount * sizeof(T)>;
  *reinterpret_cast<Words*>(memory) = *reinterpret_cast<const Words*>(registers);
}
)"},
    {"copy_async", "u32", R"(
// Starts copying kBytes bytes to shared memory, without a detour through registers.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
}
)"},
    {"copy_async_or_zero", "u32", R"(
// As copy_async, but reads no memory and writes zeros where `inside` is false.
template <int kBytes>
__device__ __forceinline__ void copy_async_or_zero(bool inside, void* shared, const void* global) {
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  const int count = inside ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(count)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(count)
                 : "memory");
  }
}
)"},
    {"commit_copies", "", R"(
// Closes the group of the copies that this thread has started.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
)"},
    {"wait_for_copies", "", R"(
// Waits until at most kPending groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
)"},
    {"e2m1_at", "e2m1 e2m1x2 i64", R"(
// Element `offset` of packed 4-bit floats.
__device__ __forceinline__ e2m1 e2m1_at(const e2m1x2* memory, i64 offset) {
  return (memory[offset >> 1] >> ((offset & 1) * 4)) & 15;
}
)"},
    {"unpack_e2m1", "e2m1 e2m1x2", R"(
template <int kCount>
__device__ __forceinline__ void unpack_e2m1(e2m1* codes, const e2m1x2* pairs) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) codes[i] = (pairs[i / 2] >> (i % 2 * 4)) & 15;
}
)"},
    {"load_e2m1", "e2m1 e2m1x2 load unpack_e2m1", R"(
// codes[0..kCount) = packed elements, an even number of them, in one access.
template <int kCount>
__device__ __forceinline__ void load_e2m1(e2m1* codes, const e2m1x2* memory) {
  e2m1x2 pairs[kCount / 2];
  load<kCount / 2>(pairs, memory);
  unpack_e2m1<kCount>(codes, pairs);
}
)"},
    {"load_e2m1_here_or_zero", "e2m1 e2m1x2 load_here_or_zero unpack_e2m1", R"(
// As load_e2m1, but reads no memory and gives zeros where `inside` is false. In its place between other accesses.
template <int kCount>
__device__ __forceinline__ void load_e2m1_here_or_zero(bool inside, e2m1* codes, const e2m1x2* memory) {
  alignas(16) e2m1x2 pairs[kCount / 2];
  load_here_or_zero<kCount / 2>(inside, pairs, memory);
  unpack_e2m1<kCount>(codes, pairs);
}
)"},
    {"load_e2m1_or_zero", "e2m1 e2m1x2 load_or_zero unpack_e2m1", R"(
// As load_e2m1, but reads no memory and gives zeros where `inside` is false. Memory that nobody writes.
template <int kCount>
__device__ __forceinline__ void load_e2m1_or_zero(bool inside, e2m1* codes, const e2m1x2* memory) {
  alignas(16) e2m1x2 pairs[kCount / 2];
  load_or_zero<kCount / 2>(inside, pairs, memory);
  unpack_e2m1<kCount>(codes, pairs);
}
)"},
    {"store_e2m1", "e2m1 e2m1x2 store u32", R"(
// Packs codes[0..kCount), an even number of them, in one access. Codes that one conversion has packed already stay so.
template <int kCount>
__device__ __forceinline__ void store_e2m1(e2m1x2* memory, const e2m1* codes) {
  constexpr int kRun = kCount < 8 ? kCount : 8;  // codes of one word
  alignas(4) e2m1x2 pairs[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount; i += kRun) {
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < kRun; ++j) word |= u32(codes[i + j]) << j * 4;
    memcpy(&pairs[i / 2], &word, kRun / 2);
  }
  store<kCount / 2>(memory, pairs);
}
)"},
};

}  // namespace

std::span<const Snippet> type_snippets() {
  return kTypes;
}
std::span<const Snippet> memory_snippets() {
  return kMemory;
}

}  // namespace tessera::codegen::cuda
