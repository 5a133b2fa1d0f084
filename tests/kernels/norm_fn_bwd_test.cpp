// norm_fn_bwd on the executor: the reference, which is the slope of the forward, what the result does
// not depend on, what bad calls are told, and mistakes that the cases find.

#include "tests/reference/norm_fn_bwd.h"

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/mhc/parts/norm_bwd_workspace.h"
#include "tests/reference/mhc_pre.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensor some(DType dtype, Dims shape) {
  return random_tensor(dtype, shape, Values::normal, 1);
}

HostTensor zeros(DType dtype, Dims shape) {
  HostTensor tensor(dtype, shape);
  tensor.fill_bytes(std::byte{0});
  return tensor;
}

HostTensors some_inputs(int64_t tokens, int64_t streams, int64_t hidden, int64_t entries) {
  HostTensors inputs;
  inputs["grad_out"] = some(DType::f32, {tokens, entries});
  inputs["residual"] = some(DType::bf16, {tokens, streams, hidden});
  inputs["fn"] = some(DType::f32, {entries, streams * hidden});
  inputs["out_mul"] = some(DType::f32, {tokens, entries});
  inputs["sqrsum"] = random_tensor(DType::f32, {tokens}, Values::uniform, 2);
  return inputs;
}

}  // namespace

TEST_CASE("norm_fn_bwd equals its reference on the executor", "[norm_fn_bwd][slow]") {
  const auto cases = norm_fn_bwd_cases();
  const CaseReport report =
      run_cases("norm_fn_bwd", cases, op_runner("norm_fn_bwd", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed + std::ssize(report.unsupported) == std::ssize(cases));
  CHECK(report.unsupported.size() == 1);
}

TEST_CASE("norm_fn_bwd is the slope of norm_fn_fwd", "[norm_fn_bwd][reference]") {
  // Rows of fn times the weight are exact in tf32, so that rounding changes nothing.
  const int64_t tokens = 3, width = 8, entries = 3;
  const double eps = 0.125;
  HostTensor residual = some(DType::bf16, {tokens, 2, 4}), fn(DType::f32, {entries, width});
  HostTensor weight(DType::f32, {width}), grad_out(DType::f32, {tokens, entries});
  for (int64_t i = 0; i < fn.size(); ++i) fn.set_value(i, static_cast<double>(i * 7 % 13 - 6) / 8);
  for (int64_t i = 0; i < width; ++i) weight.set_value(i, 1 + static_cast<double>(i % 4) / 4);
  for (int64_t i = 0; i < grad_out.size(); ++i)
    grad_out.set_value(i, static_cast<double>(i * 5 % 7 - 3) / 4);
  std::vector<double> y, f, w;
  for (int64_t i = 0; i < residual.size(); ++i) y.push_back(residual.value(i));
  for (int64_t i = 0; i < fn.size(); ++i) f.push_back(fn.value(i));
  for (int64_t i = 0; i < width; ++i) w.push_back(weight.value(i));
  HostTensor out_mul(DType::f32, {tokens, entries}), sqrsum(DType::f32, {tokens});
  const auto loss = [&] {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      double squares = 0;
      for (int64_t k = 0; k < width; ++k) {
        const double value = y[static_cast<size_t>(t * width + k)];
        squares += value * value;
      }
      sqrsum.set_value(t, squares);
      for (int64_t j = 0; j < entries; ++j) {
        double product = 0;
        for (int64_t k = 0; k < width; ++k) {
          product += y[static_cast<size_t>(t * width + k)] * f[static_cast<size_t>(j * width + k)] *
                     w[static_cast<size_t>(k)];
        }
        out_mul.set_value(t * entries + j, product);
        sum += grad_out.value(t * entries + j) * product /
               std::sqrt(squares / static_cast<double>(width) + eps);
      }
    }
    return sum;
  };
  loss();
  const reference::NormFnGradients grad =
      reference::norm_fn_bwd({grad_out, residual, fn, &weight, out_mul, sqrsum},
                             {zeros(DType::bf16, residual.shape()), zeros(DType::f32, fn.shape()),
                              zeros(DType::f32, {width})},
                             eps);
  const auto check = [&](std::vector<double>& at, const HostTensor& got, double tolerance) {
    for (int64_t i = 0; i < got.size(); ++i) {
      double& value = at[static_cast<size_t>(i)];
      const double before = value;
      value = before + 1e-5;
      const double up = loss();
      value = before - 1e-5;
      const double slope = (up - loss()) / 2e-5;
      value = before;
      CAPTURE(i, slope, got.value(i));
      CHECK(std::abs(slope - got.value(i)) < tolerance * (1 + std::abs(slope)));
    }
  };
  check(y, grad.residual, 4e-3);  // rounded to bf16
  check(f, grad.fn, 1e-3);        // products of gradients rounded to tf32
  check(w, grad.norm_weight, 1e-3);
}

TEST_CASE("norm_fn_bwd cuts tokens into runs by the shape alone", "[norm_fn_bwd]") {
  using kernels::mhc::NormBwdRuns;
  const auto runs = [](int64_t tokens, int64_t width) {
    const NormBwdRuns made({tokens, 24, width});
    return std::vector<int64_t>{made.runs, made.tiles_per_run};
  };
  CHECK(runs(0, 1024) == std::vector<int64_t>{0, 1});
  CHECK(runs(1, 1024) == std::vector<int64_t>{1, 4});
  CHECK(runs(200, 1024) == std::vector<int64_t>{4, 4});
  CHECK(runs(4096, 4 * 7168) == std::vector<int64_t>{2, 128});
  CHECK(runs(4096, 4 * 2560) == std::vector<int64_t>{6, 43});
  CHECK(runs(100, 16777216) == std::vector<int64_t>{1, 7});
}

TEST_CASE("a residual gradient of norm_fn_bwd has the same bits alone and among others",
          "[norm_fn_bwd]") {
  const int64_t tokens = 150, hidden = 64, width = 256, entries = 24;
  const HostTensors inputs = some_inputs(tokens, 4, hidden, entries);
  const auto run = op_runner("norm_fn_bwd", Device::cpu());
  const HostTensor all = run(inputs, {}).at("grad_residual");
  for (const int64_t row : {int64_t{0}, int64_t{77}, tokens - 1}) {
    HostTensors one = some_inputs(1, 4, hidden, entries);
    one["fn"] = inputs.at("fn");
    for (const char* name : {"grad_out", "residual", "out_mul", "sqrsum"}) {
      const int64_t columns = one[name].size();
      for (int64_t i = 0; i < columns; ++i)
        one[name].set_bits(i, inputs.at(name).bits(row * columns + i));
    }
    const HostTensor alone = run(one, {}).at("grad_residual");
    int64_t differing = 0;
    for (int64_t h = 0; h < width; ++h) differing += alone.bits(h) != all.bits(row * width + h);
    CHECK(differing == 0);
  }
}

TEST_CASE("norm_fn_bwd explains wrong arguments", "[norm_fn_bwd][errors]") {
  const HostTensors inputs = some_inputs(6, 4, 64, 24);
  const auto told = [&](const std::string& name, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("norm_fn_bwd", changed, {});
  };
  CHECK(told("fn", inputs.at("fn")) == "no error");
  CHECK(told("grad_residual", some(DType::bf16, {6, 4, 64})) == "no error");
  CHECK(told("out_mul", some(DType::f32, {6, 23})) ==
        "tessera: norm_fn_bwd: argument 'out_mul' has the wrong shape\n"
        "  expected  f32[6, 24]   (T = 6 from grad_out dim 0; M = 24 from grad_out dim 1)\n"
        "  got       f32[6, 23] on cpu");
  CHECK(told("sqrsum", some(DType::f32, {5})) ==
        "tessera: norm_fn_bwd: argument 'sqrsum' has the wrong shape\n"
        "  expected  f32[6]   (T = 6 from grad_out dim 0)\n"
        "  got       f32[5] on cpu");
  CHECK(told("grad_residual", some(DType::f32, {6, 4, 64})) ==
        "tessera: norm_fn_bwd: argument 'grad_residual' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[6, 4, 64] on cpu");
  CHECK(told("grad_norm_weight", some(DType::f32, {256})) ==
        "tessera: norm_fn_bwd: argument 'grad_norm_weight' goes with other arguments only\n"
        "  expected  a tensor only where norm_weight\n"
        "  got       no norm_weight");
  CHECK(outputs_error("norm_fn_bwd", some_inputs(6, 4, 65, 24), {}) ==
        "tessera: norm_fn_bwd: argument 'residual': a row has the wrong number of columns\n"
        "  expected  n*H % 256 = 0\n"
        "  got       n = 4 from residual dim 1, H = 65 from residual dim 2");
  CHECK(outputs_error("norm_fn_bwd", some_inputs(6, 4, 64, 33), {}) ==
        "tessera: norm_fn_bwd: argument 'grad_out': so many columns are not supported\n"
        "  expected  M <= 32\n"
        "  got       M = 33 from grad_out dim 1");
}

// ---- mistakes that a kernel could make

namespace {

enum class Mutant {
  none,
  overwrites,
  no_squares,
  half_squares,
  plus_squares,
  no_eps,
  no_tf32,
  no_fn_tf32,
  no_weight_in_fn,
  no_weight_in_grad,
  weight_grad_of_product,
  no_factor
};

HostTensors mutated(const HostTensors& in, const Params& params, Mutant mutant) {
  const HostTensor &residual = in.at("residual"), &fn = in.at("fn");
  const bool has_weight = in.count("norm_weight") > 0;
  const int64_t m = fn.shape()[0], width = fn.shape()[1], tokens = in.at("sqrsum").size();
  const double eps = mutant == Mutant::no_eps ? 0 : std::get<double>(params.at("norm_eps"));
  HostTensors out;
  const auto start = [&](const char* name, const HostTensor& like) {
    const bool keeps = in.count(name) > 0 && mutant != Mutant::overwrites;
    out[name] = keeps ? in.at(name) : zeros(like.dtype(), like.shape());
  };
  start("grad_residual", residual);
  start("grad_fn", fn);
  if (has_weight) start("grad_norm_weight", in.at("norm_weight"));
  const auto weight = [&](int64_t k) { return has_weight ? in.at("norm_weight").value(k) : 1.0; };
  const auto tf32 = [](double value, bool rounds) {
    return rounds ? static_cast<double>(reference::round_to_tf32(static_cast<float>(value)))
                  : value;
  };
  std::vector<double> fn_grad(static_cast<size_t>(m * width), 0.0), rounded;
  for (int64_t e = 0; e < fn.size(); ++e) {
    const double factor = mutant == Mutant::no_weight_in_fn ? 1 : weight(e % width);
    rounded.push_back(tf32(fn.value(e) * factor, mutant != Mutant::no_fn_tf32));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const double square = in.at("sqrsum").value(t);
    const float mean =
        static_cast<float>(square) / static_cast<float>(width) + static_cast<float>(eps);
    auto factor = static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(mean))));
    double dot = 0;
    if (mutant == Mutant::no_factor) factor = 1;
    std::vector<double> da;
    for (int64_t j = 0; j < m; ++j) {
      const double grad = in.at("grad_out").value(t * m + j);
      da.push_back(tf32(grad * factor, mutant != Mutant::no_tf32));
      dot += grad * in.at("out_mul").value(t * m + j);
    }
    double slope = -dot * factor / (square + static_cast<double>(width) * eps);
    if (mutant == Mutant::no_squares) slope = 0;
    if (mutant == Mutant::half_squares) slope /= 2;
    if (mutant == Mutant::plus_squares) slope = -slope;
    for (int64_t k = 0; k < width; ++k) {
      const double y = residual.value(t * width + k);
      double sum = out["grad_residual"].value(t * width + k) + y * slope;
      for (int64_t j = 0; j < m; ++j) {
        const auto e = static_cast<size_t>(j * width + k);
        sum += da[static_cast<size_t>(j)] * rounded[e];
        fn_grad[e] += da[static_cast<size_t>(j)] * y;
      }
      out["grad_residual"].set_value(t * width + k, sum);
    }
  }
  for (int64_t k = 0; k < width && tokens > 0; ++k) {
    double sum = 0;
    for (int64_t j = 0; j < m; ++j) {
      const int64_t e = j * width + k;
      const double grad = fn_grad[static_cast<size_t>(e)];
      const double scale = mutant == Mutant::no_weight_in_grad ? 1 : weight(k);
      out["grad_fn"].set_value(e, out["grad_fn"].value(e) + grad * scale);
      sum += grad * fn.value(e) * (mutant == Mutant::weight_grad_of_product ? weight(k) : 1);
    }
    if (!has_weight) continue;
    out["grad_norm_weight"].set_value(k, out["grad_norm_weight"].value(k) + sum);
  }
  return out;
}

}  // namespace

TEST_CASE("the norm_fn_bwd tests catch every mutant", "[mutants][mhc][slow]") {
  check_mutants("norm_fn_bwd", norm_fn_bwd_cases(), Mutant::no_factor, mutated);
}
