#include "tools/lib/calls/example.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dsl/base/error.h"
#include "kernels/checks/arg_check.h"
#include "kernels/signature/param_grammar.h"
#include "kernels/views/dry_call.h"
#include "tools/lib/calls/tensor_placement.h"

namespace tessera::tools {

const kernels::BenchCase& find_example(const kernels::OpInfo& op,
                                       const std::vector<std::string>& assignments) {
  std::vector<std::string> labels;
  for (const kernels::BenchCase& example : op.examples) {
    // Parameters that are not given stay as the example has them, so that one assignment may pick among many.
    kernels::Params ours = check_params(op, example.params);
    std::vector<std::string> merged = assignments;
    for (const auto& [name, value] : ours) {
      const std::string prefix = name + "=";
      if (std::none_of(assignments.begin(), assignments.end(),
                       [&](const std::string& a) { return a.starts_with(prefix); })) {
        merged.push_back(prefix + kernels::to_string(value));
      }
    }
    if (kernels::parse_params(op, merged) == ours) return example;
    labels.push_back(example.label);
  }
  throw Error({.kind = ErrorKind::argument,
               .op = op.name,
               .what = "no example has these parameters",
               .argument = "params",
               .expected = fmt::format("one of: {}", fmt::join(labels, "; ")),
               .got = fmt::format("{}", fmt::join(assignments, " ")),
               .hint = "give tensors with --in FILE"});
}

std::vector<ir::Kernel> kernels_of(const kernels::OpInfo& op, const kernels::BenchCase& example) {
  const kernels::Params params = check_params(op, example.params);
  return op.kernels(kernels::views_with_outputs(op, views_of(example), params), params);
}

std::vector<ir::Kernel> kernels_of(const kernels::OpInfo& op, const kernels::Params& params,
                                   const Safetensors& inputs) {
  kernels::Tensors views;
  for (const StoredTensor& tensor : inputs.tensors) {
    const Placement placement =
        place_input(op, tensor.name, tensor.dtype, tensor.shape, params, inputs.metadata);
    views[tensor.name] =
        TensorView(nullptr, tensor.dtype, tensor.shape, placement.strides, Device::cpu());
  }
  check_tensor_names(op, views);
  check_stride_names(op, views, inputs.metadata);
  return op.kernels(kernels::views_with_outputs(op, views, params), params);
}

}  // namespace tessera::tools
