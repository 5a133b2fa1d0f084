// TileLowering: matrix products by instructions of one warp.
//
// Per step along k a warp loads its part of both operands, then multiplies all pairs. An operand in
// shared memory is loaded by ldmatrix if its 16-byte rows allow it (transposed if its other
// dimension is contiguous and its elements have 16 bits), else element by element.

#include <fmt/format.h>

#include "codegen/lowering/tile_lowering.h"
#include "codegen/products/atoms.h"
#include "dsl/base/error.h"
#include "dsl/layout/mma.h"

namespace tessera::codegen {

/// One operand in shared memory as `rows` x k, where rows are rows or columns of the product.
struct SharedOperand {
  ir::Region region;
  size_t row_dim = 0, depth_dim = 0;  // of the buffer
};

class GemmLowering {
 public:
  GemmLowering(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc)
      : t_(tiles), gemm_(gemm), loc_(loc) {
    const int64_t m = extent(gemm.a, 0), n = extent(gemm.b, 1);
    per_register_ = 32 / bits(gemm.a.buffer->dtype);
    row_tiles_ = m / gemm.warps.rows / 16;
    column_tiles_ = n / gemm.warps.columns / 8;
    steps_ = extent(gemm.a, 1) / gemm.warps.depths / (8 * per_register_);
    lane_ = t_.thread() % ir::index(kThreadsPerWarp);
    const Expr warp = t_.thread() / ir::index(kThreadsPerWarp);
    first_row_ = warp % ir::index(gemm.warps.rows) * ir::index(row_tiles_ * 16);
    const Expr column = warp / ir::index(gemm.warps.rows) % ir::index(gemm.warps.columns);
    first_column_ = column * ir::index(column_tiles_ * 8);
    first_depth_ = warp / ir::index(gemm.warps.rows * gemm.warps.columns) *
                   ir::index(steps_ * 8 * per_register_);
  }

  void lower() {
    const int64_t e = per_register_;
    const FragmentTiles sum = tiles_of(gemm_.c, 16, gemm_.warps.rows, 8, gemm_.warps.columns, 4);
    const SharedOperand left{gemm_.a, dim(gemm_.a, 0), dim(gemm_.a, 1)};
    const SharedOperand right{gemm_.b, dim(gemm_.b, 1), dim(gemm_.b, 0)};
    t_.result_.notes.push_back(
        fmt::format("{}: gemm over {} x {}{} warps, m16n8k{} of {}: left {}, right {}",
                    to_string(loc_), gemm_.warps.rows, gemm_.warps.columns,
                    gemm_.warps.depths > 1 ? fmt::format(" x {}", gemm_.warps.depths) : "", 8 * e,
                    name(gemm_.a.buffer->dtype), place(left), place(right)));

    t_.unrolled("k", steps_, loc_, [&](const Expr& step) {
      const Expr depth = first_depth_ + step * ir::index(8 * e);
      const Tiles a = operand(
          gemm_.a.buffer, "m", row_tiles_, 4 * e, [&] { return held_left(step); },
          [&](const Slice& into) { load_left(left, into, depth); });
      const Tiles b = operand(
          gemm_.b.buffer, "n", column_tiles_, 2 * e, [&] { return held_right(step); },
          [&](const Slice& into) { load_right(right, into, depth); });
      t_.unrolled("m", row_tiles_, loc_, [&](const Expr& row) {
        t_.unrolled("n", column_tiles_, loc_, [&](const Expr& column) {
          const Expr slot = row * ir::index(sum.row_pitch) + column * ir::index(4);
          const Slice c{sum.array, t_.math_.simplify(ir::index(sum.first) + slot)};
          t_.emit({Mma{c, tile_of(a, row), tile_of(b, column)}, loc_});
        });
      });
    });
  }

 private:
  enum class LoadKind : uint8_t { matrix, transposed, element };

  /// The register tiles of an operand for one step: the first, and the slots between two.
  struct Tiles {
    Slice first;
    int64_t pitch = 0;
  };

  /// The register tiles of a part of a fragment: the first, and the slots between rows of tiles. Columns
  /// of tiles are adjacent.
  struct FragmentTiles {
    ArrayRef array;
    int64_t first = 0, row_pitch = 0;
  };
  /// Tiles of `rows` x `columns` elements in `size` slots, which the owners of both axes share.
  FragmentTiles tiles_of(const ir::Region& region, int64_t rows, int64_t row_owners,
                         int64_t columns, int64_t column_owners, int64_t size) const {
    const AxisRange down = range_of(region, 0), along = range_of(region, 1);
    const int64_t pitch = along.whole / column_owners / columns * size;
    return {t_.array_of(region.buffer),
            down.first / row_owners / rows * pitch + along.first / column_owners / columns * size,
            pitch};
  }
  /// Left: rows of tiles along m, the steps of k adjacent.
  Tiles held_left(const Expr& step) const {
    const int64_t e = per_register_, size = 4 * e;
    const FragmentTiles held =
        tiles_of(gemm_.a, 16, gemm_.warps.rows, 8 * e, gemm_.warps.depths, size);
    return {{held.array, ir::index(held.first) + step * ir::index(size)}, held.row_pitch};
  }
  /// Right: columns of tiles along n, the steps of k adjacent.
  Tiles held_right(const Expr& step) const {
    const int64_t e = per_register_, size = 2 * e;
    const AxisRange depth = range_of(gemm_.b, 0), column = range_of(gemm_.b, 1);
    const int64_t pitch = depth.whole / gemm_.warps.depths / (8 * e) * size;
    const int64_t first =
        column.first / gemm_.warps.columns / 8 * pitch + depth.first / (8 * e) * size;
    return {{t_.array_of(gemm_.b.buffer), ir::index(first) + step * ir::index(size)}, pitch};
  }

  /// `count` tiles of `size` slots in the instruction's layout: those that a fragment holds, or tiles
  /// that `load` loads into new registers; rounded if the product asks for it.
  template <class Held, class Load>
  Tiles operand(const ir::BufferRef& buffer, const char* index, int64_t count, int64_t size,
                const Held& held, const Load& load) {
    const bool rounds = buffer->dtype == DType::f32 && gemm_.tf32 == ir::Tf32::round;
    if (in_registers(*buffer) && !rounds) return held();
    const Tiles fresh{declare(buffer, count * size), size};
    if (!in_registers(*buffer)) load(fresh.first);
    if (rounds) {
      const Tiles from = in_registers(*buffer) ? held() : fresh;
      t_.unrolled(index, count, loc_,
                  [&](const Expr& i) { copy_rounded(tile_of(fresh, i), tile_of(from, i), size); });
    }
    return fresh;
  }
  Slice tile_of(const Tiles& tiles, const Expr& i) const {
    return part(tiles.first, i * ir::index(tiles.pitch));
  }

  static bool in_registers(const ir::Buffer& buffer) { return buffer.space == ir::Space::fragment; }
  const char* place(const SharedOperand& operand) const {
    if (in_registers(*operand.region.buffer)) return "in registers";
    const LoadKind kind = load_kind(operand);
    return kind == LoadKind::matrix       ? "by ldmatrix"
           : kind == LoadKind::transposed ? "by transposed ldmatrix"
                                          : "element by element";
  }
  static int64_t extent(const ir::Region& region, size_t axis) {
    return region.extents[dim(region, axis)]->integer;
  }
  static size_t dim(const ir::Region& region, size_t axis) {
    return static_cast<size_t>(region.order[axis]);
  }

  Slice declare(const ir::BufferRef& from, int64_t size) {
    const Slice slice{t_.new_registers(from->name + "_mma", from->dtype, size, loc_), ir::index(0)};
    t_.emit({Declare{slice.array, false}, loc_});
    return slice;
  }
  Slice part(const Slice& slice, const Expr& first) const {
    return {slice.array, t_.math_.simplify(slice.base + first)};
  }

  /// ldmatrix needs aligned rows of 16 bytes.
  LoadKind load_kind(const SharedOperand& operand) const {
    const ir::Buffer& buffer = *operand.region.buffer;
    const size_t last = buffer.shape.size() - 1;
    const int64_t chunk = 128 / bits(buffer.dtype);
    const ir::Buffer& root = buffer.alias_of ? *buffer.alias_of : buffer;
    const bool aligned = buffer.shape[last]->integer % chunk == 0 &&
                         root.shape.back()->integer % chunk == 0 &&
                         t_.math_.divisor(t_.resolve(operand.region.offsets[last])) % chunk == 0;
    if (!aligned || buffer.shape.size() < 2) return LoadKind::element;
    if (operand.depth_dim == last) return LoadKind::matrix;
    const bool whole = bits(buffer.dtype) == 16 && operand.row_dim == last;
    return whole ? LoadKind::transposed : LoadKind::element;
  }

  Access access(const SharedOperand& operand, const Expr& row, const Expr& depth, int width) {
    std::vector<Expr> indices = t_.resolve(operand.region.offsets);
    indices[operand.row_dim] = indices[operand.row_dim] + row;
    indices[operand.depth_dim] = indices[operand.depth_dim] + depth;
    return t_.access(operand.region.buffer, indices, width, operand.region.terms, loc_);
  }

  void load_matrices(const SharedOperand& operand, LoadKind kind, const Slice& into, int count,
                     const Expr& row, const Expr& depth) {
    const int chunk = 128 / bits(operand.region.buffer->dtype);
    t_.emit(
        {LoadMatrix{access(operand, row, depth, chunk), into, count, kind == LoadKind::transposed},
         loc_});
  }

  /// Register order of a tile: (half of rows, half of k), rows first.
  void load_left(const SharedOperand& operand, const Slice& into, const Expr& depth) {
    const int64_t e = per_register_;
    const LoadKind kind = load_kind(operand);
    t_.unrolled("m", row_tiles_, loc_, [&](const Expr& tile) {
      const Slice to = part(into, tile * ir::index(4 * e));
      const Expr row = first_row_ + tile * ir::index(16);
      if (kind == LoadKind::matrix) {
        load_matrices(operand, kind, to, 4, row + lane_ % ir::index(16),
                      depth + lane_ / ir::index(16) * ir::index(4 * e));
      } else if (kind == LoadKind::transposed) {
        load_matrices(operand, kind, to, 4,
                      row + lane_ / ir::index(8) % ir::index(2) * ir::index(8),
                      depth + lane_ / ir::index(16) * ir::index(8) + lane_ % ir::index(8));
      } else {
        for (int64_t reg = 0; reg < 4; ++reg) {
          load_elements(operand, part(to, ir::index(reg * e)), row + ir::index(reg % 2 * 8),
                        depth + ir::index(reg / 2 * 4 * e));
        }
      }
    });
  }

  void load_right(const SharedOperand& operand, const Slice& into, const Expr& depth) {
    const int64_t e = per_register_;
    const LoadKind kind = load_kind(operand);
    if (kind == LoadKind::element) {
      t_.unrolled("n", column_tiles_, loc_, [&](const Expr& tile) {
        for (int64_t reg = 0; reg < 2; ++reg) {
          load_elements(operand, part(into, tile * ir::index(2 * e) + ir::index(reg * e)),
                        first_column_ + tile * ir::index(8), depth + ir::index(reg * 4 * e));
        }
      });
      return;
    }
    // Two tiles per load, an odd last one alone. Register order: (tile, half of k).
    const auto load = [&](const Expr& tile, int count) {
      const Expr lane8 = lane_ % ir::index(8);
      const Expr half = lane_ / ir::index(8) % ir::index(2);
      const Expr second = count == 4 ? lane_ / ir::index(16) * ir::index(8) : ir::index(0);
      const Expr column = first_column_ + tile * ir::index(8) + second;
      const Slice to = part(into, tile * ir::index(2 * e));
      if (kind == LoadKind::matrix) {
        load_matrices(operand, kind, to, count, column + lane8, depth + half * ir::index(4 * e));
      } else {
        load_matrices(operand, kind, to, count, column, depth + half * ir::index(8) + lane8);
      }
    };
    if (column_tiles_ > 1) {
      t_.unrolled("n", column_tiles_ / 2, loc_,
                  [&](const Expr& pair) { load(pair * ir::index(2), 4); });
    }
    if (column_tiles_ % 2 != 0) load(ir::index(column_tiles_ - 1), 2);
  }

  /// One register per lane: row lane / 4 and E neighbours along k.
  void load_elements(const SharedOperand& operand, const Slice& into, const Expr& row,
                     const Expr& depth) {
    for (int64_t i = 0; i < per_register_; ++i) {
      const Expr k = depth + lane_ % ir::index(4) * ir::index(per_register_) + ir::index(i);
      t_.emit(
          {Load{access(operand, row + lane_ / ir::index(4), k, 1), {}, part(into, ir::index(i))},
           loc_});
    }
  }

  void copy_rounded(const Slice& into, const Slice& from, int64_t count) {
    t_.unrolled("e", count, loc_, [&](const Expr& element) {
      Access at;
      at.array = from.array;
      at.offset = t_.math_.simplify(from.base + element);
      const VarRef value = t_.new_var("value", DType::f32, ir::VarKind::value);
      t_.emit({Load{at, value, {}}, loc_});
      at.array = into.array;
      at.offset = t_.math_.simplify(into.base + element);
      t_.emit({Store{at, ir::unary(ir::Op::round_tf32, ir::var(value)), {}}, loc_});
    });
  }

  TileLowering& t_;
  const ir::Gemm& gemm_;
  const SourceLoc loc_;
  int64_t per_register_ = 1;                              // elements of a 32-bit register
  int64_t row_tiles_ = 1, column_tiles_ = 1, steps_ = 1;  // of one warp
  Expr lane_, first_row_, first_column_, first_depth_;
};

void TileLowering::lower_gemm(const ir::Gemm& gemm, SourceLoc loc) {
  emit({Comment{fmt::format("gemm {} * {} -> {}", gemm.a.buffer->name, gemm.b.buffer->name,
                            gemm.c.buffer->name)},
        loc});
  if (gemm.instruction == ir::Instruction::wgmma) return lower_wgmma(gemm, loc);
  GemmLowering(*this, gemm, loc).lower();
}

}  // namespace tessera::codegen
