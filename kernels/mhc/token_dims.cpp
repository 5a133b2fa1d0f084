#include "kernels/mhc/token_dims.h"

#include <algorithm>
#include <string>

namespace tessera::kernels::mhc {

TokenDims::TokenDims(const Tensors& tensors, std::string_view name, int other_dims) {
  const auto found = tensors.find(std::string(name));
  if (found != tensors.end()) rank_ = std::max(1, found->second.rank() - other_dims);
}

std::vector<Extent> TokenDims::shape(std::initializer_list<Extent> others) const {
  std::vector<Extent> extents;
  for (int i = 0; i < rank_; ++i) {
    extents.emplace_back(rank_ == 1 ? std::string("T") : "T" + std::to_string(i));
  }
  extents.insert(extents.end(), others);
  return extents;
}

Dims TokenDims::output(const ArgCheck& check, std::string_view name, const TensorView& checked,
                       std::initializer_list<int64_t> others) const {
  const int most = kMaxRank - static_cast<int>(others.size());
  check.require(rank_ <= most, name, "so many token dimensions are not supported",
                "at most " + std::to_string(most), std::to_string(rank_), ErrorKind::unsupported);
  Dims shape;
  for (int i = 0; i < rank_; ++i) shape.push_back(checked.shape[i]);
  for (const int64_t extent : others) shape.push_back(extent);
  return shape;
}

TensorView TokenDims::flat(const TensorView& checked) const {
  int64_t tokens = 1;
  for (int i = 0; i < rank_; ++i) tokens *= checked.shape[i];
  Dims shape{tokens};
  for (int i = rank_; i < checked.rank(); ++i) shape.push_back(checked.shape[i]);
  return TensorView(checked.data, checked.dtype, shape, checked.device);
}

TensorView TokenDims::flat_rows(const ArgCheck& check, std::string_view name,
                                const TensorView& checked) const {
  TensorView flat = checked;
  flat.shape = Dims{1};
  flat.strides = Dims{checked.strides[rank_ - 1]};
  int64_t expected = 0;  // stride that the next larger dimension must have
  for (int i = rank_ - 1; i >= 0; --i) {
    if (checked.shape[i] == 1) continue;
    check.require(expected == 0 || checked.strides[i] == expected, name,
                  "rows of several token dimensions must lie evenly apart", "even strides",
                  to_string(checked), ErrorKind::unsupported);
    if (expected == 0) flat.strides[0] = checked.strides[i];
    expected = checked.strides[i] * checked.shape[i];
  }
  for (int i = 0; i < rank_; ++i) flat.shape[0] *= checked.shape[i];
  for (int i = rank_; i < checked.rank(); ++i) {
    flat.shape.push_back(checked.shape[i]);
    flat.strides.push_back(checked.strides[i]);
  }
  return flat;
}

void require_streams(const ArgCheck& check, std::string_view tensor, int64_t most) {
  const int64_t streams = check["n"];
  const std::string expected = "1 <= n <= " + std::to_string(most);
  check.require(streams >= 1, tensor, "there must be a stream", expected, "0");
  check.require(streams <= most, tensor, "so many streams are not supported", expected,
                std::to_string(streams), ErrorKind::unsupported);
}

}  // namespace tessera::kernels::mhc
