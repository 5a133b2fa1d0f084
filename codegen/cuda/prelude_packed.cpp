// Arithmetic on pairs of 16-bit floats in one register, with the bits that one element at a time gives.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

#define TESSERA_BINARY(NAME, INSTRUCTION) TESSERA_TWO(NAME, INSTRUCTION " %0, %1, %2;")
#define TESSERA_TWO(NAME, STATEMENTS)                               \
  "struct " NAME                                                    \
  " {\n"                                                            \
  "  static __device__ __forceinline__ u32 apply(u32 a, u32 b) {\n" \
  "    u32 result;\n"                                               \
  "    asm(\"" STATEMENTS                                           \
  "\" : \"=r\"(result) : \"r\"(a), \"r\"(b));\n"                    \
  "    return result;\n"                                            \
  "  }\n"                                                           \
  "};\n"
// max(a, |b|)
#define TESSERA_MAX_ABS(NAME, FORMAT) \
  TESSERA_TWO(NAME, "{ .reg .b32 m; abs." FORMAT " m, %2; max." FORMAT " %0, %1, m; }")
// Below sm_90 bf16 has no instruction but fma: a * 1 + b, b * -1 + a and a * b - 0 round as often.
#define TESSERA_BF16(NAME, INSTRUCTION, OLDER)                          \
  "struct " NAME                                                        \
  " {\n"                                                                \
  "  static __device__ __forceinline__ u32 apply(u32 a, u32 b) {\n"     \
  "    u32 result;\n"                                                   \
  "$if has_bf16_arithmetic\n"                                           \
  "    asm(\"" INSTRUCTION                                              \
  " %0, %1, %2;\" : \"=r\"(result) : \"r\"(a), \"r\"(b));\n"            \
  "$else\n"                                                             \
  "    asm(\"fma.rn.bf16x2 %0, %1, %2, %3;\" : \"=r\"(result) : " OLDER \
  ");\n"                                                                \
  "$end\n"                                                              \
  "    return result;\n"                                                \
  "  }\n"                                                               \
  "};\n"

// By a move, which costs nothing where the halves are put together again; by a shift it does.
#define TESSERA_HALF(NAME, MOVE)               \
  "__device__ __forceinline__ u16 " NAME       \
  "(u32 word) {\n"                             \
  "  u16 half;\n"                              \
  "  asm(\"{ .reg .b16 other; mov.b32 " MOVE   \
  ", %1; }\" : \"=h\"(half) : \"r\"(word));\n" \
  "  return half;\n"                           \
  "}\n"

constexpr Snippet kPacked[] = {
    {"low_half", "u16 u32", TESSERA_HALF("low_half", "{%0, other}")},
    {"high_half", "u16 u32", TESSERA_HALF("high_half", "{other, %0}")},
    {"add_f16x2", "u32", TESSERA_BINARY("add_f16x2", "add.rn.f16x2")},
    {"sub_f16x2", "u32", TESSERA_BINARY("sub_f16x2", "sub.rn.f16x2")},
    {"mul_f16x2", "u32", TESSERA_BINARY("mul_f16x2", "mul.rn.f16x2")},
    {"max_f16x2", "u32", TESSERA_BINARY("max_f16x2", "max.f16x2")},
    {"min_f16x2", "u32", TESSERA_BINARY("min_f16x2", "min.f16x2")},
    {"add_bf16x2", "u32",
     TESSERA_BF16("add_bf16x2", "add.rn.bf16x2", "\"r\"(a), \"r\"(0x3F803F80u), \"r\"(b)")},
    {"sub_bf16x2", "u32",
     TESSERA_BF16("sub_bf16x2", "sub.rn.bf16x2", "\"r\"(b), \"r\"(0xBF80BF80u), \"r\"(a)")},
    // By f32 it would be rounded once too: a product has 16 bits, and where some are below the last of f32 all
    // are below half of the least bf16.
    {"mul_bf16x2", "u32",
     TESSERA_BF16("mul_bf16x2", "mul.rn.bf16x2", "\"r\"(a), \"r\"(b), \"r\"(0x80008000u)")},
    {"max_bf16x2", "u32", TESSERA_BINARY("max_bf16x2", "max.bf16x2")},
    {"min_bf16x2", "u32", TESSERA_BINARY("min_bf16x2", "min.bf16x2")},
    {"max_abs_f16x2", "u32", TESSERA_MAX_ABS("max_abs_f16x2", "f16x2")},
    {"max_abs_bf16x2", "u32", TESSERA_MAX_ABS("max_abs_bf16x2", "bf16x2")},
    {"abs_x2", "u32", R"(
// Sign bits off: the same for both formats.
struct abs_x2 {
  static __device__ __forceinline__ u32 apply(u32 a) { return a & 0x7FFF7FFFu; }
};
)"},
    {"in_pairs", "u16 u32", R"(
// into[i] = Op(args[i]..) for i in [0, kCount), two 16-bit floats at a time.
template <class Op, int kCount, class... Args>
__device__ __forceinline__ void in_pairs(u16* into, const Args*... args) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const auto pair = [i](const u16* from) {
      u32 both;
      memcpy(&both, from + i, 4);
      return both;
    };
    const u32 result = Op::apply(pair(args)...);
    memcpy(into + i, &result, 4);
  }
}
)"},
};

#undef TESSERA_BINARY
#undef TESSERA_TWO
#undef TESSERA_BF16
#undef TESSERA_MAX_ABS
#undef TESSERA_HALF

}  // namespace

std::span<const Snippet> packed_snippets() {
  return kPacked;
}

}  // namespace tessera::codegen::cuda
