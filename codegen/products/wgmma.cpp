// wgmma: matrix products by instructions of four warps, m64 and 32 bytes of k, on sm_90a.
//
// The tensor cores read operands in shared memory themselves, by the async proxy: the right one always, the left one unless
// it lies in registers as layout::wgmma_left says. Both need a swizzle of the hardware. The sum lies as
// layout::wgmma_accumulator says. The grid counts groups of four warps and has as many rows as possible.
//
// All steps of k of all parts of the product are issued as one group; waits/ places its wait. For 8-bit floats the hardware keeps 13
// bits of a sum, so sums are promoted: each run of `promote` along k is summed from 0 in separate registers and then added.

#include "codegen/products/wgmma.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "codegen/products/product_lowering.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"
#include "dsl/layout/mma.h"

namespace tessera::codegen {
namespace {

// ---- fit and cost

constexpr int64_t kGroup = 128,
                  kWarpLanes = 32;  // threads that issue one instruction, and of a warp
constexpr int64_t kRows = 64, kMaxWgmmaColumns = 256;

bool is_legal(int64_t n, DType operand) {
  if (n < 8 || n > kMaxWgmmaColumns || n % 8 != 0) return false;
  return operand != DType::i8 || n <= 24 || n % 16 == 0;
}

/// Splits `n` columns into `count` parts, larger ones first.
bool split(int64_t n, int64_t count, DType operand, std::vector<int64_t>& parts) {
  if (count == 1) {
    if (!is_legal(n, operand)) return false;
    parts.push_back(n);
    return true;
  }
  for (int64_t part = (n + count - 1) / count; part <= std::min(n, kMaxWgmmaColumns); ++part) {
    if (!is_legal(part, operand)) continue;
    parts.push_back(part);
    if (split(n - part, count - 1, operand, parts)) return true;
    parts.pop_back();
  }
  return false;
}

/// The dimensions of a shared operand.
struct OperandDims {
  size_t row = 0, depth = 0;  // dimensions of the buffer: m or n, and k
  bool transposed = false;    // the contiguous one is m or n
};
/// `row_axis` is the row axis of the region: 0 for a, 1 for b. Nothing if the matrix is not the last two
/// dimensions.
std::optional<OperandDims> operand_dims(const ir::Region& region, size_t row_axis) {
  const size_t rank = region.buffer->shape.size();
  const auto row = static_cast<size_t>(region.order[row_axis]);
  const auto depth = static_cast<size_t>(region.order[1 - row_axis]);
  if (rank < 2 || std::min(row, depth) != rank - 2 || std::max(row, depth) != rank - 1) {
    return std::nullopt;
  }
  return OperandDims{row, depth, row == rank - 1};
}

/// The hardware swizzles by the bytes of a panel row, widest first.
constexpr int64_t kSpans[] = {128, 64, 32};

/// Finds the first failed condition of a shared operand.
class OperandFit {
 public:
  OperandFit(const ProductFacts& product, const ir::Region& region, size_t row_axis,
             const char* role)
      : p_(product), region_(region), row_axis_(row_axis), role_(role) {}

  std::string problem(const std::vector<int64_t>& starts) const {
    const ir::Buffer& buffer = *region_.buffer;
    const auto dims = operand_dims(region_, row_axis_);
    if (!dims) return fmt::format("{} is not in the last two dimensions of its tile", role_);
    const int element_bits = bits(buffer.dtype);
    if (dims->transposed && element_bits != 16) {
      return fmt::format("{}-bit operands are K-major: {} is contiguous along {}{}", element_bits,
                         role_, row_axis_ == 0 ? "m" : "n",
                         row_axis_ == 1 ? "; store it as [n, k] and pass b.transposed()" : "");
    }
    if (buffer.alias_of) return fmt::format("{} is a reshaped view", role_);
    const size_t last = buffer.shape.size() - 1;
    const int64_t columns = buffer.shape[last]->integer, rows = buffer.shape[last - 1]->integer;
    const int64_t column = divisor(last), row = divisor(last - 1);
    const bool has_matrices = buffer.shape.size() > 2;
    if (row % 8 != 0 || (has_matrices && rows % 8 != 0)) {
      return fmt::format("{} does not begin at a multiple of 8 rows of its tile", role_);
    }
    // Along k an instruction takes 32 bytes; along m or n it takes whole panels.
    for (const int64_t span : kSpans) {
      const int64_t panel = span * 8 / element_bits;
      const int64_t unit = dims->transposed ? panel : 256 / element_bits;
      const bool parts_fit =
          !dims->transposed ||
          std::all_of(starts.begin(), starts.end(), [&](int64_t s) { return s % panel == 0; });
      if (columns % panel == 0 && column % unit == 0 && parts_fit) return {};
    }
    return fmt::format("no swizzle of the hardware fits rows of {} {} of {}", columns,
                       name(buffer.dtype), role_);
  }

 private:
  int64_t divisor(size_t dim) const { return p_.math.divisor(region_.offsets[dim]); }

  const ProductFacts& p_;
  const ir::Region& region_;
  const size_t row_axis_;
  const char* role_;
};

bool is_grid_given(const ir::Gemm& gemm) {
  return gemm.plan.grid.rows != 0 || gemm.plan.grid.columns != 0;
}

Fit fit_shape(const ProductFacts& p) {
  if (!facts_of(p.target).has_wgmma) {
    return {{}, fmt::format("{} has no wgmma", to_string(p.target))};
  }
  // With all warps along the rows wgmma holds the sum as mma.sync does: one kernel for targets with and without it.
  const layout::WarpGrid& given = p.gemm.plan.grid;
  const bool is_by_rows = (given.rows == 0 || given.rows == p.threads.count / kWarpLanes) &&
                          (given.columns == 0 || given.columns == 1);
  const bool is_asked = p.gemm.instruction == ir::Instruction::wgmma;
  if (is_grid_given(p.gemm) && !(is_asked && is_by_rows)) {
    return {{},
            "the grid of warps is given",
            "leave out warp_rows and warp_columns: wgmma has a grid of its own"};
  }
  if (p.threads.first % kGroup != 0 || p.threads.count % kGroup != 0) {
    return {
        {},
        fmt::format("{} threads are no whole groups of {}", p.threads.count, kGroup),
        fmt::format("multiply with a multiple of {} threads, in a role by .warpgroups", kGroup)};
  }
  if (given.depths != 1) {
    return {{}, fmt::format("warp_depths is {}", given.depths), "leave out warp_depths"};
  }
  if (p.m() % kRows != 0) {
    return {{},
            fmt::format("m {} is no multiple of {}", p.m(), kRows),
            fmt::format("let the rows of a be a multiple of {}", kRows)};
  }
  return {};
}

/// True if each group holds its share of the parts of fragments that the product takes.
bool shares_parts(const ProductFacts& p, const layout::WarpGrid& grid) {
  const auto divides = [](const AxisRange& range, int64_t unit, int64_t owners) {
    const int64_t parts = range.parts(owners);
    return parts != 0 && range.first % unit == 0 && range.whole % (unit * owners * parts) == 0;
  };
  const bool left = p.gemm.a.buffer->space != ir::Space::fragment ||
                    divides(range_of(p.gemm.a, 0), kRows, grid.rows);
  return left && divides(range_of(p.gemm.c, 0), kRows, grid.rows) &&
         divides(range_of(p.gemm.c, 1), 8, grid.columns);
}

Fit fit_operands(const ProductFacts& p) {
  if (p.gemm.b.buffer->space != ir::Space::shared) {
    return {{}, "b is a fragment", "copy b into a shared tile"};
  }
  if (p.is_bulk_target) {
    return {{},
            "rows of an operand come by bulk copies, which do not swizzle",
            "leave out bulk(), or copy by Engine::tensor"};
  }
  if (p.dtype() == DType::f32 && p.gemm.tf32 == ir::Tf32::round) {
    return {{},
            "f32 operands would have to be rounded in shared memory; tf32 = truncate takes them as "
            "they are",
            "pass .tf32 = ir::Tf32::truncate"};
  }
  const bool is_8_bit_float = is_float(p.dtype()) && bits(p.dtype()) == 8;
  if (is_8_bit_float && p.gemm.promote > 0 && p.k() % p.gemm.promote != 0) {
    return {{},
            fmt::format("k {} is no multiple of promote, {}", p.k(), p.gemm.promote),
            "choose a promote that divides k"};
  }
  return {};
}

}  // namespace

std::vector<int64_t> wgmma_parts(int64_t n, DType operand) {
  std::vector<int64_t> parts;
  for (int64_t count = (n + kMaxWgmmaColumns - 1) / kMaxWgmmaColumns; count <= n / 8; ++count) {
    if (split(n, count, operand, parts)) break;
  }
  return parts;
}

namespace {

/// The grid of groups with as many rows as possible, or the first failed condition.
Fit fit_wgmma(const ProductFacts& p) {
  for (const auto& fit : {fit_shape, fit_operands}) {
    if (Fit misfit = fit(p); !misfit.problem.empty()) return misfit;
  }
  const int64_t groups = p.threads.count / kGroup;
  for (int64_t rows = groups; rows > 0; --rows) {
    if (groups % rows != 0) continue;
    const layout::WarpGrid grid{rows, groups / rows};
    if (is_grid_given(p.gemm) && grid.columns != 1) break;
    if (p.m() % (kRows * rows) != 0 || p.n() % grid.columns != 0) continue;
    if (!shares_parts(p, grid)) continue;
    const std::vector<int64_t> parts = wgmma_parts(p.n() / grid.columns, p.dtype());
    if (parts.empty()) continue;
    std::vector<int64_t> starts = {p.n() / grid.columns};  // of the second group, and its multiples
    for (int64_t start = 0; const int64_t part : parts)
      starts.push_back(std::exchange(start, start + part));
    std::string problem = OperandFit(p, p.gemm.b, 1, "b").problem(starts);
    if (problem.empty() && p.gemm.a.buffer->space == ir::Space::shared) {
      problem = OperandFit(p, p.gemm.a, 0, "a").problem({kRows});
    }
    return {grid, problem};
  }
  return {
      {},
      fmt::format("{} groups of four warps do not divide m {} and n {}, or the fragments of which "
                  "they are parts",
                  groups, p.m(), p.n())};
}

/// The tensor cores read shared memory themselves while they multiply.
double clocks_of_wgmma(const ProductFacts& p, const layout::WarpGrid& grid) {
  const int64_t row_tiles = p.m() / (kRows * grid.rows);
  const auto parts = static_cast<int64_t>(wgmma_parts(p.n() / grid.columns, p.dtype()).size());
  return std::max(tensor_clocks(p), operand_clocks(p, grid.columns * parts, grid.rows * row_tiles));
}

// ---- lowering

class WgmmaLowering : public ProductLowering {
 public:
  WgmmaLowering(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc)
      : ProductLowering(tiles, gemm, loc) {
    depth_ = 256 / bits(gemm.a.buffer->dtype);
    row_tiles_ = extent(gemm.a, 0) / gemm.plan.grid.rows / 64;
    columns_ = extent(gemm.b, 1) / gemm.plan.grid.columns;
    steps_ = extent(gemm.a, 1) / depth_;
    parts_ = wgmma_parts(columns_, gemm.a.buffer->dtype);
    if (gemm.plan.grid.rows * gemm.plan.grid.columns > 1) {
      const Expr group = thread() / ir::index(128);
      first_row_ = group % ir::index(gemm.plan.grid.rows) * ir::index(row_tiles_ * 64);
      first_column_ = group / ir::index(gemm.plan.grid.rows) * ir::index(columns_);
    }
  }

  void lower() {
    const Sum sum = sum_of(gemm_.c);
    const int64_t promoted = gemm_.promote / depth_;  // steps
    if (promoted == 0) return product(sum, 0, steps_);
    const int64_t size = columns_ / 2;  // slots of a tile of 64 rows
    const bool is_run = sum.pitch == size || row_tiles_ == 1;
    for (int64_t step = 0; step < steps_; step += promoted) {
      const ArrayRef part =
          new_registers(gemm_.c.buffer->name + "_part", sum.array->dtype, size * row_tiles_);
      emit(Declare{part, true});
      product({part, 0, size}, step, step + promoted);
      for (int64_t tile = 0; tile < (is_run ? 1 : row_tiles_); ++tile) {
        unrolled("e", is_run ? part->size : size, [&](const Expr& e) {
          add({sum.array, simplify(ir::index(sum.first + tile * sum.pitch) + e)},
              {part, simplify(ir::index(tile * size) + e)});
        });
      }
    }
  }

 private:
  /// The registers of a product or of a part of one: the first, and the slots between tiles of 64 rows.
  struct Sum {
    ArrayRef array;
    int64_t first = 0, pitch = 0;
  };
  Sum sum_of(const ir::Region& region) const {
    const AxisRange rows = range_of(region, 0), columns = range_of(region, 1);
    const int64_t pitch = columns.whole / gemm_.plan.grid.columns / 2;
    return {array_of(region.buffer),
            rows.first / gemm_.plan.grid.rows / 64 * pitch +
                columns.first / gemm_.plan.grid.columns / 2,
            pitch};
  }

  void product(const Sum& sum, int64_t begin, int64_t end) {
    const Slice whole{sum.array, ir::index(0)};
    emit(Fence{Fence::Of::registers, whole, sum.array->size});
    for (int64_t step = begin; step < end; ++step) {
      for (int64_t tile = 0; tile < row_tiles_; ++tile) {
        int64_t column = 0;
        for (const int64_t n : parts_) {
          instruction(sum, step, tile, column, n);
          column += n;
        }
      }
    }
    emit(Commit{Work::products});
  }

  void instruction(const Sum& sum, int64_t step, int64_t tile, int64_t column, int64_t n) {
    Mma node;
    node.c = {sum.array, ir::index(sum.first + tile * sum.pitch + column / 2)};
    const Expr depth = ir::index(step * depth_);
    if (gemm_.a.buffer->space == ir::Space::fragment) {
      // layout::wgmma_left: four registers per step, the steps of a tile adjacent.
      const int64_t size = 4 * depth_ / 8;
      const AxisRange rows = range_of(gemm_.a, 0), depths = range_of(gemm_.a, 1);
      const int64_t row = rows.first / gemm_.plan.grid.rows / 64 + tile;
      const int64_t at = row * (depths.whole / depth_) + depths.first / depth_ + step;
      node.a = {array_of(gemm_.a.buffer), ir::index(at * size)};
    } else {
      node.left = matrix(gemm_.a, 0, first_row_ + ir::index(tile * 64), depth, 64);
    }
    node.right = matrix(gemm_.b, 1, first_column_ + ir::index(column), depth, n);
    emit(std::move(node));
  }

  SharedMatrix matrix(const ir::Region& region, size_t row_axis, const Expr& row, const Expr& depth,
                      int64_t rows) {
    const auto dims = operand_dims(region, row_axis);
    TESSERA_CHECK(dims.has_value(), "an operand of wgmma whose tile does not fit");
    std::vector<Expr> indices = resolve(region.offsets);
    indices[dims->row] = indices[dims->row] + row;
    indices[dims->depth] = indices[dims->depth] + depth;
    const int width = 128 / bits(region.buffer->dtype);
    return {ProductLowering::access(region, indices, width), rows, dims->transposed};
  }

  void add(const Slice& sum, const Slice& part) {
    Access from, to;
    from.array = part.array;
    from.offset = part.base;
    to.array = sum.array;
    to.offset = sum.base;
    const VarRef before = new_value("sum", sum.array->dtype);
    const VarRef value = new_value("part", sum.array->dtype);
    emit(Load{to, before, {}});
    emit(Load{from, value, {}});
    emit(Store{to, ir::var(before) + ir::var(value), {}});
  }

  int64_t depth_ = 0;                                // elements of one step of k
  int64_t row_tiles_ = 0, columns_ = 0, steps_ = 0;  // of one group of warps
  std::vector<int64_t> parts_;                       // of its columns
  Expr first_row_ = ir::index(0), first_column_ = ir::index(0);
};

void lower_wgmma(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc) {
  WgmmaLowering(tiles, gemm, loc).lower();
}

}  // namespace

extern constinit const Atom kWgmma;
constinit const Atom kWgmma = {.instruction = ir::Instruction::wgmma,
                               .name = "wgmma",
                               .warps = 4,
                               .is_async = true,
                               .reads_shared = true,
                               .fit = fit_wgmma,
                               .clocks = clocks_of_wgmma,
                               .sum = layout::wgmma_accumulator,
                               .left = layout::wgmma_left,
                               .right = nullptr,
                               .lower = lower_wgmma};

}  // namespace tessera::codegen
