#include "kernels/signature/scale_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "dsl/base/error.h"

namespace tessera::kernels {

SfLayout scale_layout(const TensorRule& scales, const Params& params) {
  const std::string& param = scales.scales->layout_param;
  return param.empty() ? SfLayout::row_major : sf_layout_of(params, param);
}

ScaleBlocks scale_blocks(const Signature& signature, const TensorRule& scales, SfLayout layout,
                         const Scope& scope) {
  if (scales.scales->matrix.empty()) {
    const int64_t together = layout == SfLayout::packed_ue8m0 ? 4 : 1;
    return {scales.shape[0].integer(scope), scales.shape[1].integer(scope) * together,
            scales.shape[0].text(), scales.shape[1].text()};
  }
  const TensorRule& matrix = *signature.find_tensor(scales.scales->matrix);
  TESSERA_CHECK(matrix.shape.size() == 2, "scales of something else than a matrix");
  std::vector<int64_t> block;
  for (const Expression& part : scales.scales->block) {
    const ParamValue value = part.value(scope);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      block = *list;
    } else if (std::holds_alternative<std::monostate>(value)) {
      block = {1, matrix.shape[1].integer(scope)};  // none: one scale per row
    } else {
      block.push_back(std::get<int64_t>(value));
    }
  }
  block.resize(2, 1);
  for (int64_t& extent : block) extent = std::max<int64_t>(extent, 1);
  const auto formula = [&](size_t dim) {
    return fmt::format("ceil({} / {})", matrix.shape[dim].text(), block[dim]);
  };
  return {num_blocks(matrix.shape[0].integer(scope), block[0]),
          num_blocks(matrix.shape[1].integer(scope), block[1]), formula(0), formula(1)};
}

}  // namespace tessera::kernels
