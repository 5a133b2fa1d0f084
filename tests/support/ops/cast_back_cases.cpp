// Cases of cast_back and per_token_cast_back: every code with scales of every layout, blocks that
// do not divide the matrix, scales that lie apart.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/reference/scale.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

struct Form {
  DType x = DType::e4m3;
  int64_t tokens = 37, hidden = 576;
  Dims block = {1, 128};
  std::string layout = "row_major";
  std::string out = "bf16";
  int64_t apart = 0;  // elements between rows (row_major) or columns beyond what they need
};

/// Scales of all magnitudes, subnormal, zero, infinite, NaN and negative ones among them; packed
/// ones are any bytes.
HostTensor make_scales(const Form& form) {
  const int64_t rows = ceil_div(form.tokens, form.block[0]);
  const int64_t cols = ceil_div(form.hidden, form.block[1]);
  if (form.layout == "packed_ue8m0") {
    const Dims shape{rows, ceil_div(cols, 4)};
    return random_tensor(DType::i32, shape, {1, rows + form.apart}, Values::bits, 61);
  }
  const bool by_row = form.layout == "row_major";
  const Dims strides = by_row ? Dims{cols + form.apart, 1} : Dims{1, rows + form.apart};
  HostTensor scales = random_tensor(DType::f32, {rows, cols}, strides, Values::normal, 62);
  const double special[] = {0.0,
                            0x1p-149,
                            std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            -1.25,
                            0x1.FFFFFEp127};
  for (int64_t i = 5; i < scales.size(); i += 7) {
    scales.set_value(i, special[static_cast<size_t>(i / 7) % std::size(special)]);
  }
  return scales;
}

OpCase make_case(const Form& form) {
  OpCase test;
  test.label = fmt::format("{} [{}, {}] in {} blocks, {} + {}, to {}", name(form.x), form.tokens,
                           form.hidden, to_string(form.block), form.layout, form.apart, form.out);
  const bool pairs = form.x == DType::e2m1;
  test.inputs["x"] =
      random_tensor(pairs ? DType::i8 : form.x,
                    {form.tokens, pairs ? form.hidden / 2 : form.hidden}, Values::bits, 63);
  test.inputs["x_sf"] = make_scales(form);
  test.params["out_dtype"] = form.out;
  test.params["x_sf_layout"] = form.layout;
  return test;
}

std::vector<Form> forms(const std::vector<Dims>& blocks) {
  std::vector<Form> list;
  for (const DType x : {DType::e4m3, DType::e2m1}) {
    for (const std::string out : {"bf16", "f32"}) {
      for (const std::string layout : {"row_major", "col_major_tma", "packed_ue8m0"}) {
        for (const Dims& block : blocks) {
          list.push_back({x, 37, 576, block, layout, out, 0});
          list.push_back({x, 5, 128, block, layout, out, 3});
        }
        list.push_back({x, 1, 64, blocks.front(), layout, out, 0});
        list.push_back({x, 0, 128, blocks.front(), layout, out, 0});
        list.push_back({x, 130, 1088, blocks.back(), layout, out, 4});
      }
    }
  }
  return list;
}

}  // namespace

std::vector<OpCase> cast_back_cases() {
  std::vector<OpCase> cases;
  for (const Form& form :
       forms({{1, 128}, {32, 32}, {128, 128}, {128, 1}, {1, 1}, {3, 5}, {7, 1000}})) {
    OpCase test = make_case(form);
    test.params["x_block_size"] = std::vector<int64_t>{form.block[0], form.block[1]};
    cases.push_back(std::move(test));
  }
  return cases;
}

std::vector<OpCase> per_token_cast_back_cases() {
  std::vector<OpCase> cases;
  for (const Form& form : forms({{1, 64}, {1, 128}, {1, 32}, {1, 576}, {1, 1}, {1, 7}})) {
    if (form.block[1] > form.hidden) continue;
    OpCase test = make_case(form);
    test.params["num_per_channels"] = form.block[1];
    cases.push_back(std::move(test));
  }
  return cases;
}

}  // namespace tessera::test
