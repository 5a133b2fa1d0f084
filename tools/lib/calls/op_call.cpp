#include "tools/lib/calls/op_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "dsl/base/error.h"
#include "kernels/checks/arg_check.h"
#include "kernels/jit/prepare.h"
#include "kernels/views/dry_call.h"
#include "tools/lib/calls/random_tensor.h"
#include "tools/lib/calls/tensor_placement.h"

namespace tessera::tools {
namespace {

using kernels::OpInfo;
using kernels::OutputInfo;
using kernels::Role;
using kernels::TensorInfo;
using kernels::Tensors;

void refuse_outputs_as_inputs(const OpInfo& op, const std::string& name) {
  const std::string stem = name.substr(0, name.find('.'));
  for (const TensorInfo& info : op.tensors) {
    if (info.role != Role::out || (info.name != name && !(info.list && info.name == stem)))
      continue;
    throw Error({.kind = ErrorKind::argument,
                 .op = op.name,
                 .what = fmt::format("tensor '{}' is an output", name),
                 .argument = name,
                 .expected = "inputs and in-place tensors only",
                 .got = name});
  }
}

DeviceMemory allocate(const OpInfo& op, const std::string& name, Device device, int64_t elements,
                      DType dtype) {
  int64_t size = 0;
  try {
    if (__builtin_mul_overflow(elements, int64_t{tessera::bytes(dtype)}, &size)) {
      throw std::bad_alloc();
    }
    return DeviceMemory(device, size);
  } catch (const std::bad_alloc&) {
    throw Error({.kind = ErrorKind::argument,
                 .op = op.name,
                 .what = fmt::format("argument '{}' needs more memory than there is", name),
                 .argument = name,
                 .expected = "a tensor that fits into memory",
                 .got = fmt::format("{} elements of {}, gaps between rows included", elements,
                                    tessera::name(dtype))});
  }
}

/// Writes the values that an example states; its tensors hold little-endian integers.
void fill(HostBuffer& data, const kernels::BenchCase::Input& input) {
  const int64_t width = tessera::bytes(input.dtype);
  for (int64_t i = 0; i < num_elements(input.shape); ++i) {
    const int64_t value = input.values(i);
    std::memcpy(data.data() + i * width, &value, static_cast<size_t>(width));
  }
}

}  // namespace

OpCall::OpCall(const OpInfo& op, kernels::Params params, const Safetensors& inputs, Device device)
    : op_(&op), params_(std::move(params)), device_(device) {
  Tensors names;
  for (const StoredTensor& tensor : inputs.tensors) {
    refuse_outputs_as_inputs(op, tensor.name);
    // Without data; a scalar without data would pass for one that is absent.
    static std::byte scalar{};
    names[tensor.name] =
        TensorView(tensor.shape.rank == 0 ? &scalar : nullptr, tensor.dtype, tensor.shape);
  }
  check_tensor_names(op, names);
  check_stride_names(op, names, inputs.metadata);
  std::vector<Placement> placements;
  for (const StoredTensor& tensor : inputs.tensors) {
    placements.push_back(
        place_input(op, tensor.name, tensor.dtype, tensor.shape, params_, inputs.metadata));
    TensorView& view = names[tensor.name];
    view = TensorView(view.data, view.dtype, view.shape, placements.back().strides, device);
  }
  // A few bytes of strides may ask for any amount of memory: the op sees them before it is taken.
  op.outputs(names, params_);
  for (size_t i = 0; i < placements.size(); ++i) {
    const StoredTensor& tensor = inputs.tensors[i];
    add_input(tensor.name, tensor.dtype, tensor.shape, placements[i].strides,
              placements[i].storage_elements, tensor.data.bytes());
  }
  allocate_outputs();
}

OpCall::OpCall(const OpInfo& op, const kernels::BenchCase& example, Device device, uint64_t seed)
    : op_(&op), params_(check_params(op, example.params)), device_(device) {
  for (const auto& [name, view] : views_of(example)) {
    HostBuffer values = random_tensor(view.dtype, view.size(), seed++);
    for (const kernels::BenchCase::Input& input : example.inputs) {
      if (input.name == name && input.values) fill(values, input);
    }
    add_input(name, view.dtype, view.shape, view.strides,
              std::max(view.span_bytes() / tessera::bytes(view.dtype), view.size()),
              values.bytes());
  }
  allocate_outputs();
}

void OpCall::add_input(const std::string& name, DType dtype, const Dims& shape, const Dims& strides,
                       int64_t storage_elements, std::span<const std::byte> logical) {
  DeviceMemory memory = allocate(*op_, name, device_, storage_elements, dtype);
  TensorView view(memory.data(), dtype, shape, strides, device_);
  if (view.is_row_major() && memory.bytes() == static_cast<int64_t>(logical.size())) {
    memory.upload(logical);
  } else if (memory.bytes() > 0 && !device_.is_cuda()) {
    // In place: what lies between the elements is never touched.
    scatter(logical, shape, strides, tessera::bytes(dtype),
            {static_cast<std::byte*>(memory.data()), static_cast<size_t>(memory.bytes())});
  } else if (memory.bytes() > 0) {
    HostBuffer storage(memory.bytes());
    scatter(logical, shape, strides, tessera::bytes(dtype), storage.bytes());
    memory.upload(storage.bytes());
  }
  tensors_[name] = view;
  memory_.push_back(std::move(memory));
}

void OpCall::allocate_outputs() {
  std::vector<std::string> in_place;
  for (const auto& [name, view] : tensors_) {
    for (const TensorInfo& info : op_->tensors) {
      if (info.role == Role::inout && info.name == name) in_place.push_back(name);
    }
  }
  for (const OutputInfo& output : op_->outputs(tensors_, params_)) {
    if (output.workspace) {
      workspace_bytes_ += num_elements(output.shape) * tessera::bytes(output.dtype);
    } else {
      result_names_.push_back(output.name);
    }
    if (tensors_.count(output.name) != 0) continue;  // in place
    DeviceMemory memory =
        allocate(*op_, output.name, device_, output.storage_elements, output.dtype);
    tensors_[output.name] =
        TensorView(memory.data(), output.dtype, output.shape, output.strides, device_);
    memory_.push_back(std::move(memory));
  }
  for (const std::string& name : in_place) {
    if (std::find(result_names_.begin(), result_names_.end(), name) == result_names_.end()) {
      result_names_.push_back(name);
    }
  }
}

void check_values(const OpInfo& op, const kernels::Params& params, const Safetensors& inputs) {
  OpCall on_cpu(op, params, inputs, Device::cpu());
  kernels::jit::kernels_needed([&] { on_cpu.run(); });
}

void OpCall::run() {
  op_->run(tensors_, params_, nullptr);
}

void OpCall::move_elsewhere() {
  wait_for(device_);
  for (DeviceMemory& memory : memory_) {
    if (memory.bytes() == 0) continue;
    const void* before = memory.data();
    memory.move_elsewhere();
    for (auto& [name, view] : tensors_) {
      if (view.data == before) view.data = memory.data();
    }
  }
}

Tensors OpCall::trimmed() const {
  wait_for(device_);
  Tensors tensors = tensors_;
  if (op_->trim) op_->trim(tensors, params_, nullptr);
  return tensors;
}

Safetensors OpCall::results() const {
  const Tensors tensors = trimmed();
  Safetensors file;
  for (const std::string& name : result_names_) {
    const TensorView& view = tensors.at(name);
    StoredTensor tensor{name, view.dtype, view.shape,
                        HostBuffer(view.size() * tessera::bytes(view.dtype))};
    for (const DeviceMemory& memory : memory_) {
      if (memory.bytes() == 0 || memory.data() != view.data) continue;
      if (view.is_row_major() && memory.bytes() == tensor.data.size()) {
        memory.download(tensor.data.bytes());
      } else if (!device_.is_cuda()) {
        gather({static_cast<const std::byte*>(memory.data()), static_cast<size_t>(memory.bytes())},
               view.shape, view.strides, tessera::bytes(view.dtype), tensor.data.bytes());
      } else {
        HostBuffer storage(memory.bytes());
        memory.download(storage.bytes());
        gather(storage.bytes(), view.shape, view.strides, tessera::bytes(view.dtype),
               tensor.data.bytes());
      }
    }
    const std::string strides = strides_text(view.shape, view.strides);
    if (!strides.empty()) file.metadata["strides." + name] = strides;
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

int64_t OpCall::bytes() const {
  int64_t total = 0;
  for (const auto& [name, view] : tensors_) total += view.size() * tessera::bytes(view.dtype);
  return total - workspace_bytes_;
}

int64_t OpCall::result_bytes() const {
  const Tensors tensors = trimmed();
  int64_t total = 0;
  for (const std::string& name : result_names_) {
    const TensorView& view = tensors.at(name);
    total += view.size() * tessera::bytes(view.dtype);
  }
  return total;
}

}  // namespace tessera::tools
