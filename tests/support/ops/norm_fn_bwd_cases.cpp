// Cases of norm_fn_bwd: one run of tokens and several, whole tiles and parts of one, every form of the
// accumulators, values that tf32 rounds, zeros and values that are no numbers.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Form {
  Dims tokens;
  int64_t streams = 4, hidden = 64, entries = 24;
  bool weight = false;
  bool accumulates = false;  // all accumulators are given
  double eps = 1e-6;
};

OpCase case_of_form(const Form& f) {
  const int64_t width = f.streams * f.hidden;
  OpCase test;
  test.label = fmt::format("{} n={} H={} M={} weight={} given={} eps={}", to_string(f.tokens),
                           f.streams, f.hidden, f.entries, f.weight, f.accumulates, f.eps);
  // Entries of fn so small that a product gradient on the other side of a tie, which an rsqrt in the
  // last bit can cause, stays below the absolute tolerance.
  const double fn_scale = 0.02 / std::sqrt(static_cast<double>(std::max<int64_t>(width, 1)));
  test.inputs["grad_out"] = scaled_normal(joined(f.tokens, {f.entries}), 61, 1);
  test.inputs["residual"] =
      random_tensor(DType::bf16, joined(f.tokens, {f.streams, f.hidden}), Values::normal, 62);
  test.inputs["fn"] = scaled_normal({f.entries, width}, 63, fn_scale);
  if (f.weight) test.inputs["norm_weight"] = scaled_normal({width}, 64, 0.1, 1);
  test.inputs["out_mul"] = scaled_normal(joined(f.tokens, {f.entries}), 65, 1);
  HostTensor squares = random_tensor(DType::f32, f.tokens, Values::uniform, 66);
  for (int64_t i = 0; i < squares.size(); ++i) {
    squares.set_value(i, static_cast<double>(width) * (0.5 + squares.value(i)));
  }
  test.inputs["sqrsum"] = std::move(squares);
  if (f.accumulates) {
    test.inputs["grad_residual"] =
        random_tensor(DType::bf16, joined(f.tokens, {f.streams, f.hidden}), Values::normal, 67);
    test.inputs["grad_fn"] = scaled_normal({f.entries, width}, 68, 1);
    if (f.weight) test.inputs["grad_norm_weight"] = scaled_normal({width}, 69, 1);
  }
  test.params["norm_eps"] = f.eps;
  test.may_be_unsupported = f.entries > 32;
  // Those of the contract: sums of f32 in another order, products of tf32.
  test.tolerances = {{"grad_residual", {1.6e-2, 1e-5}},
                     {"grad_fn", {1e-3, 3e-2}},
                     {"grad_norm_weight", {1e-3, 1e-5}}};
  return test;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::vector<OpCase> norm_fn_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Form& form, const std::string& more = "") -> OpCase& {
    cases.push_back(case_of_form(form));
    cases.back().label += more;
    return cases.back();
  };
  add({.tokens = {13}, .hidden = 256});
  add({.tokens = {48}, .weight = true});
  add({.tokens = {200}, .weight = true, .accumulates = true});  // four runs, the last one shorter
  add({.tokens = {131}, .accumulates = true});
  add({.tokens = {6}, .hidden = 1280, .weight = true});
  add({.tokens = {3}, .hidden = 2560, .accumulates = true});
  add({.tokens = {16}, .streams = 1, .hidden = 256, .entries = 3});
  add({.tokens = {1}, .streams = 2, .hidden = 384, .entries = 8, .weight = true});
  add({.tokens = {17}, .streams = 3, .hidden = 256, .entries = 15});
  add({.tokens = {70}, .streams = 8, .entries = 32, .accumulates = true});
  add({.tokens = {4}, .hidden = 320, .entries = 1, .weight = true, .accumulates = true});
  add({.tokens = {2, 3}, .entries = 5, .eps = 0.5});
  add({.tokens = {0}, .weight = true, .accumulates = true});
  add({.tokens = {0}, .weight = true});
  add({.tokens = {3}, .hidden = 0});
  add({.tokens = {4}, .hidden = 320, .entries = 33});

  // Product gradients between two tf32 values, each alone in a column of grad_fn: exact. The first
  // token has 1 and -1, whose products cancel but for the ties of fn.
  OpCase& ties =
      add({.tokens = {16}, .streams = 1, .hidden = 256, .entries = 8, .eps = 0}, " ties");
  for (int64_t i = 0; i < 16 * 8; ++i) {
    const double tie = 1 + static_cast<double>(2 * (i % 8) + 1) * 0x1p-11;
    const double nearby = i % 3 == 0 ? 0x1p-23 : i % 3 == 1 ? -0x1p-23 : 0;
    const double first = i == 0 ? 1 : i == 1 ? -1 : 0;
    ties.inputs.at("grad_out").set_value(i, i < 8 ? first : (i % 2 == 0 ? 1 : -1) * (tie + nearby));
    ties.inputs.at("out_mul").set_value(i, 0);
    ties.inputs.at("sqrsum").set_value(i / 8, 256);
  }
  for (int64_t i = 0; i < 16 * 256; ++i) {
    ties.inputs.at("residual").set_value(i, i % 256 == i / 256 ? 1 : 0);
  }
  for (int64_t i = 0; i < 8 * 256; ++i) {
    const double tie = 1 + static_cast<double>(2 * (i % 32) + 1) * 0x1p-11;
    ties.inputs.at("fn").set_value(i, i < 256 ? tie : 1);
  }
  ties.tolerances["grad_fn"] = {0, 0};

  // A token of zeros without eps: NaN, also in grad_fn.
  OpCase& zeros = add({.tokens = {40}, .entries = 3, .eps = 0}, " a token of zeros");
  for (int64_t i = 0; i < 256; ++i) zeros.inputs.at("residual").set_value(7 * 256 + i, 0);
  for (int64_t j = 0; j < 3; ++j) zeros.inputs.at("out_mul").set_value(7 * 3 + j, 0);
  zeros.inputs.at("sqrsum").set_value(7, 0);

  OpCase& hard = add({.tokens = {20}, .weight = true, .accumulates = true}, " infinities and NaN");
  hard.inputs.at("residual").set_value(3 * 256 + 17, kInfinity);
  hard.inputs.at("residual").set_value(18 * 256 + 200, kNan);
  for (int64_t j = 0; j < 24; ++j) {  // as the forward saves them
    hard.inputs.at("out_mul").set_value(3 * 24 + j, kInfinity);
    hard.inputs.at("out_mul").set_value(18 * 24 + j, kNan);
  }
  hard.inputs.at("sqrsum").set_value(3, kInfinity);
  hard.inputs.at("sqrsum").set_value(18, kNan);
  hard.inputs.at("fn").set_bits(5, 0x7F7FFFFF);
  hard.inputs.at("fn").set_bits(256 + 9, 0x7FFFFFFF);
  hard.inputs.at("grad_residual").set_value(5 * 256 + 1, kInfinity);

  OpCase& gradients = add({.tokens = {18}, .entries = 8}, " infinite and NaN gradients");
  gradients.inputs.at("grad_out").set_value(2 * 8 + 3, kInfinity);
  gradients.inputs.at("grad_out").set_value(17 * 8 + 5, kNan);
  return cases;
}

}  // namespace tessera::test
