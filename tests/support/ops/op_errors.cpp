#include "tests/support/ops/op_errors.h"

#include "dsl/base/error.h"
#include "kernels/checks/arg_check.h"
#include "kernels/op.h"

namespace tessera::test {
namespace {

template <class Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

std::string outputs_error(const std::string& op, const HostTensors& inputs,
                          const kernels::Params& params) {
  kernels::Tensors views;
  for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
  return error_text([&] {
    const kernels::OpInfo& info = kernels::find_op(op);
    const kernels::Params checked = kernels::check_params(info, params);
    kernels::check_tensor_names(info, views);
    info.outputs(views, checked);
  });
}

std::string run_error(const std::string& op, const kernels::Tensors& tensors,
                      const kernels::Params& params) {
  return error_text([&] {
    const kernels::OpInfo& info = kernels::find_op(op);
    info.run(tensors, kernels::check_params(info, params), nullptr);
  });
}

}  // namespace tessera::test
