#include "dsl/base/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "dsl/base/error.h"

namespace tessera {
namespace {

// Counts saturate here: too large for every check, never small or zero.
constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();

int64_t product_of(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kTooMany : product;
}

int64_t sum_of(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooMany : sum;
}

void check_rank(size_t rank) {
  if (rank <= size_t{kMaxRank}) return;
  throw Error({.kind = ErrorKind::argument,
               .what = "a tensor has too many dimensions",
               .expected = fmt::format("at most {}", kMaxRank),
               .got = fmt::format("{}", rank),
               .code = "SHAPE"});
}

// The rank, clamped to what the arrays can hold.
int num_dims(const Dims& dims) {
  return static_cast<int>(dims.end() - dims.begin());
}

}  // namespace

std::string to_string(Device device) {
  return device.is_cuda() ? fmt::format("cuda:{}", device.ordinal) : "cpu";
}

Dims::Dims(std::initializer_list<int64_t> list) : Dims(std::span(list.begin(), list.size())) {}
Dims::Dims(std::span<const int64_t> list) {
  check_rank(list.size());
  for (const int64_t value : list) push_back(value);
}

void Dims::push_back(int64_t value) {
  check_rank(static_cast<size_t>(rank) + 1);
  values[static_cast<size_t>(rank++)] = value;
}

bool operator==(const Dims& a, const Dims& b) {
  return a.rank == b.rank && std::equal(a.begin(), a.end(), b.begin());
}

int64_t num_elements(const Dims& shape) {
  // A zero extent decides before the others can overflow.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t product = 1;
  for (const int64_t extent : shape) product = product_of(product, extent);
  return product;
}

Dims row_major_strides(const Dims& shape) {
  Dims strides = shape;
  uint64_t stride = 1;  // wraps only if the tensor is empty, where strides mean nothing
  for (int i = num_dims(shape) - 1; i >= 0; --i) {
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
  for (int i = 0; i < num_dims(shape); ++i) {
    if (shape[i] != 1 && strides[i] != dense[i]) return false;
  }
  return true;
}

int64_t TensorView::span_bytes() const {
  if (size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < num_dims(shape); ++i)
    last = sum_of(last, product_of(shape[i] - 1, strides[i]));
  const int64_t elements = sum_of(last, 1);
  // Two e2m1 lie in one byte.
  return bits(dtype) == 4 ? elements / 2 + elements % 2 : product_of(elements, bytes(dtype));
}

std::optional<ViewDefect> find_defect(const TensorView& view) {
  const int rank = view.shape.rank;
  if (rank < 0 || rank > kMaxRank) {
    return ViewDefect{fmt::format("0 to {} dimensions", kMaxRank), fmt::format("{}", rank)};
  }
  if (view.strides.rank != rank) {
    return ViewDefect{fmt::format("{} strides, like extents", rank),
                      fmt::format("{}", view.strides.rank)};
  }
  if (static_cast<int>(view.dtype) >= kNumDTypes) {
    return ViewDefect{fmt::format("a dtype, number 0 to {}", kNumDTypes - 1),
                      fmt::format("number {}", static_cast<int>(view.dtype))};
  }
  const bool exists = view.device.kind <= Device::Kind::cuda && view.device.ordinal >= 0;
  if (!exists) {
    return ViewDefect{
        "a device, the cpu or a CUDA device from 0 on",
        fmt::format("kind {}, number {}", static_cast<int>(view.device.kind), view.device.ordinal)};
  }
  return std::nullopt;
}

std::string to_string(const TensorView& view) {
  const int rank = view.shape.rank;
  if (rank < 0 || rank > kMaxRank) return fmt::format("{} of rank {}", name(view.dtype), rank);
  std::string text = fmt::format("{}{}", name(view.dtype), to_string(view.shape));
  if (!view.is_row_major()) text += ", strides " + to_string(view.strides);
  return text;
}

}  // namespace tessera
