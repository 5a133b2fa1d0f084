// Integer, boolean and select loops. Integers wrap; shifts by the width or more give 0 or the sign;
// a division by zero gives all ones and leaves the dividend as remainder, as the GPU does.

#include <bit>
#include <limits>
#include <type_traits>

#include "codegen/cpu/column_ops.h"

namespace tessera::codegen::cpu {
namespace {

template <class T, class Result, class Second, class F>
void map2(void* out, const void* a, const void* b, const void*, int64_t count) {
  auto* __restrict to = static_cast<Result*>(out);
  const auto* __restrict x = static_cast<const T*>(a);
  const auto* __restrict y = static_cast<const Second*>(b);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(F()(x[i], y[i]));
}

template <class T, class Result, class F>
void map1(void* out, const void* a, const void*, const void*, int64_t count) {
  auto* __restrict to = static_cast<Result*>(out);
  const auto* __restrict x = static_cast<const T*>(a);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(F()(x[i]));
}

template <class T>
void select(void* out, const void* a, const void* b, const void* c, int64_t count) {
  auto* __restrict to = static_cast<T*>(out);
  const auto* __restrict condition = static_cast<const uint8_t*>(a);
  const auto* __restrict then = static_cast<const T*>(b);
  const auto* __restrict otherwise = static_cast<const T*>(c);
  for (int64_t i = 0; i < count; ++i) to[i] = condition[i] != 0 ? then[i] : otherwise[i];
}

/// Unsigned and at least 32 bits wide, so that no operation promotes to a signed type.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
Wide<T> wide(T value) {
  return static_cast<Wide<T>>(value);
}

// clang-format off
struct Add { template <class T> auto operator()(T a, T b) const { return wide(a) + wide(b); } };
struct Sub { template <class T> auto operator()(T a, T b) const { return wide(a) - wide(b); } };
struct Mul { template <class T> auto operator()(T a, T b) const { return wide(a) * wide(b); } };
struct Div {
  template <class T> auto operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~wide(T{0}));
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(wide(T{0}) - wide(a));  // the lowest value wraps
    }
    return static_cast<T>(a / b);
  }
};
struct Mod {
  template <class T> auto operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return T{0};
    }
    return static_cast<T>(a % b);
  }
};
struct Min { template <class T> auto operator()(T a, T b) const { return a < b ? a : b; } };
struct Max { template <class T> auto operator()(T a, T b) const { return a < b ? b : a; } };
struct And { template <class T> auto operator()(T a, T b) const { return a & b; } };
struct Or { template <class T> auto operator()(T a, T b) const { return a | b; } };
struct Xor { template <class T> auto operator()(T a, T b) const { return a ^ b; } };
struct Shl {
  template <class T> auto operator()(T a, uint32_t amount) const {
    constexpr uint32_t kBits = sizeof(T) * 8;
    return amount < kBits ? wide(a) << amount : Wide<T>{0};
  }
};
struct Shr {
  template <class T> auto operator()(T a, uint32_t amount) const {
    constexpr uint32_t kBits = sizeof(T) * 8;
    if constexpr (std::is_signed_v<T>) return a >> (amount < kBits ? amount : kBits - 1);
    else return amount < kBits ? wide(a) >> amount : Wide<T>{0};
  }
};
struct Less { template <class T> bool operator()(T a, T b) const { return a < b; } };
struct LessEqual { template <class T> bool operator()(T a, T b) const { return a <= b; } };
struct Equal { template <class T> bool operator()(T a, T b) const { return a == b; } };
struct NotEqual { template <class T> bool operator()(T a, T b) const { return a != b; } };
struct Neg { template <class T> auto operator()(T a) const { return wide(T{0}) - wide(a); } };
struct Abs {
  template <class T> auto operator()(T a) const { return a < 0 ? wide(T{0}) - wide(a) : wide(a); }
};
struct Popcount {
  template <class T> auto operator()(T a) const {
    return std::popcount(static_cast<std::make_unsigned_t<T>>(a));
  }
};
struct Not { uint8_t operator()(uint8_t a) const { return a == 0; } };
// clang-format on

template <class T>
ColumnOp find(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::add:
      return map2<T, T, T, Add>;
    case Op::sub:
      return map2<T, T, T, Sub>;
    case Op::mul:
      return map2<T, T, T, Mul>;
    case Op::div:
      return map2<T, T, T, Div>;
    case Op::mod:
      return map2<T, T, T, Mod>;
    case Op::min:
      return map2<T, T, T, Min>;
    case Op::max:
      return map2<T, T, T, Max>;
    case Op::bit_and:
      return map2<T, T, T, And>;
    case Op::bit_or:
      return map2<T, T, T, Or>;
    case Op::bit_xor:
      return map2<T, T, T, Xor>;
    case Op::shl:
      return map2<T, T, uint32_t, Shl>;
    case Op::shr:
      return map2<T, T, uint32_t, Shr>;
    case Op::lt:
      return map2<T, uint8_t, T, Less>;
    case Op::le:
      return map2<T, uint8_t, T, LessEqual>;
    case Op::eq:
      return map2<T, uint8_t, T, Equal>;
    case Op::ne:
      return map2<T, uint8_t, T, NotEqual>;
    case Op::neg:
      return map1<T, T, Neg>;
    case Op::abs:
      if constexpr (std::is_signed_v<T>) return map1<T, T, Abs>;
      return nullptr;
    case Op::popcount:
      return map1<T, int32_t, Popcount>;
    default:
      return nullptr;
  }
}

}  // namespace

ColumnOp find_integer_op(ir::Op op, DType type) {
  switch (type) {
    case DType::i8:
      return find<int8_t>(op);
    case DType::u8:
      return find<uint8_t>(op);
    case DType::i16:
      return find<int16_t>(op);
    case DType::u16:
      return find<uint16_t>(op);
    case DType::i32:
      return find<int32_t>(op);
    case DType::u32:
      return find<uint32_t>(op);
    case DType::i64:
      return find<int64_t>(op);
    case DType::u64:
      return find<uint64_t>(op);
    default:
      return nullptr;
  }
}

ColumnOp find_boolean_op(ir::Op op) {
  using ir::Op;
  using T = uint8_t;
  switch (op) {
    case Op::logical_and:
    case Op::bit_and:
    case Op::min:
      return map2<T, T, T, And>;
    case Op::logical_or:
    case Op::bit_or:
    case Op::max:
      return map2<T, T, T, Or>;
    case Op::bit_xor:
    case Op::ne:
      return map2<T, T, T, Xor>;
    case Op::eq:
      return map2<T, T, T, Equal>;
    case Op::logical_not:
      return map1<T, T, Not>;
    default:
      return nullptr;
  }
}

ColumnOp find_select(int bytes) {
  switch (bytes) {
    case 1:
      return select<uint8_t>;
    case 2:
      return select<uint16_t>;
    case 4:
      return select<uint32_t>;
    default:
      return select<uint64_t>;
  }
}

ColumnOp find_op(ir::Op op, DType type) {
  if (is_float(type)) return find_float_op(op, type);
  return type == DType::boolean ? find_boolean_op(op) : find_integer_op(op, type);
}

}  // namespace tessera::codegen::cpu
