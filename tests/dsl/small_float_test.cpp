// The host's conversions of small floats against their definition.

#include "dsl/base/small_float.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/reference/numeric.h"
#include "tests/support/catch.h"

using namespace tessera;

namespace {

template <class Code>
void check_format(DType dtype, Code (*to)(float), float (*from)(Code)) {
  constexpr uint32_t kCodes = uint32_t{std::numeric_limits<Code>::max()} + 1;
  uint32_t wrong = 0;
  for (uint32_t code = 0; code < kCodes; ++code) {
    const float value = from(static_cast<Code>(code));
    const double want = reference::decode(dtype, code);
    const bool is_nan = std::isnan(want);
    wrong += (is_nan ? std::isnan(value) : static_cast<double>(value) == want) ? 0u : 1u;
    wrong += to(value) == (is_nan ? reference::nan_code(dtype) : code) ? 0u : 1u;
  }
  CHECK(wrong == 0);
  // Every 4099th float: all exponents, ties and neighbours of ties among them.
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    wrong += to(value) == reference::encode(dtype, static_cast<double>(value)) ? 0u : 1u;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the host converts small floats as their definition says") {
  check_format<uint16_t>(DType::f16, to_f16, from_f16);
  check_format<uint16_t>(DType::bf16, to_bf16, from_bf16);
  check_format<uint8_t>(DType::e4m3, to_e4m3, from_e4m3);
  check_format<uint8_t>(DType::e5m2, to_e5m2, from_e5m2);
  CHECK(to_bf16(1.00390625f) == 0x3F80);  // a tie goes to the even code
  CHECK(from_bf16(0x3FC0) == 1.5f);
}
