// TileLowering: matrix products by instructions of four warps.
//
// All steps of k of all parts of the product are issued as one group, then awaited. The tensor cores read
// operands in shared memory themselves. For 8-bit floats the hardware keeps 13 bits of a sum, so sums are
// promoted: each run of `promote` along k is summed from 0 in separate registers and then added.

#include <fmt/format.h>

#include "codegen/lowering/tile_lowering.h"
#include "codegen/products/atoms.h"
#include "dsl/base/error.h"

namespace tessera::codegen {

class WgmmaLowering {
 public:
  WgmmaLowering(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc)
      : t_(tiles), gemm_(gemm), loc_(loc) {
    const auto extent = [](const ir::Region& region, size_t axis) {
      return region.extents[static_cast<size_t>(region.order[axis])]->integer;
    };
    depth_ = 256 / bits(gemm.a.buffer->dtype);
    row_tiles_ = extent(gemm.a, 0) / gemm.warps.rows / 64;
    columns_ = extent(gemm.b, 1) / gemm.warps.columns;
    steps_ = extent(gemm.a, 1) / depth_;
    parts_ = wgmma_parts(columns_, gemm.a.buffer->dtype);
    if (gemm.warps.rows * gemm.warps.columns > 1) {
      const Expr group = t_.thread() / ir::index(128);
      first_row_ = group % ir::index(gemm.warps.rows) * ir::index(row_tiles_ * 64);
      first_column_ = group / ir::index(gemm.warps.rows) * ir::index(columns_);
    }
  }

  void lower() {
    const Sum sum = sum_of(gemm_.c);
    const int64_t promoted = gemm_.promote / depth_;  // steps
    if (promoted == 0) return product(sum, 0, steps_);
    const int64_t size = columns_ / 2;  // slots of a tile of 64 rows
    const bool is_run = sum.pitch == size || row_tiles_ == 1;
    for (int64_t step = 0; step < steps_; step += promoted) {
      const ArrayRef part = t_.new_registers(gemm_.c.buffer->name + "_part", sum.array->dtype,
                                             size * row_tiles_, loc_);
      t_.emit({Declare{part, true}, loc_});
      product({part, 0, size}, step, step + promoted);
      for (int64_t tile = 0; tile < (is_run ? 1 : row_tiles_); ++tile) {
        t_.unrolled("e", is_run ? part->size : size, loc_, [&](const Expr& e) {
          add({sum.array, t_.math_.simplify(ir::index(sum.first + tile * sum.pitch) + e)},
              {part, t_.math_.simplify(ir::index(tile * size) + e)});
        });
      }
    }
  }

 private:
  using Sync = WgmmaSync::Kind;

  /// The registers of a product or of a part of one: the first, and the slots between tiles of 64 rows.
  struct Sum {
    ArrayRef array;
    int64_t first = 0, pitch = 0;
  };
  Sum sum_of(const ir::Region& region) const {
    const AxisRange rows = range_of(region, 0), columns = range_of(region, 1);
    const int64_t pitch = columns.whole / gemm_.warps.columns / 2;
    return {t_.array_of(region.buffer),
            rows.first / gemm_.warps.rows / 64 * pitch + columns.first / gemm_.warps.columns / 2,
            pitch};
  }

  void product(const Sum& sum, int64_t begin, int64_t end) {
    const Slice whole{sum.array, ir::index(0)};
    t_.emit({WgmmaSync{Sync::start, whole, sum.array->size}, loc_});
    for (int64_t step = begin; step < end; ++step) {
      for (int64_t tile = 0; tile < row_tiles_; ++tile) {
        int64_t column = 0;
        for (const int64_t n : parts_) {
          instruction(sum, step, tile, column, n);
          column += n;
        }
      }
    }
    t_.emit({WgmmaSync{Sync::commit, {}}, loc_});
    t_.emit({WgmmaSync{Sync::wait, whole, sum.array->size}, loc_});
  }

  void instruction(const Sum& sum, int64_t step, int64_t tile, int64_t column, int64_t n) {
    Wgmma node;
    node.c = {sum.array, ir::index(sum.first + tile * sum.pitch + column / 2)};
    const Expr depth = ir::index(step * depth_);
    if (gemm_.a.buffer->space == ir::Space::fragment) {
      // layout::wgmma_left: four registers per step, the steps of a tile adjacent.
      const int64_t size = 4 * depth_ / 8;
      const AxisRange rows = range_of(gemm_.a, 0), depths = range_of(gemm_.a, 1);
      const int64_t row = rows.first / gemm_.warps.rows / 64 + tile;
      const int64_t at = row * (depths.whole / depth_) + depths.first / depth_ + step;
      node.a = {t_.array_of(gemm_.a.buffer), ir::index(at * size)};
    } else {
      node.left = matrix(gemm_.a, 0, first_row_ + ir::index(tile * 64), depth, 64);
    }
    node.right = matrix(gemm_.b, 1, first_column_ + ir::index(column), depth, n);
    t_.emit({std::move(node), loc_});
  }

  SharedMatrix matrix(const ir::Region& region, size_t row_axis, const Expr& row, const Expr& depth,
                      int64_t rows) {
    const auto dims = operand_dims(region, row_axis);
    TESSERA_CHECK(dims.has_value(), "an operand of wgmma whose tile does not fit");
    std::vector<Expr> indices = t_.resolve(region.offsets);
    indices[dims->row] = indices[dims->row] + row;
    indices[dims->depth] = indices[dims->depth] + depth;
    const int width = 128 / bits(region.buffer->dtype);
    return {t_.access(region.buffer, indices, width, region.terms, loc_), rows, dims->transposed};
  }

  void add(const Slice& sum, const Slice& part) {
    Access from, to;
    from.array = part.array;
    from.offset = part.base;
    to.array = sum.array;
    to.offset = sum.base;
    const VarRef before = t_.new_var("sum", sum.array->dtype, ir::VarKind::value);
    const VarRef value = t_.new_var("part", sum.array->dtype, ir::VarKind::value);
    t_.emit({Load{to, before, {}}, loc_});
    t_.emit({Load{from, value, {}}, loc_});
    t_.emit({Store{to, ir::var(before) + ir::var(value), {}}, loc_});
  }

  TileLowering& t_;
  const ir::Gemm& gemm_;
  const SourceLoc loc_;
  int64_t depth_ = 0;                                // elements of one step of k
  int64_t row_tiles_ = 0, columns_ = 0, steps_ = 0;  // of one group of warps
  std::vector<int64_t> parts_;                       // of its columns
  Expr first_row_ = ir::index(0), first_column_ = ir::index(0);
};

void TileLowering::lower_wgmma(const ir::Gemm& gemm, SourceLoc loc) {
  WgmmaLowering(*this, gemm, loc).lower();
}

}  // namespace tessera::codegen
