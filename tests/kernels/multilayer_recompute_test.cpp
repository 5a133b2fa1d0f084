// multilayer_recompute on the executor: the reference, the loop of its parts, what bad calls are told,
// and mistakes that the cases find.

#include <cmath>
#include <string>

#include "kernels/op.h"
#include "tests/reference/mhc.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

HostTensor some(DType dtype, Dims shape) {
  return random_tensor(dtype, shape, Values::normal, 1);
}

enum class Mutant { none, from_the_first, input_after_output, not_rounded, output_first };

/// The loop of the parts with one mistake.
HostTensors mutated(const HostTensors& in, const kernels::Params&, Mutant mutant) {
  HostTensors out;
  const HostTensor& first = in.at("initial_residual");
  HostTensor residual = first;  // in f32, so that a mistake may keep more bits than bf16
  const int rank = first.shape().rank;
  const int64_t n = first.shape()[rank - 2], hidden = first.shape()[rank - 1];
  if (mutant == Mutant::not_rounded) {
    residual = HostTensor(DType::f32, first.shape());
    for (int64_t i = 0; i < first.size(); ++i) residual.set_value(i, first.value(i));
  }
  for (int layer = 0;; ++layer) {
    const std::string suffix = "." + std::to_string(layer);
    if (in.count("pre_mix_list" + suffix) == 0) return out;
    const bool has_output = in.count("layer_output_list" + suffix) > 0;
    if (mutant != Mutant::input_after_output || !has_output) {
      out["layer_input_list" + suffix] =
          reference::pre_apply_mix_fwd(residual, in.at("pre_mix_list" + suffix));
    }
    if (!has_output) return out;
    const HostTensor &x = in.at("layer_output_list" + suffix),
                     &post = in.at("post_mix_list" + suffix),
                     &comb = in.at("comb_mix_list" + suffix);
    HostTensor next(residual.dtype(), residual.shape());
    const HostTensor& from = mutant == Mutant::from_the_first ? first : residual;
    for (int64_t e = 0; e < next.size(); ++e) {
      const int64_t h = e % hidden, o = e / hidden % n, t = e / hidden / n;
      const auto term = [&](int64_t i, float& weight, float& stream) {
        weight = static_cast<float>(comb.value((t * n + i) * n + o));
        stream = static_cast<float>(from.value((t * n + i) * hidden + h));
      };
      const auto of_output = static_cast<float>(post.value(t * n + o));
      const auto output = static_cast<float>(x.value(t * hidden + h));
      float weight = 0, stream = 0;
      term(0, weight, stream);
      float sum = mutant == Mutant::output_first ? std::fma(weight, stream, of_output * output)
                                                 : std::fma(of_output, output, weight * stream);
      for (int64_t i = 1; i < n; ++i) {
        term(i, weight, stream);
        sum = std::fma(weight, stream, sum);
      }
      next.set_value(e, static_cast<double>(sum));
    }
    residual = next;
    out["residual_list" + suffix] = HostTensor(DType::bf16, first.shape());
    for (int64_t e = 0; e < next.size(); ++e)
      out["residual_list" + suffix].set_value(e, next.value(e));
    if (mutant == Mutant::input_after_output) {
      out["layer_input_list" + suffix] =
          reference::pre_apply_mix_fwd(residual, in.at("pre_mix_list" + suffix));
    }
  }
}

}  // namespace

TEST_CASE("multilayer_recompute equals its reference on the executor", "[multilayer_recompute]") {
  const auto cases = multilayer_recompute_cases();
  const CaseReport report =
      run_cases("multilayer_recompute", cases, op_runner("multilayer_recompute", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed + std::ssize(report.unsupported) == std::ssize(cases));
  CHECK(report.unsupported.size() == 1);
}

TEST_CASE("multilayer_recompute equals the loop of pre_apply_mix_fwd and post_fwd bit for bit",
          "[multilayer_recompute]") {
  const auto apply = op_runner("pre_apply_mix_fwd", Device::cpu());
  const auto post = op_runner("post_fwd", Device::cpu());
  for (const OpCase& test : multilayer_recompute_cases()) {
    if (test.may_be_unsupported) continue;
    CAPTURE(test.label);
    const HostTensors got = op_runner("multilayer_recompute", Device::cpu())(test.inputs, {});
    HostTensor residual = test.inputs.at("initial_residual");
    size_t compared = 0;
    for (int layer = 0; test.inputs.count("pre_mix_list." + std::to_string(layer)) > 0; ++layer) {
      const std::string suffix = "." + std::to_string(layer);
      const auto in = [&](const std::string& list) { return test.inputs.at(list + suffix); };
      CHECK_THAT(got.at("layer_input_list" + suffix),
                 EqualsBits(apply({{"x", residual}, {"mix", in("pre_mix_list")}}, {}).at("out")));
      ++compared;
      if (test.inputs.count("layer_output_list" + suffix) == 0) break;
      residual = post({{"x", in("layer_output_list")},
                       {"residual", residual},
                       {"post_mix", in("post_mix_list")},
                       {"comb_mix", in("comb_mix_list")}},
                      {})
                     .at("out");
      CHECK_THAT(got.at("residual_list" + suffix), EqualsBits(residual));
      ++compared;
    }
    CHECK(got.size() == compared);
  }
}

TEST_CASE("one kernel of multilayer_recompute serves any number of layers",
          "[multilayer_recompute]") {
  const kernels::OpInfo& op = kernels::find_op("multilayer_recompute");
  const auto launches = [&](const std::string& layers) {
    const kernels::BenchCase one = op.case_of("T=3 n=4 H=64 " + layers);
    kernels::Tensors views;
    for (const auto& input : one.inputs)
      views[input.name] = TensorView(nullptr, input.dtype, input.shape);
    return op.kernels(views, kernels::check_params(op, {})).size();
  };
  CHECK(launches("L=1 Q=0") == 1);
  CHECK(launches("L=10 Q=10") == 1);
  CHECK(launches("L=11 Q=10") == 2);
}

TEST_CASE("multilayer_recompute explains wrong arguments", "[multilayer_recompute][errors]") {
  HostTensors inputs = {{"initial_residual", some(DType::bf16, {6, 4, 64})}};
  for (const char* layer : {".0", ".1"}) {
    inputs[std::string("pre_mix_list") + layer] = some(DType::f32, {6, 4});
    inputs[std::string("layer_output_list") + layer] = some(DType::bf16, {6, 64});
    inputs[std::string("post_mix_list") + layer] = some(DType::f32, {6, 4});
    inputs[std::string("comb_mix_list") + layer] = some(DType::f32, {6, 4, 4});
  }
  const auto told = [](const HostTensors& changed) {
    return outputs_error("multilayer_recompute", changed, {});
  };
  const auto with = [&](const std::string& name, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return told(changed);
  };
  const auto without = [&](std::initializer_list<const char*> names) {
    HostTensors changed = inputs;
    for (const char* name : names) changed.erase(name);
    return told(changed);
  };
  CHECK(told(inputs) == "no error");
  CHECK(without({"layer_output_list.1", "post_mix_list.1", "comb_mix_list.1"}) == "no error");
  CHECK(with("comb_mix_list.1", some(DType::f32, {6, 4, 3})) ==
        "tessera: multilayer_recompute: argument 'comb_mix_list.1' has the wrong shape\n"
        "  expected  f32[6, 4, 4]   (T = 6 from initial_residual dim 0; n = 4 from "
        "initial_residual dim 1)\n"
        "  got       f32[6, 4, 3] on cpu");
  CHECK(with("layer_output_list.1", some(DType::f32, {6, 64})) ==
        "tessera: multilayer_recompute: argument 'layer_output_list.1' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[6, 64] on cpu");
  CHECK(with("post_mix_list.0", HostTensor(DType::f32, {6, 4}, {8, 1})) ==
        "tessera: multilayer_recompute: argument 'post_mix_list.0' has the wrong strides\n"
        "  expected  row-major strides [4, 1]\n"
        "  got       f32[6, 4], strides [8, 1] on cpu");
  CHECK(without({"post_mix_list.1"}) ==
        "tessera: multilayer_recompute: list 'post_mix_list' has the wrong length\n"
        "  expected  Q = 2 = tensors of layer_output_list\n"
        "  got       1 tensors");
  CHECK(without({"post_mix_list.0"}) ==
        "tessera: multilayer_recompute: argument 'post_mix_list.0' is missing\n"
        "  expected  1 tensors without a gap\n"
        "  got       comb_mix_list.0, comb_mix_list.1, initial_residual, layer_output_list.0, "
        "layer_output_list.1, post_mix_list.1, pre_mix_list.0, pre_mix_list.1");
  CHECK(without({"pre_mix_list.1"}) ==
        "tessera: multilayer_recompute: list 'layer_output_list' has the wrong length\n"
        "  expected  Q = L or L - 1\n"
        "  got       L = 1, Q = 2");
  CHECK(told({{"initial_residual", inputs.at("initial_residual")}}) ==
        "tessera: multilayer_recompute: argument 'pre_mix_list': there must be a layer\n"
        "  expected  L >= 1\n"
        "  got       L = 0");
  CHECK(told({{"initial_residual", some(DType::bf16, {6, 9, 64})},
              {"pre_mix_list.0", some(DType::f32, {6, 9})}}) ==
        "tessera: multilayer_recompute: argument 'initial_residual': so many streams are not "
        "supported\n"
        "  expected  n <= 8\n"
        "  got       n = 9 from initial_residual dim 1");
}

TEST_CASE("the multilayer_recompute tests catch every mutant", "[mutants][mhc][slow]") {
  check_mutants("multilayer_recompute", multilayer_recompute_cases(), Mutant::output_first,
                mutated);
}
