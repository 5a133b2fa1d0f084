#include "tests/fuzz/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

#include "tests/reference/numeric.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {
namespace {

using ir::Op;

int64_t wrapped(DType type, int64_t value) {
  switch (type) {
    case DType::boolean:
      return value != 0;
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
    default:
      return value;
  }
}

double rounded(DType type, double value) {
  if (type == DType::f64) return value;
  if (type == DType::f32) return static_cast<float>(value);
  return reference::decode(type, reference::encode(type, value));
}

/// Largest and smallest value of an integer dtype, as doubles that bound it.
int64_t saturated(DType type, double value) {
  if (std::isnan(value)) return 0;
  const int width = bits(type);
  const double low = is_signed(type) ? -std::ldexp(1.0, width - 1) : 0.0;
  const double high = std::ldexp(1.0, is_signed(type) ? width - 1 : width);
  const double whole = std::trunc(value);
  if (whole <= low)
    return is_signed(type) ? static_cast<int64_t>(-(uint64_t{1} << (width - 1))) : 0;
  if (whole >= high) {
    const uint64_t all = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    return static_cast<int64_t>(is_signed(type) ? all >> 1 : all);
  }
  return type == DType::u64 ? static_cast<int64_t>(static_cast<uint64_t>(whole))
                            : static_cast<int64_t>(whole);
}

int64_t shifted(Op op, DType type, int64_t value, int64_t amount) {
  const int width = bits(type);
  const bool is_out = amount < 0 || amount >= width;
  if (op == Op::shl)
    return is_out ? 0 : static_cast<int64_t>(static_cast<uint64_t>(value) << amount);
  if (is_signed(type)) return value >> (is_out ? 63 : amount);
  return is_out ? 0 : static_cast<int64_t>(static_cast<uint64_t>(value) >> amount);
}

int64_t integer_result(Op op, DType type, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a);
  const auto ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::add:
      return static_cast<int64_t>(ua + ub);
    case Op::sub:
      return static_cast<int64_t>(ua - ub);
    case Op::mul:
      return static_cast<int64_t>(ua * ub);
    case Op::div:
    case Op::mod:
      if (b == 0) throw std::logic_error("division by zero");
      if (b == -1) return op == Op::div ? static_cast<int64_t>(0 - ua) : 0;
      if (type == DType::u64) return static_cast<int64_t>(op == Op::div ? ua / ub : ua % ub);
      return op == Op::div ? a / b : a % b;
    case Op::min:
      return type == DType::u64 ? static_cast<int64_t>(std::min(ua, ub)) : std::min(a, b);
    case Op::max:
      return type == DType::u64 ? static_cast<int64_t>(std::max(ua, ub)) : std::max(a, b);
    case Op::bit_and:
      return a & b;
    case Op::bit_or:
      return a | b;
    case Op::bit_xor:
      return a ^ b;
    case Op::shl:
    case Op::shr:
      return shifted(op, type, a, b);
    case Op::mulhi:  // of 32 bits: random programs have no others
      return type == DType::u32 ? static_cast<int64_t>(ua * ub >> 32) : a * b >> 32;
    default:
      throw std::logic_error("the interpreter knows no integer " + std::string(ir::name(op)));
  }
}

/// With -0 below +0.
bool is_below(double a, double b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

double float_result(Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return a / b;
    case Op::min:
      return std::isnan(a) || is_below(b, a) ? b : a;
    case Op::max:
      return std::isnan(a) || is_below(a, b) ? b : a;
    default:
      throw std::logic_error("the interpreter knows no float " + std::string(ir::name(op)));
  }
}

bool compared(Op op, DType type, Scalar a, Scalar b) {
  if (is_float(type)) {
    if (op == Op::lt) return a.number < b.number;
    if (op == Op::le) return a.number <= b.number;
    return (a.number == b.number) == (op == Op::eq);
  }
  if (op == Op::eq || op == Op::ne) return (a.integer == b.integer) == (op == Op::eq);
  const bool is_less = type == DType::u64
                           ? static_cast<uint64_t>(a.integer) < static_cast<uint64_t>(b.integer)
                           : a.integer < b.integer;
  return op == Op::lt ? is_less : is_less || a.integer == b.integer;
}

}  // namespace

Scalar normalised(DType type, Scalar value) {
  if (is_float(type)) return {0, rounded(type, value.number)};
  return {wrapped(type, value.integer), 0};
}

Scalar converted(DType to, DType from, Scalar value) {
  if (is_float(from) && is_float(to)) return {0, rounded(to, value.number)};
  if (is_float(from)) {
    return to == DType::boolean ? Scalar{value.number != 0, 0}
                                : Scalar{saturated(to, value.number), 0};
  }
  if (!is_float(to)) return {wrapped(to, value.integer), 0};
  const double number = from == DType::u64
                            ? static_cast<double>(static_cast<uint64_t>(value.integer))
                            : static_cast<double>(value.integer);
  return {0, rounded(to, number)};
}

Scalar apply(Op op, DType type, DType result, const Scalar* arguments) {
  const Scalar a = arguments[0];
  switch (op) {
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne:
      return {compared(op, type, a, arguments[1]), 0};
    case Op::logical_and:
      return {a.integer != 0 && arguments[1].integer != 0, 0};
    case Op::logical_or:
      return {a.integer != 0 || arguments[1].integer != 0, 0};
    case Op::logical_not:
      return {a.integer == 0, 0};
    case Op::select:
      return a.integer != 0 ? arguments[1] : arguments[2];
    case Op::cast:
      return converted(result, type, a);
    case Op::bitcast:
      return scalar_of_bits(result, bits_of_scalar(type, a));
    case Op::neg:
      return normalised(result,
                        {static_cast<int64_t>(0 - static_cast<uint64_t>(a.integer)), -a.number});
    case Op::abs:
      return normalised(
          result,
          {a.integer < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a.integer)) : a.integer,
           std::fabs(a.number)});
    case Op::clz:
    case Op::ffs: {
      int highest = -1, lowest = bits(type);
      for (int bit = 0; bit < bits(type); ++bit) {
        if ((static_cast<uint64_t>(a.integer) >> bit & 1) == 0) continue;
        highest = bit;
        lowest = std::min(lowest, bit);
      }
      if (op == Op::clz) return {bits(type) - 1 - highest, 0};
      return {highest < 0 ? 0 : lowest + 1, 0};
    }
    case Op::floor:
      return {0, std::floor(a.number)};
    case Op::ceil:
      return {0, std::ceil(a.number)};
    case Op::rint:
      return {0, std::nearbyint(a.number)};
    default:
      break;
  }
  const Scalar b = arguments[1];
  if (is_float(type)) return normalised(result, {0, float_result(op, a.number, b.number)});
  return normalised(result, {integer_result(op, type, a.integer, b.integer), 0});
}

Scalar scalar_of_bits(DType type, uint64_t bits) {
  if (is_float(type)) return {0, value_of(type, bits)};
  return {wrapped(type, static_cast<int64_t>(bits)), 0};
}

uint64_t bits_of_scalar(DType type, Scalar value) {
  if (type == DType::f64) return std::bit_cast<uint64_t>(value.number);
  if (is_float(type)) return reference::encode(type, value.number);
  const int width = std::min(64, 8 * bytes(type));
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  return static_cast<uint64_t>(value.integer) & mask;
}

}  // namespace tessera::test
