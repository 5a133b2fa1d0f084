#pragma once
// Tensors of numbers that every machine draws alike.

#include <tessera/dsl/base/small_float.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tensor.h"

namespace model {

template <class T>
Tensor filled(ts::Device device, ts::DType dtype, ts::Dims shape, const std::vector<T>& values) {
  Tensor result(device, dtype, shape);
  result.upload(values);
  return result;
}

inline Tensor filled_bf16(ts::Device device, ts::Dims shape, const std::vector<float>& values) {
  std::vector<uint16_t> codes(values.size());
  std::transform(values.begin(), values.end(), codes.begin(), ts::to_bf16);
  return filled(device, ts::DType::bf16, shape, codes);
}

class Random {
 public:
  Random(ts::Device device, uint64_t seed) : device_(device), state_(seed) {}

  ts::Device device() const { return device_; }

  /// Numbers around `mean`, of that standard deviation.
  std::vector<float> numbers(int64_t count, double deviation, double mean = 0) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
      value = static_cast<float>(mean + deviation * std::sqrt(3.0) * (2 * uniform() - 1));
    }
    return values;
  }
  /// The same in f32 or bf16.
  Tensor tensor(ts::DType dtype, ts::Dims shape, double deviation, double mean = 0) {
    const std::vector<float> values = numbers(ts::num_elements(shape), deviation, mean);
    return dtype == ts::DType::f32 ? filled(device_, dtype, shape, values)
                                   : filled_bf16(device_, shape, values);
  }
  /// A matrix that keeps the size of the rows it multiplies.
  Tensor matrix(int64_t rows, int64_t columns, double gain = 1) {
    return tensor(ts::DType::bf16, {rows, columns}, gain / std::sqrt(static_cast<double>(columns)));
  }
  /// The weight of a norm.
  Tensor norm(int64_t channels) { return tensor(ts::DType::bf16, {channels}, 0.1, 1); }

 private:
  double uniform() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

  ts::Device device_;
  uint64_t state_;
};

}  // namespace model
