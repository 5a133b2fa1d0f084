#pragma once
// The matrix instructions as a table: their requirements on a product, the layouts of operands and
// accumulator, and their cost.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "codegen/thread_group.h"
#include "dsl/base/target.h"
#include "dsl/ir/tile.h"
#include "dsl/layout/layout.h"

namespace tessera::codegen {

/// A product and the facts that the choice needs.
struct ProductFacts {
  const ir::Gemm& gemm;
  const IndexMath& math;  // knows the values of integer lets
  Target target;
  ThreadGroup threads;  // that compute it
  bool is_bulk_target =
      false;  // an operand tile is filled by bulk copies of rows, which do not swizzle

  int64_t m() const;
  int64_t n() const;
  int64_t k() const;
  DType dtype() const { return gemm.a.buffer->dtype; }
};

/// The grid of warps or warp groups that compute a product by an instruction, or why it does not
/// fit.
struct Fit {
  layout::WarpGrid grid;
  std::string problem;      // empty: it fits
  std::string remedy = {};  // of the problem; empty: another instruction
};

struct Atom {
  ir::Instruction instruction;
  std::string_view name;
  int warps = 1;     // number of warps that issue one together
  int64_t rows = 0;  // m of one
  Fit (*fit)(const ProductFacts&);
  /// Estimated clocks of one SM: of the tensor cores, and of the shared memory that feeds them.
  double (*clocks)(const ProductFacts&, const layout::WarpGrid&);
  layout::Layout (*sum)(int64_t m, int64_t n, layout::WarpGrid, layout::GridParts);
  layout::Layout (*left)(int64_t m, int64_t k, int element_bits, layout::WarpGrid,
                         int64_t row_parts);
  layout::Layout (*right)(int64_t k, int64_t n, int element_bits, layout::WarpGrid,
                          int64_t column_parts);  // null: shared
};

/// One row per instruction.
std::span<const Atom> atoms();
/// The row of the instruction that choose_products chose.
const Atom& atom_of(ir::Instruction instruction);

/// One of the two axes of a fragment of a product: the range that the product takes of it.
struct AxisRange {
  int64_t whole = 1, first = 0, extent = 1;

  /// See layout::equal_parts.
  int64_t parts(int64_t owners) const { return layout::equal_parts(whole, first, extent, owners); }
};
/// `axis` is 0 for rows, 1 for columns; the depths before them do not count.
AxisRange range_of(const ir::Region& fragment, size_t axis);

/// Splits `n` columns into the columns of single wgmma instructions, as few and as equal as possible;
/// empty if impossible.
///
///   wgmma_parts(320, DType::bf16)  // {160, 160}
///   wgmma_parts(40, DType::i8)     // {24, 16}
std::vector<int64_t> wgmma_parts(int64_t n, DType operand);

/// The dimensions of a shared operand as wgmma sees it.
struct OperandDims {
  size_t row = 0, depth = 0;  // dimensions of the buffer: m or n, and k
  bool transposed = false;    // the contiguous one is m or n
};
/// `row_axis` is the row axis of the region: 0 for a, 1 for b. Nothing if the matrix is not the last two
/// dimensions.
std::optional<OperandDims> operand_dims(const ir::Region& region, size_t row_axis);

}  // namespace tessera::codegen
