#pragma once
// One call of an op on tensors that the tools own: places inputs, allocates outputs, runs, and
// brings results back.

#include <string>
#include <vector>

#include "kernels/op.h"
#include "tools/lib/calls/device_tensors.h"
#include "tools/lib/safetensors.h"

namespace tessera::tools {

/// The inputs and outputs of a call, in device memory.
///
///   OpCall call(op, params, file, Device::cpu());
///   call.run();
///   write_safetensors("y.safetensors", call.results());
class OpCall {
 public:
  /// Inputs from a file: strided as its metadata and the layout parameters say. `params` are
  /// checked already. Throws Error (argument) for tensors that the op does not know, lacks or
  /// cannot take, naming them.
  OpCall(const kernels::OpInfo& op, kernels::Params params, const Safetensors& inputs,
         Device device);
  /// Inputs of a listed case, filled with seeded random values (see random_tensor.h).
  OpCall(const kernels::OpInfo& op, const kernels::BenchCase& example, Device device,
         uint64_t seed);

  /// Starts the op in the legacy default stream; on the CPU it is done when this returns.
  void run();
  /// Gives every tensor other memory, contents kept: where tensors lie may decide how long a call
  /// takes.
  void move_elsewhere();
  /// Outputs and in-place tensors, logical values, with the strides that are not row-major; those
  /// whose length data decides are as long as they came to be.
  Safetensors results() const;

  const kernels::OpInfo& op() const { return *op_; }
  const kernels::Params& params() const { return params_; }
  const kernels::Tensors& tensors() const { return tensors_; }
  Device device() const { return device_; }
  /// Bytes of the elements of all inputs and outputs; padding and workspaces are not counted.
  int64_t bytes() const;
  /// Bytes of the elements of what results() would bring back; waits for the call.
  int64_t result_bytes() const;

 private:
  void add_input(const std::string& name, DType dtype, const Dims& shape, const Dims& strides,
                 int64_t storage_elements, std::span<const std::byte> logical);
  void allocate_outputs();
  /// All tensors, outputs as long as they came to be; waits for the call.
  kernels::Tensors trimmed() const;

  const kernels::OpInfo* op_;
  kernels::Params params_;
  Device device_;
  kernels::Tensors tensors_;
  std::vector<DeviceMemory> memory_;
  std::vector<std::string> result_names_;
  int64_t workspace_bytes_ = 0;
};

/// Checks the values of a file that the op restricts, such as ids in range: it looks at them in CPU
/// memory only, so a call on a GPU asks before. Throws Error (argument); runs nothing.
void check_values(const kernels::OpInfo& op, const kernels::Params& params,
                  const Safetensors& inputs);

}  // namespace tessera::tools
