// The products of attention_bwd, in two kernels that compute the scores twice and add nothing in an open order.
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

#include "kernels/attention/parts/bwd_tensors.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

/// The tensors of both kernels, the place of a block, and the mask.
struct ProductTensors : BackwardTensors {
  ProductTensors(const char* name, const BackwardSpec& s)
      : BackwardTensors(name, s),
        size(s.tile),
        k_rows(k.dim("Sk")),
        k_heads(k.dim("g")),
        c(k.scalar("c", kF32)),
        q(input("q", q_rows, heads, s.width, s.q_vector)),
        keys(input("k", k_rows, k_heads, s.width, s.k_vector)),
        values(input("v", k_rows, k_heads, s.value_width, s.v_vector)),
        grad_out(input("grad_out", q_rows, heads, s.value_width, s.grad_vector)),
        rows(k.input("rows", kF32, {s.has_sink != 0 ? 4 : 2, batch, heads, q_rows}, {.align = 4})) {
    if (s.has_k_lengths != 0) k_lengths = k.input("k_lengths", kI32, {batch}, {.align = 4});
    if (s.has_softcap != 0) cap = k.scalar("cap", kF32);
    if (s.has_left != 0) left = k.scalar("left", kI32);
    if (s.has_right != 0) right = k.scalar("right", kI32);
  }

  /// Warps of a block: eight, along the rows of a product first.
  static constexpr int kWarps = 8;
  dsl::GemmOptions warps() const {
    const int along_rows = static_cast<int>(size / 16);
    return {.warp_rows = along_rows, .warp_columns = kWarps / along_rows};
  }

  /// Takes the pair of request and head of a block.
  void place(const Value& pair) {
    head = k.let("head", pair % heads), request = k.let("request", pair / heads);
    k_head = k.let("k_head", head / (heads / k_heads));
    q_length = length("q_lengths", q_lengths, request, q_rows);
    k_length = length("k_lengths", k_lengths, request, k_rows);
    shift = k.let("shift", k_length - q_length);
  }

  /// Copies rows of a head; those behind the end of the request are zeros.
  void copy(const Ref& tensor, const Value& of_head, const Value& first, const Value& end,
            bool has_end, const Ref& tile, int64_t width) {
    auto all = tensor(request, dsl::Builder::all, of_head);
    if (!has_end) return k.copy(all.tile({first, 0}, {size, width}), tile);
    k.copy(all.rows(
               size,
               [&](Value r) { return std::vector<Value>{select(first + r < end, first + r, -1)}; }),
           tile);
  }
  void copy_queries(const Value& first, const Ref& q_tile, const Ref& grad_tile) {
    const bool has_end = spec.has_q_lengths != 0;
    copy(q, head, first, q_length, has_end, q_tile, spec.width);
    copy(grad_out, head, first, q_length, has_end, grad_tile, spec.value_width);
  }
  void copy_keys(const Value& first, const Ref& k_tile, const Ref& v_tile) {
    const bool has_end = spec.has_k_lengths != 0;
    copy(keys, k_head, first, k_length, has_end, k_tile, spec.width);
    copy(values, k_head, first, k_length, has_end, v_tile, spec.value_width);
  }
  void copy_rows(const Value& first, const Ref& a_tile, const Ref& delta_tile) {
    k.copy(rows(0, request, head).tile({first}, {size}), a_tile);
    k.copy(rows(1, request, head).tile({first}, {size}), delta_tile);
  }

  struct Cell {
    Value p, ds;
  };
  /// p and ds of row `row` and key `key`.
  Cell cell(const Value& row, const Value& key, Value x, const Value& dp, const Value& a,
            const Value& delta) {
    if (cap) x = k.let("x", tanh(x * *cap));
    auto is_seen = row < q_length && key < k_length;
    if (right) is_seen = is_seen && key <= row + shift + *right;
    if (left) is_seen = is_seen && key >= row + shift - *left;
    auto p = k.let("p", select(is_seen, exp2_approx(fma(x, c, -a)), 0.0f));
    auto ds = k.let("ds", p * (dp - delta));
    if (cap) ds = k.let("capped", ds * fma(-x, x, 1.0f));
    return {p, select(is_seen, ds, 0.0f)};
  }

  const int64_t size;  // of a tile, in rows and in keys
  Value k_rows, k_heads, c;
  Ref q, keys, values, grad_out, rows;
  std::optional<Ref> k_lengths;
  std::optional<Value> cap, left, right;
  Value head, request, k_head, q_length, k_length, shift;
};

}  // namespace

int64_t BackwardSpec::shared_bytes() const {
  return int64_t{4} * tile * (width + value_width) + int64_t{4} * tile * tile + int64_t{8} * tile +
         1024;
}

ir::Kernel build_backward_keys(const BackwardSpec& s) {
  ProductTensors t("attention_bwd_keys", s);
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
  auto pairs = t.heads * t.batch;
  // The first keys of a causal call have the most rows.
  auto at = k.launch({ceil_div(t.k_rows, size) * pairs}, {.threads = ProductTensors::kWarps * 32});
  t.place(k.let("pair", at.x % pairs));
  auto key = k.let("key", at.x / pairs * size);
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
  Value first = t.right ? max(key - t.shift - *t.right, 0) : dsl::i32(0);
  Value end = t.q_length;
  if (t.left) end = min(end, max(key + (size - 1) - t.shift + *t.left + 1, 0));
  first = k.let("first", first / size);
  end = k.let("end", select(key < t.k_length, ceil_div(end, size), 0));
  k.pipelined(first, end, {.stages = 1, .in_place = true}, [&](Value i) {
    t.copy_queries(i * size, q_tile, grad_tile);
    t.copy_rows(i * size, a_tile, delta_tile);
    k.fill(scores, 0.0f), k.fill(dp, 0.0f);
    k.gemm(k_tile, q_tile.transposed(), scores, t.warps());
    k.gemm(v_tile, grad_tile.transposed(), dp, t.warps());
    k.parallel({size, size}, [&](Value j, Value r) {
      Value x = scores(j, r), of_dp = dp(j, r), a = a_tile(r), delta = delta_tile(r);
      const auto cell = t.cell(i * size + r, key + j, x, of_dp, a, delta);
      p_tile(j, r) = cast(t.dtype(), cell.p), ds_tile(j, r) = cast(t.dtype(), cell.ds);
    });
    k.gemm(p_tile, grad_tile, dv, t.warps());
    k.gemm(ds_tile, q_tile, dk, t.warps());
  });
  if (scale) {
    k.parallel({size, s.width}, [&](Value j, Value d) {
      Value sum = dk(j, d);
      dk(j, d) = sum * *scale;
    });
  }
  k.copy(dk, grad_k(t.request, dsl::Builder::all, t.head).tile({key, 0}, {size, s.width}));
  k.copy(dv, grad_v(t.request, dsl::Builder::all, t.head).tile({key, 0}, {size, s.value_width}));
  return k.finish();
}

ir::Kernel build_backward_queries(const BackwardSpec& s) {
  ProductTensors t("attention_bwd_queries", s);
  dsl::Builder& k = t.k;
  const int64_t size = s.tile, tiles_of_part = keys_of_part(s.width) / size;
  auto scale = k.scalar("scale", kF32);
  auto grad_q = k.output("grad_q", t.dtype(), {t.batch, t.q_rows, t.heads, s.width}, {.align = 2});
  auto pairs = t.heads * t.batch, tiles = ceil_div(t.q_rows, size);
  auto at = k.launch({tiles * pairs}, {.threads = ProductTensors::kWarps * 32});
  t.place(k.let("pair", at.x % pairs));
  // The last rows of a causal call see the most keys.
  auto row = k.let("row", (tiles - 1 - at.x / pairs) * size);
  k.assume(row >= 0);
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
  Value first = t.left ? max(row + t.shift - *t.left, 0) : dsl::i32(0);
  Value end = t.k_length;
  if (t.right) end = max(min(end, min(row + size, t.q_length) + t.shift + *t.right), 0);
  const int64_t of_part = size * tiles_of_part;
  first = k.let("first", first / of_part * tiles_of_part);
  end = k.let("end", select(row < t.q_length, ceil_div(end, of_part) * tiles_of_part, 0));
  k.pipelined(first, end, {.stages = 1, .in_place = true}, [&](Value j) {
    t.copy_keys(j * size, k_tile, v_tile);
    k.fill(scores, 0.0f), k.fill(dp, 0.0f);
    k.gemm(q_tile, k_tile.transposed(), scores, t.warps());
    k.gemm(grad_tile, v_tile.transposed(), dp, t.warps());
    k.parallel({size, size}, [&](Value r, Value c) {
      Value x = scores(r, c), of_dp = dp(r, c), a = a_tile(r), delta = delta_tile(r);
      ds_tile(r, c) = cast(t.dtype(), t.cell(row + r, j * size + c, x, of_dp, a, delta).ds);
    });
    k.gemm(ds_tile, k_tile, part, t.warps());
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
  k.copy(dq, grad_q(t.request, dsl::Builder::all, t.head).tile({row, 0}, {size, s.width}));
  return k.finish();
}

}  // namespace tessera::kernels::attention
