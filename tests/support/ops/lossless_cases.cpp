// Cases of per_block_cast_lossless: blocks of all kinds, scales at the ends of their range, scales that
// are too far apart or no powers of two.

#include <fmt/format.h>

#include <limits>

#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Form {
  int64_t tokens = 37, hidden = 512;
  Dims x_block = {1, 32}, out_block = {1, 128};
  std::string x_sf_layout = "row_major", sf_layout = "row_major";
  int lowest = 110, apart = 11;  // exponents of the scales: lowest .. lowest + apart
  int64_t gap = 0;               // elements between rows or columns of scales
};

int64_t blocks(int64_t extent, int64_t block) {
  return (extent + block - 1) / block;
}

HostTensor make_scales(const Form& form) {
  const int64_t rows = blocks(form.tokens, form.x_block[0]);
  const int64_t cols = blocks(form.hidden, form.x_block[1]);
  const auto layout = reference::sf_layout_of(form.x_sf_layout);
  HostTensor scales = reference::make_scales(layout, rows, cols);
  if (form.gap > 0) {
    const bool by_row = layout == reference::SfLayout::row_major;
    const Dims strides = by_row ? Dims{scales.shape()[1] + form.gap, 1} : Dims{1, rows + form.gap};
    scales = HostTensor(scales.dtype(), scales.shape(), strides);
    for (int64_t i = 0; i < scales.size(); ++i) scales.set_bits(i, 0);
  }
  Random random(81);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const auto exponent = static_cast<uint32_t>(form.lowest + random.below(form.apart + 1));
    const float sf = reference::float_of(exponent << 23);
    reference::store_scale(scales, layout, i / cols, i % cols,
                           {sf, 0, static_cast<uint8_t>(exponent)});
  }
  return scales;
}

OpCase make_case(const std::string& label, const Form& form) {
  OpCase test;
  test.label = fmt::format("{} [{}, {}] {} {} to {} {}, exponents from {}, {} apart", label,
                           form.tokens, form.hidden, to_string(form.x_block), form.x_sf_layout,
                           to_string(form.out_block), form.sf_layout, form.lowest, form.apart);
  test.inputs["x"] = random_tensor(DType::i8, {form.tokens, form.hidden / 2}, Values::bits, 82);
  test.inputs["x_sf"] = make_scales(form);
  const auto size = [](const Dims& block) { return std::vector<int64_t>{block[0], block[1]}; };
  test.params["x_block_size"] = size(form.x_block);
  test.params["out_block_size"] = size(form.out_block);
  test.params["x_sf_layout"] = form.x_sf_layout;
  test.params["sf_layout"] = form.sf_layout;
  return test;
}

/// Blocks of zeros of both signs under the smallest scale, beside others: they are exempt from the
/// limit on the distance.
OpCase zero_blocks(const Dims& out_block) {
  OpCase test = make_case("zero blocks", {.tokens = 64, .hidden = 256, .out_block = out_block});
  HostTensor &x = test.inputs.at("x"), &x_sf = test.inputs.at("x_sf");
  for (int64_t i = 0; i < x_sf.size(); i += 3) {
    x_sf.set_bits(i, reference::bits_of(0x1p-126F));
    for (int64_t b = 0; b < 16; ++b) x.set_bits(i * 16 + b, b % 3 == 0 ? 0x80 : b % 3 == 1 ? 0 : 8);
  }
  return test;
}

/// Values that callers promise not to give.
OpCase hostile_scales(const Dims& out_block) {
  OpCase test = make_case("hostile scales", {.tokens = 33, .hidden = 256, .out_block = out_block});
  const double values[] = {3.0,
                           -2.0,
                           0.0,
                           0x1p-149,
                           0x1p-20,
                           std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()};
  HostTensor& x_sf = test.inputs.at("x_sf");
  for (int64_t i = 5; i < x_sf.size(); i += 11) {
    x_sf.set_value(i, values[static_cast<size_t>(i / 11) % std::size(values)]);
  }
  return test;
}

void add_blocks(std::vector<OpCase>& cases, const Dims& x_block, const Dims& out_block) {
  for (const Dims& shape : {Dims{0, 64}, Dims{1, 32}, Dims{45, 96}, Dims{130, 256}}) {
    cases.push_back(make_case("blocks", {shape[0], shape[1], x_block, out_block}));
    cases.push_back(make_case(
        "blocks", {shape[0], shape[1], x_block, out_block, "packed_ue8m0", "packed_ue8m0"}));
  }
}

}  // namespace

std::vector<OpCase> per_block_cast_lossless_cases() {
  std::vector<OpCase> cases;
  const std::pair<Dims, Dims> pairs[] = {
      {{1, 32}, {1, 128}},   {{1, 32}, {32, 32}},    {{1, 32}, {128, 128}}, {{1, 32}, {1, 32}},
      {{1, 16}, {1, 64}},    {{32, 32}, {128, 128}}, {{2, 64}, {4, 256}},   {{3, 16}, {6, 64}},
      {{1, 8}, {1, 32}},     {{1, 1}, {5, 2}},       {{1, 32}, {256, 32}},  {{1, 64}, {1, 8192}},
      {{64, 128}, {64, 128}}};
  for (const auto& [x_block, out_block] : pairs) add_blocks(cases, x_block, out_block);
  const std::string layouts[] = {"row_major", "col_major_tma", "packed_ue8m0"};
  for (const Dims& out_block : {Dims{1, 128}, Dims{32, 32}, Dims{128, 128}, Dims{3, 64}}) {
    for (const std::string& from : layouts) {
      for (const std::string& to : layouts) {
        cases.push_back(make_case("layouts", {37, 576, {1, 32}, out_block, from, to}));
      }
      cases.push_back(
          make_case("gaps", {37, 576, {1, 32}, out_block, from, "row_major", 110, 11, 3}));
      for (const auto& [lowest, apart] : {std::pair{1, 5}, {1, 11}, {240, 11}, {254, 0}}) {
        cases.push_back(
            make_case("ends", {35, 128, {1, 32}, out_block, from, "row_major", lowest, apart}));
        cases.push_back(
            make_case("ends", {35, 128, {1, 32}, out_block, from, "packed_ue8m0", lowest, apart}));
      }
    }
    cases.push_back(zero_blocks(out_block));
    cases.push_back(hostile_scales(out_block));
    cases.push_back(make_case("too far apart",
                              {35, 256, {1, 32}, out_block, "row_major", "row_major", 60, 100}));
    cases.push_back(make_case(
        "too far apart", {35, 256, {1, 32}, out_block, "packed_ue8m0", "packed_ue8m0", 0, 255}));
  }
  cases.push_back(make_case("model", {5, 7168}));
  cases.push_back(make_case("no columns", {5, 0}));
  return cases;
}

}  // namespace tessera::test
