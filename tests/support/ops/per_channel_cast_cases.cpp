// Cases of the ops that cast columns: values of all kinds, one tile and many, gathered rows.

#include <fmt/format.h>

#include <optional>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

/// Columns of different magnitude, runs of tokens as well; some are all zero.
HostTensor graded(int64_t tokens, int64_t hidden, DType dtype = DType::bf16) {
  HostTensor x = random_tensor(dtype, {tokens, hidden}, Values::normal, 91);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t t = i / hidden, h = i % hidden;
    x.set_value(i, x.value(i) * static_cast<double>((h * 7 + t / 32) % 11));
  }
  return x;
}

/// Indices of rows in no order, some twice; padding, and some that x does not have.
HostTensor gather_index(int64_t positions, int64_t tokens) {
  HostTensor index(DType::i32, {positions});
  for (int64_t p = 0; p < positions; ++p) {
    const double special[] = {-1, -7, static_cast<double>(tokens), 2147483647.0};
    index.set_value(
        p, p % 9 == 4 || tokens == 0 ? special[p / 9 % 4] : static_cast<double>(p * 37 % tokens));
  }
  return index;
}

/// Codes of all kinds, or values.
OpCase fused_case(DType dtype, Dims shape, std::optional<int64_t> positions, bool round_sf) {
  OpCase test;
  const bool has_scales = dtype == DType::e4m3;
  test.label =
      fmt::format("{} {}{}{}", name(dtype), to_string(shape),
                  positions ? fmt::format(" at {}", *positions) : "", round_sf ? " rounded" : "");
  test.inputs["x"] = graded(shape[0], shape[1], dtype);
  test.params = {{"round_sf", round_sf}};
  if (has_scales) {
    test.inputs["x_sf"] =
        random_tensor(DType::f32, {shape[0], shape[1] / 128}, Values::uniform, 94);
    test.params["num_per_channels"] = int64_t{128};
  }
  if (positions) test.inputs["pos_to_token"] = gather_index(*positions, shape[0]);
  return test;
}

}  // namespace

std::vector<OpCase> per_channel_cast_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const bool round_sf : {false, true}) {
      const auto add = [&](const std::string& label, const HostTensor& x) {
        OpCase test;
        test.label = fmt::format("{} {}{}", label, to_string(x.view()), round_sf ? " rounded" : "");
        test.inputs["x"] = x;
        test.params = {{"round_sf", round_sf}};
        cases.push_back(std::move(test));
      };
      for (const Dims& shape : {Dims{128, 64}, Dims{256, 192}, Dims{128, 576}, Dims{384, 128}}) {
        add("graded", graded(shape[0], shape[1], dtype));
      }
      add("nasty", random_tensor(dtype, {256, 128}, Values::nasty, 92));
      add("bits", random_tensor(dtype, {128, 128}, Values::bits, 93));
      add("empty", HostTensor(dtype, {0, 64}));
      add("empty", HostTensor(dtype, {128, 0}));
    }
  }
  return cases;
}

std::vector<OpCase> per_channel_cast_fused_cases() {
  std::vector<OpCase> cases;
  for (const bool round_sf : {false, true}) {
    for (const DType dtype : {DType::bf16, DType::f32, DType::e4m3}) {
      const auto add = [&](Dims shape, std::optional<int64_t> positions) {
        cases.push_back(fused_case(dtype, shape, positions, round_sf));
      };
      add({128, 256}, {});
      add({256, 640}, {});
      add({37, 384}, 128);
      add({1, 128}, 16);     // one row, a run that is cut short
      add({200, 256}, 400);  // the last run has 16 rows
      add({3, 128}, 144);
      add({0, 128}, 32);  // no row at all: padding
      add({5, 128}, 0);
      add({128, 0}, {});
      if (dtype != DType::e4m3) add({19, 100}, 48);  // columns that no tile divides
      if (dtype != DType::e4m3) add({7, 1}, 16);
      OpCase padding = fused_case(dtype, {9, 128}, 256, round_sf);
      padding.label += " with a run of padding";
      for (int64_t p = 128; p < 256; ++p) padding.inputs.at("pos_to_token").set_value(p, -1);
      cases.push_back(std::move(padding));
      for (const Values values : {Values::nasty, Values::bits}) {
        OpCase hostile = fused_case(dtype, {128, 128}, 128, round_sf);
        hostile.label += values == Values::nasty ? " nasty" : " bits";
        fill_random(hostile.inputs.at("x"), values, 95);
        if (dtype == DType::e4m3) fill_random(hostile.inputs.at("x_sf"), Values::nasty, 96);
        cases.push_back(std::move(hostile));
      }
    }
  }
  return cases;
}

std::vector<OpCase> per_channel_cast_and_transpose_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, const HostTensor& x, int64_t run, bool round_sf) {
    OpCase test;
    test.label =
        fmt::format("{} {} / {}{}", label, to_string(x.view()), run, round_sf ? " rounded" : "");
    test.inputs["x"] = x;
    test.params = {{"num_per_tokens", run}, {"round_sf", round_sf}};
    cases.push_back(std::move(test));
  };
  for (const int64_t run : {32, 128}) {
    for (const bool round_sf : {false, true}) {
      for (const Dims& shape : {Dims{128, 64}, Dims{256, 192}, Dims{128, 576}, Dims{384, 128}}) {
        add("graded", graded(shape[0], shape[1]), run, round_sf);
      }
      add("nasty", random_tensor(DType::bf16, {256, 128}, Values::nasty, 92), run, round_sf);
      add("bits", random_tensor(DType::bf16, {128, 128}, Values::bits, 93), run, round_sf);
      add("empty", HostTensor(DType::bf16, {0, 64}), run, round_sf);
      add("empty", HostTensor(DType::bf16, {128, 0}), run, round_sf);
    }
  }
  return cases;
}

}  // namespace tessera::test
