#include "codegen/products/atoms.h"

#include "codegen/products/atom_list.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/layout/mma.h"

namespace tessera::codegen {

#define TESSERA_ROW(atom) extern const Atom atom;
TESSERA_ATOMS(TESSERA_ROW)
#undef TESSERA_ROW

namespace {

int64_t extent(const ir::Region& region, size_t axis) {
  return region.extents[static_cast<size_t>(region.order[axis])]->integer;
}

constexpr double kSharedBytesPerClock = 128;

#define TESSERA_ROW(atom) &atom,
constexpr const Atom* kAtoms[] = {TESSERA_ATOMS(TESSERA_ROW)};
#undef TESSERA_ROW

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

double tensor_clocks(const ProductFacts& p) {
  return 2.0 * static_cast<double>(p.m() * p.n() * p.k()) * bits(p.dtype()) / 16 / 4096;
}

double operand_clocks(const ProductFacts& p, int64_t reads_of_a, int64_t reads_of_b) {
  const bool a_shared = p.gemm.a.buffer->space == ir::Space::shared;
  const bool b_shared = p.gemm.b.buffer->space == ir::Space::shared;
  const int64_t elements =
      (a_shared ? p.m() * reads_of_a : 0) + (b_shared ? p.n() * reads_of_b : 0);
  return static_cast<double>(elements * p.k() * bits(p.dtype()) / 8) / kSharedBytesPerClock;
}

AxisRange range_of(const ir::Region& fragment, size_t axis) {
  const size_t dim = fragment.buffer->shape.size() - 2 + axis;
  return {fragment.buffer->shape[dim]->integer, fragment.offsets[dim]->integer,
          fragment.extents[dim]->integer};
}

std::span<const Atom* const> atoms() {
  return kAtoms;
}

const Atom& atom_of(const ir::Gemm& gemm) {
  for (const Atom* atom : kAtoms) {
    if (atom->name == gemm.plan.atom) return *atom;
  }
  internal_error("a product of which no pass has chosen the instruction");
}

void add_tiles_read(const ir::Gemm& gemm, std::set<int>& tiles) {
  if (!atom_of(gemm).reads_shared) return;
  for (const ir::Region* region : {&gemm.a, &gemm.b}) {
    tiles.insert(storage_of(*region->buffer).id);
  }
}

}  // namespace tessera::codegen
