// Arithmetic and conversions of f64.

#include "codegen/cuda/prelude.h"

namespace tessera::codegen::cuda {
namespace {

constexpr Snippet kF64[] = {
    {"canonical_nan_f64", "i64", R"(
// x; a NaN becomes 0x7FFFFFFFFFFFFFFF.
__device__ __forceinline__ double canonical_nan_f64(double x) {
  const i64 bits = __double_as_longlong(x);
  return (bits & 0x7FFFFFFFFFFFFFFFll) > 0x7FF0000000000000ll
             ? __longlong_as_double(0x7FFFFFFFFFFFFFFFll)
             : x;
}
)"},
    {"min_f64", "canonical_nan_f64", R"(
// Drops NaN, -0 is below +0.
__device__ __forceinline__ double min_f64(double a, double b) {
  if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
  return canonical_nan_f64(a < b || b != b ? a : b);
}
)"},
    {"max_f64", "canonical_nan_f64", R"(
// Drops NaN, -0 is below +0.
__device__ __forceinline__ double max_f64(double a, double b) {
  if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
  return canonical_nan_f64(a > b || b != b ? a : b);
}
)"},
    {"neg_f64", "u64", R"(
// -x, of a NaN too.
__device__ __forceinline__ double neg_f64(double x) {
  return __longlong_as_double(u64(__double_as_longlong(x)) ^ 0x8000000000000000ull);
}
)"},
    {"abs_f64", "u64", R"(
// |x|, of a NaN too.
__device__ __forceinline__ double abs_f64(double x) {
  return __longlong_as_double(u64(__double_as_longlong(x)) & 0x7FFFFFFFFFFFFFFFull);
}
)"},
    {"copysign_f64", "u64", R"(
// |x| with the sign of another number, of NaN too.
__device__ __forceinline__ double copysign_f64(double x, double sign) {
  return __longlong_as_double((u64(__double_as_longlong(x)) & 0x7FFFFFFFFFFFFFFFull) |
                              (u64(__double_as_longlong(sign)) & 0x8000000000000000ull));
}
)"},
    {"is_nan_f64", "", R"(
__device__ __forceinline__ bool is_nan_f64(double x) { return x != x; }
)"},
    {"is_inf_f64", "i64", R"(
__device__ __forceinline__ bool is_inf_f64(double x) {
  return (__double_as_longlong(x) & 0x7FFFFFFFFFFFFFFFll) == 0x7FF0000000000000ll;
}
)"},
    {"f64_to_f32_odd", "u32", R"(
// Truncates, and sets the last bit if that loses anything: rounding the result once more to fewer bits rounds x
// once.
__device__ __forceinline__ float f64_to_f32_odd(double x) {
  const float toward_zero = __double2float_rz(x);
  if (x != x || double(toward_zero) == x) return toward_zero;
  return __uint_as_float(__float_as_uint(toward_zero) | 1u);
}
)"},
    {"f64_to_i32", "", R"(
// Truncates and saturates, NaN becomes 0; so do the others. The instructions give other numbers for NaN.
__device__ __forceinline__ int f64_to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }
)"},
    {"f64_to_u32", "u32", R"(
__device__ __forceinline__ u32 f64_to_u32(double x) { return x != x ? 0u : __double2uint_rz(x); }
)"},
    {"f64_to_i64", "i64", R"(
__device__ __forceinline__ i64 f64_to_i64(double x) { return x != x ? 0ll : __double2ll_rz(x); }
)"},
    {"f64_to_u64", "u64", R"(
__device__ __forceinline__ u64 f64_to_u64(double x) { return x != x ? 0ull : __double2ull_rz(x); }
)"},
    {"f64_to_i8", "i8 f64_to_i32", R"(
__device__ __forceinline__ i8 f64_to_i8(double x) { return min(max(f64_to_i32(x), -128), 127); }
)"},
    {"f64_to_u8", "u8 f64_to_i32", R"(
__device__ __forceinline__ u8 f64_to_u8(double x) { return min(max(f64_to_i32(x), 0), 255); }
)"},
    {"f64_to_i16", "i16 f64_to_i32", R"(
__device__ __forceinline__ i16 f64_to_i16(double x) {
  return min(max(f64_to_i32(x), -32768), 32767);
}
)"},
    {"f64_to_u16", "u16 f64_to_i32", R"(
__device__ __forceinline__ u16 f64_to_u16(double x) { return min(max(f64_to_i32(x), 0), 65535); }
)"},
};

}  // namespace

std::span<const Snippet> f64_snippets() {
  return kF64;
}

}  // namespace tessera::codegen::cuda
