#include "codegen/products/atoms.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/layouts/fragment_layouts.h"
#include "codegen/products/wgmma_fit.h"
#include "dsl/base/error.h"
#include "dsl/layout/mma.h"

namespace tessera::codegen {
namespace {

int64_t extent(const ir::Region& region, size_t axis) {
  return region.extents[static_cast<size_t>(region.order[axis])]->integer;
}

// Dense 16-bit products of one SM of sm_90: 4096 FLOP per clock by wgmma, about 0.62 of that by
// mma.sync.
constexpr double kRateOfMma = 0.62;
constexpr double kSharedBytesPerClock = 128;

double tensor_clocks(const ProductFacts& p) {
  return 2.0 * static_cast<double>(p.m() * p.n() * p.k()) * bits(p.dtype()) / 16 / 4096;
}

/// Clocks to read the operands from shared memory: each column of the grid reads a, each row reads b.
double operand_clocks(const ProductFacts& p, int64_t reads_of_a, int64_t reads_of_b) {
  const bool a_shared = p.gemm.a.buffer->space == ir::Space::shared;
  const bool b_shared = p.gemm.b.buffer->space == ir::Space::shared;
  const int64_t elements =
      (a_shared ? p.m() * reads_of_a : 0) + (b_shared ? p.n() * reads_of_b : 0);
  return static_cast<double>(elements * p.k() * bits(p.dtype()) / 8) / kSharedBytesPerClock;
}

double clocks_of_mma(const ProductFacts& p, const layout::WarpGrid& grid) {
  return tensor_clocks(p) / kRateOfMma + operand_clocks(p, grid.columns, grid.rows);
}

/// The tensor cores read shared memory themselves while they multiply.
double clocks_of_wgmma(const ProductFacts& p, const layout::WarpGrid& grid) {
  const int64_t row_tiles = p.m() / (64 * grid.rows);
  const auto parts = static_cast<int64_t>(wgmma_parts(p.n() / grid.columns, p.dtype()).size());
  return std::max(tensor_clocks(p), operand_clocks(p, grid.columns * parts, grid.rows * row_tiles));
}

/// The builder has checked the shapes.
Fit fit_mma(const ProductFacts& p) {
  return {p.gemm.warps, {}};
}

constexpr Atom kAtoms[] = {
    {ir::Instruction::mma, "mma.sync", 1, 16, fit_mma, clocks_of_mma, layout::mma_accumulator,
     layout::mma_left, layout::mma_right},
    {ir::Instruction::wgmma, "wgmma", 4, 64, fit_wgmma, clocks_of_wgmma, layout::wgmma_accumulator,
     layout::wgmma_left, nullptr},
};

}  // namespace

int64_t ProductFacts::m() const {
  return extent(gemm.a, 0);
}
int64_t ProductFacts::n() const {
  return extent(gemm.b, 1);
}
int64_t ProductFacts::k() const {
  return extent(gemm.a, 1);
}

AxisRange range_of(const ir::Region& fragment, size_t axis) {
  const size_t dim = fragment.buffer->shape.size() - 2 + axis;
  return {fragment.buffer->shape[dim]->integer, fragment.offsets[dim]->integer,
          fragment.extents[dim]->integer};
}

std::span<const Atom> atoms() {
  return kAtoms;
}

const Atom& atom_of(ir::Instruction instruction) {
  for (const Atom& atom : kAtoms) {
    if (atom.instruction == instruction) return atom;
  }
  internal_error("a product of which no pass has chosen the instruction");
}

}  // namespace tessera::codegen
