// Float arithmetic with the GPU's results: f32 and f64 operations round once; f16 and bf16 compute in f32
// and round to nearest even; arithmetic makes a NaN canonical; abs, neg and copysign change only
// the sign bit.

#include <cmath>

#include "codegen/cpu/arithmetic/column_ops.h"
#include "codegen/cpu/arithmetic/formats.h"

namespace tessera::codegen::cpu {
namespace {

template <class T>
const T* column(const void* data) {
  return static_cast<const T*>(data);
}

template <class Format, class F>
void map1(void* out, const void* a, const void*, const void*, int64_t count) {
  using T = typename Format::Storage;
  auto* __restrict to = static_cast<T*>(out);
  const T* __restrict x = column<T>(a);
  for (int64_t i = 0; i < count; ++i) to[i] = Format::encode(F()(Format::decode(x[i])));
}

template <class Format, class F>
void map2(void* out, const void* a, const void* b, const void*, int64_t count) {
  using T = typename Format::Storage;
  auto* __restrict to = static_cast<T*>(out);
  const T* __restrict x = column<T>(a);
  const T* __restrict y = column<T>(b);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = Format::encode(F()(Format::decode(x[i]), Format::decode(y[i])));
  }
}

template <class Format, class F>
void map3(void* out, const void* a, const void* b, const void* c, int64_t count) {
  using T = typename Format::Storage;
  auto* __restrict to = static_cast<T*>(out);
  const T* __restrict x = column<T>(a);
  const T* __restrict y = column<T>(b);
  const T* __restrict z = column<T>(c);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = Format::encode(F()(Format::decode(x[i]), Format::decode(y[i]), Format::decode(z[i])));
  }
}

template <class Format, class F>
void test1(void* out, const void* a, const void*, const void*, int64_t count) {
  using T = typename Format::Storage;
  auto* __restrict to = static_cast<uint8_t*>(out);
  const T* __restrict x = column<T>(a);
  for (int64_t i = 0; i < count; ++i) to[i] = F()(Format::decode(x[i])) ? 1 : 0;
}

template <class Format, class F>
void test2(void* out, const void* a, const void* b, const void*, int64_t count) {
  using T = typename Format::Storage;
  auto* __restrict to = static_cast<uint8_t*>(out);
  const T* __restrict x = column<T>(a);
  const T* __restrict y = column<T>(b);
  for (int64_t i = 0; i < count; ++i) to[i] = F()(Format::decode(x[i]), Format::decode(y[i]));
}

/// Works on the storage bits, an unsigned integer U.
template <class U, class F>
void map_bits(void* out, const void* a, const void* b, const void*, int64_t count) {
  auto* __restrict to = static_cast<U*>(out);
  const U* __restrict x = column<U>(a);
  constexpr U kSign = static_cast<U>(U{1} << (sizeof(U) * 8 - 1));
  if constexpr (std::is_invocable_v<F, U, U, U>) {
    const U* __restrict y = column<U>(b);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<U>(F()(x[i], y[i], kSign));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<U>(F()(x[i], kSign));
  }
}

/// Orders floats as integers, -0 before +0. `nan_bits` determines the order of NaN.
int32_t order(float value, uint32_t nan_bits) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > kInfinity;
  const auto key = static_cast<int32_t>(is_nan ? nan_bits : bits);
  return key ^ ((key >> 31) & 0x7FFFFFFF);
}
int64_t order(double value, uint64_t nan_bits) {
  const auto key =
      static_cast<int64_t>(F64::is_nan(value) ? nan_bits : std::bit_cast<uint64_t>(value));
  return key ^ ((key >> 63) & INT64_MAX);
}
float pick(bool first, float a, float b) {
  return std::bit_cast<float>(first ? std::bit_cast<uint32_t>(a) : std::bit_cast<uint32_t>(b));
}

// clang-format off
struct Add { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Sub { template <class T> T operator()(T a, T b) const { return a - b; } };
struct Mul { template <class T> T operator()(T a, T b) const { return a * b; } };
struct Div { template <class T> T operator()(T a, T b) const { return a / b; } };
struct Min {
  float operator()(float a, float b) const {
    return pick(order(a, 0x7FFFFFFFu) < order(b, 0x7FFFFFFFu), a, b);  // NaN above all
  }
  double operator()(double a, double b) const {
    return order(a, F64::kNan) < order(b, F64::kNan) ? a : b;
  }
};
struct Max {
  float operator()(float a, float b) const {
    return pick(order(a, 0xFFFFFFFFu) > order(b, 0xFFFFFFFFu), a, b);  // NaN below all
  }
  double operator()(double a, double b) const {
    return order(a, UINT64_MAX) > order(b, UINT64_MAX) ? a : b;
  }
};
struct MaxOfMagnitude {
  float operator()(float a, float b) const { return Max()(a, std::fabs(b)); }
};
struct Fma { template <class T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); } };
struct Sqrt { template <class T> T operator()(T a) const { return std::sqrt(a); } };
// Functions that the GPU approximates: computed in double and rounded, within 1 ulp of the exact value.
struct Rsqrt {
  float operator()(float a) const { return static_cast<float>(1.0 / std::sqrt(double{a})); }
};
struct Exp { float operator()(float a) const { return static_cast<float>(std::exp(double{a})); } };
struct Silu { float operator()(float a) const { return a / (1.0f + Exp()(-a)); } };
struct Exp2 { float operator()(float a) const { return static_cast<float>(std::exp2(double{a})); } };
struct Log { float operator()(float a) const { return static_cast<float>(std::log(double{a})); } };
struct Log2 { float operator()(float a) const { return static_cast<float>(std::log2(double{a})); } };
struct Log1p { float operator()(float a) const { return static_cast<float>(std::log1p(double{a})); } };
struct Sin { float operator()(float a) const { return static_cast<float>(std::sin(double{a})); } };
struct Cos { float operator()(float a) const { return static_cast<float>(std::cos(double{a})); } };
struct Tanh { float operator()(float a) const { return static_cast<float>(std::tanh(double{a})); } };
struct Erf { float operator()(float a) const { return static_cast<float>(std::erf(double{a})); } };
// Exact.
struct Floor { template <class T> T operator()(T a) const { return std::floor(a); } };
struct Ceil { template <class T> T operator()(T a) const { return std::ceil(a); } };
struct Rint { template <class T> T operator()(T a) const { return std::nearbyint(a); } };
/// The f16 next to `a` toward zero: the nearest f16, or its neighbour if that is larger than `a`.
uint32_t f16_toward_zero(float a) {
  const uint16_t nearest = F16::encode(a);
  return std::fabs(F16::decode(nearest)) > std::fabs(a) ? nearest - 1u : nearest;
}
struct IsNan {
  bool operator()(float a) const { return (std::bit_cast<uint32_t>(a) & 0x7FFFFFFFu) > kInfinity; }
  bool operator()(double a) const { return F64::is_nan(a); }
};
struct IsInf {
  bool operator()(float a) const {
    return (std::bit_cast<uint32_t>(a) & 0x7FFFFFFFu) == kInfinity;
  }
  bool operator()(double a) const { return std::isinf(a); }
};
struct Less { template <class T> bool operator()(T a, T b) const { return a < b; } };
struct LessEqual { template <class T> bool operator()(T a, T b) const { return a <= b; } };
struct Equal { template <class T> bool operator()(T a, T b) const { return a == b; } };
struct NotEqual { template <class T> bool operator()(T a, T b) const { return a != b; } };
// Work on bits: value, (other,) sign bit.
struct Neg { template <class U> auto operator()(U a, U sign) const { return a ^ sign; } };
struct Abs { template <class U> auto operator()(U a, U sign) const { return a & ~sign; } };
struct Copysign {
  template <class U> auto operator()(U a, U b, U sign) const { return (a & ~sign) | (b & sign); }
};
// clang-format on

void round_tf32(void* out, const void* a, const void*, const void*, int64_t count) {
  auto* __restrict to = static_cast<uint32_t*>(out);
  const auto* __restrict bits = column<uint32_t>(a);
  for (int64_t i = 0; i < count; ++i) {
    const bool finite = (bits[i] & kInfinity) != kInfinity;
    to[i] = (finite ? bits[i] + 0x1000u : bits[i]) & ~0x1FFFu;
  }
}

void f16x2_toward_zero(void* out, const void* a, const void* b, const void*, int64_t count) {
  auto* __restrict to = static_cast<uint32_t*>(out);
  const auto* __restrict high = column<float>(a);
  const auto* __restrict low = column<float>(b);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = f16_toward_zero(high[i]) << 16 | f16_toward_zero(low[i]);
  }
}

/// Operations that every format has.
template <class Format, class Bits>
ColumnOp find_exact(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::add:
      return map2<Format, Add>;
    case Op::sub:
      return map2<Format, Sub>;
    case Op::mul:
      return map2<Format, Mul>;
    case Op::div:
      return map2<Format, Div>;
    case Op::min:
      return map2<Format, Min>;
    case Op::max:
      return map2<Format, Max>;
    case Op::fma:
      return map3<Format, Fma>;
    case Op::sqrt:
      return map1<Format, Sqrt>;
    case Op::floor:
      return map1<Format, Floor>;
    case Op::ceil:
      return map1<Format, Ceil>;
    case Op::rint:
      return map1<Format, Rint>;
    case Op::lt:
      return test2<Format, Less>;
    case Op::le:
      return test2<Format, LessEqual>;
    case Op::eq:
      return test2<Format, Equal>;
    case Op::ne:
      return test2<Format, NotEqual>;
    case Op::is_nan:
      return test1<Format, IsNan>;
    case Op::is_inf:
      return test1<Format, IsInf>;
    case Op::neg:
      return map_bits<Bits, Neg>;
    case Op::abs:
      return map_bits<Bits, Abs>;
    case Op::copysign:
      return map_bits<Bits, Copysign>;
    default:
      return nullptr;
  }
}

/// Operations that the GPU approximates, of f32 alone.
template <class Format, class Bits>
ColumnOp find(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::rsqrt:
      return map1<Format, Rsqrt>;
    case Op::round_tf32:
      return sizeof(Bits) == 4 ? round_tf32 : nullptr;
    case Op::f16x2_toward_zero:
      return sizeof(Bits) == 4 ? f16x2_toward_zero : nullptr;
    case Op::exp:
      return map1<Format, Exp>;
    case Op::silu:
      return sizeof(Bits) == 4 ? map1<Format, Silu> : nullptr;
    case Op::exp2:
    case Op::exp2_approx:
      return map1<Format, Exp2>;
    case Op::log:
      return map1<Format, Log>;
    case Op::log2:
    case Op::log2_approx:
      return map1<Format, Log2>;
    case Op::log1p:
      return map1<Format, Log1p>;
    case Op::sin:
    case Op::sin_approx:
      return map1<Format, Sin>;
    case Op::cos:
    case Op::cos_approx:
      return map1<Format, Cos>;
    case Op::tanh:
    case Op::tanh_approx:
      return map1<Format, Tanh>;
    case Op::erf:
      return map1<Format, Erf>;
    default:
      return find_exact<Format, Bits>(op);
  }
}

}  // namespace

ColumnOp find_max_of_magnitude(DType type) {
  return type == DType::f16 ? map2<F16, MaxOfMagnitude> : map2<Bf16, MaxOfMagnitude>;
}

ColumnOp find_float_op(ir::Op op, DType type) {
  switch (type) {
    case DType::f64:
      return find_exact<F64, uint64_t>(op);
    case DType::f32:
      return find<F32, uint32_t>(op);
    case DType::f16:
      return find<F16, uint16_t>(op);
    case DType::bf16:
      return find<Bf16, uint16_t>(op);
    default:
      return nullptr;  // 8-bit and 4-bit floats are stored and converted, not computed with
  }
}

}  // namespace tessera::codegen::cpu
