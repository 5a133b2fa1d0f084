// The compositions on the executor: the references, the chains that they equal bit for bit, gradients
// against differences of an f64 forward, and what bad calls are told.

#include <cmath>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/chain.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<std::string> compositions() {
  std::vector<std::string> names;
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family == "modeling") names.push_back(op.name);
  }
  return names;
}

void check_report(const CaseReport& report, size_t num_cases) {
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(static_cast<size_t>(report.passed) + report.unsupported.size() == num_cases);
  CHECK(report.unsupported.size() <= 1);
}

HostTensor some(DType dtype, Dims shape, uint64_t seed = 1) {
  return random_tensor(dtype, shape, Values::normal, seed);
}

using Numbers = std::vector<double>;
Numbers numbers(const HostTensor& tensor) {
  Numbers values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor.value(i));
  return values;
}

double sigmoid(double z) {
  return 1 / (1 + std::exp(-z));
}

// The steps before a sub-layer, and the head, in f64 and without any rounding.
struct Front {
  size_t tokens, streams, hidden;
  bool is_head;
  Numbers residual, fn, scale, base, weight;
  Numbers grad_row, grad_post, grad_comb;  // of the results

  /// The sum of the products of all results and their gradients.
  double loss() const {
    const size_t n = streams, width = n * hidden, entries = is_head ? n : n * (n + 2);
    double sum = 0;
    for (size_t t = 0; t < tokens; ++t) {
      const double* y = &residual[t * width];
      double squares = 0;
      for (size_t k = 0; k < width; ++k) squares += y[k] * y[k];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-6);
      Numbers z(entries);
      for (size_t j = 0; j < entries; ++j) {
        for (size_t k = 0; k < width; ++k) z[j] += fn[j * width + k] * weight[k] * y[k];
        z[j] = z[j] * factor * scale[is_head ? 0 : std::min<size_t>(j / n, 2)] + base[j];
      }
      for (size_t h = 0; h < hidden; ++h) {
        double row = 0;
        for (size_t i = 0; i < n; ++i) row += (sigmoid(z[i]) + 1e-6) * y[i * hidden + h];
        sum += row * grad_row[t * hidden + h];
      }
      if (is_head) continue;
      for (size_t o = 0; o < n; ++o) sum += 2 * sigmoid(z[n + o]) * grad_post[t * n + o];
      const Numbers comb = sinkhorn(Numbers(z.begin() + static_cast<int64_t>(2 * n), z.end()));
      for (size_t e = 0; e < n * n; ++e) sum += comb[e] * grad_comb[t * n * n + e];
    }
    return sum;
  }

  Numbers sinkhorn(Numbers x) const {
    const size_t n = streams;
    const auto normalise = [&](size_t lines, size_t along, double eps) {
      for (size_t line = 0; line < n; ++line) {
        double sum = eps;
        for (size_t e = 0; e < n; ++e) sum += x[line * lines + e * along];
        for (size_t e = 0; e < n; ++e) x[line * lines + e * along] /= sum;
      }
    };
    for (double& value : x) value = std::exp(value);
    normalise(n, 1, 0);
    for (double& value : x) value += 1e-6;
    normalise(1, n, 1e-6);
    for (int round = 1; round < 4; ++round) {
      normalise(n, 1, 1e-6);
      normalise(1, n, 1e-6);
    }
    return x;
  }
};

/// Central differences at some of the elements, against `got`; bounded by what tf32 and bf16 round.
void check_gradient(Front& front, Numbers Front::*member, const HostTensor& got) {
  const Numbers saved = front.*member;
  const size_t step = std::max<size_t>(1, saved.size() / 61);
  Numbers differences, gradients;
  double largest = 0;
  for (size_t i = 0; i < saved.size(); i += step) {
    constexpr double kDelta = 1e-5;
    (front.*member)[i] = saved[i] + kDelta;
    const double above = front.loss();
    (front.*member)[i] = saved[i] - kDelta;
    differences.push_back((above - front.loss()) / (2 * kDelta));
    (front.*member)[i] = saved[i];
    gradients.push_back(got.value(static_cast<int64_t>(i)));
    largest = std::max(largest, std::fabs(differences.back()));
  }
  REQUIRE(largest > 0);
  for (size_t i = 0; i < differences.size(); ++i) {
    CAPTURE(i * step, differences[i], gradients[i], largest);
    CHECK(std::fabs(differences[i] - gradients[i]) < 0.01 * largest);
  }
}

}  // namespace

TEST_CASE("compositions equal their references on the executor", "[modeling][slow]") {
  for (const std::string& op : compositions()) {
    DYNAMIC_SECTION(op) {
      const std::vector<OpCase> cases = cases_of(op);
      check_report(run_cases(op, cases, op_runner(op, Device::cpu())), cases.size());
    }
  }
}

TEST_CASE("compositions equal their chains bit for bit on the executor", "[modeling][slow]") {
  for (const std::string& op : compositions()) {
    DYNAMIC_SECTION(op) {
      const std::vector<OpCase> cases = cases_of(op);
      check_report(compare_with_chain(op, cases, Device::cpu()), cases.size());
    }
  }
}

TEST_CASE("mhc_pre_fwd has the bits of pre_big_fuse, saving or not", "[modeling][slow]") {
  for (const OpCase& test : mhc_pre_fwd_cases()) {
    if (test.may_be_unsupported) continue;
    CAPTURE(test.label);
    kernels::Params params = test.params;
    const HostTensors saving = op_runner("mhc_pre_fwd", Device::cpu())(test.inputs, params);
    params.erase("save_for_backward");
    const HostTensors fused = op_runner("pre_big_fuse", Device::cpu())(test.inputs, params);
    for (const auto& [name, tensor] : fused) {
      CHECK(compare_bits(saving.at(name).view(), tensor.view()).ok);
    }
  }
}

TEST_CASE("gradients in front of a sub-layer are differences of the forward in f64",
          "[modeling][gradient]") {
  const bool is_head = GENERATE(false, true);
  const int64_t tokens = 3, n = 4, hidden = 64, width = n * hidden;
  const int64_t entries = is_head ? n : n * (n + 2);
  CAPTURE(is_head);
  HostTensor fn = some(DType::f32, {entries, width}, 2), weight = some(DType::f32, {width}, 5);
  for (int64_t i = 0; i < fn.size(); ++i) fn.set_value(i, fn.value(i) / 16);
  for (int64_t i = 0; i < width; ++i) weight.set_value(i, 1 + 0.1 * weight.value(i));
  HostTensors inputs = {{"residual", some(DType::bf16, {tokens, n, hidden}, 1)},
                        {"fn", fn},
                        {"scale", some(DType::f32, {is_head ? 1 : 3}, 3)},
                        {"base", some(DType::f32, {entries}, 4)},
                        {"norm_weight", weight}};
  kernels::Params params;
  if (!is_head) params = {{"post_mult_value", 2.0}, {"sinkhorn_repeat", int64_t{4}}};
  const std::string name = is_head ? "mhc_head" : "mhc_pre";
  const HostTensors saved = op_runner(name + "_fwd", Device::cpu())(inputs, params);
  HostTensors given = inputs;
  for (const auto& [output, tensor] : saved) {
    if (output != "out" && output != "layer_input" && output != "comb_mix") given[output] = tensor;
  }
  const HostTensor grad_row = some(DType::bf16, {tokens, hidden}, 6);
  given[is_head ? "grad_out" : "grad_layer_input"] = grad_row;
  Front front{static_cast<size_t>(tokens),
              static_cast<size_t>(n),
              static_cast<size_t>(hidden),
              is_head,
              numbers(inputs.at("residual")),
              numbers(fn),
              numbers(inputs.at("scale")),
              numbers(inputs.at("base")),
              numbers(weight),
              numbers(grad_row),
              {},
              {}};
  if (!is_head) {
    given["grad_post_mix"] = some(DType::f32, {tokens, n}, 7);
    given["grad_comb_mix"] = some(DType::f32, {tokens, n, n}, 8);
    front.grad_post = numbers(given.at("grad_post_mix"));
    front.grad_comb = numbers(given.at("grad_comb_mix"));
  }
  const HostTensors grads = op_runner(name + "_bwd", Device::cpu())(given, params);
  check_gradient(front, &Front::residual, grads.at("grad_residual"));
  check_gradient(front, &Front::fn, grads.at("grad_fn"));
  check_gradient(front, &Front::scale, grads.at("grad_scale"));
  check_gradient(front, &Front::base, grads.at("grad_base"));
  check_gradient(front, &Front::weight, grads.at("grad_norm_weight"));
}

TEST_CASE("a composition explains wrong arguments under its own names",
          "[modeling][errors][slow]") {
  const OpCase pre = mhc_pre_bwd_cases().front();
  const auto told = [&](const OpCase& test, const std::string& op, const std::string& name,
                        const HostTensor& tensor) {
    HostTensors changed = test.inputs;
    changed[name] = tensor;
    return outputs_error(op, changed, test.params);
  };
  CHECK(told(pre, "mhc_pre_bwd", "fn", pre.inputs.at("fn")) == "no error");
  CHECK(told(pre, "mhc_pre_bwd", "grad_layer_input", some(DType::bf16, {13, 255})) ==
        "tessera: mhc_pre_bwd: argument 'residual' has the wrong shape\n"
        "  expected  bf16[13, 4, 255]   (T = 13 from grad_layer_input dim 0; n = 4 from "
        "grad_post_mix dim 1; H = 255 from grad_layer_input dim 1)\n"
        "  got       bf16[13, 4, 256] on cpu");
  const OpCase engram = engram_fwd_cases().front();
  HostTensors narrow;
  narrow["hidden_states"] = some(DType::bf16, {3, 4, 256});
  narrow["k"] = some(DType::bf16, {3, 4, 256});
  narrow["v"] = some(DType::bf16, {3, 256});
  narrow["weight_hidden"] = narrow["weight_embed"] = some(DType::bf16, {4, 256});
  CHECK(outputs_error("engram_fwd", narrow, engram.params) ==
        "tessera: engram_fwd: argument 'hidden_states' has the wrong shape\n"
        "  expected  512 <= D <= 16777216\n"
        "  got       D = 256 from hidden_states dim 2");
  const OpCase head = mhc_head_fwd_cases().front();
  CHECK(told(head, "mhc_head_fwd", "fn", some(DType::f32, {3, 4 * 256})) ==
        "tessera: mhc_head_fwd: argument 'fn' has the wrong number of rows\n"
        "  expected  n <= R and R <= 32\n"
        "  got       n = 4 from residual dim 1, R = 3 from fn dim 0");
  kernels::Params params = pre.params;
  params["sinkhorn_repeat"] = int64_t{46};
  CHECK(outputs_error("mhc_pre_bwd", pre.inputs, params) ==
        "tessera: mhc_pre_bwd: parameter 'sinkhorn_repeat' is out of range\n"
        "  expected  1 .. 45\n"
        "  got       46");
}
