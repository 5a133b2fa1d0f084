#include "tensor.h"

#include <cstring>
#include <stdexcept>

namespace model {

Tensor::Tensor(ts::Device device, ts::DType dtype, ts::Dims shape)
    : view_(nullptr, dtype, shape, device) {
  if (view_.size() == 0) return;
  if (device.is_cuda()) {
    gpu_ = ts::runtime::DeviceBuffer(device.ordinal, view_.span_bytes());
    gpu_.fill(0);
    view_.data = gpu_.data();
  } else {
    cpu_.resize(static_cast<size_t>(view_.span_bytes()));
    view_.data = cpu_.data();
  }
}

void Tensor::upload(const void* from, int64_t bytes) {
  if (bytes != view_.span_bytes()) throw std::logic_error("upload of another size");
  if (bytes == 0) return;
  if (view_.device.is_cuda()) {
    gpu_.upload(from, bytes);
  } else {
    std::memcpy(view_.data, from, static_cast<size_t>(bytes));
  }
}

void Tensor::download(void* to) const {
  if (view_.size() == 0) return;
  if (view_.device.is_cuda()) {
    gpu_.download(to, view_.span_bytes());
  } else {
    std::memcpy(to, view_.data, static_cast<size_t>(view_.span_bytes()));
  }
}

ts::TensorView reshaped(const ts::TensorView& view, ts::Dims shape) {
  return {view.data, view.dtype, shape, view.device};
}

ts::TensorView columns(const ts::TensorView& matrix, int64_t first, ts::Dims shape) {
  ts::Dims all{matrix.shape[0]}, strides{matrix.strides[0]};
  const ts::Dims inner = ts::row_major_strides(shape);
  for (int i = 0; i < shape.rank; ++i) {
    all.push_back(shape[i]);
    strides.push_back(inner[i]);
  }
  auto* const data = static_cast<char*>(matrix.data) + first * ts::bytes(matrix.dtype);
  return {data, matrix.dtype, all, strides, matrix.device};
}

}  // namespace model
