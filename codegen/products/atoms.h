#pragma once
// The matrix instructions as a table: what each needs of a product, how its operands and its sum are
// spread over the threads, and what it costs.

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

/// A product and what is known about it.
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

/// How a product comes to an instruction: the grid of those that issue it, or why it does not.
struct Fit {
  layout::WarpGrid grid;
  std::string problem;  // empty: it fits
};

struct Atom {
  ir::Instruction instruction;
  std::string_view name;
  int warps = 1;     // that issue one together
  int64_t rows = 0;  // m of one
  Fit (*fit)(const ProductFacts&);
  /// Clocks of one multiprocessor, about: of the tensor cores, and of shared memory that feeds them.
  double (*clocks)(const ProductFacts&, const layout::WarpGrid&);
  layout::Layout (*sum)(int64_t m, int64_t n, layout::WarpGrid);
  layout::Layout (*left)(int64_t m, int64_t k, int element_bits, layout::WarpGrid);
  layout::Layout (*right)(int64_t k, int64_t n, int element_bits,
                          layout::WarpGrid);  // null: shared
};

/// One row for each instruction.
std::span<const Atom> atoms();
/// The row of an instruction that choose_products has chosen.
const Atom& atom_of(ir::Instruction instruction);

/// The columns of a product of `n` columns as those of single wgmma, the fewest and most equal ones; empty
/// if there are none.
///
///   wgmma_parts(320, DType::bf16)  // {160, 160}
///   wgmma_parts(40, DType::i8)     // {24, 16}
std::vector<int64_t> wgmma_parts(int64_t n, DType operand);

/// An operand in shared memory as wgmma takes it.
struct OperandDims {
  size_t row = 0, depth = 0;  // dimensions of the buffer: m or n, and k
  bool transposed = false;    // the contiguous one is m or n
};
/// `row_axis`: of the region, 0 for a and 1 for b. Nothing if the matrix is not the last two dimensions.
std::optional<OperandDims> operand_dims(const ir::Region& region, size_t row_axis);

}  // namespace tessera::codegen
