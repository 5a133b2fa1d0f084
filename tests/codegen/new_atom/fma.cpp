// A made-up matrix instruction: threads multiply element by element, f32 from shared tiles. It shows that a new instruction is
// this file and a row of atom_list.h.

#include "codegen/products/product_lowering.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kLanes = 32;

/// Whole products over all warps, one after another along m.
Fit fit_fma(const ProductFacts& p) {
  const bool is_shared =
      p.gemm.a.buffer->space == ir::Space::shared && p.gemm.b.buffer->space == ir::Space::shared;
  const int64_t warps = p.threads.num_warps();
  const AxisRange rows = range_of(p.gemm.c, 0), columns = range_of(p.gemm.c, 1);
  const bool is_whole = rows.extent == rows.whole && columns.extent == columns.whole;
  if (p.dtype() != DType::f32 || !is_shared || !is_whole || p.gemm.plan.grid.depths != 1 ||
      p.m() % warps != 0 || p.n() % kLanes != 0) {
    return {{}, "no product of whole f32 tiles in shared memory"};
  }
  return {{warps, 1}};
}

/// Row i lies in warp i % warps, column j in lane j % 32.
layout::Layout sum_of(int64_t m, int64_t n, layout::WarpGrid grid, layout::GridParts) {
  const int64_t per_row = n / kLanes;
  return layout::Layout({m, n}, {{0, 1, grid.rows, kLanes, 0},
                                 {0, grid.rows, m / grid.rows, 0, per_row},
                                 {1, 1, kLanes, 1, 0},
                                 {1, kLanes, per_row, 0, 1}});
}

class FmaLowering : public ProductLowering {
 public:
  FmaLowering(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc)
      : ProductLowering(tiles, gemm, loc) {}

  void lower() {
    const Expr warp = thread() / ir::index(kLanes), lane = thread() % ir::index(kLanes);
    const int64_t warps = gemm_.plan.grid.rows, per_row = extent(gemm_.b, 1) / kLanes;
    unrolled("i", extent(gemm_.a, 0) / warps, [&](const Expr& i) {
      unrolled("j", per_row, [&](const Expr& j) {
        unrolled("k", extent(gemm_.a, 1), [&](const Expr& k) {
          add(i * ir::index(per_row) + j, load(gemm_.a, i * ir::index(warps) + warp, k),
              load(gemm_.b, k, j * ir::index(kLanes) + lane));
        });
      });
    });
  }

 private:
  Expr load(const ir::Region& region, const Expr& row, const Expr& column) {
    std::vector<Expr> indices = resolve(region.offsets);
    indices[dimension(region, 0)] = indices[dimension(region, 0)] + row;
    indices[dimension(region, 1)] = indices[dimension(region, 1)] + column;
    const VarRef value = new_value("factor", DType::f32);
    emit(Load{access(region, indices, 1), value, {}});
    return ir::var(value);
  }
  void add(const Expr& slot, const Expr& a, const Expr& b) {
    Access sum;
    sum.array = array_of(gemm_.c.buffer);
    sum.offset = simplify(slot);
    const VarRef before = new_value("sum", DType::f32);
    emit(Load{sum, before, {}});
    emit(Store{sum, ir::var(before) + a * b, {}});
  }
};

void lower_fma(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc) {
  FmaLowering(tiles, gemm, loc).lower();
}

}  // namespace

extern constinit const Atom kFma;
constinit const Atom kFma = {
    .instruction = ir::Instruction::automatic,
    .name = "fma",
    .fit = fit_fma,
    .clocks = [](const ProductFacts&, const layout::WarpGrid&) { return 0.0; },
    .sum = sum_of,
    .left = nullptr,
    .right = nullptr,
    .lower = lower_fma};

}  // namespace tessera::codegen
