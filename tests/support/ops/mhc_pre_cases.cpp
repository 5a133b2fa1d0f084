// Cases of norm_fn_fwd and pre_big_fuse: every number of rows of a block and of runs of columns,
// weights, values that tf32 rounds, zeros and values that are no numbers.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::vector<OpCase> norm_fn_fwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t streams, int64_t hidden, int64_t entries,
                       int64_t splits, bool weight = false, double eps = 1e-6) {
    const int64_t width = streams * hidden;
    OpCase test;
    test.label = fmt::format("{} n={} H={} M={} splits={} weight={} eps={}", to_string(tokens),
                             streams, hidden, entries, splits, weight, eps);
    test.inputs["residual"] =
        random_tensor(DType::bf16, joined(tokens, {streams, hidden}), Values::normal, 31);
    test.inputs["fn"] = random_fn(entries, width, 32);
    if (weight) test.inputs["norm_weight"] = random_weight(width, 33);
    test.params = {{"n_splits", splits}, {"norm_eps", eps}};
    test.may_be_unsupported = entries > 32;
    // Far below what a missing rounding to tf32 changes.
    test.tolerance = Tolerance{2e-5, 5e-5};
    cases.push_back(std::move(test));
  };
  add({13}, 4, 256, 24, 16);
  add({48}, 4, 256, 24, 16, true);
  add({130}, 4, 64, 24, 1);
  add({6}, 4, 1280, 24, 16, true);
  add({3}, 4, 2560, 24, 16);
  add({3}, 3, 1792, 24, 5);  // a last run of one part
  add({65}, 4, 192, 24, 2);
  add({1}, 1, 256, 3, 4);
  add({2}, 2, 384, 8, 3, true);
  add({5}, 3, 256, 15, 16);
  add({4}, 8, 64, 32, 5);
  add({4}, 4, 320, 1, 2);
  add({4}, 4, 320, 33, 2);
  add({2, 3}, 4, 64, 5, 16, false, 0.5);
  add({0}, 4, 64, 24, 16);
  add({3}, 4, 0, 24, 16);
  add({1030}, 4, 192, 3, 8);
  add({2150}, 1, 256, 3, 1);   // more tiles than blocks
  add({18}, 4, 1024, 24, 1);   // the longest parts
  add({140}, 4, 1024, 24, 1);  // and with more than few tokens
  add({140}, 4, 960, 32, 2);   // entries that make them shorter

  add({4}, 4, 64, 24, 1);
  cases.back().label += " nothing saved";
  cases.back().params["save_for_backward"] = false;

  // Ties between two tf32 values, and a last bit that decides: exact sums, exact results.
  add({2}, 1, 256, 2, 1, false, 0);
  cases.back().label += " ties";
  for (int64_t i = 0; i < 512; ++i) {
    cases.back().inputs.at("residual").set_value(i, i % 256 < 8 ? 1.0 : 0.0);
    const double tie = 1 + static_cast<double>(2 * (i % 8) + 1) * 0x1p-11;
    const double nearby = i % 3 == 0 ? 0x1p-23 : i % 3 == 1 ? -0x1p-23 : 0;
    cases.back().inputs.at("fn").set_value(i, (i % 2 == 0 ? 1 : -1) * (tie + nearby));
  }
  cases.back().tolerances = {{"out_mul", {0, 0}}, {"sqrsum", {0, 0}}};

  // A row of zeros, rows with infinity and NaN, weights that round to infinity or are NaN.
  add({5}, 4, 64, 24, 16);
  cases.back().label += " zeros, infinities and NaN";
  HostTensor& residual = cases.back().inputs.at("residual");
  for (int64_t i = 0; i < 256; ++i) residual.set_value(i, 0.0);
  residual.set_value(256 + 17, kInfinity);
  residual.set_value(2 * 256 + 200, kNan);
  cases.back().inputs.at("fn").set_bits(5, 0x7F7FFFFF);
  cases.back().inputs.at("fn").set_bits(256 + 9, 0x7FFFFFFF);
  return cases;
}

std::vector<OpCase> pre_big_fuse_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t streams, int64_t hidden, bool weight,
                       kernels::Params params) {
    const int64_t width = streams * hidden, entries = streams * (streams + 2);
    OpCase test;
    test.label = fmt::format("{} n={} H={} weight={} #{}", to_string(tokens), streams, hidden,
                             weight, cases.size());
    test.inputs["residual"] =
        random_tensor(DType::bf16, joined(tokens, {streams, hidden}), Values::normal, 34);
    test.inputs["fn"] = random_fn(entries, width, 32);
    test.inputs["scale"] = random_tensor(DType::f32, {3}, Values::normal, 35);
    test.inputs["base"] = random_tensor(DType::f32, {entries}, Values::normal, 36);
    if (weight) test.inputs["norm_weight"] = random_weight(width, 33);
    test.params = std::move(params);
    test.may_be_unsupported = streams > 4;
    test.tolerance = Tolerance{1e-4, 1e-5};
    test.tolerances = {{"layer_input", {1.6e-2, 1e-5}}};
    cases.push_back(std::move(test));
  };
  add({13}, 4, 256, false, {});
  add({48}, 4, 64, true, {{"sinkhorn_repeat", int64_t{1}}, {"post_mult_value", 2.0}});
  add({6}, 4, 1280, false, {{"pre_eps", 0.01}, {"norm_eps", 0.25}, {"sinkhorn_eps", 0.125}});
  add({3}, 4, 2560, true, {{"n_splits", int64_t{3}}});
  add({9}, 3, 256, false, {{"sinkhorn_repeat", int64_t{4}}});
  add({7}, 2, 384, true, {{"n_splits", int64_t{1}}});
  add({5}, 1, 512, false, {});
  add({2, 3}, 4, 64, false, {});
  add({0}, 4, 64, false, {});
  add({3}, 4, 0, false, {});
  add({2}, 5, 256, false, {});
  add({1030}, 1, 768, false, {{"n_splits", int64_t{8}}});
  add({4100}, 1, 256, true, {});
  return cases;
}

}  // namespace tessera::test
