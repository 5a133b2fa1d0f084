#include "tests/support/run_kernel.h"

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"

namespace tessera::test {

HostTensor tensor_of(DType dtype, Dims shape, const std::vector<double>& values) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, values[static_cast<size_t>(i)]);
  return tensor;
}

HostTensor iota(DType dtype, Dims shape) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, static_cast<double>(i));
  return tensor;
}

std::vector<double> values_of(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor.value(i));
  return values;
}

void run_kernel(const ir::Kernel& kernel, const std::vector<const HostTensor*>& tensors) {
  std::vector<TensorView> views;
  for (const HostTensor* tensor : tensors) views.push_back(tensor->view());
  {
    const kernels::jit::TrapScope traps;
    kernels::jit::run(kernel, views, {}, nullptr);
  }
  for (const HostTensor* tensor : tensors) CHECK(tensor->damage().empty());
}

std::string cuda_text(const ir::Kernel& kernel) {
  return codegen::cuda::emit_kernel_text(codegen::lower(kernel));
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace tessera::test
