#pragma once
// The matrix instructions as a table: what passes ask of one. The file of each says which products it fits, what they cost,
// where operands and sum lie and how a product becomes thread statements.

#include <optional>
#include <set>
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
  layout::WarpGrid grid = {};
  std::string problem = {};   // empty: it fits
  std::string remedy = {};    // of the problem; empty: another instruction
  std::string expected = {};  // of a problem with all instructions
  std::string got = {};
};

class TileLowering;

struct Atom {
  ir::Instruction instruction;  // the author's word for it
  std::string_view name;
  int warps = 1;              // that issue one together
  bool is_async = false;      // it goes on in the background
  bool reads_shared = false;  // the tensor cores read operands in shared memory themselves
  Fit (*fit)(const ProductFacts&);
  /// Estimated clocks of one SM: of the tensor cores, and of the shared memory that feeds them.
  double (*clocks)(const ProductFacts&, const layout::WarpGrid&);
  layout::Layout (*sum)(int64_t m, int64_t n, layout::WarpGrid, layout::GridParts);
  layout::Layout (*left)(int64_t m, int64_t k, int element_bits, layout::WarpGrid,
                         int64_t row_parts);
  layout::Layout (*right)(int64_t k, int64_t n, int element_bits, layout::WarpGrid,
                          int64_t column_parts);  // null: shared
  void (*lower)(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc);
};

/// The table. A new instruction is a file and a row of atom_list.h.
std::span<const Atom* const> atoms();
/// The row of the instruction that choose_products chose.
const Atom& atom_of(const ir::Gemm& gemm);

/// Clocks of the tensor cores of one SM of sm_90 at their full rate, 4096 FLOP of 16 bits per clock.
double tensor_clocks(const ProductFacts& p);
/// Clocks to read the operands in shared memory so many times.
double operand_clocks(const ProductFacts& p, int64_t reads_of_a, int64_t reads_of_b);

/// Adds the ids of the shared tiles that the tensor cores read themselves, by the async proxy.
void add_tiles_read(const ir::Gemm& gemm, std::set<int>& tiles);

/// One of the two axes of a fragment of a product: the range that the product takes of it.
struct AxisRange {
  int64_t whole = 1, first = 0, extent = 1;

  /// See layout::equal_parts.
  int64_t parts(int64_t owners) const { return layout::equal_parts(whole, first, extent, owners); }
};
/// `axis` is 0 for rows, 1 for columns; the depths before them do not count.
AxisRange range_of(const ir::Region& fragment, size_t axis);

}  // namespace tessera::codegen
