// Accesses to global memory with a hint for the caches. They move the same bytes as load and store.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

// One access of a width: assembler suffix, type, register constraint, registers of the word.
#define TESSERA_READ(HINT, TYPE, SUFFIX, NAMES, POLICY, OUTPUTS)                         \
  "  template <bool kConstant>\n"                                                        \
  "  static __device__ __forceinline__ void read(" TYPE                                  \
  "& word, u64 from) {\n"                                                                \
  "    if constexpr (kConstant) {\n"                                                     \
  "      asm(\"ld.global.nc." HINT ".L2::cache_hint." SUFFIX " " NAMES ", " POLICY       \
  ";\"\n"                                                                                \
  "          : " OUTPUTS                                                                 \
  " : \"l\"(from), \"l\"(policy()));\n"                                                  \
  "    } else {\n"                                                                       \
  "      asm volatile(\"ld.global." HINT ".L2::cache_hint." SUFFIX " " NAMES ", " POLICY \
  ";\"\n"                                                                                \
  "                   : " OUTPUTS                                                        \
  " : \"l\"(from), \"l\"(policy()) : \"memory\");\n"                                     \
  "    }\n"                                                                              \
  "  }\n"
#define TESSERA_WRITE(HINT, TYPE, SUFFIX, NAMES, INPUTS)                         \
  "  static __device__ __forceinline__ void write(u64 to, const " TYPE           \
  "& word) {\n"                                                                  \
  "    asm volatile(\"st.global." HINT ".L2::cache_hint." SUFFIX " [%0], " NAMES \
  ", %1;\"\n"                                                                    \
  "                 ::\"l\"(to), \"l\"(policy()), " INPUTS                       \
  " : \"memory\");\n"                                                            \
  "  }\n"
#define TESSERA_HINT(NAME, HINT, POLICY) \
  "struct " NAME " {\n"                                                                           \
  "  static __device__ __forceinline__ u64 policy() {\n"                                          \
  "    u64 bits;\n"                                                                               \
  "    asm(\"createpolicy.fractional." POLICY ".b64 %0, 1.0;\" : \"=l\"(bits));\n"                \
  "    return bits;\n"                                                                            \
  "  }\n"                                                                                         \
  TESSERA_READ(HINT, "u16", "b16", "%0, [%1]", "%2", "\"=h\"(word)")                              \
  TESSERA_READ(HINT, "u32", "b32", "%0, [%1]", "%2", "\"=r\"(word)")                              \
  TESSERA_READ(HINT, "uint2", "v2.b32", "{%0, %1}, [%2]", "%3",                                   \
               "\"=r\"(word.x), \"=r\"(word.y)")                                                  \
  TESSERA_READ(HINT, "uint4", "v4.b32", "{%0, %1, %2, %3}, [%4]", "%5",                           \
               "\"=r\"(word.x), \"=r\"(word.y), \"=r\"(word.z), \"=r\"(word.w)")                  \
  TESSERA_WRITE(HINT, "u16", "b16", "%2", "\"h\"(word)")                                          \
  TESSERA_WRITE(HINT, "u32", "b32", "%2", "\"r\"(word)")                                          \
  TESSERA_WRITE(HINT, "uint2", "v2.b32", "{%2, %3}", "\"r\"(word.x), \"r\"(word.y)")              \
  TESSERA_WRITE(HINT, "uint4", "v4.b32", "{%2, %3, %4, %5}",                                      \
                "\"r\"(word.x), \"r\"(word.y), \"r\"(word.z), \"r\"(word.w)")                     \
  "  template <bool kConstant>\n"                                                                 \
  "  static __device__ __forceinline__ void read(u8& word, u64 from) {\n"                         \
  "    u16 wide;\n"                                                                               \
  "    asm volatile(\"ld.global." HINT ".L2::cache_hint.b8 %0, [%1], %2;\"\n"                     \
  "                 : \"=h\"(wide) : \"l\"(from), \"l\"(policy()) : \"memory\");\n"               \
  "    word = static_cast<u8>(wide);\n"                                                           \
  "  }\n"                                                                                         \
  "  static __device__ __forceinline__ void write(u64 to, const u8& word) {\n"                    \
  "    asm volatile(\"st.global." HINT ".L2::cache_hint.b8 [%0], %2, %1;\"\n"                     \
  "                 ::\"l\"(to), \"l\"(policy()), \"h\"(static_cast<u16>(word)) : \"memory\");\n" \
  "  }\n"                                                                                         \
  "};\n"

constexpr Snippet kCache[] = {
    {"evict_first", "Word u64",
     "// Data that nobody needs soon: the first to leave both caches.\n" TESSERA_HINT(
         "evict_first", "L1::evict_first", "L2::evict_first")},
    {"evict_last", "Word u64",
     "// Data that others will read: the last to leave both caches.\n" TESSERA_HINT(
         "evict_last", "L1::evict_last", "L2::evict_last")},
    {"no_allocate", "Word u64",
     "// Data that takes no place in the cache of the multiprocessor.\n" TESSERA_HINT(
         "no_allocate", "L1::no_allocate", "L2::evict_normal")},
    {"load_as", "Word u64", R"(
// registers[0..kCount) = memory[0..kCount) in one access. kConstant: nobody writes the memory.
template <class Hint, bool kConstant, int kCount, class T>
__device__ __forceinline__ void load_as(T* registers, const T* memory) {
  Word<kCount * sizeof(T)> word;
  Hint::template read<kConstant>(word, __cvta_generic_to_global(memory));
  memcpy(registers, &word, sizeof(word));
}
)"},
    {"load_or_zero_as", "Word u64 keep_whole", R"(
// As load_as, but reads no memory and gives zeros where `inside` is false.
template <class Hint, bool kConstant, int kCount, class T>
__device__ __forceinline__ void load_or_zero_as(bool inside, T* registers, const T* memory) {
  Word<kCount * sizeof(T)> word = {};
  if (inside) Hint::template read<kConstant>(word, __cvta_generic_to_global(memory));
  keep_whole(word);
  memcpy(registers, &word, sizeof(word));
}
)"},
    {"read_as", "load_as", R"(
template <class Hint, bool kConstant, class T>
__device__ __forceinline__ T read_as(const T* memory) {
  T element;
  load_as<Hint, kConstant, 1>(&element, memory);
  return element;
}
)"},
    {"store_as", "Word u64", R"(
// memory[0..kCount) = registers[0..kCount) in one access.
template <class Hint, int kCount, class T>
__device__ __forceinline__ void store_as(T* memory, const T* registers) {
  Word<kCount * sizeof(T)> word;
  memcpy(&word, registers, sizeof(word));
  Hint::write(__cvta_generic_to_global(memory), word);
}
)"},
    {"write_as", "store_as", R"(
template <class Hint, class T>
__device__ __forceinline__ void write_as(T* memory, T element) {
  store_as<Hint, 1>(memory, &element);
}
)"},
};

#undef TESSERA_READ
#undef TESSERA_WRITE
#undef TESSERA_HINT

}  // namespace

std::span<const Snippet> cache_snippets() {
  return kCache;
}

}  // namespace tessera::codegen::cuda
