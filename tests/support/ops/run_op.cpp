#include "tests/support/ops/run_op.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/checks/arg_check.h"
#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "tests/support/device_tensor.h"

namespace tessera::test {
namespace {

using kernels::OpInfo;
using kernels::Role;

const kernels::TensorInfo* find_tensor(const OpInfo& op, const std::string& name) {
  const std::string stem = name.substr(0, name.find('.'));
  for (const kernels::TensorInfo& info : op.tensors) {
    if (info.name == (info.list ? stem : name)) return &info;
  }
  return nullptr;
}

kernels::Tensors views_of(const HostTensors& tensors) {
  kernels::Tensors views;
  for (const auto& [name, tensor] : tensors) views[name] = tensor.view();
  return views;
}

// Outputs and workspaces as the op shapes them; accumulators that were not given start from zero,
// the rest stays unset.
HostTensors allocate_outputs(const OpInfo& op, const HostTensors& inputs,
                             const kernels::Params& params) {
  HostTensors outputs;
  for (const auto& [name, tensor] : inputs) {
    const kernels::TensorInfo* info = find_tensor(op, name);
    if (info != nullptr && info->role == Role::inout) outputs[name] = tensor;
  }
  for (const kernels::OutputInfo& info : op.outputs(views_of(inputs), params)) {
    if (outputs.count(info.name) != 0) continue;
    HostTensor tensor(info.dtype, info.shape, info.strides, info.storage_elements);
    const kernels::TensorInfo* declared = find_tensor(op, info.name);
    if (declared != nullptr && declared->role == Role::inout) tensor.fill_bytes(std::byte{0});
    outputs[info.name] = std::move(tensor);
  }
  return outputs;
}

void check_untouched(const std::string& name, uint64_t before, uint64_t after) {
  if (before != after) throw Violation(fmt::format("input {} was written", name));
}

// The first elements of outputs that are longer than data made them.
void trim(const kernels::Tensors& trimmed, HostTensors& outputs) {
  for (auto& [name, tensor] : outputs) {
    const Dims& shape = trimmed.at(name).shape;
    if (shape == tensor.shape()) continue;
    HostTensor first(tensor.dtype(), shape);
    for (int64_t i = 0; i < first.size(); ++i) first.set_bits(i, tensor.bits(i));
    tensor = std::move(first);
  }
}

// Padding of outputs is zero, that between the rows of an in-place tensor stays as it was.
void check_output(const std::string& name, const HostTensor& output, std::byte padding) {
  std::string problem = output.damage();
  if (problem.empty()) problem = output.padding_other_than(padding);
  if (!problem.empty()) throw Violation(fmt::format("output {}: {}", name, problem));
}

void run_on_cpu(const OpInfo& op, const HostTensors& inputs, HostTensors& outputs,
                const kernels::Params& params) {
  kernels::Tensors views = views_of(inputs);
  for (const auto& [name, view] : views_of(outputs)) views[name] = view;
  op.run(views, params, nullptr);
  if (op.trim) op.trim(views, params, nullptr);
  trim(views, outputs);
}

void run_on_gpu(const OpInfo& op, const HostTensors& inputs, HostTensors& outputs,
                const kernels::Params& params, Device device) {
  std::map<std::string, DeviceTensor> on_device;
  for (const auto& [name, tensor] : outputs) on_device.try_emplace(name, tensor, device);
  for (const auto& [name, tensor] : inputs) on_device.try_emplace(name, tensor, device);
  kernels::Tensors views;
  for (const auto& [name, tensor] : on_device) views[name] = tensor.view();
  op.run(views, params, nullptr);
  for (auto& [name, tensor] : outputs) on_device.at(name).download(tensor);
  if (op.trim) op.trim(views, params, nullptr);
  trim(views, outputs);
  for (const auto& [name, tensor] : inputs) {
    if (outputs.count(name) != 0) continue;
    HostTensor copy = tensor;
    on_device.at(name).download(copy);
    check_untouched(name, tensor.checksum(), copy.checksum());
  }
}

}  // namespace

HostTensors run_op(const OpInfo& op, const HostTensors& inputs, const kernels::Params& given,
                   Device device) {
  const kernels::Params params = kernels::check_params(op, given);
  kernels::check_tensor_names(op, views_of(inputs));
  HostTensors outputs = allocate_outputs(op, inputs, params);
  std::map<std::string, uint64_t> sums;
  for (const auto& [name, tensor] : inputs) sums[name] = tensor.checksum();
  if (device.is_cuda()) {
    run_on_gpu(op, inputs, outputs, params, device);
  } else {
    const kernels::jit::TrapScope traps;
    run_on_cpu(op, inputs, outputs, params);
  }
  for (const auto& [name, tensor] : inputs) check_untouched(name, sums[name], tensor.checksum());
  for (const auto& [name, tensor] : outputs) {
    check_output(name, tensor, inputs.count(name) == 0 ? std::byte{0} : kUnset);
  }
  std::erase_if(outputs,
                [&](const auto& output) { return find_tensor(op, output.first) == nullptr; });
  return outputs;
}

reference::Runner op_runner(const std::string& op, Device device) {
  return
      [=, &info = kernels::find_op(op)](const HostTensors& inputs, const kernels::Params& params) {
        return run_op(info, inputs, params, device);
      };
}

bool op_exists(const std::string& op) {
  const auto& ops = kernels::ops();
  return std::any_of(ops.begin(), ops.end(), [&](const OpInfo& info) { return info.name == op; });
}

}  // namespace tessera::test
