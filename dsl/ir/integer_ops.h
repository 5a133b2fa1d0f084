#pragma once
// The integer operations on C++ types, for loops over many elements. integer.h defines the
// semantics per dtype by these.

#include <bit>
#include <cstdint>
#include <type_traits>

namespace tessera::ir::integer {

/// Widens to an unsigned type of at least 32 bits, so that no operation promotes to a signed type.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
Wide<T> wide(T value) {
  return static_cast<Wide<T>>(value);
}

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// Each takes elements of dtype T. Convert the result to T, of comparisons to bool.
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
struct Clz {
  template <class T> auto operator()(T a) const {
    return std::countl_zero(static_cast<std::make_unsigned_t<T>>(a));
  }
};
struct Ffs {
  template <class T> auto operator()(T a) const {
    return a == 0 ? 0 : std::countr_zero(static_cast<std::make_unsigned_t<T>>(a)) + 1;
  }
};
struct MulHi {  // of 32 and 64 bits
  template <class T> auto operator()(T a, T b) const {
    using Twice = std::conditional_t<sizeof(T) == 8, Int128, int64_t>;
    using UnsignedTwice = std::conditional_t<sizeof(T) == 8, UInt128, uint64_t>;
    using Product = std::conditional_t<std::is_signed_v<T>, Twice, UnsignedTwice>;
    return static_cast<T>(static_cast<Product>(a) * static_cast<Product>(b) >> (sizeof(T) * 8));
  }
};
struct Not { uint8_t operator()(uint8_t a) const { return a == 0; } };
// clang-format on

}  // namespace tessera::ir::integer
