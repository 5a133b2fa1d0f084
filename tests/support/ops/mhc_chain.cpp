#include "tests/support/ops/mhc_chain.h"

#include "dsl/base/error.h"
#include "tests/support/ops/run_op.h"

namespace tessera::test {
namespace {

using kernels::Params;

// The parameters of `params` under their names in another op.
Params renamed(const Params& params,
               std::initializer_list<std::pair<const char*, const char*>> names) {
  Params result;
  for (const auto& [from, to] : names) {
    const auto found = params.find(from);
    if (found != params.end()) result[to] = found->second;
  }
  return result;
}

}  // namespace

HostTensors run_pre_chain(const HostTensors& inputs, const Params& params, Device device) {
  HostTensors norm_inputs = {{"residual", inputs.at("residual")}, {"fn", inputs.at("fn")}};
  if (inputs.count("norm_weight") != 0) norm_inputs["norm_weight"] = inputs.at("norm_weight");
  const HostTensors norm = op_runner("norm_fn_fwd", device)(
      norm_inputs, renamed(params, {{"norm_eps", "norm_eps"}, {"n_splits", "n_splits"}}));
  const HostTensors split = op_runner("pre_split_mixes_fwd", device)(
      {{"input_mixes", norm.at("out")}, {"scale", inputs.at("scale")}, {"base", inputs.at("base")}},
      renamed(params, {{"post_mult_value", "post_mult_value"}, {"pre_eps", "pre_eps"}}));
  const HostTensors comb = op_runner("sinkhorn_fwd", device)(
      {{"x", split.at("comb_logits")}},
      renamed(params, {{"sinkhorn_repeat", "repeat"}, {"sinkhorn_eps", "eps"}}));
  const HostTensors apply = op_runner("pre_apply_mix_fwd", device)(
      {{"x", inputs.at("residual")}, {"mix", split.at("pre_mix")}}, {});
  return {{"post_mix", split.at("post_mix")},
          {"comb_mix", comb.at("out")},
          {"layer_input", apply.at("out")}};
}

CaseReport compare_with_pre_chain(const std::vector<OpCase>& cases, Device device) {
  CaseReport report;
  for (const OpCase& test : cases) {
    try {
      const HostTensors fused = op_runner("pre_big_fuse", device)(test.inputs, test.params);
      const HostTensors chain = run_pre_chain(test.inputs, test.params, device);
      std::string difference;
      for (const auto& [name, tensor] : chain) {
        const Comparison result = compare_bits(fused.at(name).view(), tensor.view());
        if (!result.ok) difference += name + ": " + result.report + " ";
      }
      if (difference.empty()) {
        ++report.passed;
      } else {
        report.failures.push_back(test.label + ": " + difference);
      }
    } catch (const Error& error) {
      const bool allowed = test.may_be_unsupported && error.kind() == ErrorKind::unsupported;
      (allowed ? report.unsupported : report.failures).push_back(test.label + ": " + error.what());
    }
  }
  return report;
}

}  // namespace tessera::test
