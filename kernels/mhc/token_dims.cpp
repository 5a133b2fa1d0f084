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

Dims TokenDims::output(const TensorView& checked, std::initializer_list<int64_t> others) const {
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

void require_streams(const ArgCheck& check, std::string_view tensor, int64_t most) {
  const int64_t streams = check["n"];
  const std::string expected = "1 <= n <= " + std::to_string(most);
  check.require(streams >= 1, tensor, "there must be a stream", expected, "0");
  check.require(streams <= most, tensor, "so many streams are not supported", expected,
                std::to_string(streams), ErrorKind::unsupported);
}

}  // namespace tessera::kernels::mhc
