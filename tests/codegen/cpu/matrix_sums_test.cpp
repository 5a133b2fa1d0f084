// The arithmetic of matrix instructions against sums that an H200 computed.

#include "codegen/cpu/arithmetic/matrix_sums.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/cpu/arithmetic/hardware_product.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

using namespace tessera;
using namespace tessera::codegen::cpu;

namespace {

struct Recorded {
  std::string dtype, instruction;
  uint32_t before = 0, after = 0;
  std::vector<uint32_t> a, b;
};

/// "bf16 wgmma class 8 c 62761dfd d 7f800000 a 1512 .. b a697 .."
Recorded read_sum(const std::string& line) {
  std::istringstream words(line);
  Recorded sum;
  std::string word;
  words >> sum.dtype >> sum.instruction;
  std::vector<uint32_t>* into = nullptr;
  while (words >> word) {
    if (word == "class") {
      words >> word;
    } else if (word == "c" && into == nullptr) {
      words >> std::hex >> sum.before;
    } else if (word == "d" && into == nullptr) {
      words >> std::hex >> sum.after;
    } else if (word == "a" && into == nullptr) {
      into = &sum.a;
    } else if (word == "b" && into == &sum.a && sum.b.empty()) {
      into = &sum.b;
    } else {
      into->push_back(static_cast<uint32_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return sum;
}

uint32_t integer_sum(const Recorded& sum) {
  uint32_t total = sum.before;
  for (size_t k = 0; k < sum.a.size(); ++k) {
    total += static_cast<uint32_t>(static_cast<int8_t>(sum.a[k]) * static_cast<int8_t>(sum.b[k]));
  }
  return total;
}

uint32_t modelled(const Recorded& sum) {
  if (sum.dtype == "s8") return integer_sum(sum);
  const DType dtype = sum.dtype == "tf32" ? DType::f32 : dtype_from_name(sum.dtype).value();
  const auto count = static_cast<int>(sum.a.size());
  const bool by_mma = sum.instruction == "mma";
  const int depth = kMaxDepth / bytes(dtype);  // zeros where the recorded instruction is shorter
  HardwareProduct product(dtype, dtype, by_mma ? ir::Instruction::mma : ir::Instruction::wgmma, 1,
                          1, depth);
  product.clear();
  for (int k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(k);
    product.set_left(0, k, reinterpret_cast<const std::byte*>(&sum.a[at]));
    product.set_right(0, k, reinterpret_cast<const std::byte*>(&sum.b[at]));
  }
  std::array<uint32_t, 4> even = {sum.before}, odd = {};
  product.add(0, 0, even.data(), odd.data());
  return even[0];
}

/// Checks every sum of the file; returns how many there are.
int check_sums(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  int sums = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("#") || line.empty()) continue;
    const Recorded sum = read_sum(line);
    ++sums;
    if (modelled(sum) == sum.after) continue;
    CAPTURE(line, modelled(sum));
    CHECK(modelled(sum) == sum.after);
  }
  return sums;
}

}  // namespace

TEST_CASE("sums of matrix instructions are those of an H200, to the bit", "[cpu][matrix]") {
  CHECK(check_sums(test::in_source("tests/golden/mma_sums.txt")) == 540);
}

TEST_CASE("all recorded sums of an H200 follow the rule", "[cpu][matrix]") {
  const char* given = std::getenv("TESSERA_GOLDEN_DIR");
  const std::filesystem::path folder =
      given != nullptr && *given != '\0' ? given : test::in_source("../shared/golden");
  const std::filesystem::path path = folder / "mma" / "h200_sums.txt";
  if (!std::filesystem::exists(path)) {
    TESSERA_SKIP("no recorded sums " + path.string() + " (set TESSERA_GOLDEN_DIR)");
  }
  CHECK(check_sums(path) == 9064);
}

TEST_CASE("long sums of 8-bit floats by wgmma lose what is promoted", "[cpu][matrix]") {
  // a = b = 1, 4096 of them, but the first 448 * 448: exact 204799.
  const auto sum_of = [](int promote) {
    const Factor one = factor_of(DType::e4m3, 0x38), most = factor_of(DType::e4m3, 0x7E);
    float total = 0;
    uint32_t part = 0;
    for (int step = 0; step < 128; ++step) {
      std::vector<Factor> a(32, one);
      if (step == 0) a[0] = most;
      part = sum_of_products(part, a.data(), a.data(), 32, kShortSums);
      if ((step + 1) % promote != 0) continue;
      total += std::bit_cast<float>(part);
      part = 0;
    }
    return total;
  };
  CHECK(sum_of(4) == 204672);    // every 128 of k
  CHECK(sum_of(128) == 200704);  // never
}

TEST_CASE("rows of sums have the bits of single sums", "[cpu][matrix]") {
  constexpr int kRows = 3, kColumns = 16;
  std::mt19937 random(11);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::e4m3, DType::e5m2}) {
    const bool is_8_bit = bits(dtype) == 8;
    const int depth = 32 / bytes(dtype), width = bits(dtype);
    const SumRule rule = is_8_bit ? kShortSums : kLongSums;
    for (int round = 0; round < 200; ++round) {
      // Numbers of like sizes, of any size, or any bits: subnormals, infinities, NaN.
      const int kind = round % 3;
      const auto draw = [&](bool is_sum) {
        const auto raw = static_cast<uint32_t>(random());
        const int bits_of_it = is_sum ? 32 : width;
        const uint32_t value = bits_of_it == 32 ? raw : raw & ((1u << bits_of_it) - 1);
        if (kind == 2 || raw % 17 == 0) return raw % 17 == 0 ? 0u : value;
        const bool is_wide = is_sum || dtype == DType::bf16 || dtype == DType::f32;
        const uint32_t exponent = kind == 1 ? raw / 7 % 200 + 20 : 125 + raw / 7 % 4;
        if (is_wide) return (value & ~(0xFFu << (bits_of_it - 9))) | exponent << (bits_of_it - 9);
        return value;
      };
      HardwareProduct product(dtype, dtype, ir::Instruction::wgmma, kRows, kColumns, depth);
      std::vector<Factor> a, b;
      product.clear();
      for (int row = 0; row < kRows; ++row) {
        for (int k = 0; k < depth; ++k) {
          const uint32_t raw = row == 2 && round % 4 == 0 ? 0 : draw(false);  // padding
          a.push_back(factor_of(dtype, raw));
          product.set_left(row, k, reinterpret_cast<const std::byte*>(&raw));
        }
      }
      for (int column = 0; column < kColumns; ++column) {
        for (int k = 0; k < depth; ++k) {
          const uint32_t raw = draw(false);
          b.push_back(factor_of(dtype, raw));
          product.set_right(column, k, reinterpret_cast<const std::byte*>(&raw));
        }
      }
      for (int row = 0; row < kRows; ++row) {
        std::array<uint32_t, kColumns> before{}, after{};
        for (uint32_t& one : before) one = draw(true);
        for (size_t block = 0; block < kColumns / 8; ++block) {
          std::array<uint32_t, 8> sums{};  // the even columns, then the odd ones
          for (size_t j = 0; j < 8; ++j) sums.at(j % 2 * 4 + j / 2) = before.at(block * 8 + j);
          product.add(row, static_cast<int>(block), sums.data(), &sums[4]);
          for (size_t j = 0; j < 8; ++j) after.at(block * 8 + j) = sums.at(j % 2 * 4 + j / 2);
        }
        for (size_t j = 0; j < kColumns; ++j) {
          CAPTURE(dtype, round, row, j, before[j]);
          REQUIRE(after[j] == sum_of_products(before[j], &a[static_cast<size_t>(row * depth)],
                                              &b[j * static_cast<size_t>(depth)], depth, rule));
        }
      }
    }
  }
}
