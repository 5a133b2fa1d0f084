// mma.sync: matrix products by instructions of one warp, m16n8 and 32 bytes of k. Every target has it.
//
// The grid of warps is the one that reads the operands least often. Per step along k a warp loads its part of both
// operands, then multiplies all pairs. An operand in shared memory is loaded by ldmatrix if its 16-byte rows allow it
// (transposed if its other dimension is contiguous and its elements have 16 bits), else element by element. An operand
// in registers lies as layout::mma_left and mma_right say, the sum as mma_accumulator.

#include "dsl/layout/mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codegen/products/product_lowering.h"

namespace tessera::codegen {
namespace {

// ---- fit and cost

/// The ranges that a product takes of its fragments, and what a warp takes of each.
struct Shares {
  std::vector<AxisRange> rows, columns;
  bool has_parts = false;

  explicit Shares(const ir::Gemm& gemm) {
    add(gemm.a, &rows, nullptr);
    add(gemm.b, nullptr, &columns);
    add(gemm.c, &rows, &columns);
  }
  bool are_equal(const layout::WarpGrid& grid) const {
    return divide(rows, kRows, grid.rows) && divide(columns, kColumns, grid.columns);
  }
  static constexpr int64_t kRows = 16, kColumns = 8;  // of one instruction

 private:
  void add(const ir::Region& region, std::vector<AxisRange>* down, std::vector<AxisRange>* along) {
    if (region.buffer->space != ir::Space::fragment) return;
    for (const size_t axis : {size_t{0}, size_t{1}}) {
      const AxisRange range = range_of(region, axis);
      has_parts = has_parts || range.extent != range.whole;
      std::vector<AxisRange>* const list = axis == 0 ? down : along;
      if (list != nullptr) list->push_back(range);
    }
  }
  static bool divide(const std::vector<AxisRange>& ranges, int64_t step, int64_t owners) {
    return std::all_of(ranges.begin(), ranges.end(), [&](const AxisRange& range) {
      const int64_t parts = range.parts(owners);
      return parts != 0 && range.whole % (step * owners * parts) == 0;
    });
  }
};

/// All grids of the warps that divide the product and the parts of fragments, ordered by operand traffic per
/// warp, then by more rows.
Fit fit_mma(const ProductFacts& p) {
  const Shares shares(p.gemm);
  const layout::WarpGrid& given = p.gemm.plan.grid;
  const int64_t m = p.m(), n = p.n();
  const int64_t warps = p.threads.num_warps() / given.depths;
  layout::WarpGrid best{0, 0, given.depths};
  for (int64_t rows = warps; rows > 0; --rows) {
    if (warps % rows != 0) continue;
    const layout::WarpGrid grid{rows, warps / rows, given.depths};
    if (m % (Shares::kRows * grid.rows) != 0 || n % (Shares::kColumns * grid.columns) != 0)
      continue;
    if (!shares.are_equal(grid)) continue;
    if (given.rows != 0 && given.rows != grid.rows) continue;
    if (given.columns != 0 && given.columns != grid.columns) continue;
    const auto traffic = [&](const layout::WarpGrid& g) { return m / g.rows + n / g.columns; };
    if (best.rows == 0 || traffic(grid) < traffic(best)) best = grid;
  }
  if (best.rows != 0) return {best};
  const auto wanted = [](int64_t count) {
    return count == 0 ? std::string("any") : fmt::format("{}", count);
  };
  return {.problem = "the warps of the block do not divide the product",
          .expected = fmt::format(
              "m a multiple of 16 x warp_rows, n of 8 x warp_columns, warp_rows x warp_columns = "
              "number of warps for each depth{}",
              shares.has_parts ? "; equal parts of a fragment along an axis of several warps" : ""),
          .got = fmt::format("m {}, n {}, {} warps, warp_rows {}, warp_columns {}", m, n, warps,
                             wanted(given.rows), wanted(given.columns))};
}

// A share of the rate of the tensor cores of sm_90.
constexpr double kRate = 0.62;

double clocks_of_mma(const ProductFacts& p, const layout::WarpGrid& grid) {
  return tensor_clocks(p) / kRate + operand_clocks(p, grid.columns, grid.rows);
}

// ---- lowering

/// One operand in shared memory as `rows` x k, where rows are rows or columns of the product.
struct SharedOperand {
  ir::Region region;
  size_t row_dim = 0, depth_dim = 0;  // of the buffer
};

class MmaLowering : public ProductLowering {
 public:
  MmaLowering(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc)
      : ProductLowering(tiles, gemm, loc) {
    const int64_t m = extent(gemm.a, 0), n = extent(gemm.b, 1);
    per_register_ = 32 / bits(gemm.a.buffer->dtype);
    row_tiles_ = m / gemm.plan.grid.rows / 16;
    column_tiles_ = n / gemm.plan.grid.columns / 8;
    steps_ = extent(gemm.a, 1) / gemm.plan.grid.depths / (8 * per_register_);
    lane_ = thread() % ir::index(kThreadsPerWarp);
    const Expr warp = thread() / ir::index(kThreadsPerWarp);
    first_row_ = warp % ir::index(gemm.plan.grid.rows) * ir::index(row_tiles_ * 16);
    const Expr column = warp / ir::index(gemm.plan.grid.rows) % ir::index(gemm.plan.grid.columns);
    first_column_ = column * ir::index(column_tiles_ * 8);
    first_depth_ = warp / ir::index(gemm.plan.grid.rows * gemm.plan.grid.columns) *
                   ir::index(steps_ * 8 * per_register_);
  }

  void lower() {
    const int64_t e = per_register_;
    const FragmentTiles sum =
        tiles_of(gemm_.c, 16, gemm_.plan.grid.rows, 8, gemm_.plan.grid.columns, 4);
    const SharedOperand left{gemm_.a, dimension(gemm_.a, 0), dimension(gemm_.a, 1)};
    const SharedOperand right{gemm_.b, dimension(gemm_.b, 1), dimension(gemm_.b, 0)};
    note(fmt::format("{}: gemm over {} x {}{} warps, m16n8k{} of {}: left {}, right {}",
                     to_string(loc_), gemm_.plan.grid.rows, gemm_.plan.grid.columns,
                     gemm_.plan.grid.depths > 1 ? fmt::format(" x {}", gemm_.plan.grid.depths) : "",
                     8 * e, name(gemm_.a.buffer->dtype), place(left), place(right)));

    unrolled("k", steps_, [&](const Expr& step) {
      const Expr depth = first_depth_ + step * ir::index(8 * e);
      const Tiles a = operand(
          gemm_.a.buffer, "m", row_tiles_, 4 * e, [&] { return held_left(step); },
          [&](const Slice& into) { load_left(left, into, depth); });
      const Tiles b = operand(
          gemm_.b.buffer, "n", column_tiles_, 2 * e, [&] { return held_right(step); },
          [&](const Slice& into) { load_right(right, into, depth); });
      unrolled("m", row_tiles_, [&](const Expr& row) {
        unrolled("n", column_tiles_, [&](const Expr& column) {
          const Expr slot = row * ir::index(sum.row_pitch) + column * ir::index(4);
          const Slice c{sum.array, simplify(ir::index(sum.first) + slot)};
          emit(Mma{.c = c, .a = tile_of(a, row), .b = tile_of(b, column)});
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
    return {array_of(region.buffer),
            down.first / row_owners / rows * pitch + along.first / column_owners / columns * size,
            pitch};
  }
  /// Left: rows of tiles along m, the steps of k adjacent.
  Tiles held_left(const Expr& step) const {
    const int64_t e = per_register_, size = 4 * e;
    const FragmentTiles held =
        tiles_of(gemm_.a, 16, gemm_.plan.grid.rows, 8 * e, gemm_.plan.grid.depths, size);
    return {{held.array, ir::index(held.first) + step * ir::index(size)}, held.row_pitch};
  }
  /// Right: columns of tiles along n, the steps of k adjacent.
  Tiles held_right(const Expr& step) const {
    const int64_t e = per_register_, size = 2 * e;
    const AxisRange depth = range_of(gemm_.b, 0), column = range_of(gemm_.b, 1);
    const int64_t pitch = depth.whole / gemm_.plan.grid.depths / (8 * e) * size;
    const int64_t first =
        column.first / gemm_.plan.grid.columns / 8 * pitch + depth.first / (8 * e) * size;
    return {{array_of(gemm_.b.buffer), ir::index(first) + step * ir::index(size)}, pitch};
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
      unrolled(index, count,
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
  Slice declare(const ir::BufferRef& from, int64_t size) {
    const Slice slice{new_registers(from->name + "_mma", from->dtype, size), ir::index(0)};
    emit(Declare{slice.array, false});
    return slice;
  }
  Slice part(const Slice& slice, const Expr& first) const {
    return {slice.array, simplify(slice.base + first)};
  }

  /// ldmatrix needs aligned rows of 16 bytes.
  LoadKind load_kind(const SharedOperand& operand) const {
    const ir::Buffer& buffer = *operand.region.buffer;
    const size_t last = buffer.shape.size() - 1;
    const int64_t chunk = 128 / bits(buffer.dtype);
    const ir::Buffer& root = buffer.alias_of ? *buffer.alias_of : buffer;
    const bool aligned = buffer.shape[last]->integer % chunk == 0 &&
                         root.shape.back()->integer % chunk == 0 &&
                         divisor((operand.region.offsets[last])) % chunk == 0;
    if (!aligned || buffer.shape.size() < 2) return LoadKind::element;
    if (operand.depth_dim == last) return LoadKind::matrix;
    const bool whole = bits(buffer.dtype) == 16 && operand.row_dim == last;
    return whole ? LoadKind::transposed : LoadKind::element;
  }

  Access access(const SharedOperand& operand, const Expr& row, const Expr& depth, int width) {
    std::vector<Expr> indices = resolve(operand.region.offsets);
    indices[operand.row_dim] = indices[operand.row_dim] + row;
    indices[operand.depth_dim] = indices[operand.depth_dim] + depth;
    return ProductLowering::access(operand.region, indices, width);
  }

  void load_matrices(const SharedOperand& operand, LoadKind kind, const Slice& into, int count,
                     const Expr& row, const Expr& depth) {
    const int chunk = 128 / bits(operand.region.buffer->dtype);
    emit(LoadMatrix{access(operand, row, depth, chunk), into, count, kind == LoadKind::transposed});
  }

  /// Register order of a tile: (half of rows, half of k), rows first.
  void load_left(const SharedOperand& operand, const Slice& into, const Expr& depth) {
    const int64_t e = per_register_;
    const LoadKind kind = load_kind(operand);
    unrolled("m", row_tiles_, [&](const Expr& tile) {
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
      unrolled("n", column_tiles_, [&](const Expr& tile) {
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
      unrolled("n", column_tiles_ / 2, [&](const Expr& pair) { load(pair * ir::index(2), 4); });
    }
    if (column_tiles_ % 2 != 0) load(ir::index(column_tiles_ - 1), 2);
  }

  /// One register per lane: row lane / 4 and E neighbours along k.
  void load_elements(const SharedOperand& operand, const Slice& into, const Expr& row,
                     const Expr& depth) {
    for (int64_t i = 0; i < per_register_; ++i) {
      const Expr k = depth + lane_ % ir::index(4) * ir::index(per_register_) + ir::index(i);
      emit(Load{access(operand, row + lane_ / ir::index(4), k, 1), {}, part(into, ir::index(i))});
    }
  }

  void copy_rounded(const Slice& into, const Slice& from, int64_t count) {
    unrolled("e", count, [&](const Expr& element) {
      Access at;
      at.array = from.array;
      at.offset = simplify(from.base + element);
      const VarRef value = new_value("value", DType::f32);
      emit(Load{at, value, {}});
      at.array = into.array;
      at.offset = simplify(into.base + element);
      emit(Store{at, ir::unary(ir::Op::round_tf32, ir::var(value)), {}});
    });
  }

  int64_t per_register_ = 1;                              // elements of a 32-bit register
  int64_t row_tiles_ = 1, column_tiles_ = 1, steps_ = 1;  // of one warp
  Expr lane_, first_row_, first_column_, first_depth_;
};

void lower_mma(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc) {
  MmaLowering(tiles, gemm, loc).lower();
}

}  // namespace

extern constinit const Atom kMma;
constinit const Atom kMma = {.instruction = ir::Instruction::mma,
                             .name = "mma.sync",
                             .fit = fit_mma,
                             .clocks = clocks_of_mma,
                             .sum = layout::mma_accumulator,
                             .left = layout::mma_left,
                             .right = layout::mma_right,
                             .lower = lower_mma};

}  // namespace tessera::codegen
