// Cases of rotary position embedding: both kinds of pairs and tables, all dtypes, slices of wider heads,
// one and two token dimensions, positions that the table lacks.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Size {
  Dims tokens = {5};
  int64_t heads = 3, key_heads = 0, channels = 64, angles = 40;
  DType dtype = DType::bf16;
};

Dims shape_of(const Size& s, int64_t heads) {
  Dims shape = s.tokens;
  shape.push_back(heads);
  shape.push_back(s.channels);
  return shape;
}

OpCase rotary_case(const Size& s, kernels::Params params = {}, Values values = Values::normal) {
  OpCase test;
  test.label = fmt::format("tokens={} h={} g={} R={} {}", to_string(s.tokens), s.heads, s.key_heads,
                           s.channels, name(s.dtype));
  for (const auto& [param, value] : params) {
    if (const bool* flag = std::get_if<bool>(&value); flag != nullptr && *flag) {
      test.label += " " + param;
    }
  }
  test.inputs["cos_sin"] = random_tensor(DType::f32, {s.angles, s.channels}, Values::normal, 21);
  test.inputs["query"] = random_tensor(s.dtype, shape_of(s, s.heads), values, 22);
  if (s.key_heads > 0) {
    test.inputs["key"] = random_tensor(s.dtype, shape_of(s, s.key_heads), values, 23);
  }
  test.params = std::move(params);
  return test;
}

OpCase at_positions(OpCase test, DType dtype, int64_t bound, int64_t lowest = 0) {
  const Dims& shape = test.inputs.at("query").shape();
  Dims tokens = {shape[0]};
  if (shape.rank == 4) tokens.push_back(shape[1]);
  Random random(24);
  test.label += fmt::format(" positions {}", name(dtype));
  test.inputs["positions"] =
      tensor_by(dtype, tokens, [&](int64_t) { return lowest + random.below(bound); });
  return test;
}

void add_layouts(std::vector<OpCase>& cases) {
  const Size wide = {{9}, 4, 1, 64, 40, DType::bf16};
  cases.push_back(strided(rotary_case(wide), "query", {2048, 512, 1}));  // the tail of each head
  cases.push_back(strided(rotary_case(wide), "query", {2052, 516, 1}));  // accesses of 8 bytes
  cases.push_back(strided(rotary_case(wide), "query", {2051, 517, 1}));  // of one element
  cases.push_back(strided(rotary_case(wide), "query", {1, 9, 36}));      // no neighbours
  cases.push_back(strided(rotary_case(wide), "key", {72, 64, 1}));
  cases.push_back(strided(rotary_case(wide), "cos_sin", {66, 1}));
  cases.push_back(strided(rotary_case(wide), "cos_sin", {67, 1}));
  const kernels::Params pairs = {{"interleaved", true}, {"cos_sin_layout", std::string("pairs")}};
  cases.push_back(strided(rotary_case(wide, pairs), "cos_sin", {66, 1}));
  cases.push_back(strided(rotary_case(wide, pairs), "query", {2051, 517, 1}));
  const Size batch = {{2, 5}, 3, 2, 64, 40, DType::f32};
  cases.push_back(rotary_case(batch, {{"position_offset", int64_t{3}}}));
  cases.push_back(at_positions(rotary_case(batch), DType::i64, 40));
  cases.push_back(strided(rotary_case(batch), "query", {64, 384, 128, 1}));  // sequence first
  cases.push_back(rotary_case({{1, 5}, 3, 0, 64, 40, DType::bf16}));
  cases.push_back(rotary_case({{5, 1}, 3, 0, 64, 40, DType::bf16}));
}

}  // namespace

std::vector<OpCase> apply_rotary_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const int64_t channels : {64, 128}) {
      for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
        const bool halves = (options & 4) == 0;
        cases.push_back(
            rotary_case({{5}, 3, options % 3, channels, 40, dtype},
                        {{"interleaved", (options & 1) != 0},
                         {"conjugate", (options & 2) != 0},
                         {"cos_sin_layout", std::string(halves ? "halves" : "pairs")}}));
      }
      cases.push_back(rotary_case({{17}, 1, 1, channels, 40, dtype}, {}, Values::nasty));
      cases.push_back(at_positions(rotary_case({{33}, 2, 0, channels, 40, dtype}), DType::i32, 40));
    }
    cases.push_back(
        at_positions(rotary_case({{33}, 2, 1, 64, 40, dtype}, {{"position_offset", int64_t{-7}}}),
                     DType::i64, 40, 7));
    cases.push_back(rotary_case({{1}, 64, 1, 64, 1, dtype}));
    cases.push_back(rotary_case({{0}, 4, 1, 64, 3, dtype}));
    cases.push_back(rotary_case({{0, 7}, 4, 0, 64, 3, dtype}));
  }
  cases.push_back(rotary_case({{513}, 64, 1, 64, 520, DType::bf16}));  // several heads per thread
  cases.push_back(rotary_case({{6600}, 5, 2, 64, 6600, DType::bf16}, {{"interleaved", true}}));
  add_layouts(cases);
  OpCase unknown = rotary_case({{8}, 2, 1, 64, 40, DType::f32}, {{"position_offset", int64_t{1}}});
  unknown.label += " positions out of range";
  unknown.inputs["positions"] =
      tensor_of(DType::i64, {8}, {-1, -2, 38, 39, 4294967296, 9e18, -9e18, 7});
  cases.push_back(std::move(unknown));
  OpCase beyond = rotary_case({{6}, 2, 0, 64, 4, DType::bf16});
  beyond.label += " more tokens than angles";
  cases.push_back(std::move(beyond));
  return cases;
}

}  // namespace tessera::test
