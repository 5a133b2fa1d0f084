#include "tools/lib/trial.h"

#include <cstring>

#include "dsl/base/small_float.h"
#include "kernels/jit/jit.h"
#include "tools/lib/bench/copy_rate.h"
#include "tools/lib/calls/device_tensors.h"
#include "tools/lib/calls/random_tensor.h"
#include "tools/lib/host_buffer.h"

namespace tessera::tools {
namespace {

double value_at(DType dtype, const std::byte* data, int64_t i) {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::f64:
      return read(double{});
    case DType::f32:
      return read(float{});
    case DType::bf16:
      return small_float::Bf16::decode(read(uint16_t{}));
    case DType::f16:
      return small_float::F16::decode(read(uint16_t{}));
    case DType::e4m3:
      return small_float::E4m3::decode(read(uint8_t{}));
    case DType::i32:
      return read(int32_t{});
    case DType::i64:
      return static_cast<double>(read(int64_t{}));
    default:
      throw std::logic_error(fmt::format("no values of {}", name(dtype)));
  }
}

void write(const TrialTensor& tensor, std::byte* data) {
  const auto put = [&]<class T>(T) {
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const T value = static_cast<T>(tensor.values[i]);
      std::memcpy(data + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (static_cast<int64_t>(tensor.values.size()) != num_elements(tensor.shape)) {
    throw std::logic_error("an input of a trial has another number of values than elements");
  }
  if (tensor.dtype == DType::f32) return put(float{});
  if (tensor.dtype == DType::i32) return put(int32_t{});
  if (tensor.dtype == DType::bf16) {
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const uint16_t bits = small_float::Bf16::encode(static_cast<float>(tensor.values[i]));
      std::memcpy(data + i * sizeof bits, &bits, sizeof bits);
    }
    return;
  }
  throw std::logic_error(fmt::format("given values of {}", name(tensor.dtype)));
}

}  // namespace

void run(const ir::Kernel& kernel, std::vector<TrialTensor>& tensors, const std::string& device,
         double flops) {
  const Device on = parse_device(device);
  std::vector<DeviceMemory> memory;
  std::vector<TensorView> views;
  uint64_t seed = 0;
  int64_t moved = 0;
  for (TrialTensor& tensor : tensors) {
    const int64_t count = num_elements(tensor.shape);
    const int64_t size = count * bytes(tensor.dtype);
    memory.emplace_back(on, size);
    if (!tensor.is_output) {
      HostBuffer values = random_tensor(tensor.dtype, count, ++seed);
      if (!tensor.values.empty()) write(tensor, values.data());
      memory.back().upload(values.bytes());
    }
    views.push_back({memory.back().data(), tensor.dtype, tensor.shape, on});
    moved += size;
  }
  const kernels::jit::Function function(kernel);
  function(views, {}, nullptr);
  for (size_t t = 0; t < tensors.size(); ++t) {
    HostBuffer content(memory[t].bytes());
    memory[t].download(content.bytes());
    tensors[t].values.resize(static_cast<size_t>(num_elements(tensors[t].shape)));
    for (size_t i = 0; i < tensors[t].values.size(); ++i) {
      tensors[t].values[i] = value_at(tensors[t].dtype, content.data(), static_cast<int64_t>(i));
    }
  }
  if (!on.is_cuda()) return;
  runtime::DeviceTimer timer(on.ordinal);
  const double us = timer.measure([&] { function(views, {}, nullptr); }).us;
  fmt::print("{}: {:.1f} us", describe(on), us);
  if (flops > 0) fmt::print(", {:.0f} TFLOP/s", flops / us / 1e6);
  const double rate = static_cast<double>(moved) / us / 1e3;
  fmt::print(", {:.0f} GB/s, {:.1f} % of a copy\n", rate,
             100 * rate / CopyRate(timer).gbs(moved / 2));
}

}  // namespace tessera::tools
