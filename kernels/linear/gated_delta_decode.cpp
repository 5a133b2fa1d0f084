// gated_delta_decode: the newest tokens of each request through the gated delta rule, on a pool of states.
//
// Shapes   q, k [batch, tokens, key_heads, dk], v, out [batch, tokens, heads, dv], g, beta [batch, tokens, heads], pool
//          [slots, heads, dk, dv]
// Dtypes   q, k, v, out bf16|f16; g f32; beta, pool f32|bf16
// Method   A block has 32 columns of the state of a value head; columns do not meet. The state stays in registers over all
//          tokens: a thread has four columns of every eighth quad of rows, so sums over dk take a chain in the thread and
//          three shuffles. Either dk or dv may be the contiguous dimension of the pool: only the places of the columns in a
//          warp differ. The bound is bytes / copy bandwidth: a state is read once and written once, or once per token.
// Maths    all f32, each operation rounded: a = 2^max(g log2 e, -128), S = a S; d = k S; u = beta (v - d); S = fma(k, u, S);
//          out = round((q S) scale); a bf16 state is rounded after every token. Sums: lane l of 8 adds quads l, l + 8, ..
//          by fma; lanes are added at distances 1, 2, 4. qk_norm: x / sqrt(sum of squares + eps), rounded, with the sum of
//          norm_row.h. Bits of a request depend on it alone, and not on how its tokens are grouped.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/linear/parts/delta_call.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using namespace dsl;

struct Spec {
  DType dtype, beta_dtype, pool_dtype;
  bool has_keys_last, has_norm, has_slot_of_token;
  uint8_t row_width, pool_width;  // elements of an access to q and k, and to the pool
  int32_t dk, dv;
};

constexpr auto kF32 = DType::f32;
constexpr int64_t kQuad = 4, kLanes = 8;  // of a sum over dk
constexpr int64_t kColumns = 4;           // of a thread
constexpr int64_t kOfWarp = 32 / kLanes * kColumns, kWarps = 2;
constexpr int64_t kOfBlock = kOfWarp * kWarps;  // columns

/// The rows and columns of a thread: rows in quads, element 4 m + e of a row of the state being e of quad lane + 8 m.
class Place {
 public:
  Place(Builder& k, const Spec& s, const Value& block)
      : s_(s),
        lane_(k.let("lane_of_sum", k.lane() % kLanes)),
        group_(k.let("column_group", k.lane() / kLanes)),
        first_(k.let("first_column", block * kOfBlock + k.warp() * kOfWarp)) {}

  const Value& lane() const { return lane_; }
  int64_t quads() const { return s_.dk / (kQuad * kLanes); }
  int64_t rows() const { return s_.dk / kLanes; }
  Value row(int64_t quad, const Value& e) const { return (lane_ + quad * kLanes) * kQuad + e; }
  /// Neighbouring columns are in one thread where they are contiguous, else in neighbouring groups.
  Value column(const Value& j) const {
    return first_ + (s_.has_keys_last ? j * (32 / kLanes) + group_ : group_ * kColumns + j);
  }

 private:
  const Spec& s_;
  Value lane_, group_, first_;
};

/// Calls body(i) for i = 0 .. count - 1 in accesses of `width`.
template <class Body>
void in_accesses(Builder& k, int64_t count, int64_t width, const Body& body) {
  for (int64_t first = 0; first < count; first += width) {
    k.vectorized(width, [&](Value i) { body(first + i); });
  }
}

/// The pool, [slots, heads, dv, dk] if dk is contiguous.
class Pool {
 public:
  Pool(Builder& k, const Spec& s) : k_(k), s_(s), slots_(k.dim("slots")) {
    const DimOptions apart{.multiple_of = s.pool_width};
    heads_ = k.dim("heads");
    const int64_t rows = s.has_keys_last ? s.dv : s.dk, columns = s.has_keys_last ? s.dk : s.dv;
    pool_ = k.output("pool", s.pool_dtype, {slots_, *heads_, rows, columns},
                     {.strides = {k.stride("pool_slot", apart), k.stride("pool_head", apart),
                                  k.stride("pool_row", apart), 1},
                      .align = int64_t{bytes(s.pool_dtype)} * s.pool_width});
  }

  const Value& slots() const { return slots_; }
  const Value& heads() const { return *heads_; }
  /// Loads a state into registers [columns, rows].
  void load(const Value& slot, const Value& head, const Place& at, const Ref& state) const {
    visit(slot, head, at, state,
          [](const Ref& of_pool, const Ref& mine) { mine = f32(of_pool.read()); });
  }
  void store(const Value& slot, const Value& head, const Place& at, const Ref& state) const {
    visit(slot, head, at, state, [this](const Ref& of_pool, const Ref& mine) {
      of_pool = cast(s_.pool_dtype, mine.read());
    });
  }

 private:
  template <class Move>
  void visit(const Value& slot, const Value& head, const Place& at, const Ref& state,
             const Move& move) const {
    const Ref of_head = (*pool_)(slot, head);
    for (int64_t m = 0; m < at.quads(); ++m) {
      for (int64_t i = 0; i < kQuad; ++i) {
        in_accesses(k_, kQuad, s_.pool_width, [&](const Value& j) {
          const Value fixed = i32(i);
          const Value &e = s_.has_keys_last ? j : fixed, &mine = s_.has_keys_last ? fixed : j;
          const Value row = at.row(m, e), column = at.column(mine);
          const Ref of_pool = s_.has_keys_last ? of_head(column, row) : of_head(row, column);
          move(of_pool.unchecked(), state(mine, m * kQuad + e));
        });
      }
    }
  }

  Builder& k_;
  const Spec& s_;
  Value slots_;
  std::optional<Value> heads_;
  std::optional<Ref> pool_;
};

/// Rows of q or k.
class Rows {
 public:
  Rows(Builder& k, const Spec& s, const std::string& name, const Value& batch, const Value& tokens,
       const Value& heads)
      : k_(k), s_(s) {
    const DimOptions apart{.multiple_of = s.row_width};
    rows_ =
        k.input(name, s.dtype, {batch, tokens, heads, s.dk},
                {.strides = {k.stride(name + "_request", apart), k.stride(name + "_token", apart),
                             k.stride(name + "_head", apart), 1},
                 .align = int64_t{bytes(s.dtype)} * s.row_width});
  }

  /// The thread's elements of a row, [rows] of f32, normed if the call asks for it.
  Ref load(const Place& at, const Value& request, const Value& token, const Value& head,
           const std::optional<Value>& eps) const {
    const Ref row = (*rows_)(request, token, head);
    auto given = k_.local(s_.dtype, {at.rows()}, "given"),
         taken = k_.local(kF32, {at.rows()}, "row");
    for (int64_t m = 0; m < at.quads(); ++m) {
      in_accesses(k_, kQuad, s_.row_width,
                  [&](const Value& e) { given(m * kQuad + e) = row(at.row(m, e)).unchecked(); });
    }
    std::optional<Value> r;
    if (eps) r = k_.let("r", 1.0f / sqrt(squares(row) + *eps));
    k_.unrolled(at.rows(), [&](Value i) {
      auto value = f32(given(i));
      taken(i) = r ? f32(cast(s_.dtype, value * *r)) : value;
    });
    return taken;
  }

 private:
  /// The sum of squares in the order of norm_row.h: each lane has a quad.
  Value squares(const Ref& row) const {
    auto sum = k_.var(kF32, 0.0f, "squares");
    k_.if_(k_.lane() * kQuad < s_.dk, [&] {
      auto quad = k_.local(s_.dtype, {kQuad}, "quad");
      in_accesses(k_, kQuad, s_.row_width,
                  [&](const Value& e) { quad(e) = row(k_.lane() * kQuad + e).unchecked(); });
      k_.unrolled(kQuad, [&](Value e) { sum = fma(f32(quad(e)), f32(quad(e)), sum); });
    });
    for (const int distance : {1, 2, 4, 8, 16}) sum += k_.shuffle_xor(sum, distance);
    return sum;
  }

  Builder& k_;
  const Spec& s_;
  std::optional<Ref> rows_;
};

/// The sum over dk of column j of the state with a row, in all lanes of the column.
Value dot(Builder& k, const Place& at, const Ref& state, const Value& j, const Ref& row) {
  auto sum = k.var(kF32, 0.0f, "dot");
  k.unrolled(at.rows(), [&](Value i) { sum = fma(state(j, i), row(i), sum); });
  for (const int distance : {1, 2, 4}) sum += k.shuffle_xor(sum, distance);
  return k.let("dot_of_column", sum);
}

ir::Kernel build(const Spec& s) {
  Builder k("gated_delta_decode");
  auto batch = k.dim("batch"), tokens = k.dim("tokens"), key_heads = k.dim("key_heads");
  const Pool pool(k, s);
  const Value& heads = pool.heads();
  const Rows queries(k, s, "q", batch, tokens, key_heads),
      keys(k, s, "k", batch, tokens, key_heads);
  auto v = k.input("v", s.dtype, {batch, tokens, heads, s.dv},
                   {.strides = {k.stride("v_request"), k.stride("v_token"), k.stride("v_head"), 1},
                    .align = bytes(s.dtype)});
  const auto gate = [&](const std::string& name, DType dtype) {
    return k.input(name, dtype, {batch, tokens, heads},
                   {.strides = {k.stride(name + "_request"), k.stride(name + "_token"), 1},
                    .align = bytes(dtype)});
  };
  auto g = gate("g", kF32), beta = gate("beta", s.beta_dtype);
  auto read_slots = k.input("read_slots", DType::i32, {batch}, {.align = 4});
  auto write_slots = s.has_slot_of_token
                         ? k.input("write_slots", DType::i32, {batch, tokens}, {.align = 4})
                         : k.input("write_slots", DType::i32, {batch}, {.align = 4});
  auto out = k.output("out", s.dtype, {batch, tokens, heads, s.dv}, {.align = bytes(s.dtype)});
  auto scale = k.scalar("scale", kF32);
  std::optional<Value> eps;
  if (s.has_norm) eps = k.scalar("norm_eps", kF32);
  const int64_t blocks = s.dv / kOfBlock;
  auto at = k.launch({batch * heads * blocks}, {.threads = static_cast<int>(32 * kWarps)});
  k.let_next_kernel_start();
  const Place place(k, s, at.x % blocks);
  auto head = k.let("head", at.x / blocks % heads),
       request = k.let("request", at.x / blocks / heads);
  auto key_head = k.let("key_head", head / (heads / key_heads));
  k.wait_for_previous_kernel();
  auto slot = linear::slot_of(k, read_slots(request), pool.slots(), "read_slots");
  auto state = k.local(kF32, {kColumns, place.rows()}, "state");
  const auto store_state = [&](const Value& given) {
    auto to = linear::slot_of(k, given, pool.slots(), "write_slots");
    k.if_(to >= 0, [&] { pool.store(to, head, place, state); });
  };
  const auto store_row = [&](const Value& token, const Ref& values) {
    k.if_(place.lane() == 0, [&] {
      k.unrolled(kColumns, [&](Value j) {
        out(request, token, head, place.column(j)).unchecked() = values(j);
      });
    });
  };
  const auto step = [&](Value token) {
    const Ref q_row = queries.load(place, request, token, key_head, eps),
              k_row = keys.load(place, request, token, key_head, eps);
    auto decay =
        k.let("decay", linear::decay_of(linear::log2_decay(g(request, token, head).unchecked())));
    auto rate = k.let("rate", f32(beta(request, token, head).unchecked()));
    auto values = k.local(s.dtype, {kColumns}, "values");
    k.unrolled(kColumns, [&](Value j) {
      k.unrolled(place.rows(), [&](Value i) { state(j, i) *= decay; });
      auto value = f32(v(request, token, head, place.column(j)).unchecked());
      auto u = k.let("u", rate * (value - dot(k, place, state, j, k_row)));
      k.unrolled(place.rows(), [&](Value i) { state(j, i) = fma(k_row(i), u, state(j, i)); });
      values(j) = cast(s.dtype, dot(k, place, state, j, q_row) * scale);
      if (s.pool_dtype == kF32) return;
      k.unrolled(place.rows(),
                 [&](Value i) { state(j, i) = f32(cast(s.pool_dtype, state(j, i).read())); });
    });
    store_row(token, values);
    if (s.has_slot_of_token) store_state(write_slots(request, token));
  };
  k.if_else(
      slot >= 0,
      [&] {
        pool.load(slot, head, place, state);
        k.serial(0, tokens, step);
        if (!s.has_slot_of_token) store_state(write_slots(request));
      },
      [&] {
        auto zeros = k.local(s.dtype, {kColumns}, "zeros");
        k.unrolled(kColumns, [&](Value j) { zeros(j) = cast(s.dtype, 0.0f); });
        k.rolled(0, tokens, [&](Value token) { store_row(token, zeros); });
      });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["B"] == 0) return;
  const TensorView &q = c.given("q"), &pool = c.given("pool");
  Spec s{};
  s.dtype = q.dtype, s.beta_dtype = c.dtype("beta"), s.pool_dtype = pool.dtype;
  s.has_keys_last = linear::has_keys_last(pool);
  s.has_norm = c.flag("qk_norm");
  s.has_slot_of_token = c.given("write_slots").rank() == 2;
  s.dk = c.i32("dk"), s.dv = c.i32("dv");
  s.row_width =
      static_cast<uint8_t>(std::gcd(common_vector(q, kQuad), common_vector(c.given("k"), kQuad)));
  TensorView rows = pool;
  if (s.has_keys_last) {
    std::swap(rows.shape[2], rows.shape[3]), std::swap(rows.strides[2], rows.strides[3]);
  }
  s.pool_width = static_cast<uint8_t>(common_vector(rows, kQuad));
  go.add(build, s, {.tensors = {{"pool", rows}}, .scalars = {{"scale", attention::scale_of(c)}}});
}

/// Bytes of the states that are read and written, and of the tokens.
int64_t bytes_of(const Case& c) {
  const int64_t of_state = c.dtype_word("pool") == "f32" ? 4 : 2;
  const int64_t of_beta = c.dtype_word("beta") == "f32" ? 4 : 2;
  const int64_t tokens = c["B"] * c["n"], written = c.find("m") ? c["n"] : 1;
  return c["B"] * c["hv"] * c["dk"] * c["dv"] * of_state * (1 + written) +
         tokens * (c["h"] * c["dk"] * 4 + c["hv"] * (c["dv"] * 4 + 4 + of_beta)) + 8 * c["B"];
}

}  // namespace

const Op gated_delta_decode_op{
    .name = "gated_delta_decode",
    .family = "linear",
    .purpose = "the gated delta rule of the newest tokens, on a pool of states",
    .signature = R"(
      q              bf16/f16 [B, n, h, dk] rows
      k              as q [B, n, h, dk] rows           # heads of v share those of k in groups of hv / h
      v              as q [B, n, hv, dv] rows
      g              f32 [B, n, hv] rows               # natural log of the decay
      beta           f32/bf16 [B, n, hv] rows
      read_slots     i32 [B]                           # -1: the row is padding, out +0
      write_slots    i32 [B, m?]                       # of the state after the last token; m = n: after each; -1: not written
      -> out         as q [B, n, hv, dv]
      -> inout pool  f32/bf16 [N, hv, dk, dv] any1     # either dimension of a state may be contiguous
      param  scale float = none                        # none: dk^-0.5
      param  qk_norm bool = false                      # q and k are divided by their lengths
      param  norm_eps float = 1e-6
      need   n >= 1 on q "argument 'q' has no tokens"
      limit  n <= 16 on q "so many tokens are not supported"
      need   h >= 1 on q "argument 'q' has no heads"
      need   hv % h = 0 on v "the heads of 'v' are no multiple of those of 'k'"
      limit  dk in {64, 128} on q "heads of this extent are not supported"
      limit  dv in {64, 128} on v "heads of this extent are not supported"
      need   N >= 1 on pool "argument 'pool' has no slots"
      limit  B * hv <= 536870912 on q "so many rows are not supported"
    )",
    .launches = launches,
    .check =
        [](const Call& c) {
          linear::require_scale(c);
          linear::require_slots_of_tokens(c);
        },
    .check_values = [](const Call& c) { linear::require_slots(c, /*skips_padding=*/true); },
    .examples = R"(
      B=3 n=2 h=2 hv=4 dk=128 dv=128 N=7 q=bf16 beta=f32 pool=f32 qk_norm=true
      B=2 n=1 h=1 hv=2 dk=64 dv=128 N=3 q=f16 beta=bf16 pool=bf16;
      B=2 n=3 m=3 h=2 hv=2 dk=128 dv=64 N=6 q=bf16 beta=f32 pool=f32 pool.strides=16384,8192,1,128)",
    .bench = R"(
      B=256 n=1 h=16 hv=32 dk=128 dv=128 N=256 q=bf16 beta=f32 pool=f32
      B=256 n=1 h=16 hv=32 dk=128 dv=128 N=256 q=bf16 beta=f32 pool=bf16
      B=1 n=1 h=16 hv=32 dk=128 dv=128 N=32 q=bf16 beta=f32 pool=f32
      B=32 n=1 h=16 hv=32 dk=128 dv=128 N=32 q=bf16 beta=f32 pool=f32
      B=64 n=4 h=16 hv=32 dk=128 dv=128 N=256 q=bf16 beta=f32 pool=f32
      B=64 n=4 m=4 h=16 hv=32 dk=128 dv=128 N=256 q=bf16 beta=f32 pool=f32)",
    .values = {{"read_slots", linear::slot_to_read}, {"write_slots", linear::slot_to_write}},
    .bytes = bytes_of};

}  // namespace tessera::kernels
