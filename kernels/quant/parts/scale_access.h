#pragma once
// Access to scale tensors inside kernels: a kernel names the block and does not see the layout.

#include "kernels/quant/parts/scale_factor.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {

/// The output `out_sf` of `rows` x `cols` scales. The call passes written_scales().
class ScaleWriter {
 public:
  ScaleWriter(dsl::Builder& k, SfLayout layout, const dsl::Value& rows, int64_t cols)
      : layout_(layout),
        cols_(cols),
        rows_(rows),
        written_rows_(layout == SfLayout::row_major ? rows
                                                    : k.dim("padded_rows", {.multiple_of = 4})),
        scales_(declare(k)) {}

  /// Number of rows to store, padding included: the grid must cover them.
  const dsl::Value& rows() const { return written_rows_; }
  /// Tiles must be a multiple of this many columns, so that each word of packed scales is stored
  /// whole.
  static int64_t cols_together(SfLayout layout) { return layout == SfLayout::packed_ue8m0 ? 4 : 1; }

  /// Stores the scale of block (row, col), or 0 in padding. Blocks beyond the padding are ignored.
  void store(const dsl::Value& row, const dsl::Value& col, const ScaleFactor& sf) const {
    using namespace dsl;
    switch (layout_) {
      case SfLayout::row_major:
        scales_(row, col) = sf.scale;
        break;
      case SfLayout::col_major_tma:
        scales_(col, row) = select(row < rows_, sf.scale, 0.0f);
        break;
      case SfLayout::packed_ue8m0:
        if (cols_ == 1) {  // the other three bytes of the word are unused
          scales_(col, row) = i32(select(row < rows_, sf.exponent, 0));
        } else {
          scales_(col / 4, row, col % 4) =
              cast(DType::u8, select(row < rows_ && col < cols_, sf.exponent, 0));
        }
        break;
    }
  }

 private:
  dsl::Ref declare(dsl::Builder& k) const {
    switch (layout_) {
      case SfLayout::row_major:
        break;
      case SfLayout::col_major_tma:
        return k.output("out_sf", DType::f32, {cols_, written_rows_}, {.align = 4});
      case SfLayout::packed_ue8m0:
        if (cols_ == 1) return k.output("out_sf", DType::i32, {1, written_rows_}, {.align = 4});
        return k.output("out_sf", DType::u8, {(cols_ + 3) / 4, written_rows_, 4}, {.align = 4});
    }
    return k.output("out_sf", DType::f32, {rows_, cols_}, {.align = 4});
  }

  SfLayout layout_;
  int64_t cols_;
  dsl::Value rows_, written_rows_;
  dsl::Ref scales_;
};

/// An input of `rows` x `cols` scales. The call passes read_scales(). Address and stride are
/// multiples of `vector` scales.
class ScaleReader {
 public:
  ScaleReader(dsl::Builder& k, const std::string& name, SfLayout layout, const dsl::Value& rows,
              int64_t cols, int64_t vector = 1)
      : layout_(layout), scales_(declare(k, name, rows, cols, vector)) {}

  /// Loads the scale of block (row, col), f32.
  dsl::Value load(const dsl::Value& row, const dsl::Value& col) const {
    using namespace dsl;
    switch (layout_) {
      case SfLayout::row_major:
        break;
      case SfLayout::col_major_tma:
        return scales_(col, row);
      case SfLayout::packed_ue8m0: {
        auto word = reinterpret(DType::u32, scales_(col / 4, row));
        return reinterpret(DType::f32, (word >> u32(col % 4 * 8) & 255) << 23);
      }
    }
    return scales_(row, col);
  }

 private:
  dsl::Ref declare(dsl::Builder& k, const std::string& name, const dsl::Value& rows, int64_t cols,
                   int64_t vector) const {
    const dsl::Value stride = k.stride(name + "_stride", {.multiple_of = vector});
    const dsl::TensorOptions options{.strides = {stride, 1}, .align = 4 * vector};
    if (layout_ == SfLayout::row_major) return k.input(name, DType::f32, {rows, cols}, options);
    if (layout_ == SfLayout::col_major_tma) return k.input(name, DType::f32, {cols, rows}, options);
    return k.input(name, DType::i32, {(cols + 3) / 4, rows}, options);
  }

  SfLayout layout_;
  dsl::Ref scales_;
};

}  // namespace tessera::kernels
