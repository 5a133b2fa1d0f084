#pragma once
// A HostTensor copied to a GPU, guards included, and back.

#include <string>

#include "runtime/driver/memory.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

/// Why no test can run on a GPU here, in one line; empty if there is one.
std::string why_no_gpu();
/// The same, or that the GPU has neither tensor copies nor tensor stores.
std::string why_no_tensor_copies();

/// Example: DeviceTensor on_device(x, Device::cuda(0)); op.run({{"x", on_device.view()}}, ...);
class DeviceTensor {
 public:
  DeviceTensor(const HostTensor& from, Device device);
  TensorView view() const { return view_; }
  /// Into a tensor with the placement of the one it came from. Waits for the device.
  void download(HostTensor& to) const;

 private:
  runtime::DeviceBuffer memory_;
  TensorView view_;
};

}  // namespace tessera::test
