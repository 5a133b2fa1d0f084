// Cases of per_block_cast and of the ops that do one half of it: every format, block, layout and
// rounding, ragged blocks, ties and boundaries.

#include <fmt/format.h>

#include <limits>

#include "tests/reference/numeric.h"
#include "tests/support/ops/cast_values.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Form {
  std::string format = "e4m3";
  Dims block = {128, 128};
  bool round_sf = false;
  std::string sf_layout = "row_major";
};

OpCase make_case(const std::string& label, HostTensor x, const Form& form) {
  OpCase test;
  test.label = fmt::format("{} {} to {} blocks of {}{} {}", label, to_string(x.view()), form.format,
                           to_string(form.block), form.round_sf ? " rounded" : "", form.sf_layout);
  test.inputs["x"] = std::move(x);
  test.params["format"] = form.format;
  test.params["block_size"] = std::vector<int64_t>{form.block[0], form.block[1]};
  test.params["round_sf"] = form.round_sf;
  test.params["sf_layout"] = form.sf_layout;
  return test;
}

// Two blocks of 32 x 32 whose largest value is the format's: the scale is 1 and the other values are
// ties.
HostTensor tie_blocks(DType dtype, DType format) {
  const std::vector<float> values = tie_values(format);
  HostTensor x(dtype, {32, 64});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, static_cast<double>(values[static_cast<size_t>(i) % values.size()]));
  }
  for (const int64_t first : {0, 32}) {
    x.set_value(first, reference::decode(format, reference::max_finite_code(format)));
  }
  return x;
}

// One group of boundary values per block, scattered over its rows and columns.
HostTensor boundary_blocks(DType dtype, Dims block) {
  constexpr int64_t kBlocksPerRow = 4;
  const std::vector<std::vector<double>> groups = boundary_groups();
  const int64_t rows = (std::ssize(groups) + kBlocksPerRow - 1) / kBlocksPerRow * block[0];
  const int64_t hidden = kBlocksPerRow * block[1];
  HostTensor x(dtype, {rows, hidden});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, 0);
  for (int64_t b = 0; b < std::ssize(groups); ++b) {
    const auto& group = groups[static_cast<size_t>(b)];
    for (int64_t i = 0; i < std::ssize(group); ++i) {
      const int64_t row = b / kBlocksPerRow * block[0] + (i * 7 + b * 5) % block[0];
      const int64_t col = b % kBlocksPerRow * block[1] + (i * 11 + b * 3) % block[1];
      x.set_value(row * hidden + col, group[static_cast<size_t>(i)]);
    }
  }
  return x;
}

void add_cases(std::vector<OpCase>& cases, const std::string& format, bool round_sf) {
  const auto add = [&](const std::string& label, HostTensor x, Dims block,
                       const std::string& layout = "row_major") {
    cases.push_back(make_case(label, std::move(x), {format, block, round_sf, layout}));
  };
  const DType code = dtype_from_name(format).value();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Dims& block : {Dims{32, 32}, Dims{32, 128}, Dims{128, 32}, Dims{128, 128}}) {
      for (const Dims& shape : {Dims{0, 64}, Dims{1, 64}, Dims{4, 0}, Dims{45, 192}}) {
        add("normal", random_tensor(dtype, shape, Values::normal, 71), block);
      }
      add("nasty", random_tensor(dtype, {130, 320}, Values::nasty, 72), block);
      add("bits", random_tensor(dtype, {32, 256}, Values::bits, 73), block);
    }
    add("normal", random_tensor(dtype, {256, 576}, Values::normal, 74), {128, 128});
    add("normal", random_tensor(dtype, {3, 7168}, Values::normal, 75), {32, 32});
    add("ties", tie_blocks(dtype, code), {32, 32});
    add("boundaries", boundary_blocks(dtype, {32, 32}), {32, 32});
    add("boundaries", boundary_blocks(dtype, {32, 128}), {32, 128});
    for (const int64_t tokens : {1, 33, 130}) {
      const HostTensor x = random_tensor(dtype, {tokens, 320}, Values::normal, 76);
      for (const Dims& block : {Dims{32, 32}, Dims{128, 128}}) {
        add("layout", x, block, "col_major_tma");
        if (round_sf) add("layout", x, block, "packed_ue8m0");
      }
    }
  }
}

/// Zeros of both signs, infinities, NaN, subnormals and negative scales in rows that lie apart.
OpCase hostile_scales(const std::string& format) {
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN(),
                                      0x1p-149,
                                      0x1p-127,
                                      -1.5,
                                      3.0,
                                      0x1.FFFFFEp127};
  OpCase test;
  test.label = "hostile scales to " + format;
  test.params = {{"format", format}, {"block_size", std::vector<int64_t>{32, 32}}};
  test.inputs["x"] = random_tensor(DType::f32, {90, 192}, Values::nasty, 77);
  HostTensor sf(DType::f32, {3, 6}, {9, 1});
  for (int64_t i = 0; i < sf.size(); ++i) {
    sf.set_value(i, values[static_cast<size_t>(i) % values.size()]);
  }
  test.inputs["sf"] = std::move(sf);
  return test;
}

}  // namespace

std::vector<OpCase> per_block_cast_cases() {
  std::vector<OpCase> cases;
  for (const std::string format : {"e4m3", "e2m1"}) {
    for (const bool round_sf : {false, true}) add_cases(cases, format, round_sf);
  }
  return cases;
}

std::vector<OpCase> per_block_cast_with_sf_only_cases() {
  std::vector<OpCase> cases = per_block_cast_cases();
  HostTensor x = tie_blocks(DType::bf16, DType::e4m3);
  x.set_value(x.size() - 1, 4096);
  cases.push_back(make_case("largest value in the last column", std::move(x),
                            {.format = "e4m3", .block = {32, 32}}));
  return cases;
}

std::vector<OpCase> per_block_cast_with_precomputed_sf_cases() {
  std::vector<OpCase> cases;
  for (OpCase& test : per_block_cast_cases()) {
    if (std::get<std::string>(test.params.at("sf_layout")) != "row_major") continue;
    HostTensors whole = reference::runner("per_block_cast")(test.inputs, test.params);
    test.inputs["sf"] = std::move(whole.at("out_sf"));
    test.params.erase("sf_layout");
    test.params.erase("round_sf");
    cases.push_back(std::move(test));
  }
  cases.push_back(hostile_scales("e4m3"));
  cases.push_back(hostile_scales("e2m1"));
  return cases;
}

}  // namespace tessera::test
