// Cases of the compositions: those of the ops that they are made of, with what a forward op saves as
// what its backward op takes.

#include <fmt/format.h>

#include "tests/reference/modeling.h"
#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct PreShape {
  Dims tokens;
  int64_t streams, hidden;
  bool weight = false, accumulates = false;
  int64_t rows = 0;  // of fn, of the head: 0 is one per stream

  std::string label() const {
    return fmt::format("{} n={} H={}{}{}{}", to_string(tokens), streams, hidden,
                       weight ? " weight" : "", accumulates ? " accumulates" : "",
                       rows > 0 ? fmt::format(" R={}", rows) : "");
  }
};

const std::vector<PreShape>& pre_shapes() {
  static const std::vector<PreShape> shapes = {
      {{13}, 4, 256},
      {{48}, 4, 64, true},
      {{6}, 4, 1280, false, true},
      {{9}, 3, 256, true, true},
      {{5}, 1, 512},
      {{2, 3}, 4, 64, true},
      {{0}, 4, 64, true},
      {{1}, 2, 384, false, true},
      {{150}, 4, 64},
  };
  return shapes;
}

HostTensors forward_inputs(const PreShape& s, int64_t rows, int64_t entries, int64_t scales) {
  const int64_t width = s.streams * s.hidden;
  HostTensors inputs;
  inputs["residual"] =
      random_tensor(DType::bf16, joined(s.tokens, {s.streams, s.hidden}), Values::normal, 41);
  inputs["fn"] = random_fn(rows, width, 42);
  inputs["scale"] = random_tensor(DType::f32, {scales}, Values::normal, 43);
  inputs["base"] = random_tensor(DType::f32, {entries}, Values::normal, 44);
  if (s.weight) {
    inputs["norm_weight"] = random_weight(width, 45);
  }
  return inputs;
}

void add_saved(OpCase& test, const std::string& forward, const kernels::Params& params,
               std::initializer_list<const char*> names) {
  const HostTensors made = reference::compose(forward, test.inputs, params, reference::runner);
  for (const char* name : names) test.inputs[name] = made.at(name);
}

void add_accumulators(OpCase& test, const PreShape& s) {
  if (!s.accumulates) return;
  uint64_t seed = 50;
  for (const char* name : {"residual", "fn", "scale", "base", "norm_weight"}) {
    const auto of = test.inputs.find(name);
    if (of == test.inputs.end()) continue;
    test.inputs[fmt::format("grad_{}", name)] =
        random_tensor(of->second.dtype(), of->second.shape(), Values::normal, seed++);
  }
}

/// Tolerances of the gradients of a residual and of the weights: the contract's bounds of norm_fn_bwd.
const std::map<std::string, Tolerance> kGradients = {
    {"grad_residual", {1.6e-2, 2e-2}},  // rounded to bf16 twice or three times
    {"grad_fn", {1e-3, 3e-2}},
    {"grad_norm_weight", {1e-3, 1e-3}},
    {"grad_scale", {1e-4, 1e-3}},  // sums over all tokens and entries
    {"grad_base", {1e-4, 1e-3}}};

}  // namespace

std::vector<OpCase> engram_fwd_cases() {
  std::vector<OpCase> cases = engram_gate_fwd_cases();
  for (OpCase& test : cases) {
    const Dims shape = test.inputs.at("weight_fused").shape();
    test.inputs.erase("weight_fused");
    test.inputs["weight_hidden"] = random_tensor(DType::bf16, shape, Values::normal, 61);
    test.inputs["weight_embed"] = random_tensor(DType::bf16, shape, Values::normal, 62);
  }
  return cases;
}

std::vector<OpCase> engram_bwd_cases() {
  std::vector<OpCase> cases = engram_gate_bwd_cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    OpCase& test = cases[i];
    const Dims shape = test.inputs.at("weight_fused").shape();
    test.params.erase("num_persistent_blocks");
    test.inputs["weight_hidden"] = random_tensor(DType::bf16, shape, Values::normal, 61);
    test.inputs["weight_embed"] = random_tensor(DType::bf16, shape, Values::normal, 62);
    if (i % 2 == 0) continue;
    test.label += " accumulates";
    test.inputs["grad_weight_hidden"] = random_tensor(DType::f32, shape, Values::normal, 63);
    test.inputs["grad_weight_embed"] = random_tensor(DType::f32, shape, Values::normal, 64);
  }
  return cases;
}

std::vector<OpCase> mhc_pre_fwd_cases() {
  std::vector<OpCase> cases = pre_big_fuse_cases();
  for (OpCase& test : cases) {
    test.tolerances["out_mul"] = test.tolerances["sqrsum"] = Tolerance{2e-5, 5e-5};  // norm_fn_fwd
    test.tolerances["input_mixes"] = Tolerance{2e-5, 5e-5};
  }
  cases.push_back(cases.front());
  cases.back().label += " nothing saved";
  cases.back().params["save_for_backward"] = false;
  return cases;
}

std::vector<OpCase> mhc_pre_bwd_cases() {
  std::vector<OpCase> cases;
  for (const PreShape& s : pre_shapes()) {
    const int64_t n = s.streams, entries = n * (n + 2);
    OpCase test;
    test.label = s.label();
    test.inputs = forward_inputs(s, entries, entries, 3);
    test.params = {{"post_mult_value", 2.0}, {"sinkhorn_repeat", int64_t{4}}};
    add_saved(test, "mhc_pre_fwd", test.params,
              {"out_mul", "sqrsum", "input_mixes", "pre_mix", "post_mix", "comb_logits"});
    test.inputs["grad_layer_input"] =
        random_tensor(DType::bf16, joined(s.tokens, {s.hidden}), Values::normal, 46);
    test.inputs["grad_post_mix"] =
        random_tensor(DType::f32, joined(s.tokens, {n}), Values::normal, 47);
    test.inputs["grad_comb_mix"] =
        random_tensor(DType::f32, joined(s.tokens, {n, n}), Values::normal, 48);
    add_accumulators(test, s);
    test.tolerances = kGradients;
    cases.push_back(std::move(test));
  }
  return cases;
}

std::vector<OpCase> mhc_head_fwd_cases() {
  std::vector<OpCase> cases;
  for (const PreShape& shape : pre_shapes()) {
    PreShape s = shape;
    s.rows = s.streams + (s.accumulates ? 20 : 0);
    OpCase test;
    test.label = s.label();
    test.inputs = forward_inputs(s, s.rows, s.streams, 1);
    test.params = {{"n_splits", int64_t{3}}};
    test.tolerance = Tolerance{1e-4, 1e-5};
    test.tolerances = {{"out", {1.6e-2, 1e-5}},
                       {"out_mul", {2e-5, 5e-5}},
                       {"sqrsum", {2e-5, 5e-5}},
                       {"input_mix", {2e-5, 5e-5}}};
    cases.push_back(std::move(test));
  }
  cases.push_back(cases.front());
  cases.back().label += " nothing saved";
  cases.back().params["save_for_backward"] = false;
  return cases;
}

std::vector<OpCase> mhc_head_bwd_cases() {
  std::vector<OpCase> cases;
  for (const PreShape& shape : pre_shapes()) {
    PreShape s = shape;
    s.rows = s.streams + (s.weight ? 20 : 0);
    OpCase test;
    test.label = s.label();
    test.inputs = forward_inputs(s, s.rows, s.streams, 1);
    add_saved(test, "mhc_head_fwd", {}, {"out_mul", "sqrsum", "input_mix", "pre_mix"});
    test.inputs["grad_out"] =
        random_tensor(DType::bf16, joined(s.tokens, {s.hidden}), Values::normal, 46);
    add_accumulators(test, s);
    test.tolerances = kGradients;
    cases.push_back(std::move(test));
  }
  return cases;
}

}  // namespace tessera::test
