#include "kernels/mhc/projection_args.h"

#include <cstdint>
#include <string>

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kMaxStreams = 65536;  // widths stay far below 2^31
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxSums = INT32_MAX;  // tokens * M: the sums of a part are one row

TensorView find(const Tensors& tensors, const char* name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? TensorView() : found->second;
}

}  // namespace

ProjectionShape check_projection(ArgCheck& check, const TokenDims& tokens, const Tensors& tensors,
                                 int64_t num_splits) {
  check.tensor("residual", tensors)
      .dtype(DType::bf16)
      .shape_of(tokens.shape({"n", "H"}))
      .row_major();
  require_streams(check, "residual", kMaxStreams);
  int64_t width = 0;
  if (__builtin_mul_overflow(check["n"], check["H"], &width)) width = INT64_MAX;
  check.bind("n*H", width, "n * H of residual");
  check.require(width % kRunUnit == 0, "residual", "a row has the wrong number of columns",
                "n * H a multiple of " + std::to_string(kRunUnit), std::to_string(width));
  check.require(width <= kMaxWidth, "residual", "rows this long are not supported",
                "n * H at most " + std::to_string(kMaxWidth), std::to_string(width),
                ErrorKind::unsupported);
  check.tensor("fn", tensors).dtype(DType::f32).shape("M", "n*H").row_major();
  check.require(check["M"] >= 1, "fn", "there must be a row", "M >= 1", "0");
  check.require(check["M"] <= kMaxEntries, "fn", "so many rows are not supported",
                "M at most " + std::to_string(kMaxEntries), std::to_string(check["M"]),
                ErrorKind::unsupported);
  check.optional("norm_weight", tensors).dtype(DType::f32).shape("n*H").row_major();
  check.param_in_range("n_splits", num_splits, 1, 16);
  const int64_t count = num_elements(tokens.output(check, "residual", tensors.at("residual"), {}));
  check.require(count <= kMaxSums / check["M"], "residual", "so many tokens are not supported",
                "at most " + std::to_string(kMaxSums / check["M"]), std::to_string(count),
                ErrorKind::unsupported);
  return {count, check["M"], width, num_splits};
}

void check_workspace(ArgCheck& check, const Tensors& tensors, int64_t elements) {
  check.output("workspace", tensors).dtype(DType::f32).shape(elements).row_major();
}

OutputInfo workspace_info(int64_t elements) {
  return {"workspace", DType::f32, {elements}, {1}, elements, /*workspace=*/true};
}

ProjectionTensors projection_tensors(const Tensors& tensors, bool is_last_reader) {
  return {find(tensors, "residual"), find(tensors, "fn"), find(tensors, "norm_weight"),
          find(tensors, "workspace"), is_last_reader};
}

}  // namespace tessera::kernels::mhc
