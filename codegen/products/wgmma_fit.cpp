#include "codegen/products/wgmma_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/target_facts.h"

namespace tessera::codegen {
namespace {

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

Fit fit_shape(const ProductFacts& p) {
  if (!facts_of(p.target).has_wgmma) {
    return {{}, fmt::format("{} has no wgmma", to_string(p.target))};
  }
  // With all warps along the rows wgmma holds the sum as mma.sync does: one kernel for targets with and without it.
  const bool is_by_rows =
      p.gemm.warps.rows == p.threads.count / kWarpLanes && p.gemm.warps.columns == 1;
  if (p.gemm.is_grid_given && !(p.gemm.instruction == ir::Instruction::wgmma && is_by_rows)) {
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
  if (p.gemm.warps.depths != 1) {
    return {{}, fmt::format("warp_depths is {}", p.gemm.warps.depths), "leave out warp_depths"};
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

std::optional<OperandDims> operand_dims(const ir::Region& region, size_t row_axis) {
  const size_t rank = region.buffer->shape.size();
  const auto row = static_cast<size_t>(region.order[row_axis]);
  const auto depth = static_cast<size_t>(region.order[1 - row_axis]);
  if (rank < 2 || std::min(row, depth) != rank - 2 || std::max(row, depth) != rank - 1) {
    return std::nullopt;
  }
  return OperandDims{row, depth, row == rank - 1};
}

Fit fit_wgmma(const ProductFacts& p) {
  for (const auto& fit : {fit_shape, fit_operands}) {
    if (Fit misfit = fit(p); !misfit.problem.empty()) return misfit;
  }
  const int64_t groups = p.threads.count / kGroup;
  for (int64_t rows = groups; rows > 0; --rows) {
    if (groups % rows != 0) continue;
    const layout::WarpGrid grid{rows, groups / rows};
    if (p.gemm.is_grid_given && grid.columns != 1) break;
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

}  // namespace tessera::codegen
