#pragma once
// A tensor with its memory, on a GPU or in the process, and views of parts of tensors.

#include <tessera/dsl/base/tensor_view.h>
#include <tessera/runtime/driver/memory.h>

#include <cstdint>
#include <vector>

namespace model {

namespace ts = tessera;

class Tensor {
 public:
  Tensor() = default;
  /// A tensor of zeros.
  Tensor(ts::Device device, ts::DType dtype, ts::Dims shape);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  operator const ts::TensorView&() const { return view_; }  // NOLINT: calls take views
  const ts::TensorView& view() const { return view_; }

  template <class T>
  void upload(const std::vector<T>& values) {
    upload(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  template <class T>
  std::vector<T> download() const {
    std::vector<T> values(static_cast<size_t>(view_.span_bytes()) / sizeof(T));
    download(values.data());
    return values;
  }

 private:
  void upload(const void* from, int64_t bytes);
  void download(void* to) const;

  ts::runtime::DeviceBuffer gpu_;
  std::vector<uint8_t> cpu_;
  ts::TensorView view_;
};

/// The same elements in another shape.
ts::TensorView reshaped(const ts::TensorView& view, ts::Dims shape);
/// Columns of a matrix from `first` on, each row of them in the shape [columns] or [heads, channels].
ts::TensorView columns(const ts::TensorView& matrix, int64_t first, ts::Dims shape);

}  // namespace model
