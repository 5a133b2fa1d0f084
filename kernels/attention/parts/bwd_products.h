#pragma once
// The tensors of the kernels that multiply in attention_bwd, the place of a block, and the mask.

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/attention/parts/bwd_tensors.h"
#include "kernels/attention/parts/packed_requests.h"

namespace tessera::kernels::attention {

using dsl::Ref;
using dsl::Value;

/// The tensors of both kernels, the place of a block, and the mask.
struct ProductTensors : BackwardTensors {
  /// The side of which a block has a tile. The tiles of the other side pass by.
  enum class Side { queries, keys };

  /// Tiles of `own` rows of `side`, and of `passing` rows of the other one.
  ProductTensors(const char* name, const BackwardSpec& s, Side side, int64_t own, int64_t passing)
      : BackwardTensors(name, s),
        own_side(side),
        q_size(side == Side::queries ? own : passing),
        k_size(side == Side::keys ? own : passing),
        k_rows(k.dim("Sk")),
        k_heads(k.dim("g")),
        c(k.scalar("c", kF32)),
        q(input("q", q_rows, heads, s.width, s.q_vector)),
        keys(input("k", k_rows, k_heads, s.width, s.k_vector)),
        values(input("v", k_rows, k_heads, s.value_width, s.v_vector)),
        grad_out(input("grad_out", q_rows, heads, s.value_width, s.grad_vector)),
        rows(k.input("rows", kF32, {s.has_sink != 0 ? 4 : 2, batch, heads, q_rows}, {.align = 4})) {
    if (s.is_packed != 0) {
      bounds = k.dim("bounds");
      cu_q = k.input("cu_q", kI32, {bounds}, {.align = 4});
      cu_k = k.input("cu_k", kI32, {bounds}, {.align = 4});
    }
    if (s.has_k_lengths != 0) k_lengths = k.input("k_lengths", kI32, {batch}, {.align = 4});
    if (s.has_softcap != 0) cap = k.scalar("cap", kF32);
    if (s.has_left != 0) left = k.scalar("left", kI32);
    if (s.has_right != 0) right = k.scalar("right", kI32);
  }

  bool is_packed() const { return spec.is_packed != 0; }

  int64_t size_of(Side side) const { return side == Side::queries ? q_size : k_size; }
  int64_t size() const { return size_of(own_side); }
  /// Tiles of all requests for each head; in a packed call, all that there may be.
  Value tiles() const {
    auto whole = ceil_div(own_side == Side::queries ? q_rows : k_rows, size());
    return is_packed() ? whole + bounds : whole;
  }
  /// Takes request, head and tile of a block, and returns the first row or key of the tile. The rows that see the most
  /// keys of a causal call begin, and the keys that the most rows see.
  Value place(const Value& block) {
    auto pairs = heads * batch, pair = k.let("pair", block % pairs), tile = block / pairs;
    head = k.let("head", pair % heads), request = k.let("request", pair / heads);
    k_head = k.let("k_head", head / (heads / k_heads));
    Value first;
    if (is_packed()) {
      first = place_packed(tile);
    } else {
      q_length = length("q_lengths", q_lengths, request, q_rows);
      k_length = length("k_lengths", k_lengths, request, k_rows);
      first = own_side == Side::queries ? k.let("row", (tiles() - 1 - tile) * size())
                                        : k.let("key", tile * size());
    }
    shift = k.let("shift", k_length - q_length);
    k.assume(first >= 0);
    return first;
  }
  Value place_packed(const Value& tile) {
    const PackedSide of_q{"q", q_rows, *cu_q}, of_k{"k", k_rows, *cu_k};
    if (own_side == Side::queries) {
      const auto at = find_packed(k, bounds, of_q, of_k, tile, q_size, TileOrder::last_rows_first);
      q_first = at.first, q_length = at.length, k_first = at.other_first,
      k_length = at.other_length;
      return at.row;
    }
    const auto at = find_packed(k, bounds, of_k, of_q, tile, k_size, TileOrder::first_rows_first);
    k_first = at.first, k_length = at.length, q_first = at.other_first, q_length = at.other_length;
    return at.row;
  }
  /// A row of the request as one of the tensors.
  Value in_q(const Value& row) const { return is_packed() ? q_first + row : row; }
  Value in_k(const Value& row) const { return is_packed() ? k_first + row : row; }

  /// Copies rows of a head; those behind the end of the request are zeros.
  dsl::Rows rows_of(const Ref& of_head, const Value& first, Side side) const {
    const Value end = side == Side::queries ? q_length : k_length;
    return of_head.rows(size_of(side), [=, this](Value r) {
      auto row = first + r;
      auto place = side == Side::queries ? in_q(row) : in_k(row);
      return std::vector<Value>{select(row < end, place, -1)};
    });
  }
  void copy(const Ref& tensor, const Value& of_head, const Value& first, Side side, bool has_end,
            const Ref& tile, int64_t width) {
    auto all = tensor(request, dsl::Builder::all, of_head);
    const auto copy_whole = [&](const Value& place, const dsl::CopyOptions& options) {
      k.copy(all.tile({place, 0}, {size_of(side), width}), tile, options);
    };
    const auto copy_tail = [&] { k.copy(rows_of(all, first, side), tile); };
    if (spec.by_roles == 0) return has_end ? copy_tail() : copy_whole(first, {});
    const dsl::CopyOptions by_engine{.engine = ir::Engine::tensor};
    if (!has_end) return copy_whole(first, by_engine);
    const Value end = side == Side::queries ? q_length : k_length;
    k.if_else(
        first + size_of(side) <= end,
        [&] { copy_whole(side == Side::queries ? in_q(first) : in_k(first), by_engine); },
        copy_tail);
  }
  void copy_queries(const Value& first, const Ref& q_tile, const Ref& grad_tile) {
    const bool has_end = spec.has_q_lengths != 0 || is_packed();
    copy(q, head, first, Side::queries, has_end, q_tile, spec.width);
    copy(grad_out, head, first, Side::queries, has_end, grad_tile, spec.value_width);
  }
  void copy_keys(const Value& first, const Ref& k_tile, const Ref& v_tile) {
    const bool has_end = spec.has_k_lengths != 0 || is_packed();
    copy(keys, k_head, first, Side::keys, has_end, k_tile, spec.width);
    copy(values, k_head, first, Side::keys, has_end, v_tile, spec.value_width);
  }
  void copy_rows(const Value& first, const Ref& a_tile, const Ref& delta_tile) {
    k.copy(rows(0, request, head).tile({in_q(first)}, {q_size}), a_tile);
    k.copy(rows(1, request, head).tile({in_q(first)}, {q_size}), delta_tile);
  }
  /// Writes a tile of gradients; in a packed call the rows that are the request's.
  void copy_out(const Ref& sums, const Ref& out, const Value& first, int64_t width) {
    auto of_head = out(request, dsl::Builder::all, head);
    if (!is_packed()) return k.copy(sums, of_head.tile({first, 0}, {size(), width}));
    k.copy(sums, rows_of(of_head, first, own_side));
  }

  /// The tiles of the other side [first, end) of which the block's tile sees one; whole parts of `tiles` tiles.
  struct Passing {
    Value first, end;
  };
  Passing rows_that_see(const Value& key) {
    Value first = right ? max(key - shift - *right, 0) : dsl::i32(0);
    Value end = q_length;
    if (left) end = min(end, max(key + (k_size - 1) - shift + *left + 1, 0));
    return {k.let("first", first / q_size),
            k.let("end", select(key < k_length, ceil_div(end, q_size), 0))};
  }
  Passing keys_seen_by(const Value& row, int64_t tiles_of_part) {
    const int64_t of_part = k_size * tiles_of_part;
    Value first = left ? max(row + shift - *left, 0) : dsl::i32(0);
    Value end = k_length;
    if (right) end = max(min(end, min(row + q_size, q_length) + shift + *right), 0);
    return {k.let("first", first / of_part * tiles_of_part),
            k.let("end", select(row < q_length, ceil_div(end, of_part) * tiles_of_part, 0))};
  }

  /// True if some row of the tile at `row` does not see some key of that at `key`, or is none.
  Value has_edge(const Value& row, const Value& key) const {
    auto edge = row + q_size > q_length || key + k_size > k_length;
    if (right) edge = edge || key + k_size > row + shift + *right + 1;
    if (left) edge = edge || key < row + (q_size - 1) + shift - *left;
    return edge;
  }
  Value is_seen(const Value& row, const Value& key) const {
    auto seen = row < q_length && key < k_length;
    if (right) seen = seen && key <= row + shift + *right;
    if (left) seen = seen && key >= row + shift - *left;
    return seen;
  }
  Value capped(const Value& score) { return cap ? k.let("x", tanh(score * *cap)) : score; }
  Value p_of(const Value& x, const Value& a) const { return exp2_approx(fma(x, c, -a)); }
  Value ds_of(const Value& p, const Value& x, const Value& dp, const Value& delta) const {
    auto ds = p * (dp - delta);
    return cap ? ds * fma(-x, x, 1.0f) : ds;
  }
  struct Cell {
    Value p, ds;
  };
  /// p and ds of row `row` and key `key`.
  Cell cell(const Value& row, const Value& key, const Value& score, const Value& dp, const Value& a,
            const Value& delta) {
    const Value x = capped(score), seen = is_seen(row, key);
    auto p = k.let("p", select(seen, p_of(x, a), 0.0f));
    return {p, select(seen, k.let("ds", ds_of(p, x, dp, delta)), 0.0f)};
  }

  const Side own_side;
  const int64_t q_size, k_size;  // rows and keys of a tile
  Value k_rows, k_heads, c;
  Ref q, keys, values, grad_out, rows;
  std::optional<Ref> k_lengths, cu_q, cu_k;
  std::optional<Value> cap, left, right;
  Value bounds;  // requests of a packed call, and one
  // The block's own. Rows count from the first of the request, which in a packed call is row q_first, k_first.
  Value head, request, k_head, q_length, k_length, q_first, k_first, shift;
};

}  // namespace tessera::kernels::attention
