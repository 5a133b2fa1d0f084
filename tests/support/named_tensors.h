#pragma once
// Tensors by the names under which a kernel declares them, as jit::run_op takes them.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/jit/run_op.h"

namespace tessera::test {

/// Example: jit::run_op("copy", spec, build, NamedTensors{{"x", x}, {"out", out}}, nullptr);
class NamedTensors final : public kernels::jit::Arguments {
 public:
  NamedTensors(std::initializer_list<std::pair<const std::string, TensorView>> tensors)
      : device_(tensors.begin()->second.device), tensors_(tensors) {}

  Device device() const override { return device_; }
  TensorView tensor(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? TensorView() : found->second;
  }
  kernels::jit::Scalar scalar(std::string_view) const override { return 0; }

 private:
  Device device_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace tessera::test
