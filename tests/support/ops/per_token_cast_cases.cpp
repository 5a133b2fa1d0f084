// Cases of per_token_cast: every format, group size, layout and kind of input, ragged rows, ties
// and boundaries.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"
#include "tests/support/ops/cast_values.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Form {
  std::string format = "e4m3";
  int64_t num_per_channels = 128;
  bool round_sf = false;
  std::string sf_layout = "row_major";
};

OpCase make_case(const std::string& label, HostTensor x, const Form& form) {
  OpCase test;
  test.label = fmt::format("{} {} to {} groups of {}{} {}", label, to_string(x.view()), form.format,
                           form.num_per_channels, form.round_sf ? " rounded" : "", form.sf_layout);
  test.inputs["x"] = std::move(x);
  test.params["format"] = form.format;
  test.params["num_per_channels"] = form.num_per_channels;
  test.params["round_sf"] = form.round_sf;
  test.params["sf_layout"] = form.sf_layout;
  return test;
}

// A quantised x with scales in `layout`; `powers_of_two` scales cannot tell (code * s) * inv from
// code * (s * inv).
OpCase make_quantised_case(DType x_dtype, Dims block, const std::string& layout, bool powers_of_two,
                           const Form& form, int64_t num_tokens = 45, int64_t hidden = 384,
                           int64_t apart = 0) {
  const bool pairs = x_dtype == DType::e2m1;
  const int64_t width = pairs ? hidden / 2 : hidden;
  HostTensor x = random_tensor(pairs ? DType::i8 : DType::e4m3, {num_tokens, width},
                               {width + apart, 1}, Values::bits, pairs ? 21 : 22);
  const reference::SfLayout sf_layout = reference::sf_layout_of(layout);
  const int64_t rows = (num_tokens + block[0] - 1) / block[0];
  const int64_t cols = (hidden + block[1] - 1) / block[1];
  HostTensor x_sf = reference::make_scales(sf_layout, rows, cols);
  Random random(23);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int exponent = static_cast<int>(random.below(40)) - 20;
      const double mantissa = powers_of_two ? 1.0 : 1.0 + random.uniform();
      const auto sf = static_cast<float>(std::ldexp(mantissa, exponent));
      reference::store_scale(x_sf, sf_layout, r, c, {sf, 0, static_cast<uint8_t>(exponent + 127)});
    }
  }
  OpCase test = make_case(fmt::format("quantised in {} blocks, {}", to_string(block), layout),
                          std::move(x), form);
  test.inputs["x_sf"] = std::move(x_sf);
  test.params["x_block_size"] = std::vector<int64_t>{block[0], block[1]};
  test.params["x_sf_layout"] = layout;
  return test;
}

// Zeros, infinities, NaN, subnormals and negative numbers as scales of x.
OpCase hostile_input_scales(DType x_dtype, const Form& form) {
  OpCase test = make_quantised_case(x_dtype, {1, 16}, "row_major", false, form, 12, 192);
  test.label = "hostile x_sf, " + test.label;
  const double special[] = {0.0,
                            -0.0,
                            std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            0x1p-149,
                            -1.5,
                            0x1.FFFFFEp127,
                            3.0,
                            1.0};
  HostTensor& x_sf = test.inputs.at("x_sf");
  for (int64_t i = 0; i < x_sf.size(); ++i) {
    x_sf.set_value(i, special[static_cast<size_t>(i * 5 / 3) % std::size(special)]);
  }
  return test;
}

// Rows under every packed scale there is: of zeros, of NaN, of the smallest codes, of the largest,
// of all.
OpCase every_input_exponent(const Form& form) {
  constexpr int64_t kHidden = 128, kExponents = 256;
  const std::vector<std::vector<uint64_t>> contents = {
      {0x00, 0x80}, {0x7F, 0xFF, 0x80}, {0x01, 0x81, 0x00}, {0x7E, 0xFE, 0x38, 0x81, 0x7F}, {}};
  const int64_t kinds = std::ssize(contents), rows = kExponents * kinds;
  OpCase test =
      make_quantised_case(DType::e4m3, {1, kHidden}, "packed_ue8m0", true, form, rows, kHidden);
  test.label = "every x_sf, " + test.label;
  HostTensor &x = test.inputs.at("x"), &x_sf = test.inputs.at("x_sf");
  for (int64_t row = 0; row < rows; ++row) {
    const auto exponent = static_cast<uint8_t>(row / kinds);
    reference::store_scale(x_sf, reference::SfLayout::packed_ue8m0, row, 0, {0, 0, exponent});
    const std::vector<uint64_t>& codes = contents[static_cast<size_t>(row % kinds)];
    for (int64_t c = 0; c < kHidden && !codes.empty(); ++c) {
      x.set_bits(row * kHidden + c, codes[static_cast<size_t>(c) % codes.size()]);
    }
  }
  return test;
}

// Rows of `group` columns whose largest value is the format's: the scale is 1 and the other values
// are ties.
HostTensor tie_rows(DType format, int64_t group) {
  const std::vector<float> values = tie_values(format);
  const int64_t per_row = group - 1;
  const int64_t num_rows = (std::ssize(values) + per_row - 1) / per_row;
  HostTensor x(DType::f32, {num_rows, group});
  for (int64_t row = 0; row < num_rows; ++row) {
    x.set_value(row * group, reference::decode(format, reference::max_finite_code(format)));
    for (int64_t i = 0; i < per_row; ++i) {
      const auto at = static_cast<size_t>((row * per_row + i) % std::ssize(values));
      x.set_bits(row * group + 1 + i, reference::bits_of(values[at]));
    }
  }
  return x;
}

// One group per row: largest values at the boundaries of scale rounding, and special contents.
HostTensor boundary_rows(int64_t hidden) {
  const std::vector<std::vector<double>> starts = boundary_groups();
  HostTensor x(DType::f32, {std::ssize(starts), hidden});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, 0);
  for (int64_t row = 0; row < std::ssize(starts); ++row) {
    const auto& start = starts[static_cast<size_t>(row)];
    for (int64_t i = 0; i < std::ssize(start); ++i) {
      x.set_value(row * hidden + (i * 7 + row) % hidden, start[static_cast<size_t>(i)]);
    }
  }
  return x;
}

void add_plain_cases(std::vector<OpCase>& cases, const std::string& format) {
  const auto normal = [](DType dtype, Dims shape) {
    return random_tensor(dtype, shape, Values::normal, 31);
  };
  for (const bool round_sf : {false, true}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const int64_t group : {16, 32, 64, 128, 576}) {
        cases.push_back(make_case("normal", normal(dtype, {7, 576}), {format, group, round_sf}));
        cases.push_back(make_case("nasty", random_tensor(dtype, {33, 576}, Values::nasty, 32),
                                  {format, group, round_sf}));
      }
      const auto add = [&](Dims shape, int64_t group) {
        cases.push_back(make_case("normal", normal(dtype, shape), {format, group, round_sf}));
      };
      add({0, 256}, 128);
      add({1, 128}, 128);
      add({1, 64}, 128);  // one group, ragged
      add({5, 16}, 16);
      add({3, 320}, 128);  // last group of 64
      add({9, 208}, 64);   // last group of 16
      add({2, 1024}, 1024);
      add({2, 2112}, 2112);
      add({65, 512}, 32);
      add({3, 100}, 32);  // rows of no whole vector
      add({4, 130}, 128);
      add({2, 2}, 16);
      add({4, 0}, 128);
      if (format == "e4m3") add({5, 77}, 16);
    }
    const DType code = dtype_from_name(format).value();
    for (const int64_t group : {16, 128}) {
      cases.push_back(make_case("ties", tie_rows(code, group), {format, group, round_sf}));
    }
    cases.push_back(make_case("boundaries", boundary_rows(128), {format, 128, round_sf}));
    cases.push_back(make_case("boundaries", boundary_rows(16), {format, 16, round_sf}));
    cases.push_back(make_case("pitch",
                              random_tensor(DType::bf16, {6, 512}, {1024, 1}, Values::normal, 33),
                              {format, 128, round_sf}));
    cases.push_back(make_case("odd pitch",
                              random_tensor(DType::f32, {6, 256}, {259, 1}, Values::nasty, 34),
                              {format, 64, round_sf}));
    cases.push_back(make_case("bits", random_tensor(DType::bf16, {20, 256}, Values::bits, 35),
                              {format, 16, round_sf}));
  }
}

}  // namespace

std::vector<OpCase> per_token_cast_cases() {
  std::vector<OpCase> cases;
  add_plain_cases(cases, "e4m3");
  add_plain_cases(cases, "e2m1");
  for (const std::string format : {"e4m3", "e2m1"}) {
    for (const int64_t group : {16, 32, 128, 576}) {
      for (const int64_t tokens : {1, 4, 33}) {
        const HostTensor x = random_tensor(DType::bf16, {tokens, 576}, Values::normal, 41);
        cases.push_back(make_case("layout", x, {format, group, false, "col_major_tma"}));
        cases.push_back(make_case("layout", x, {format, group, true, "col_major_tma"}));
        cases.push_back(make_case("layout", x, {format, group, true, "packed_ue8m0"}));
      }
    }
    for (const int64_t group : {32, 128}) {
      cases.push_back(every_input_exponent({format, group, true, "packed_ue8m0"}));
    }
    for (const DType x_dtype : {DType::e4m3, DType::e2m1}) {
      for (const Dims& block : {Dims{32, 32}, Dims{128, 128}, Dims{1, 64}}) {
        const Form form{format, 32, true, "row_major"};
        cases.push_back(make_quantised_case(x_dtype, block, "row_major", true, form));
        cases.push_back(make_quantised_case(x_dtype, block, "row_major", false, form));
        cases.push_back(make_quantised_case(x_dtype, block, "row_major", false,
                                            {format, 128, false, "col_major_tma"}));
        cases.push_back(make_quantised_case(x_dtype, block, "col_major_tma", false, form));
        cases.push_back(make_quantised_case(x_dtype, block, "packed_ue8m0", true,
                                            {format, 128, true, "packed_ue8m0"}));
      }
      for (const int64_t group : {16, 32, 64, 128}) {
        const Form form{format, group, false, "row_major"};
        cases.push_back(make_quantised_case(x_dtype, {3, 16}, "row_major", false, form, 7, 576));
        cases.push_back(make_quantised_case(x_dtype, {2, 1024}, "col_major_tma", false, form, 9));
        cases.push_back(make_quantised_case(x_dtype, {64, 128}, "packed_ue8m0", true, form, 65));
        cases.push_back(make_quantised_case(x_dtype, {1, group}, "row_major", false, form, 5, 80));
        cases.push_back(make_quantised_case(x_dtype, {1, 16}, "row_major", false, form, 1, 16));
      }
      const Form form{format, 64, true, "packed_ue8m0"};
      cases.push_back(make_quantised_case(x_dtype, {32, 32}, "row_major", false, form, 6, 192, 64));
      cases.push_back(make_quantised_case(x_dtype, {32, 32}, "row_major", false, form, 6, 192, 7));
      cases.push_back(make_quantised_case(x_dtype, {32, 32}, "row_major", false, form, 3, 102));
      cases.push_back(make_quantised_case(x_dtype, {32, 32}, "packed_ue8m0", true, form, 0, 64));
      cases.push_back(hostile_input_scales(x_dtype, form));
    }
  }
  return cases;
}

}  // namespace tessera::test
