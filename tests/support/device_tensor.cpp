#include "tests/support/device_tensor.h"

#include "dsl/base/error.h"
#include "runtime/driver/device.h"

namespace tessera::test {

std::string why_no_gpu() {
  return runtime::num_devices() > 0 ? std::string() : runtime::why_no_device();
}

std::string why_no_tensor_copies() {
  std::string reason = why_no_gpu();
  if (reason.empty() && runtime::device_info(0).major < 9) reason = "the GPU has no tensor copies";
  return reason;
}

DeviceTensor::DeviceTensor(const HostTensor& from, Device device)
    : memory_(device.ordinal, std::ssize(from.raw())), view_(from.view()) {
  memory_.upload(from.raw().data(), std::ssize(from.raw()));
  view_.data = static_cast<std::byte*>(memory_.data()) + kGuardBytes;
  view_.device = device;
}

void DeviceTensor::download(HostTensor& to) const {
  TESSERA_CHECK(std::ssize(to.raw()) == memory_.bytes(), "download into another placement");
  memory_.download(to.raw().data(), memory_.bytes());
}

}  // namespace tessera::test
