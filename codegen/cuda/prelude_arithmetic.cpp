// Arithmetic where C++ leaves undefined what the language defines.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

#define TESSERA_EXTREME(NAME)                                        \
  "// " NAME                                                         \
  "(a, b), the canonical NaN if one is a NaN\n"                      \
  "__device__ __forceinline__ float " NAME                           \
  "_nan(float a, float b) {\n"                                       \
  "  float result;\n"                                                \
  "  asm(\"" NAME                                                    \
  ".NaN.f32 %0, %1, %2;\" : \"=f\"(result) : \"f\"(a), \"f\"(b));\n" \
  "  return result;\n"                                               \
  "}\n"

// One instruction of one f32.
#define TESSERA_APPROXIMATION(NAME, INSTRUCTION, MEANING) \
  "\n// " MEANING                                         \
  "\n"                                                    \
  "__device__ __forceinline__ float " NAME                \
  "_approx(float x) {\n"                                  \
  "  float result;\n"                                     \
  "  asm(\"" INSTRUCTION                                  \
  " %0, %1;\" : \"=f\"(result) : \"f\"(x));\n"            \
  "  return result;\n"                                    \
  "}\n"

constexpr Snippet kArithmetic[] = {
    {"logistic", "", R"(
// 1 + expf(-x). exp(-x) is 2^n * 2^rest: the last bits of `step` hold n, the whole part of -x * log2(e), and the
// rest is what log2(e) in two parts leaves. That is how expf rounds; but its product with 2^n is exact, so that it
// and the sum are one step.
__device__ __forceinline__ float logistic_divisor(float x) {
  float step, power;
  asm("fma.rn.sat.f32 %0, %1, 0f3BBB989D, 0f3F000000;" : "=f"(step) : "f"(-x));
  step = __fmaf_rd(step, 252.0f, 12582913.0f);
  power = fmaf(-x, __uint_as_float(0x3FB8AA3Bu), -(step - 12583039.0f));
  power = fmaf(-x, __uint_as_float(0x32A57060u), power);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(power));
  return fmaf(power, __uint_as_float(__float_as_uint(step) << 23), 1.0f);
}
// Its reciprocal to an ulp. Scaled by 1/4 the divisor, which is at least 1, has a normal reciprocal.
__device__ __forceinline__ float logistic_reciprocal(float divisor) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(divisor * 0.25f));
  return r * 0.25f;
}
)"},
    {"silu", "logistic", R"(
// x / (1 + expf(-x)) as if divided: quotient and remainder by a reciprocal, as the division does where its
// operands are far from the ends of the range. Without a remainder (infinities) the product is what the division
// gives.
__device__ __forceinline__ float silu(float x) {
  const float divisor = logistic_divisor(x);
  float r = logistic_reciprocal(divisor);
  const float product = x * r;
  r = fmaf(r, fmaf(-divisor, r, 1.0f), r);
  const float q = x * r;
  const float quotient = fmaf(r, fmaf(-divisor, q, x), q);
  return fabsf(quotient) > 0.0f ? quotient : product;
}
)"},
    {"sigmoid", "logistic", R"(
// 1 / (1 + expf(-x)) as if divided, with the steps that silu has in common. The reciprocal of an infinite divisor
// leaves no remainder.
__device__ __forceinline__ float sigmoid(float x) {
  const float divisor = logistic_divisor(x);
  const float near = logistic_reciprocal(divisor);
  const float r = fmaf(near, fmaf(-divisor, near, 1.0f), near);
  return r > 0.0f ? r : near;
}
)"},
    {"exp2_approx", "", TESSERA_APPROXIMATION("exp2", "ex2.approx.ftz.f32", "2^x, to 2 ulp")},
    {"log2_approx", "", TESSERA_APPROXIMATION("log2", "lg2.approx.ftz.f32", "log2(x), to 2^-22")},
    {"sin_approx", "",
     TESSERA_APPROXIMATION("sin", "sin.approx.ftz.f32", "sin(x), to 2^-20 where |x| <= pi")},
    {"cos_approx", "",
     TESSERA_APPROXIMATION("cos", "cos.approx.ftz.f32", "cos(x), to 2^-20 where |x| <= pi")},
    {"tanh_approx", "", TESSERA_APPROXIMATION("tanh", "tanh.approx.f32", "tanh(x), to 2^-10")},
    {"quotient", "", R"(
// a / b for 4 <= a <= 2^20 and 2^-124 <= b, where a / b < 2^127: as the division does it out of the way of
// its special cases. A quarter of b has a normal reciprocal.
__device__ __forceinline__ float quotient(float a, float b) {
  const float x = a * 0.25f, y = b * 0.25f;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = fmaxf(r, 0x1p-126f);
  r = fmaf(r, fmaf(-y, r, 1.0f), r);
  float q = x * r;
  q = fmaf(r, fmaf(-y, q, x), q);
  q = fmaf(r, fmaf(-y, q, x), q);
  return fmaxf(q, 0.0f);  // of an infinite b q is -infinity here
}
)"},
    {"quotient_by", "", R"(
// a / b for a whole number b <= 2^20 with the reciprocal r, and a >= b * 2^-126: a remainder is exact. Of an
// infinite a it is infinite.
__device__ __forceinline__ float quotient_by(float a, float b, float r) {
  const float q = fminf(a * r, 0x1.fffffep127f);
  return fmaf(r, fmaf(-b, q, a), q);
}
)"},
    {"wrapping_add", "u32 i64 u64", R"(
__device__ __forceinline__ int wrapping_add(int a, int b) { return int(u32(a) + u32(b)); }
__device__ __forceinline__ i64 wrapping_add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
)"},
    {"wrapping_sub", "u32 i64 u64", R"(
__device__ __forceinline__ int wrapping_sub(int a, int b) { return int(u32(a) - u32(b)); }
__device__ __forceinline__ i64 wrapping_sub(i64 a, i64 b) { return i64(u64(a) - u64(b)); }
)"},
    {"wrapping_mul", "u32 i64 u64", R"(
__device__ __forceinline__ int wrapping_mul(int a, int b) { return int(u32(a) * u32(b)); }
__device__ __forceinline__ i64 wrapping_mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }
)"},
    {"wrapping_abs", "u32 i64 u64", R"(
__device__ __forceinline__ int wrapping_abs(int a) { return int(a < 0 ? 0u - u32(a) : u32(a)); }
__device__ __forceinline__ i64 wrapping_abs(i64 a) { return i64(a < 0 ? 0ull - u64(a) : u64(a)); }
)"},
    {"next_index", "u32 i64 u64", R"(
// i + step, or the end where that is no less: i < end, and the sum may overflow.
__device__ __forceinline__ int next_index(int i, int step, int end) {
  return u32(end) - u32(i) > u32(step) ? i + step : end;
}
__device__ __forceinline__ i64 next_index(i64 i, i64 step, i64 end) {
  return u64(end) - u64(i) > u64(step) ? i + step : end;
}
)"},
    {"shift_left", "u32 i64 u64", R"(
// Amounts of the width and above give 0, as the instruction does.
__device__ __forceinline__ u32 shift_left(u32 x, u32 amount) {
  u32 result;
  asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ u64 shift_left(u64 x, u32 amount) {
  u64 result;
  asm("shl.b64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ int shift_left(int x, u32 amount) {
  return int(shift_left(u32(x), amount));
}
__device__ __forceinline__ i64 shift_left(i64 x, u32 amount) {
  return i64(shift_left(u64(x), amount));
}
)"},
    {"shift_right", "u32 i64 u64", R"(
// Amounts of the width and above give 0, or the sign of a signed value, as the instruction does.
__device__ __forceinline__ u32 shift_right(u32 x, u32 amount) {
  u32 result;
  asm("shr.u32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ u64 shift_right(u64 x, u32 amount) {
  u64 result;
  asm("shr.u64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ int shift_right(int x, u32 amount) {
  int result;
  asm("shr.s32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(amount));
  return result;
}
__device__ __forceinline__ i64 shift_right(i64 x, u32 amount) {
  i64 result;
  asm("shr.s64 %0, %1, %2;" : "=l"(result) : "l"(x), "r"(amount));
  return result;
}
)"},
    {"canonical_nan", "", R"(
// x; a NaN becomes 0x7FFFFFFF, as it does in all arithmetic. The compiler keeps this multiplication.
__device__ __forceinline__ float canonical_nan(float x) { return __fmul_rn(x, 1.0f); }
)"},
    {"negated", "", R"(
// -x; a NaN becomes 0x7FFFFFFF, as it does in all arithmetic. The compiler keeps this multiplication.
__device__ __forceinline__ float negated(float x) { return __fmul_rn(x, -1.0f); }
)"},
    {"flip_sign", "", R"(
// -x, of a NaN too.
__device__ __forceinline__ float flip_sign(float x) {
  return __uint_as_float(__float_as_uint(x) ^ 0x80000000u);
}
)"},
    {"clear_sign", "", R"(
// |x|, of a NaN too.
__device__ __forceinline__ float clear_sign(float x) {
  return __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu);
}
)"},
    {"min_nan", "", TESSERA_EXTREME("min")},
    {"max_nan", "", TESSERA_EXTREME("max")},
    {"is_nan", "", R"(
__device__ __forceinline__ bool is_nan(float x) { return x != x; }
)"},
    {"is_inf", "", R"(
__device__ __forceinline__ bool is_inf(float x) { return fabsf(x) == __uint_as_float(0x7F800000u); }
)"},
};

#undef TESSERA_EXTREME

}  // namespace

std::span<const Snippet> arithmetic_snippets() {
  return kArithmetic;
}

}  // namespace tessera::codegen::cuda
