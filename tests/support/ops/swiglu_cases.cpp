// Cases of the forward ops of the gated activation: with and without each of its optional tensors, padding
// rows, weights of indices that do not exist, values that are clamped, NaN and infinities.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Form {
  int64_t rows = 13, hidden = 384, group = 128;
  std::string layout = "row_major";
  bool round_sf = false, experts = false, weights = false, count = false;
  std::optional<double> clamp = {}, sf_clamp_min = {};
};

OpCase make_case(const std::string& label, HostTensor x, const Form& form) {
  OpCase test;
  test.label = fmt::format("{} {} / {} {}{}{}{}{}", label, to_string(x.view()), form.group,
                           form.layout, form.round_sf ? " rounded" : "",
                           form.experts ? " experts" : "", form.weights ? " weights" : "",
                           form.clamp ? fmt::format(" clamped at {}", *form.clamp) : "");
  test.quantised = true;  // exp
  const int64_t rows = x.shape()[0];
  test.inputs["x"] = std::move(x);
  test.params = {
      {"num_per_channels", form.group}, {"sf_layout", form.layout}, {"round_sf", form.round_sf}};
  if (form.clamp) test.params["swiglu_clamp_value"] = *form.clamp;
  if (form.sf_clamp_min) test.params["sf_clamp_min"] = *form.sf_clamp_min;
  if (form.experts) {
    HostTensor experts(DType::i32, {rows});
    for (int64_t r = 0; r < rows; ++r) {
      const bool is_padding = r % 5 == 3 || r == rows - 1;
      experts.set_value(r, is_padding ? -1 : static_cast<double>(r % 4));
    }
    test.inputs["pos_to_expert"] = std::move(experts);
  }
  if (form.weights) {
    HostTensor slots(DType::i32, {rows});
    for (int64_t r = 0; r < rows; ++r) {
      const double special[] = {-1, 12, -2147483648.0, 2147483647.0};  // 12 is the first outside
      slots.set_value(r, r % 6 == 5 ? special[r / 6 % 4] : static_cast<double>(r * 5 % 12));
    }
    test.inputs["pos_to_token_topk"] = std::move(slots);
    test.inputs["topk_weights"] = random_tensor(DType::f32, {4, 3}, Values::normal, 101);
  }
  if (form.count) {
    HostTensor count(DType::i64, {3});
    for (int64_t i = 0; i < 3; ++i) count.set_value(i, static_cast<double>(1000 * i));
    test.inputs["clamped_count"] = std::move(count);
  }
  return test;
}

HostTensor special_rows(int64_t hidden) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const double pairs[][2] = {{kNan, 1},    {1, kNan},       {kInfinity, 1}, {1, -kInfinity},
                             {-200, 3},    {-kInfinity, 1}, {0, 5},         {-0.0, -2},
                             {1e30, 1e30}, {10, -10},       {0.5, -0.5},    {1e-30, 1e-30}};
  HostTensor x = random_tensor(DType::f32, {std::ssize(pairs), 2 * hidden}, Values::normal, 102);
  for (int64_t row = 0; row < std::ssize(pairs); ++row) {
    x.set_value(row * 2 * hidden + row * 3, pairs[row][0]);
    x.set_value(row * 2 * hidden + hidden + row * 3, pairs[row][1]);
  }
  return x;
}

}  // namespace

std::vector<OpCase> swiglu_forward_and_per_token_cast_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Form& form) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      cases.push_back(make_case(
          "normal", random_tensor(dtype, {form.rows, 2 * form.hidden}, Values::normal, 103), form));
    }
  };
  for (const bool round_sf : {false, true}) {
    for (const int64_t hidden : {128, 384, 1024, 1280}) {
      add({.rows = 5, .hidden = hidden, .round_sf = round_sf});
      add({.rows = 7, .hidden = hidden, .group = hidden, .round_sf = round_sf, .clamp = 0.5});
    }
    add({.layout = "col_major_tma", .round_sf = round_sf, .experts = true});
    add({.round_sf = round_sf, .experts = true, .weights = true});
    add({.round_sf = round_sf, .weights = true, .clamp = 1});
    add({.round_sf = round_sf, .sf_clamp_min = 3.5});
    add({.round_sf = round_sf, .experts = true, .count = true, .clamp = 0.5});
    add({.hidden = 256, .group = 256, .round_sf = round_sf, .count = true, .clamp = 0.75});
    const Form special{.hidden = 128, .round_sf = round_sf, .count = true, .clamp = 10};
    cases.push_back(make_case("special", special_rows(128), special));
    cases.push_back(make_case("special", special_rows(128), {.hidden = 128, .round_sf = round_sf}));
  }
  add({.layout = "packed_ue8m0", .round_sf = true, .experts = true});
  add({.rows = 33,
       .hidden = 640,
       .layout = "packed_ue8m0",
       .round_sf = true,
       .experts = true,
       .weights = true,
       .count = true,
       .clamp = 0.5});
  add({.rows = 0, .count = true, .clamp = 0.5});
  for (const DType dtype :
       {DType::bf16, DType::f32}) {  // rows of padding hold what memory held before
    OpCase padding =
        make_case("NaN and infinity in padding",
                  random_tensor(dtype, {13, 768}, Values::normal, 105), {.weights = true});
    HostTensor& x = padding.inputs.at("x");
    for (int64_t i = 5 * 768; i < 6 * 768; i += 5)
      x.set_value(i, std::numeric_limits<double>::quiet_NaN());
    for (int64_t i = 11 * 768; i < 12 * 768; ++i)
      x.set_value(i, std::numeric_limits<double>::infinity());
    cases.push_back(std::move(padding));
  }
  OpCase no_weights =
      make_case("no weights at all", random_tensor(DType::bf16, {3, 256}, Values::normal, 104),
                {.hidden = 128, .weights = true});
  no_weights.inputs["topk_weights"] = HostTensor(DType::f32, {0, 3});
  cases.push_back(std::move(no_weights));
  return cases;
}

std::vector<OpCase> swiglu_forward_and_per_channel_cast_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, const HostTensor& x, int64_t run, bool round_sf,
                       std::optional<double> clamp) {
    OpCase test;
    test.label =
        fmt::format("{} {} / {}{}{}", label, to_string(x.view()), run, round_sf ? " rounded" : "",
                    clamp ? fmt::format(" clamped at {}", *clamp) : "");
    test.quantised = true;  // exp
    test.inputs["x"] = x;
    test.params = {{"num_per_tokens", run}, {"round_sf", round_sf}};
    if (clamp) test.params["swiglu_clamp_value"] = *clamp;
    cases.push_back(std::move(test));
  };
  for (const int64_t run : {32, 128}) {
    for (const bool round_sf : {false, true}) {
      for (const Dims& shape : {Dims{128, 128}, Dims{256, 384}, Dims{128, 1152}}) {
        add("normal", random_tensor(DType::bf16, shape, Values::normal, 111), run, round_sf, {});
        add("normal", random_tensor(DType::bf16, shape, Values::normal, 112), run, round_sf, 0.5);
      }
      HostTensor special = random_tensor(DType::bf16, {128, 128}, Values::normal, 113);
      const HostTensor pairs = special_rows(64);
      for (int64_t i = 0; i < pairs.size(); ++i) special.set_value(i, pairs.value(i));
      add("special", special, run, round_sf, {});
      add("special", special, run, round_sf, 10);
      add("empty", HostTensor(DType::bf16, {0, 128}), run, round_sf, {});
      add("empty", HostTensor(DType::bf16, {128, 0}), run, round_sf, 1);
    }
  }
  return cases;
}

}  // namespace tessera::test
