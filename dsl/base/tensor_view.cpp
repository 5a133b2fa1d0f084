#include "dsl/base/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "dsl/base/error.h"

namespace tessera {
namespace {

// Counts that no 64 bits hold stay at the largest: too many for every check, never few or none.
constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();

int64_t product_of(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kTooMany : product;
}

int64_t sum_of(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooMany : sum;
}

}  // namespace

std::string to_string(Device device) {
  return device.is_cuda() ? fmt::format("cuda:{}", device.ordinal) : "cpu";
}

Dims::Dims(std::initializer_list<int64_t> list) : Dims(std::span(list.begin(), list.size())) {}
Dims::Dims(std::span<const int64_t> list) {
  for (const int64_t value : list) push_back(value);
}

void Dims::push_back(int64_t value) {
  TESSERA_CHECK(rank < kMaxRank, "a tensor of more than 8 dimensions");
  values[static_cast<size_t>(rank++)] = value;
}

bool operator==(const Dims& a, const Dims& b) {
  return a.rank == b.rank && std::equal(a.begin(), a.end(), b.begin());
}

int64_t num_elements(const Dims& shape) {
  // A zero decides before the others can overflow.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t product = 1;
  for (const int64_t extent : shape) product = product_of(product, extent);
  return product;
}

Dims row_major_strides(const Dims& shape) {
  Dims strides = shape;
  uint64_t stride = 1;  // wraps only where the tensor is empty and strides mean nothing
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(shape[i]);
  }
  return strides;
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

TensorView::TensorView(void* data_, DType dtype_, Dims shape_, Device device_)
    : TensorView(data_, dtype_, shape_, row_major_strides(shape_), device_) {}

TensorView::TensorView(void* data_, DType dtype_, Dims shape_, Dims strides_, Device device_)
    : data(data_), dtype(dtype_), device(device_), shape(shape_), strides(strides_) {}

bool TensorView::is_row_major() const {
  if (size() == 0) return true;
  const Dims dense = row_major_strides(shape);
  for (int i = 0; i < rank(); ++i) {
    if (shape[i] != 1 && strides[i] != dense[i]) return false;
  }
  return true;
}

int64_t TensorView::span_bytes() const {
  if (size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last = sum_of(last, product_of(shape[i] - 1, strides[i]));
  return product_of(sum_of(last, 1), bytes(dtype));
}

std::string to_string(const TensorView& view) {
  std::string text = fmt::format("{}{}", name(view.dtype), to_string(view.shape));
  if (!view.is_row_major()) text += ", strides " + to_string(view.strides);
  return text;
}

}  // namespace tessera
