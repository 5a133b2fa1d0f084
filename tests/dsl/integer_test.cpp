// Results of integer operations for every dtype: against wide arithmetic, and the executor's loops.

#include "dsl/ir/integer.h"

#include <random>

#include "tests/support/catch.h"

using namespace tessera;
using ir::compute;
using ir::compute_exactly;
using ir::Op;

namespace {

constexpr DType kTypes[] = {DType::i8,  DType::u8,  DType::i16, DType::u16,
                            DType::i32, DType::u32, DType::i64, DType::u64};

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

/// Values near the ends of a dtype and near 0, and any.
int64_t draw(std::mt19937_64& random, DType type) {
  const int64_t near = static_cast<int64_t>(random() % 5) - 2;
  const uint64_t end = uint64_t{1} << (bits(type) - 1);
  const int64_t values[] = {near, static_cast<int64_t>(end + static_cast<uint64_t>(near)),
                            static_cast<int64_t>(random())};
  return ir::wrap(type, values[random() % 3]);
}

/// The value in 128 bits, where nothing wraps.
Wide wide(DType type, int64_t value) {
  return type == DType::u64 ? static_cast<Wide>(static_cast<uint64_t>(value))
                            : static_cast<Wide>(value);
}

}  // namespace

TEST_CASE("integer operations wrap like two's complement of any width", "[integer]") {
  std::mt19937_64 random(7);
  for (const DType type : kTypes) {
    for (int i = 0; i < 2000; ++i) {
      const int64_t a = draw(random, type), b = draw(random, type);
      CAPTURE(name(type), a, b);
      const Wide x = wide(type, a), y = wide(type, b);
      const auto wrapped = [&](Wide exact) {
        return ir::wrap(type, static_cast<int64_t>(static_cast<uint64_t>(exact)));
      };
      CHECK(compute(Op::add, type, a, b) == wrapped(x + y));
      CHECK(compute(Op::sub, type, a, b) == wrapped(x - y));
      CHECK(
          compute(Op::mul, type, a, b) ==
          wrapped(static_cast<Wide>(static_cast<UnsignedWide>(x) * static_cast<UnsignedWide>(y))));
      CHECK(compute(Op::min, type, a, b) == wrapped(x < y ? x : y));
      CHECK(compute(Op::max, type, a, b) == wrapped(x < y ? y : x));
      CHECK(compute(Op::lt, type, a, b) == (x < y ? 1 : 0));
      CHECK(compute(Op::le, type, a, b) == (x <= y ? 1 : 0));
      if (b != 0) {
        CHECK(compute(Op::div, type, a, b) == wrapped(x / y));
        CHECK(compute(Op::mod, type, a, b) == wrapped(x % y));
      }
    }
  }
}

TEST_CASE("a division by zero gives all ones and the dividend", "[integer]") {
  CHECK(compute(Op::div, DType::i32, 5, 0) == -1);
  CHECK(compute(Op::div, DType::u8, 5, 0) == 255);
  CHECK(compute(Op::mod, DType::u8, 5, 0) == 5);
  CHECK(compute(Op::div, DType::i32, INT32_MIN, -1) == INT32_MIN);
  CHECK(compute(Op::mod, DType::i32, INT32_MIN, -1) == 0);
}

TEST_CASE("shifts by the width or more give 0 or the sign", "[integer]") {
  CHECK(compute(Op::shl, DType::i32, 1, 31) == INT32_MIN);
  CHECK(compute(Op::shl, DType::u8, 255, 8) == 0);
  CHECK(compute(Op::shr, DType::i8, -128, 200) == -1);
  CHECK(compute(Op::shr, DType::u64, -1, 63) == 1);
}

TEST_CASE("exact results are those that the dtype has", "[integer]") {
  std::mt19937_64 random(11);
  for (const DType type : kTypes) {
    for (int i = 0; i < 2000; ++i) {
      const int64_t a = draw(random, type), b = draw(random, type);
      if (type == DType::u64 && (a < 0 || b < 0)) {
        CHECK(compute_exactly(Op::lt, type, a, b) == std::nullopt);
        continue;
      }
      CAPTURE(name(type), a, b);
      for (const Op op : {Op::add, Op::sub, Op::mul}) {
        const Wide x = a, y = b;
        const Wide exact = op == Op::add ? x + y : op == Op::sub ? x - y : x * y;
        const bool held =
            exact == static_cast<int64_t>(exact) && ir::fits(type, static_cast<int64_t>(exact));
        const auto result = compute_exactly(op, type, a, b);
        CHECK(result.has_value() == held);
        if (held) CHECK(result == static_cast<int64_t>(exact));
      }
    }
  }
  CHECK(compute_exactly(Op::div, DType::i32, INT32_MIN, -1) == std::nullopt);
  CHECK(compute_exactly(Op::div, DType::i32, 1, 0) == std::nullopt);
  CHECK(compute_exactly(Op::shl, DType::i32, 1, 1) == std::nullopt);
  CHECK(compute_exactly(Op::copysign, DType::f32, 1, 1) == std::nullopt);
}
