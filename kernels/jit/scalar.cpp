#include "kernels/jit/scalar.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "dsl/base/small_float.h"

namespace tessera::kernels::jit {
namespace {

int64_t bits_in(double number, DType type) {
  const auto value = static_cast<float>(number);
  switch (type) {
    case DType::f64:
      return std::bit_cast<int64_t>(number);
    case DType::f16:
      return to_f16(value);
    case DType::bf16:
      return to_bf16(value);
    case DType::e4m3:
      return to_e4m3(value);
    case DType::e5m2:
      return to_e5m2(value);
    default:
      return std::bit_cast<int32_t>(value);
  }
}

}  // namespace

double number_in(int64_t slot, DType type) {
  switch (type) {
    case DType::f64:
      return std::bit_cast<double>(slot);
    case DType::f16:
      return from_f16(static_cast<uint16_t>(slot));
    case DType::bf16:
      return from_bf16(static_cast<uint16_t>(slot));
    case DType::e4m3:
      return from_e4m3(static_cast<uint8_t>(slot));
    case DType::e5m2:
      return from_e5m2(static_cast<uint8_t>(slot));
    default:
      return std::bit_cast<float>(static_cast<int32_t>(slot));
  }
}

bool Scalar::is_for(DType type) const {
  switch (kind_) {
    case Kind::floating:
      return is_float(type);
    case Kind::boolean:
      return type == DType::boolean;
    default:
      return is_integer(type);
  }
}

std::optional<int64_t> Scalar::slot(DType type) const {
  if (!is_for(type)) return std::nullopt;
  if (kind_ == Kind::boolean) return integer_;
  if (kind_ == Kind::floating) {
    const int64_t bits = bits_in(number_, type);
    const bool became_infinite = std::isinf(number_in(bits, type)) && !std::isinf(number_);
    const bool is_beyond_e4m3 = type == DType::e4m3 && std::abs(number_) > 448;
    if (became_infinite || is_beyond_e4m3) return std::nullopt;
    return bits;
  }
  const bool is_negative = kind_ == Kind::integer && integer_ < 0;
  const int width = bits(type) - (is_signed(type) ? 1 : 0);
  const auto magnitude = static_cast<uint64_t>(is_negative ? ~integer_ : integer_);
  const bool fits = (width == 64 || magnitude >> width == 0) && (!is_negative || is_signed(type));
  if (!fits) return std::nullopt;
  return integer_;
}

std::string Scalar::value_text() const {
  switch (kind_) {
    case Kind::floating: {
      const auto single = static_cast<float>(number_);
      return static_cast<double>(single) == number_ ? fmt::format("{}", single)
                                                    : fmt::format("{}", number_);
    }
    case Kind::integer:
      return fmt::format("{}", integer_);
    case Kind::not_negative:
      return fmt::format("{}", static_cast<uint64_t>(integer_));
    case Kind::boolean:
      return integer_ != 0 ? "true" : "false";
  }
  return {};
}

std::string Scalar::text() const {
  const char* const kind = kind_ == Kind::floating  ? "float"
                           : kind_ == Kind::boolean ? "bool"
                                                    : "integer";
  return fmt::format("the {} {}", kind, value_text());
}

}  // namespace tessera::kernels::jit
