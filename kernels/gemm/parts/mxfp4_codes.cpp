#include "kernels/gemm/parts/mxfp4_codes.h"

#include <vector>

#include "kernels/quant/parts/byte_perm.h"

namespace tessera::kernels::gemm {

using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kTables = 256;    // one for every byte
constexpr int64_t kDifferent = 32;  // the others are zeros, as the last of these

/// The e4m3 codes of 0, 1/2, 1, 3/2 (half 0) or 2, 3, 4, 6 with a shift, the first lowest.
uint32_t magnitudes(int64_t shift, int64_t half) {
  // Twice the magnitudes times 2^(u - 9), in steps of 2^-9, the least number of e4m3.
  constexpr int64_t kTwice[2][4] = {{0, 1, 2, 3}, {4, 6, 8, 12}};
  constexpr uint32_t kRounded[4][2] = {{0x02010000, 0x06040302},  // ties to even
                                       {0x01000000, 0x03020201},
                                       {0x00000000, 0x02010100},
                                       {0x00000000, 0x01000000}};
  if (shift == kMxNan) return 0x7F7F7F7F;
  if (shift > kMxNan) return shift - 16 < 4 ? kRounded[shift - 16][half] : 0;
  uint32_t codes = 0;
  for (int64_t i = 0; i < 4; ++i) {
    int64_t steps = kTwice[half][i] << shift;
    int64_t exponent = 0;  // of numbers of 4 bits; those below 8 are subnormal
    while (steps >= 16) steps /= 2, ++exponent;
    const int64_t code = steps < 8 ? steps : (exponent + 1) * 8 + steps - 8;
    codes |= static_cast<uint32_t>(code) << (8 * i);
  }
  return codes;
}

}  // namespace

namespace {

constexpr int32_t kBf16Tables = 129, kBf16Zeros = 127, kBf16Nan = 128;

/// Bytes of the bf16 of four magnitudes times 2^-shift: low ones or high ones.
Value bf16_bytes(dsl::Builder& k, const Value& shift, const Value& part) {
  constexpr uint32_t kBits[] = {0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
  const dsl::Table table = k.table(DType::u32, std::vector<dsl::Arg>(kBits, kBits + 8));
  Value bytes = dsl::u32(0);
  for (uint32_t i = 0; i < 4; ++i) {
    auto code = k.let("code", table(part % 2 * 4 + static_cast<int32_t>(i)));
    // 2^-127, the only subnormal number: bf16 keeps it, its exponent alone would be 0.
    const Value is_least = code == 0x3F00u && shift == 126;
    auto bits = select(code == 0u || shift >= kBf16Zeros, 0u,
                       select(is_least, 0x0040u, code - (dsl::u32(shift) << 7)));
    bits = select(shift == kBf16Nan, 0x7FFFu, bits);
    bytes = bytes | ((select(part < 2, bits, bits >> 8) & 255u) << (8 * i));
  }
  return bytes;
}

/// Bits of the shifts of a block that count, if so many columns are left.
Value counted_shifts(dsl::Builder& k, const Value& depth) {
  auto groups = k.let("groups_here", min(ceil_div(max(depth, 0), kMxGroup), 4));
  return k.let("counted", select(groups == 4, 0xFFFFFFFFu, (dsl::u32(1) << (groups * 8)) - 1u));
}

}  // namespace

Ref magnitudes_of_shifts(dsl::Builder& k, Mxfp4Operand operand) {
  if (operand == Mxfp4Operand::bf16) {
    auto all = k.shared(DType::u32, {kBf16Tables, 4}, "magnitudes");
    k.parallel({kBf16Tables, 4},
               [&](Value shift, Value part) { all(shift, part) = bf16_bytes(k, shift, part); });
    return all;
  }
  std::vector<dsl::Arg> codes;
  for (int64_t i = 0; i < 2 * kDifferent; ++i) codes.emplace_back(magnitudes(i / 2, i % 2));
  const dsl::Table table = k.table(DType::u32, codes);
  auto all = k.shared(DType::u32, {kTables, 2}, "magnitudes");
  k.parallel({kTables, 2}, [&](Value shift, Value half) {
    all(shift, half) = table(min(shift, static_cast<int32_t>(kDifferent - 1)) * 2 + half);
  });
  return all;
}

namespace {

/// The four bytes of a word, from `at` on: shifts by constants, which NVRTC sees through.
void split(const Value& word, const Ref& bytes, const Value& at) {
  for (int32_t i = 0; i < 4; ++i) bytes(at + i) = word >> (8 * i);
}

}  // namespace

void decode_e4m3(dsl::Builder& k, const Mxfp4Tile& tile, const Ref& magnitudes, const Value& depth,
                 const Ref& into) {
  const Value counted = counted_shifts(k, depth);
  k.parallel({4 * tile.tiles, 8, 4}, [&](Value warp, Value row, Value lane) {
    auto shifts = k.local(DType::u32, {2}, "shifts");  // of two rows
    k.unrolled(2, [&](Value half) {
      shifts(half) = tile.shifts(warp / 4, warp % 4 * 16 + half * 8 + row) & counted;
    });
    k.unrolled(2, [&](Value pair) {
      auto words = k.local(DType::u32, {4}, "words");
      k.vectorized(4, [&](Value i) {
        words(i) = tile.words(warp / 4, pair * 512 + warp % 4 * 128 + row * 16 + lane * 4 + i);
      });
      k.unrolled(2, [&](Value step) {
        k.unrolled(2, [&](Value half) {
          Value of_row = shifts(half), byte = dsl::u32(pair * 2 + step);
          auto at = k.let("shift", dsl::i32(byte_perm(k, of_row, 0u, byte + 0x4440u)));
          auto table = k.local(DType::u32, {2}, "table");
          k.vectorized(2, [&](Value i) { table(i) = magnitudes(at, i); });
          auto word = k.let("word", words(step * 2 + half));
          auto selectors = k.let("selectors", word & 0x77777777u);
          auto codes = k.local(DType::u32, {8}, "codes");
          split(k.let("low", byte_perm(k, table(0), table(1), selectors) | (word & 0x80808080u)),
                codes, dsl::i32(0));
          split(k.let("high", byte_perm(k, table(0), table(1), selectors >> 16) |
                                  ((word << 4) & 0x80808080u)),
                codes, dsl::i32(4));
          k.unrolled(2, [&](Value high) {
            k.unrolled(4, [&](Value i) {
              into(warp * 16 + half * 8 + row, pair * 64 + step * 32 + high * 16 + lane * 4 + i) =
                  reinterpret(DType::e4m3, cast(DType::u8, codes(high * 4 + i)));
            });
          });
        });
      });
    });
  });
}

void decode_bf16(dsl::Builder& k, const Mxfp4Tile& tile, const Ref& magnitudes, const Value& number,
                 const Value& depth, const Ref& into) {
  const Value counted = counted_shifts(k, depth + number % 2 * 64);
  auto place = k.let("place", number % 2 * 16);  // of the shifts of the tile in a word
  k.parallel({4 * tile.tiles, 8, 4}, [&](Value warp, Value row, Value lane) {
    auto words = k.local(DType::u32, {4}, "words");
    k.vectorized(4, [&](Value i) {
      words(i) = tile.words(warp / 4, warp % 4 * 128 + row * 16 + lane * 4 + i);
    });
    auto shifts = k.local(DType::u32, {4}, "shifts");  // of two rows
    k.unrolled(2, [&](Value half) {
      auto of_row = k.let(
          "of_row", (tile.shifts(warp / 4, warp % 4 * 16 + half * 8 + row) & counted) >> place);
      shifts(half * 2) = of_row & 255u;
      shifts(half * 2 + 1) = of_row >> 8 & 255u;
    });
    k.unrolled(2, [&](Value group) {
      auto tables = k.local(DType::u32, {8}, "tables");
      k.unrolled(2, [&](Value half) {
        auto shift = k.let("shift", dsl::i32(shifts(half * 2 + group)));
        auto at = k.let("at_shift", select(shift == 255, kBf16Nan, min(shift, kBf16Zeros)));
        k.vectorized(4, [&](Value i) { tables(half * 4 + i) = magnitudes(at, i); });
      });
      k.unrolled(2, [&](Value step) {
        auto word = k.let("word", words(group * 2 + step));
        auto codes = k.local(DType::u32, {8}, "codes");
        for (int32_t half = 0; half < 2; ++half) {
          auto four = k.let("four", (word & 0x77777777u) >> (16 * half));
          auto low = k.let("low", byte_perm(k, tables(half * 4), tables(half * 4 + 1), four));
          auto high = k.let("high", byte_perm(k, tables(half * 4 + 2), tables(half * 4 + 3), four) |
                                        ((word << (4 * half)) & 0x80808080u));
          for (int32_t right = 0; right < 2; ++right) {  // columns 8 further
            auto two =
                k.let("two", byte_perm(k, low, high, dsl::u32(right == 0 ? 0x5140 : 0x7362)));
            codes(half * 4 + right * 2) = two;
            codes(half * 4 + right * 2 + 1) = two >> 16;
          }
        }
        k.unrolled(2, [&](Value half) {
          k.unrolled(2, [&](Value right) {
            k.unrolled(2, [&](Value i) {
              into(warp * 16 + half * 8 + row, group * 32 + step * 16 + right * 8 + lane * 2 + i) =
                  reinterpret(DType::bf16, cast(DType::u16, codes(half * 4 + right * 2 + i)));
            });
          });
        });
      });
    });
  });
}

}  // namespace tessera::kernels::gemm
