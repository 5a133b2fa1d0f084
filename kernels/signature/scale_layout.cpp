#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {
namespace {

int64_t padded(int64_t rows) {
  if (rows > INT64_MAX - 3) return rows;  // only an empty tensor has so many rows
  return 4 * num_blocks(rows, 4);
}

DType scale_dtype(SfLayout layout) {
  return layout == SfLayout::packed_ue8m0 ? DType::i32 : DType::f32;
}

Dims scale_shape(SfLayout layout, int64_t rows, int64_t cols) {
  return {rows, layout == SfLayout::packed_ue8m0 ? num_blocks(cols, 4) : cols};
}

void check_shape(ArgCheck& check, ArgCheck::Tensor& tensor, SfLayout layout,
                 const std::string& rows, const std::string& cols) {
  tensor.dtype(scale_dtype(layout));
  if (layout != SfLayout::packed_ue8m0) {
    tensor.shape(rows, cols);
    return;
  }
  const std::string words = cols + "/4";
  check.bind(words, num_blocks(check[cols], 4), "ceil(" + cols + " / 4)");
  tensor.shape(rows, words);
}

}  // namespace

int64_t num_blocks(int64_t extent, int64_t block) {
  return extent == 0 ? 0 : (extent - 1) / block + 1;
}

std::string_view name(SfLayout layout) {
  if (layout == SfLayout::row_major) return "row_major";
  return layout == SfLayout::col_major_tma ? "col_major_tma" : "packed_ue8m0";
}

SfLayout sf_layout_of(const Params& params, const std::string& name) {
  const auto& word = std::get<std::string>(params.at(name));
  if (word == "row_major") return SfLayout::row_major;
  return word == "col_major_tma" ? SfLayout::col_major_tma : SfLayout::packed_ue8m0;
}

OutputInfo scale_output(const std::string& name, SfLayout layout, int64_t rows, int64_t cols) {
  const Dims shape = scale_shape(layout, rows, cols);
  if (layout == SfLayout::row_major || rows == 0) {
    return row_major_output(name, scale_dtype(layout), shape);
  }
  return {name, scale_dtype(layout), shape, {1, padded(rows)}, shape[1] * padded(rows)};
}

void check_scale_output(ArgCheck& check, const std::string& name, const Tensors& tensors,
                        SfLayout layout, const std::string& rows, const std::string& cols) {
  ArgCheck::Tensor tensor = check.output(name, tensors);
  check_shape(check, tensor, layout, rows, cols);
  if (layout == SfLayout::row_major) {
    tensor.row_major();
  } else {
    tensor.strides({1, padded(check[rows])});
    tensor.occupies(written_scales(tensors.at(name), layout, check[rows], check[cols]));
  }
}

void check_scale_input(ArgCheck& check, const std::string& name, const Tensors& tensors,
                       SfLayout layout, const std::string& rows, const std::string& cols) {
  ArgCheck::Tensor tensor = check.tensor(name, tensors);
  check_shape(check, tensor, layout, rows, cols);
  if (layout == SfLayout::row_major) {
    tensor.rows();
  } else {
    tensor.first_stride(1).any_strides();
  }
}

TensorView written_scales(const TensorView& scales, SfLayout layout, int64_t rows, int64_t cols) {
  switch (layout) {
    case SfLayout::row_major:
      break;
    case SfLayout::col_major_tma:
      return {scales.data, DType::f32, {cols, padded(rows)}, scales.device};
    case SfLayout::packed_ue8m0:
      if (cols == 1) return {scales.data, DType::i32, {1, padded(rows)}, scales.device};
      return {scales.data, DType::u8, {num_blocks(cols, 4), padded(rows), 4}, scales.device};
  }
  return scales;
}

TensorView read_scales(const TensorView& scales, SfLayout layout) {
  if (layout == SfLayout::row_major) return scales;
  TensorView view = scales;
  view.shape = {scales.shape[1], scales.shape[0]};
  view.strides = {scales.strides[1], 1};
  return view;
}

}  // namespace tessera::kernels
