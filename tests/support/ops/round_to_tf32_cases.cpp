// Cases of round_to_tf32: any bits, ties, carries into the exponent, all kinds of NaN, any rank.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

std::vector<OpCase> round_to_tf32_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& shape, Values values, std::string_view word) {
    OpCase test;
    test.label = fmt::format("{} {}", to_string(shape), word);
    test.inputs["x"] = random_tensor(DType::f32, shape, values, 51);
    cases.push_back(std::move(test));
  };
  add({24, 2560}, Values::normal, "normal");
  add({5000}, Values::bits, "bits");
  add({3, 7, 11}, Values::nasty, "nasty");
  for (const Dims& shape :
       {Dims{}, Dims{1}, Dims{2049}, Dims{0}, Dims{4, 0}, Dims{2, 1, 1, 1, 3}}) {
    add(shape, Values::bits, "bits");
  }
  // Around ties, everywhere in the mantissa and at its end, at the ends of the exponents.
  add({2 * 5 * 8 * 7}, Values::normal, "ties");
  HostTensor& ties = cases.back().inputs.at("x");
  int64_t e = 0;
  for (const uint32_t sign : {0U, 0x80000000U}) {
    for (const uint32_t exponent : {0U, 1U, 127U, 254U, 255U}) {
      for (const uint32_t kept : {0U, 1U, 2U, 3U, 0x1FFU, 0x200U, 0x3FEU, 0x3FFU}) {
        for (const uint32_t dropped : {0U, 1U, 0xFFFU, 0x1000U, 0x1001U, 0x1800U, 0x1FFFU}) {
          ties.set_bits(e++, sign | exponent << 23 | kept << 13 | dropped);
        }
      }
    }
  }
  return cases;
}

}  // namespace tessera::test
