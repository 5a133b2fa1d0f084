// Cases of the ops around the products of experts: moe_gather_cast, swiglu_psum_cast, combine_reduce.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Cast {
  int64_t group = 128;
  bool round_sf = false;
  std::string layout = "row_major";
};

const std::vector<Cast> kCasts = {{128, false, "row_major"},   {32, false, "row_major"},
                                  {128, true, "row_major"},    {32, true, "packed_ue8m0"},
                                  {128, true, "packed_ue8m0"}, {128, false, "col_major_tma"},
                                  {32, false, "col_major_tma"}};

void add_cast(OpCase& test, const Cast& cast) {
  test.label += fmt::format(" / {} {}{}", cast.group, cast.layout, cast.round_sf ? " rounded" : "");
  test.params["num_per_channels"] = cast.group;
  test.params["round_sf"] = cast.round_sf;
  test.params["sf_layout"] = cast.layout;
}

struct Gather {
  int64_t tokens = 7, hidden = 384, rows = 21, topk = 3;
  int64_t padding = 0;  // elements between rows of x
  bool fills = true;
};

OpCase gather(const Gather& g, const Cast& cast, Values values = Values::normal) {
  OpCase test;
  test.label = fmt::format("T={} H={} P={} K={}{}{}", g.tokens, g.hidden, g.rows, g.topk,
                           g.padding > 0 ? " strided" : "", g.fills ? "" : " padding left");
  test.inputs["x"] =
      random_tensor(DType::bf16, {g.tokens, g.hidden}, Dims{g.hidden + g.padding, 1}, values, 31);
  test.inputs["pos_to_pair"] = tensor_by(DType::i32, {g.rows}, [&](int64_t p) {
    const int64_t pairs = g.tokens * g.topk;
    return p % 5 == 3 || pairs == 0 ? -1 : (p * 11 + 4) % pairs;
  });
  test.params["num_topk"] = g.topk;
  if (!g.fills) test.params["fill_padding"] = false;
  add_cast(test, cast);
  return test;
}

struct Gated {
  int64_t rows = 40, hidden = 256;
  std::vector<double> psum = {};
  int64_t alignment = 8;
  bool weights = false;
  double clamp = 10;
};

OpCase gated(const Gated& g, const Cast& cast) {
  OpCase test;
  test.label =
      fmt::format("P={} H={} A={} psum {}{} clamp {}", g.rows, g.hidden, g.alignment,
                  fmt::format("{}", fmt::join(g.psum, ",")), g.weights ? " weights" : "", g.clamp);
  test.quantised = true;  // exp
  HostTensor x = random_tensor(DType::bf16, {g.rows, 2 * g.hidden}, Values::normal, 51);
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, 4 * x.value(i));  // some beyond the clamp
  test.inputs["x"] = std::move(x);
  test.inputs["psum"] = tensor_of(DType::i32, {std::ssize(g.psum)}, g.psum);
  if (g.weights) {
    test.inputs["topk_weights"] = random_tensor(DType::f32, {g.rows}, Values::normal, 52);
  }
  test.params["alignment"] = g.alignment;
  test.params["swiglu_clamp_value"] = g.clamp;
  add_cast(test, cast);
  return test;
}

/// Padding that no other row may see.
OpCase with_poison(OpCase test, const std::vector<int64_t>& rows) {
  test.label += " padding NaN";
  HostTensor& x = test.inputs["x"];
  const int64_t columns = x.shape()[1];
  for (const int64_t row : rows) {
    for (int64_t c = 0; c < columns; ++c) x.set_value(row * columns + c, kNan);
    if (test.inputs.contains("topk_weights")) test.inputs["topk_weights"].set_value(row, kNan);
  }
  return test;
}

struct Combine {
  int64_t tokens = 7, topk = 3, rows = 21, hidden = 256;
  bool weights = false, base = false;
  int64_t x_padding = 0, base_padding = 0;
  int64_t count = 1 << 30;  // num_tokens, given below that
};

OpCase combine(const Combine& c) {
  OpCase test;
  test.label =
      fmt::format("T={} K={} R={} H={}{}{} {} {}", c.tokens, c.topk, c.rows, c.hidden,
                  c.weights ? " weights" : "", c.base ? " base" : "", c.x_padding, c.base_padding);
  test.inputs["x"] = random_tensor(DType::bf16, {c.rows, c.hidden}, Dims{c.hidden + c.x_padding, 1},
                                   Values::normal, 61);
  test.inputs["pos"] = tensor_by(DType::i32, {c.tokens, c.topk}, [&](int64_t i) {
    return i % 4 == 1 || c.rows == 0 ? -1 : (i * 5 + 2) % c.rows;
  });
  if (c.weights) {
    test.inputs["topk_weights"] = random_tensor(DType::f32, {c.tokens, c.topk}, Values::normal, 62);
  }
  if (c.count < 1 << 30) {
    test.label += fmt::format(" num_tokens={}", c.count);
    test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(c.count)});
  }
  if (c.base) {
    test.inputs["base"] = random_tensor(DType::bf16, {c.tokens, c.hidden},
                                        Dims{c.hidden + c.base_padding, 1}, Values::normal, 63);
  }
  return test;
}

}  // namespace

std::vector<OpCase> moe_gather_cast_cases() {
  std::vector<OpCase> cases;
  for (const Cast& cast : kCasts) {
    cases.push_back(gather({}, cast));
    cases.push_back(gather({.hidden = 200, .rows = 13}, cast));
    cases.push_back(gather({.tokens = 3, .hidden = 1024, .rows = 9, .padding = 24}, cast));
    cases.push_back(gather({.hidden = 200, .rows = 13, .padding = 3, .fills = false}, cast));
  }
  cases.push_back(gather({}, {}, Values::nasty));
  cases.push_back(gather({.tokens = 2, .hidden = 7, .rows = 5, .topk = 1}, {32}));
  cases.push_back(gather({.tokens = 0}, {}));
  cases.push_back(gather({.rows = 0}, {}));
  cases.push_back(gather({.rows = 1, .topk = 1}, {}));
  for (const bool fills : {true, false}) {
    OpCase wrong = gather({.fills = fills}, {});
    wrong.label += " pairs that are none";
    const double kWrong[] = {21, -2, 2147483647, -2147483648.0};
    for (int64_t i = 0; i < 4; ++i) wrong.inputs["pos_to_pair"].set_value(5 * i, kWrong[i]);
    cases.push_back(wrong);
  }
  return cases;
}

std::vector<OpCase> swiglu_psum_cast_cases() {
  std::vector<OpCase> cases;
  for (const Cast& cast : kCasts) {
    cases.push_back(gated({.psum = {5, 20, 33}}, cast));
    cases.push_back(
        gated({.rows = 23, .hidden = 384, .psum = {3, 3, 23}, .weights = true, .clamp = kInfinity},
              cast));
    cases.push_back(
        with_poison(gated({.rows = 40, .hidden = 128, .psum = {5, 20, 33}, .weights = true}, cast),
                    {5, 7, 20, 23, 33, 39}));
  }
  cases.push_back(
      gated({.rows = 300, .hidden = 1024, .psum = {100, 100, 290}, .alignment = 128}, {32}));
  std::vector<double> many;  // more than a warp looks at at once
  for (int64_t e = 0; e < 70; ++e) many.push_back(static_cast<double>(e / 2 * 4 + e % 2));
  cases.push_back(gated({.rows = 140, .hidden = 128, .psum = many, .alignment = 1}, {32}));
  cases.push_back(gated({.psum = {0, 0}}, {}));
  cases.push_back(gated({.rows = 0, .psum = {0}}, {}));
  cases.push_back(gated({.psum = {-5, 10, 3, 20, 2147483647, 30}}, {}));
  cases.push_back(gated({.psum = {7, 20, 2147483647}, .alignment = 2147483647}, {}));
  cases.push_back(gated({.rows = 1, .hidden = 128, .psum = {1}, .weights = true}, {32}));
  return cases;
}

std::vector<OpCase> combine_reduce_cases() {
  std::vector<OpCase> cases;
  for (const bool weights : {false, true}) {
    for (const bool base : {false, true}) {
      cases.push_back(combine({.weights = weights, .base = base}));
      cases.push_back(combine(
          {.hidden = 520, .weights = weights, .base = base, .x_padding = 8, .base_padding = 16}));
      cases.push_back(combine({.tokens = 3,
                               .topk = 20,
                               .rows = 33,
                               .hidden = 75,
                               .weights = weights,
                               .base = base,
                               .x_padding = 3,
                               .base_padding = 5}));
      cases.push_back(combine({.tokens = 1030,
                               .topk = 2,
                               .rows = 40,
                               .hidden = 48,
                               .weights = weights,
                               .base = base,
                               .base_padding = 4}));
      cases.push_back(combine({.rows = 0, .weights = weights, .base = base}));
      cases.push_back(combine({.topk = 0, .weights = weights, .base = base}));
    }
  }
  for (const int64_t count : {-1, 0, 3, 9}) {
    cases.push_back(combine({.weights = true, .base = true, .count = count}));
    cases.push_back(combine({.tokens = 1030, .hidden = 48, .count = count * 100}));
  }
  cases.push_back(combine({.tokens = 0, .base = true}));
  cases.push_back(combine({.hidden = 0}));
  cases.push_back(combine({.tokens = 1, .topk = 1, .rows = 1, .hidden = 1, .weights = true}));
  OpCase special = combine({.weights = true, .base = true});
  special.label += " NaN, infinities, weight 0";
  special.inputs["x"].set_value(3, kNan);
  special.inputs["x"].set_value(2 * 256 + 4, kInfinity);
  special.inputs["base"].set_value(5, kNan);
  special.inputs["topk_weights"].set_value(0, 0);
  special.inputs["topk_weights"].set_value(6, kNan);
  cases.push_back(special);
  OpCase wrong = combine({.weights = true});
  wrong.label += " rows that are none";
  const double kWrong[] = {21, -2, 2147483647, -2147483648.0};
  for (int64_t i = 0; i < 4; ++i) wrong.inputs["pos"].set_value(5 * i, kWrong[i]);
  cases.push_back(wrong);
  return cases;
}

}  // namespace tessera::test
