#include "dsl/ir/integer.h"

#include "dsl/ir/integer_ops.h"

namespace tessera::ir {
namespace {

template <class T>
std::optional<int64_t> compute_as(Op op, int64_t a, int64_t b) {
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  const auto as_type = [](auto value) { return static_cast<int64_t>(static_cast<T>(value)); };
  switch (op) {
    case Op::add:
      return as_type(integer::Add()(x, y));
    case Op::sub:
      return as_type(integer::Sub()(x, y));
    case Op::mul:
      return as_type(integer::Mul()(x, y));
    case Op::mulhi:
      if constexpr (sizeof(T) >= 4) return integer::MulHi()(x, y);
      return std::nullopt;
    case Op::div:
      return as_type(integer::Div()(x, y));
    case Op::mod:
      return as_type(integer::Mod()(x, y));
    case Op::min:
      return as_type(integer::Min()(x, y));
    case Op::max:
      return as_type(integer::Max()(x, y));
    case Op::bit_and:
      return as_type(integer::And()(x, y));
    case Op::bit_or:
      return as_type(integer::Or()(x, y));
    case Op::bit_xor:
      return as_type(integer::Xor()(x, y));
    case Op::shl:
      return as_type(integer::Shl()(x, static_cast<uint32_t>(b)));
    case Op::shr:
      return as_type(integer::Shr()(x, static_cast<uint32_t>(b)));
    case Op::lt:
      return integer::Less()(x, y);
    case Op::le:
      return integer::LessEqual()(x, y);
    case Op::eq:
      return integer::Equal()(x, y);
    case Op::ne:
      return integer::NotEqual()(x, y);
    case Op::logical_and:
      return x != 0 && y != 0;
    case Op::logical_or:
      return x != 0 || y != 0;
    default:
      return std::nullopt;
  }
}

/// The result on mathematical integers, if it fits in 64 bits.
std::optional<int64_t> compute_in_64_bits(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case Op::sub:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case Op::mul:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case Op::div:
      if (b == -1) return compute_in_64_bits(Op::sub, 0, a);
      if (b == 0) return std::nullopt;
      break;
    case Op::mod:
      if (b == 0) return std::nullopt;
      break;
    case Op::shl:
    case Op::shr:
    case Op::mulhi:
      return std::nullopt;
    default:
      break;
  }
  return compute_as<int64_t>(op, a, b);
}

}  // namespace

int64_t wrap(DType type, int64_t value) {
  switch (type) {
    case DType::i8:
      return static_cast<int8_t>(value);
    case DType::u8:
      return static_cast<uint8_t>(value);
    case DType::i16:
      return static_cast<int16_t>(value);
    case DType::u16:
      return static_cast<uint16_t>(value);
    case DType::i32:
      return static_cast<int32_t>(value);
    case DType::u32:
      return static_cast<uint32_t>(value);
    case DType::boolean:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

bool fits(DType type, int64_t value) {
  return wrap(type, value) == value && (type != DType::u64 || value >= 0);
}

bool is_comparison(Op op) {
  return op == Op::lt || op == Op::le || op == Op::eq || op == Op::ne;
}

std::optional<int64_t> compute(Op op, DType type, int64_t a, int64_t b) {
  switch (type) {
    case DType::boolean: {
      const std::optional<int64_t> result = compute_as<uint8_t>(op, a, b);
      return result ? std::optional(wrap(type, *result)) : result;
    }
    case DType::i8:
      return compute_as<int8_t>(op, a, b);
    case DType::u8:
      return compute_as<uint8_t>(op, a, b);
    case DType::i16:
      return compute_as<int16_t>(op, a, b);
    case DType::u16:
      return compute_as<uint16_t>(op, a, b);
    case DType::i32:
      return compute_as<int32_t>(op, a, b);
    case DType::u32:
      return compute_as<uint32_t>(op, a, b);
    case DType::i64:
      return compute_as<int64_t>(op, a, b);
    case DType::u64:
      return compute_as<uint64_t>(op, a, b);
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> compute_exactly(Op op, DType type, int64_t a, int64_t b) {
  const bool is_held = type != DType::u64 || (a >= 0 && b >= 0);
  if (is_float(type) || !is_held) return std::nullopt;
  const std::optional<int64_t> result = compute_in_64_bits(op, a, b);
  return result && (is_comparison(op) || fits(type, *result)) ? result : std::nullopt;
}

}  // namespace tessera::ir
