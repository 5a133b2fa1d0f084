// The products of attention_bwd and attention_varlen_bwd, in two kernels that compute the scores twice and add nothing in an open order.
//
// Keys      a block has some keys of one head of q and walks the tiles of rows that see one, ascending: scores k q^T and
//           dP = v dO^T, keys on M; then grad_v += p dO and grad_k += ds q. The heads of a group have blocks of their
//           own; their sums go to memory as f32 and are added in order (bwd_rows.cpp).
// Queries   a block has some rows of one head and walks the keys, ascending: scores q k^T, dP = dO v^T, and the part
//           ds k of 128 keys (64 for heads over 128), which is then added to grad_q.
//
// Between the products p and ds pass through shared memory in the dtype of q. Rows and keys behind the ends of a request
// are zeros and see nothing, so a tile that nobody sees changes no bit. Plain form: eight warps, 4 x 2, the copies of the
// next tile run ahead in place.
//
// Bound     10 products of 2 rows keys d; here 14, because scores and dP are computed twice.

#include "kernels/attention/parts/bwd_kernel.h"

#include <algorithm>
#include <functional>

#include "kernels/attention/parts/bwd_products.h"

namespace tessera::kernels::attention {
namespace {

using Side = ProductTensors::Side;

/// Warps of a block: eight, along the rows of a product first.
constexpr int kWarps = 8;
dsl::GemmOptions warps_of(int64_t size) {
  const int along_rows = static_cast<int>(size / 16);
  return {.warp_rows = along_rows, .warp_columns = kWarps / along_rows};
}

}  // namespace

int64_t BackwardSpec::shared_bytes() const {
  const int64_t of_search = is_packed != 0 ? 3072 : 0;
  return int64_t{4} * tile * (width + value_width) + int64_t{4} * tile * tile + int64_t{8} * tile +
         1024 + of_search;
}

ir::Kernel build_backward_keys(const BackwardSpec& s) {
  if (s.by_roles != 0) return build_backward_keys_by_roles(s);
  ProductTensors t("attention_bwd_keys", s, Side::keys, s.tile, s.tile);
  dsl::Builder& k = t.k;
  const int64_t size = s.tile;
  const bool is_shared = s.has_group != 0;
  std::optional<Value> scale;
  if (!is_shared) scale = k.scalar("scale", kF32);
  const auto output = [&](const char* name, int64_t width) {
    return k.output(name, is_shared ? kF32 : t.dtype(), {t.batch, t.k_rows, t.heads, width},
                    {.align = is_shared ? 16 : 2});
  };
  auto grad_k = output("grad_k", s.width), grad_v = output("grad_v", s.value_width);
  auto at = k.launch({t.tiles() * (t.heads * t.batch)}, {.threads = kWarps * 32});
  auto key = t.place(at.x);
  auto k_tile = k.shared(t.dtype(), {size, s.width}, "k_tile");
  auto v_tile = k.shared(t.dtype(), {size, s.value_width}, "v_tile");
  auto q_tile = k.shared(t.dtype(), {size, s.width}, "q_tile");
  auto grad_tile = k.shared(t.dtype(), {size, s.value_width}, "grad_tile");
  auto p_tile = k.shared(t.dtype(), {size, size}, "p_tile");
  auto ds_tile = k.shared(t.dtype(), {size, size}, "ds_tile");
  auto a_tile = k.shared(kF32, {size}, "a_tile"), delta_tile = k.shared(kF32, {size}, "delta_tile");
  auto scores = k.fragment(kF32, {size, size}, "scores"), dp = k.fragment(kF32, {size, size}, "dp");
  auto dk = k.fragment(kF32, {size, s.width}, "dk"),
       dv = k.fragment(kF32, {size, s.value_width}, "dv");
  t.copy_keys(key, k_tile, v_tile);
  k.fill(dk, 0.0f), k.fill(dv, 0.0f);
  const auto passing = t.rows_that_see(key);
  k.pipelined(passing.first, passing.end, {.stages = 1, .in_place = true}, [&](Value i) {
    t.copy_queries(i * size, q_tile, grad_tile);
    t.copy_rows(i * size, a_tile, delta_tile);
    k.fill(scores, 0.0f), k.fill(dp, 0.0f);
    k.gemm(k_tile, q_tile.transposed(), scores, warps_of(size));
    k.gemm(v_tile, grad_tile.transposed(), dp, warps_of(size));
    k.parallel({size, size}, [&](Value j, Value r) {
      Value x = scores(j, r), of_dp = dp(j, r), a = a_tile(r), delta = delta_tile(r);
      const auto cell = t.cell(i * size + r, key + j, x, of_dp, a, delta);
      p_tile(j, r) = cast(t.dtype(), cell.p), ds_tile(j, r) = cast(t.dtype(), cell.ds);
    });
    k.gemm(p_tile, grad_tile, dv, warps_of(size));
    k.gemm(ds_tile, q_tile, dk, warps_of(size));
  });
  if (scale) {
    k.parallel({size, s.width}, [&](Value j, Value d) {
      Value sum = dk(j, d);
      dk(j, d) = sum * *scale;
    });
  }
  t.copy_out(dk, grad_k, key, s.width);
  t.copy_out(dv, grad_v, key, s.value_width);
  return k.finish();
}

ir::Kernel build_backward_queries(const BackwardSpec& s) {
  if (s.by_roles != 0) return build_backward_queries_by_roles(s);
  ProductTensors t("attention_bwd_queries", s, Side::queries, s.tile, s.tile);
  dsl::Builder& k = t.k;
  const int64_t size = s.tile, tiles_of_part = keys_of_part(s.width) / size;
  auto scale = k.scalar("scale", kF32);
  auto grad_q = k.output("grad_q", t.dtype(), {t.batch, t.q_rows, t.heads, s.width}, {.align = 2});
  auto at = k.launch({t.tiles() * (t.heads * t.batch)}, {.threads = kWarps * 32});
  auto row = t.place(at.x);
  auto q_tile = k.shared(t.dtype(), {size, s.width}, "q_tile");
  auto grad_tile = k.shared(t.dtype(), {size, s.value_width}, "grad_tile");
  auto k_tile = k.shared(t.dtype(), {size, s.width}, "k_tile");
  auto v_tile = k.shared(t.dtype(), {size, s.value_width}, "v_tile");
  auto ds_tile = k.shared(t.dtype(), {size, size}, "ds_tile");
  auto a_tile = k.shared(kF32, {size}, "a_tile"), delta_tile = k.shared(kF32, {size}, "delta_tile");
  auto scores = k.fragment(kF32, {size, size}, "scores"), dp = k.fragment(kF32, {size, size}, "dp");
  auto part = k.fragment(kF32, {size, s.width}, "part"),
       dq = k.fragment(kF32, {size, s.width}, "dq");
  t.copy_queries(row, q_tile, grad_tile);
  t.copy_rows(row, a_tile, delta_tile);
  k.fill(dq, 0.0f), k.fill(part, 0.0f);
  const auto passing = t.keys_seen_by(row, tiles_of_part);
  k.pipelined(passing.first, passing.end, {.stages = 1, .in_place = true}, [&](Value j) {
    t.copy_keys(j * size, k_tile, v_tile);
    k.fill(scores, 0.0f), k.fill(dp, 0.0f);
    k.gemm(q_tile, k_tile.transposed(), scores, warps_of(size));
    k.gemm(grad_tile, v_tile.transposed(), dp, warps_of(size));
    k.parallel({size, size}, [&](Value r, Value c) {
      Value x = scores(r, c), of_dp = dp(r, c), a = a_tile(r), delta = delta_tile(r);
      ds_tile(r, c) = cast(t.dtype(), t.cell(row + r, j * size + c, x, of_dp, a, delta).ds);
    });
    k.gemm(ds_tile, k_tile, part, warps_of(size));
    const auto add = [&] {
      k.parallel({size, s.width}, [&](Value r, Value d) {
        Value sum = dq(r, d), more = part(r, d);
        dq(r, d) = sum + more, part(r, d) = 0.0f;
      });
    };
    if (tiles_of_part == 1) return add();
    k.if_(j % tiles_of_part == tiles_of_part - 1, add);
  });
  k.parallel({size, s.width}, [&](Value r, Value d) {
    Value sum = dq(r, d);
    dq(r, d) = sum * scale;
  });
  t.copy_out(dq, grad_q, row, s.width);
  return k.finish();
}

}  // namespace tessera::kernels::attention
