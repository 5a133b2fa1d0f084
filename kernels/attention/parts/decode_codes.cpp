#include "kernels/attention/parts/decode_codes.h"

#include <limits>

#include "kernels/quant/parts/byte_perm.h"

namespace tessera::kernels::attention {

using dsl::Ref;
using dsl::Value;

Value CodeWords::word_of(const Ref& codes, int64_t row, int64_t count) const {
  Value word = dsl::u32(0);
  for (int64_t i = 0; i < count; ++i) {
    Value code = codes(row, i);
    word = word | (dsl::u32(reinterpret(DType::u8, code)) << static_cast<uint32_t>(8 * i));
  }
  return k_.let("codes_of_word", word);
}

void CodeWords::decode(const Value& first, int64_t low, const Value& second, int64_t high,
                       const Ref& values, int64_t at) const {
  const bool is_bf16 = dtype_ == DType::bf16;
  // Bytes 1 and 3; the others are masked.
  const auto selectors = static_cast<uint32_t>((4 + high) << 12 | low << 4);
  auto spread = k_.let("spread", byte_perm(k_, first, second, dsl::u32(selectors)));
  const Value magnitudes = is_bf16 ? (spread >> 4 & 0x07F007F0u) : (spread >> 1 & 0x3F803F80u);
  auto bits = k_.let("bits", magnitudes | (spread & 0x80008000u));
  auto pair = k_.local(dtype_, {2}, "pair");
  pair(0) = reinterpret(dtype_, cast(DType::u16, bits));
  pair(1) = reinterpret(dtype_, cast(DType::u16, bits >> 16));
  const Value factor = dsl::cast(dtype_, is_bf16 ? 0x1p120F : 0x1p8F);
  k_.vectorized(2, [&](Value i) {
    Value small = pair(i);
    values(at + i) = small * factor;
  });
}

void CodeWords::if_nan(const std::vector<Value>& words, const std::function<void()>& mend) const {
  Value found = dsl::u32(0);
  for (const Value& word : words) found = found | ((word & 0x7F7F7F7Fu) + 0x01010101u);
  k_.if_((found & 0x80808080u) != 0u, mend);
}

void CodeWords::mend(const Value& word, int64_t e, const Ref& element) const {
  Value now = element;
  const Value nan = dsl::cast(dtype_, std::numeric_limits<float>::quiet_NaN());
  element = select((word >> static_cast<uint32_t>(8 * e) & 127u) == 127u, nan, now);
}

}  // namespace tessera::kernels::attention
