#include "tests/support/conversion_cases.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/reference/numeric.h"
#include "tests/support/host_tensor.h"
#include "tests/support/program_builder.h"

namespace tessera::test {
namespace {

uint64_t low_bits(int width, uint64_t bits) {
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

/// The value of an integer or bool, as magnitude and sign.
struct Integer {
  uint64_t magnitude = 0;
  bool negative = false;
};

Integer integer_value(DType type, uint64_t bits) {
  const int width = tessera::bits(type);
  const bool negative = is_integer(type) && is_signed(type) && (bits >> (width - 1)) != 0;
  if (!negative) return {bits, false};
  return {low_bits(width, ~bits + 1), true};
}

/// Exact up to 53 bits; beyond, rounded to odd, so that rounding the result to f32 or less is
/// rounding the integer.
double as_double(Integer value) {
  const int surplus = std::max(0, static_cast<int>(std::bit_width(value.magnitude)) - 53);
  const uint64_t lost = value.magnitude & ((uint64_t{1} << surplus) - 1);
  const uint64_t kept = (value.magnitude >> surplus) | (lost != 0 ? 1 : 0);
  const double magnitude = std::ldexp(static_cast<double>(kept), surplus);
  return value.negative ? -magnitude : magnitude;
}

/// Toward zero, saturated, NaN to 0.
uint64_t float_to_integer(double value, DType to) {
  if (std::isnan(value)) return 0;
  const int width = bits(to);
  const int value_bits = is_signed(to) ? width - 1 : width;
  const double limit = std::ldexp(1.0, value_bits);
  const uint64_t largest = low_bits(value_bits, ~uint64_t{0});
  if (value >= limit) return largest;
  if (value < 0 && !is_signed(to)) return 0;
  if (value <= -limit) return low_bits(width, largest + 1);
  const auto magnitude = static_cast<uint64_t>(std::trunc(std::fabs(value)));
  return low_bits(width, value < 0 ? ~magnitude + 1 : magnitude);
}

uint64_t f64_bits(double value) {
  return std::isnan(value) ? 0x7FFFFFFFFFFFFFFF : std::bit_cast<uint64_t>(value);
}

void add_f32(std::vector<uint64_t>& inputs, double value) {
  const auto nearest = static_cast<float>(value);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float near :
       {std::nextafterf(nearest, -infinity), nearest, std::nextafterf(nearest, infinity)}) {
    for (const float x : {near, -near}) inputs.push_back(reference::bits_of(x));
  }
}

std::vector<uint64_t> f32_inputs() {
  std::vector<uint64_t> inputs = {0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000,
                                  0xFFC00000, 0x7F800001, 0xFFBFFFFF, 0x7FFFFFFF, 0xFFFFFFFF};
  for (int power = -150; power <= 127; ++power) add_f32(inputs, std::ldexp(1.0, power));
  for (const double limit : {127.0, 128.0, 255.0, 32767.0, 65535.0, 2147483647.0, 4294967295.0}) {
    for (const double step : {-0.5, 0.0, 0.5, 1.0}) add_f32(inputs, limit + step);
  }
  for (const DType format : {DType::e2m1, DType::e4m3, DType::e5m2, DType::f16, DType::bf16}) {
    const uint32_t last = reference::max_finite_code(format);
    for (uint32_t code = 0; code <= last; ++code) {
      if (code > 64 && code < last - 64 && code % 7 != 0) continue;
      const double value = reference::decode(format, code);
      add_f32(inputs, value);
      // The tie with the next code; above the last one, where overflow begins.
      const double below = reference::decode(format, code == last ? code - 1 : code + 1);
      add_f32(inputs, value + std::fabs(below - value) / 2);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) inputs.push_back(random());
  return inputs;
}

/// A number that f32 has, or one beside it that f32 does not have: a rounding by way of f32 would round it
/// twice.
std::vector<uint64_t> f64_inputs() {
  std::vector<uint64_t> inputs = {
      0xFFF0000000000000, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 1,
      0x8000000000000001, 0x7FEFFFFFFFFFFFFF, 0x43E0000000000000, 0x43DFFFFFFFFFFFFF,
      0xC3E0000000000001, 0x43F0000000000000};
  for (const uint64_t single : f32_inputs()) {
    const auto bits = std::bit_cast<uint64_t>(
        static_cast<double>(reference::float_of(static_cast<uint32_t>(single))));
    constexpr uint64_t kSteps[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 28};
    inputs.push_back(bits + kSteps[inputs.size() % 4]);
  }
  return inputs;
}

std::vector<uint64_t> wide_integer_inputs(DType type) {
  const int width = bits(type);
  std::vector<uint64_t> inputs;
  const auto add = [&](uint64_t value) {
    inputs.push_back(low_bits(width, value));
    inputs.push_back(low_bits(width, ~value + 1));
  };
  for (int power = 0; power < width; ++power) {
    const uint64_t base = uint64_t{1} << power;
    for (uint64_t step = 0; step <= 2; ++step) {
      add(base + step);
      add(base - step);
    }
    // Around the ties of results with `kept` bits.
    for (int kept = 1; kept < std::min(power, 26); ++kept) {
      const uint64_t tie = base + (base >> kept);
      for (const uint64_t even : {uint64_t{0}, base >> (kept - 1)}) {
        for (const uint64_t step : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) add(tie + even + step);
      }
    }
  }
  std::mt19937_64 random(2);
  for (int i = 0; i < 20000; ++i) add(random() >> (random() % 64));
  return inputs;
}

}  // namespace

std::vector<DType> all_dtypes() {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

std::vector<uint64_t> conversion_inputs(DType from) {
  if (from == DType::boolean) return {0, 1};
  if (from == DType::f32) return f32_inputs();
  if (from == DType::f64) return f64_inputs();
  if (bits(from) > 16) return wide_integer_inputs(from);
  std::vector<uint64_t> inputs;
  for (uint64_t code = 0; code < uint64_t{1} << bits(from); ++code) inputs.push_back(code);
  return inputs;
}

uint64_t converted(DType from, DType to, uint64_t bits) {
  if (is_float(from)) {
    const double value = value_of(from, bits);
    if (to == DType::f64) return f64_bits(value);
    if (is_float(to)) return reference::encode(to, value);
    if (to == DType::boolean) return value != 0 ? 1 : 0;
    return float_to_integer(value, to);
  }
  if (to == DType::f64) {
    const Integer whole = integer_value(from, bits);
    const auto magnitude = static_cast<double>(whole.magnitude);
    return f64_bits(whole.negative ? -magnitude : magnitude);
  }
  if (is_float(to)) return reference::encode(to, as_double(integer_value(from, bits)));
  if (to == DType::boolean) return bits != 0 ? 1 : 0;
  const Integer value = integer_value(from, bits);
  return low_bits(tessera::bits(to), value.negative ? ~value.magnitude + 1 : value.magnitude);
}

codegen::Program conversion_program(DType from, int64_t count) {
  constexpr int kWidth = 8;
  ProgramBuilder k(fmt::format("convert_from_{}", name(from)), kConversionTile / kWidth);
  const std::vector<Expr> shape = {number(count)};
  const ArrayRef x = k.input("x", from, shape);
  k.grid({number(count / kConversionTile)});
  const Expr block = k.block("block", 0);
  const Expr offset =
      k.let("offset", wide(block) * number(kConversionTile) + wide(k.thread() * number(kWidth)));
  const ArrayRef x_frag = k.registers("x_frag", from, kWidth);
  if (from == DType::e2m1) {
    k.load({x_frag, number(0)}, x, offset, kWidth);
  } else {
    k.unrolled("i", kWidth, [&](const Expr& i) { k.load({x_frag, i}, x, offset + wide(i), 1); });
  }
  const auto store = [&](const ArrayRef& y, const ArrayRef& y_frag) {
    if (y->dtype == DType::e2m1) {
      k.store(y, offset, {y_frag, number(0)}, kWidth);
    } else {
      k.unrolled("i", kWidth, [&](const Expr& i) { k.store(y, offset + wide(i), {y_frag, i}, 1); });
    }
  };
  for (const DType to : all_dtypes()) {
    if (to == from) continue;
    const ArrayRef as = k.output(fmt::format("as_{}", name(to)), to, shape);
    const ArrayRef pairs = k.output(fmt::format("pairs_{}", name(to)), to, shape);
    k.comment(fmt::format("{} to {}", name(from), name(to)));
    const ArrayRef as_frag = k.registers("as_frag", to, kWidth);
    k.unrolled("i", kWidth, [&](const Expr& i) {
      const Expr element = k.load("element", x_frag, i);
      k.store(as_frag, i, ir::cast(to, element));
    });
    store(as, as_frag);
    const ArrayRef pairs_frag = k.registers("pairs_frag", to, kWidth);
    k.convert({pairs_frag, number(0)}, {x_frag, number(0)}, kWidth);
    store(pairs, pairs_frag);
  }
  return k.finish();
}

std::vector<uint8_t> packed(DType dtype, const std::vector<uint64_t>& elements) {
  std::vector<uint8_t> memory;
  if (dtype == DType::e2m1) {
    for (size_t i = 0; i < elements.size(); i += 2) {
      memory.push_back(static_cast<uint8_t>(elements[i] | elements[i + 1] << 4));
    }
    return memory;
  }
  for (const uint64_t element : elements) {
    for (int byte = 0; byte < bytes(dtype); ++byte) {
      memory.push_back(static_cast<uint8_t>(element >> (8 * byte)));
    }
  }
  return memory;
}

std::vector<uint64_t> unpacked(DType dtype, const std::vector<uint8_t>& memory, int64_t count) {
  std::vector<uint64_t> elements;
  const auto size = static_cast<size_t>(bytes(dtype));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    uint64_t element = 0;
    if (dtype == DType::e2m1) {
      element = (memory[i / 2] >> (i % 2 * 4)) & 15u;
    } else {
      for (size_t byte = 0; byte < size; ++byte) {
        element |= uint64_t{memory[i * size + byte]} << (8 * byte);
      }
    }
    elements.push_back(element);
  }
  return elements;
}

std::string first_difference(DType from, DType to, const std::string& form,
                             const std::vector<uint64_t>& inputs,
                             const std::vector<uint64_t>& outputs) {
  size_t wrong = 0;
  size_t first = 0;
  for (size_t i = inputs.size(); i-- > 0;) {
    if (outputs[i] == converted(from, to, inputs[i])) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return "";
  return fmt::format("{} from {}: {} of {} wrong, first 0x{:X} -> 0x{:X}, expected 0x{:X}", form,
                     name(from), wrong, inputs.size(), inputs[first], outputs[first],
                     converted(from, to, inputs[first]));
}

}  // namespace tessera::test
