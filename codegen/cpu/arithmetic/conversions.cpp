// Conversions between all dtypes: one loop per pair, chosen from a table.

#include <array>
#include <utility>

#include "codegen/cpu/arithmetic/column_ops.h"
#include "codegen/cpu/arithmetic/formats.h"

namespace tessera::codegen::cpu {
namespace {

struct Boolean {
  using Storage = uint8_t;
};
template <class T>
struct Integer {
  using Storage = T;
};

template <DType>
struct FormatOf;
// clang-format off
template <> struct FormatOf<DType::f32> { using type = F32; };
template <> struct FormatOf<DType::f16> { using type = F16; };
template <> struct FormatOf<DType::bf16> { using type = Bf16; };
template <> struct FormatOf<DType::e4m3> { using type = E4m3; };
template <> struct FormatOf<DType::e5m2> { using type = E5m2; };
template <> struct FormatOf<DType::e2m1> { using type = E2m1; };
template <> struct FormatOf<DType::i8> { using type = Integer<int8_t>; };
template <> struct FormatOf<DType::u8> { using type = Integer<uint8_t>; };
template <> struct FormatOf<DType::i16> { using type = Integer<int16_t>; };
template <> struct FormatOf<DType::u16> { using type = Integer<uint16_t>; };
template <> struct FormatOf<DType::i32> { using type = Integer<int32_t>; };
template <> struct FormatOf<DType::u32> { using type = Integer<uint32_t>; };
template <> struct FormatOf<DType::i64> { using type = Integer<int64_t>; };
template <> struct FormatOf<DType::u64> { using type = Integer<uint64_t>; };
template <> struct FormatOf<DType::boolean> { using type = Boolean; };
template <> struct FormatOf<DType::f64> { using type = F64; };
// clang-format on

template <class Format>
constexpr bool kIsInteger = false;
template <class T>
constexpr bool kIsInteger<Integer<T>> = true;
template <class Format>
constexpr bool kIsBoolean = std::is_same_v<Format, Boolean>;
template <class Format>
constexpr bool kIsFloat = !kIsInteger<Format> && !kIsBoolean<Format>;

template <class From, class To>
typename To::Storage convert(typename From::Storage value) {
  using Result = typename To::Storage;
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (kIsFloat<From>) {
    const auto wide = From::decode(value);
    if constexpr (kIsBoolean<To>) {
      return static_cast<Result>(wide != 0);
    } else if constexpr (kIsInteger<To>) {
      return saturate<Result>(wide);
    } else if constexpr (std::is_same_v<From, F64> && std::is_same_v<To, F32>) {
      return To::encode(static_cast<float>(wide));
    } else if constexpr (std::is_same_v<From, F64>) {
      return To::encode(round_to_odd(wide));
    } else {
      return To::encode(wide);
    }
  } else if constexpr (kIsBoolean<To>) {
    return static_cast<Result>(value != 0);
  } else if constexpr (kIsInteger<To>) {
    return static_cast<Result>(value);
  } else if constexpr (std::is_same_v<To, F32> || std::is_same_v<To, F64>) {
    return static_cast<Result>(value);
  } else {
    return To::encode(round_to_odd(value));
  }
}

template <class From, class To>
void convert_column(void* out, const void* a, const void*, const void*, int64_t count) {
  auto* __restrict to = static_cast<typename To::Storage*>(out);
  const auto* __restrict from = static_cast<const typename From::Storage*>(a);
  for (int64_t i = 0; i < count; ++i) to[i] = convert<From, To>(from[i]);
}

template <size_t Pair>
constexpr ColumnOp pair_op() {
  constexpr auto kFrom = static_cast<DType>(Pair / kNumDTypes);
  constexpr auto kTo = static_cast<DType>(Pair % kNumDTypes);
  return convert_column<typename FormatOf<kFrom>::type, typename FormatOf<kTo>::type>;
}

template <size_t... Pairs>
constexpr std::array<ColumnOp, sizeof...(Pairs)> pair_table(std::index_sequence<Pairs...>) {
  return {pair_op<Pairs>()...};
}

}  // namespace

ColumnOp find_conversion(DType from, DType to) {
  static constexpr auto kTable =
      pair_table(std::make_index_sequence<size_t{kNumDTypes} * size_t{kNumDTypes}>());
  return kTable[static_cast<size_t>(from) * kNumDTypes + static_cast<size_t>(to)];
}

}  // namespace tessera::codegen::cpu
