#include "kernels/linear/parts/triangle_inverse.h"

#include <vector>

#include "kernels/linear/parts/chunk_kernel.h"

namespace tessera::kernels::linear {

using namespace dsl;

namespace {

constexpr auto kF32 = DType::f32;
constexpr int64_t kC = kChunk;
constexpr int64_t kR = 16;  // rows of a block that is inverted by substitution
constexpr int64_t kQuad = 4;

/// A column of a diagonal block, in registers; rows of L are the same for the 16 threads of a block.
void substitute(Builder& k, const Ref& lower, const Ref& t) {
  auto c = k.thread(), first = c / kR * kR;  // the first row of the block
  auto own = k.let("own_row", c % kR);
  auto column = k.local(kF32, {kR}, "column_of_t");
  for (int64_t r = 0; r < kR; ++r) {
    auto acc = k.var(kF32, 0.0f, "acc");
    for (int64_t j = 0; j < r; j += kQuad) {
      auto quad = k.local(kF32, {kQuad}, "quad");
      k.vectorized(kQuad, [&](Value e) { quad(e) = lower(first + r, first + j + e); });
      for (int64_t e = 0; e < kQuad && j + e < r; ++e) {
        // Above the column's own row are zeros, which take no part: not even where L is infinite.
        acc = fma(select(own <= j + e, quad(e), 0.0f), column(j + e), acc);
      }
    }
    k.sync_warp();  // the next rows are not loaded before: they would take all registers
    column(r) = select(own < r, -acc, select(own == r, 1.0f, 0.0f));
    t(first + r, c) = column(r);
  }
}

/// Zeros beside the blocks that merge first; the threads after those that substitute.
void clear_beside(Builder& k, const Ref& t) {
  auto nth = k.thread() - kC;
  auto low = nth / (2 * kR) * (2 * kR), column = low + kR + nth / kR % 2 * (kR / 2);
  for (int64_t j = 0; j < kR / 2; j += kQuad) {
    k.vectorized(kQuad, [&](Value e) { t(low + nth % kR, column + j + e) = 0.0f; });
  }
}

/// Pairs of blocks of `size` rows become one each.
void merge(Builder& k, const Ref& lower, const Ref& t, int64_t size, const GemmOptions& warps) {
  constexpr int64_t kColumns = 2 * kR;  // of a product; beside those of the lower block, zeros
  struct Pair {
    int64_t low, high;
    TileRef product;
    TileRef x;  // a part of L that no later product reads
  };
  std::vector<Pair> pairs;
  for (int64_t low = 0; low < kC; low += 2 * size) {
    const int64_t column = size == kR ? low : kC / 2;
    pairs.push_back({low, low + size, k.fragment(kF32, {size, kColumns}, "product"),
                     lower.tile({0, column}, {size, kColumns})});
  }
  for (const Pair& p : pairs) {
    k.fill(p.product, 0.0f);
    k.gemm(lower.tile({p.high, p.low}, {size, size}), t.tile({p.low, p.low}, {size, kColumns}),
           p.product, warps);
  }
  for (const Pair& p : pairs) k.copy(p.product, p.x);
  for (const Pair& p : pairs) {
    k.fill(p.product, 0.0f);
    k.gemm(t.tile({p.high, p.high}, {size, size}), p.x, p.product, warps);
  }
  for (const Pair& p : pairs) {
    k.parallel({size, kColumns}, [&](Value r, Value c) {
      k.if_(c < size, [&] { t(p.high + r, p.low + c) = -p.product(r, c); });
    });
  }
}

}  // namespace

void invert_triangle(Builder& k, const Ref& lower, const Ref& t) {
  k.if_else(
      k.thread() < kC, [&] { substitute(k, lower, t); }, [&] { clear_beside(k, t); });
  merge(k, lower, t, kR, {.warp_columns = 4});
  merge(k, lower, t, 2 * kR, {.warp_rows = 2, .warp_columns = 2});
}

}  // namespace tessera::kernels::linear
