// The gated delta rule in chunks of 64 tokens: the tokens of a chunk meet in products, chunks follow each other.
//
// Shapes   q, k [batch, tokens, key_heads, dk], v, out [batch, tokens, heads, dv], g, beta [batch, tokens, heads], states
//          [slots, heads, dk, dv]
// Method   A block has 64 columns, or 32, of the state of a value head, in f32 fragments over all chunks; columns do not meet, so the
//          number of blocks changes no bit. Tiles of q, k and v are copied a chunk ahead where two of them fit. Each block
//          computes the triangle of its head anew, of which the columns of a head could share one. Bound: 6 dk dv + 256
//          (dk + dv) operations of the tensor cores per token and head, and bytes of q, k, v and out, once.
// Maths    Rows after the end of a request are zeros, with a decay of 1 and a rate of 0. Logarithms are to base 2 and added
//          in order, G_t = G_(t-1) + max(g_t log2 e, -128); E_t = 2^G_t, D_ti = 2^(G_t - G_i), Z_t = 2^(G_63 - G_t).
//            L_ti = beta_t ((k_t k_i) D_ti), i < t      T = (1 + L)^-1
//            A_ti = round(T_ti beta_i), i <= t          P_ti = round(((q_t k_i) D_ti) scale), i <= t
//            W = round(v - E (k round(S)))              U = A W
//            out = round((q round(S)) (E scale) + P round(U))
//            S = S E_63 + k^T round(U Z)
//          T: diagonal blocks of 16 by substitution in f32, then 16 -> 32 -> 64 by two products each in tf32, T_hi,lo = -T_hi
//          (L_hi,lo T_lo). Row t of T depends on rows up to t alone, so no token sees a later one.

#include "kernels/linear/parts/chunk_kernel.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/checks/value_check.h"
#include "kernels/linear/parts/delta_call.h"
#include "kernels/linear/parts/slots.h"

namespace tessera::kernels::linear {

using namespace dsl;

namespace {

constexpr auto kF32 = DType::f32;
constexpr int64_t kC = kChunk;
constexpr int64_t kR = 16;     // rows of a block of the triangle that is inverted by substitution
constexpr int64_t kWarps = 8;  // with four the fragments of a chunk exceed the registers
constexpr GemmOptions kDown = {.warp_rows = 4, .warp_columns = 2}, kAlong = {.warp_columns = 8},
                      kSquare = {.warp_rows = 2, .warp_columns = 4};

/// The inverse of 1 + L for a strictly lower triangle L [64, 64], in `t`.
class Inverse {
 public:
  Inverse(Builder& k, const Ref& lower, const Ref& t) : k_(k), lower_(lower), t_(t) {}

  /// `t` holds the unit matrix.
  void solve() const {
    substitute();
    for (int64_t low = 0; low < kC; low += 2 * kR)
      merge(low, kR, 0, kC, lower_.tile({0, 0}, {kR, kC}), kAlong);
    constexpr int64_t kHalf = 2 * kR;
    merge(0, kHalf, 0, kHalf, lower_.tile({0, kHalf}, {kHalf, kHalf}), kSquare);
  }

 private:
  /// The diagonal blocks: a thread has a column of one, and no thread reads another's. In loops: unrolled, the loads of a
  /// block take all registers.
  void substitute() const {
    k_.manual_sync([&] {
      k_.sync();
      k_.if_(k_.thread() < kC, [&] {
        auto c = k_.let("column", k_.thread()), first = k_.let("first_row", c / kR * kR);
        auto own = k_.let("own_row", c % kR);
        k_.rolled(own + 1, kR, [&](Value r) {
          auto acc = k_.var(kF32, 0.0f, "acc");
          k_.rolled(own, r, [&](Value j) {
            acc = fma(lower_(first + r, first + j), t_(first + j, c), acc);
          });
          t_(first + r, c) = -acc;
        });
      });
      k_.sync();
    });
  }
  /// Blocks of `size` rows at `low` and after it become one. A product has columns [first, first + count) of `t`, so that
  /// every warp has some: those of `low`, and others, of zeros. `x` holds a product: a part of L that no product reads.
  void merge(int64_t low, int64_t size, int64_t first, int64_t count, const Ref& x,
             const GemmOptions& warps) const {
    const int64_t high = low + size;
    auto product = k_.fragment(kF32, {size, count}, "product");
    k_.fill(product, 0.0f);
    k_.gemm(lower_.tile({high, low}, {size, size}), t_.tile({low, first}, {size, count}), product,
            warps);
    k_.copy(product, x);
    k_.fill(product, 0.0f);
    k_.gemm(t_.tile({high, high}, {size, size}), x, product, warps);
    k_.parallel({size, count}, [&](Value r, Value c) {
      auto column = first + c;
      k_.if_(column >= low && column < high, [&] { t_(high + r, column) = -product(r, c); });
    });
  }

  Builder& k_;
  Ref lower_, t_;
};

/// Rows of a chunk divided by their lengths: the sum of squares in the order of norm_row.h, a quad per lane.
void norm_rows(Builder& k, const Ref& from, const Ref& to, int64_t width, const Value& eps) {
  constexpr int64_t kQuad = 4;
  const DType dtype = from.dtype();
  k.rolled(0, kC / kWarps, [&](Value turn) {
    auto row = k.let("row_of_norm", turn * kWarps + k.warp());
    auto quad = k.local(kF32, {kQuad}, "quad");
    auto sum = k.var(kF32, 0.0f, "squares");
    k.if_(k.lane() * kQuad < width, [&] {
      k.unrolled(kQuad, [&](Value e) {
        quad(e) = f32(from(row, k.lane() * kQuad + e));
        sum = fma(quad(e), quad(e), sum);
      });
    });
    for (const int distance : {1, 2, 4, 8, 16}) sum += k.shuffle_xor(sum, distance);
    auto r = k.let("r", 1.0f / sqrt(sum + eps));
    k.if_(k.lane() * kQuad < width, [&] {
      k.unrolled(kQuad, [&](Value e) { to(row, k.lane() * kQuad + e) = cast(dtype, quad(e) * r); });
    });
  });
}

/// A tensor of states.
struct States {
  States(Builder& k, const ChunkSpec& s, const std::string& name, bool is_output,
         const Value& heads)
      : slots(k.dim(name + "_slots")), width(s.columns) {
    const auto stride = [&](const char* of) { return Arg(k.stride(name + of)); };
    const TensorOptions options = {
        .strides = {stride("_slot"), stride("_head"), stride("_row"), stride("_column")},
        .align = bytes(s.state_dtype)};
    const std::vector<Arg> shape = {slots, heads, s.dk, s.dv};
    states = is_output ? k.output(name, s.state_dtype, shape, options)
                       : k.input(name, s.state_dtype, shape, options);
  }
  TileRef columns(const Value& slot, const Value& head, const Value& first, int64_t rows) const {
    return (*states)(slot, head).tile({0, first}, {rows, width});
  }

  Value slots;
  int64_t width;
  std::optional<Ref> states;
};

/// The tensors of the tokens.
struct Tokens {
  Tokens(Builder& k, const ChunkSpec& s, const Value& batch, const Value& heads)
      : count(k.dim("tokens")), key_heads(k.dim("key_heads")) {
    const int64_t align = int64_t{bytes(s.dtype)} * s.row_width;
    const auto strides = [&](const std::string& name, int64_t multiple) {
      const DimOptions apart{.multiple_of = multiple};
      return std::vector<Arg>{k.stride(name + "_request", apart), k.stride(name + "_token", apart),
                              k.stride(name + "_head", apart)};
    };
    const auto rows = [&](const std::string& name) {
      std::vector<Arg> steps = strides(name, s.row_width);
      steps.emplace_back(1);
      return k.input(name, s.dtype, {batch, count, key_heads, s.dk},
                     {.strides = steps, .align = align});
    };
    queries = rows("q"), keys = rows("k");
    std::vector<Arg> of_values = strides("v", s.row_width);
    of_values.emplace_back(s.columns), of_values.emplace_back(1);
    values = k.input("v", s.dtype, {batch, count, heads, s.dv / s.columns, s.columns},
                     {.strides = of_values, .align = align});
    const auto gates = [&](const std::string& name, DType dtype) {
      return k.input(name, dtype, {batch, count, heads},
                     {.strides = {k.stride(name + "_request"), k.stride(name + "_token"), 1},
                      .align = bytes(dtype)});
    };
    g = gates("g", kF32), beta = gates("beta", s.beta_dtype);
    out = k.output("out", s.dtype, {batch, count, heads, s.dv / s.columns, s.columns},
                   {.align = int64_t{bytes(s.dtype)} * s.out_width});
    if (s.has_lengths) lengths = k.input("lengths", DType::i32, {batch}, {.align = 4});
  }

  Value count, key_heads;
  std::optional<Ref> queries, keys, values, g, beta, out, lengths;
};

/// The chunks of one request, value head and block of columns.
class Chunks {
 public:
  Chunks(Builder& k, const ChunkSpec& s, const Tokens& t, const Value& scale,
         const std::optional<Value>& eps, const Value& request, const Value& head,
         const Value& key_head, const Value& block)
      : k_(k),
        s_(s),
        t_(t),
        scale_(scale),
        eps_(eps),
        request_(request),
        head_(head),
        key_head_(key_head),
        block_(block) {}

  /// Runs all chunks on the state [dk, columns].
  void run(const Ref& state) {
    Value length = t_.count;
    if (t_.lengths) {
      auto given = k_.let("given_length", (*t_.lengths)(request_));
      k_.report_unless(given >= 0 && given <= t_.count, out_of_range("lengths"));
      length = k_.let("length", k_.uniform(max(min(given, t_.count), 0)));
    }
    const Value chunks = ceil_div(length, kC);
    declare();
    const auto body = [&](Value chunk) { step(chunk * kC, length, state); };
    s_.stages > 1 ? k_.pipelined(0, chunks, s_.stages, body) : k_.serial(0, chunks, body);
    if (!t_.lengths) return;
    k_.serial(chunks, ceil_div(t_.count, kC),
              [&](Value chunk) { k_.fill(out_at(chunk * kC), cast(s_.dtype, 0.0f)); });
  }

 private:
  void declare() {
    const auto half_tile = [&](int64_t rows, int64_t columns, const char* name) {
      return k_.shared(s_.dtype, {rows, columns}, name);
    };
    q_ = half_tile(kC, s_.dk, "q_tile"), keys_ = half_tile(kC, s_.dk, "k_tile");
    v_ = half_tile(kC, s_.columns, "v_tile"), state16_ = half_tile(s_.dk, s_.columns, "s_tile");
    g_ = k_.shared(kF32, {kC}, "g_tile"), beta_ = k_.shared(s_.beta_dtype, {kC}, "beta_tile");
    if (s_.has_norm && s_.stages > 1) {  // the copies of the next chunk go on
      q_normed_ = half_tile(kC, s_.dk, "q_normed"), keys_normed_ = half_tile(kC, s_.dk, "k_normed");
    }
    sums_ = k_.shared(kF32, {kC}, "sums"), rate_ = k_.shared(kF32, {kC}, "rate");
    to_start_ = k_.shared(kF32, {kC}, "to_start"), to_end_ = k_.shared(kF32, {kC}, "to_end");
    lower_ = k_.shared(kF32, {kC, kC}, "lower"), inverse_ = k_.shared(kF32, {kC, kC}, "inverse");
    rows_ = half_tile(kC, s_.columns, "rows_tile");  // W, then U, then U Z
  }
  TileRef out_at(const Value& row) const {
    return (*t_.out)(request_, k_.all, head_, block_).tile({row, 0}, {kC, s_.columns});
  }

  void load(const Value& row, const Value& length) {
    const auto copy = [&](const Ref& from, const Ref& to, const Value& head,
                          const std::optional<Value>& part) {
      if (t_.lengths) {
        k_.copy(
            from.rows(
                kC,
                [&](Value r) {
                  std::vector<Value> at = {request_, select(row + r < length, row + r, -1), head};
                  if (part) at.push_back(*part);
                  return at;
                }),
            to);
      } else {
        k_.copy((part ? from(request_, k_.all, head, *part) : from(request_, k_.all, head))
                    .tile({row, 0}, {kC, to.extents()[1]}),
                to);
      }
    };
    copy(*t_.queries, *q_, key_head_, std::nullopt);
    copy(*t_.keys, *keys_, key_head_, std::nullopt);
    copy(*t_.values, *v_, head_, block_);
    k_.copy((*t_.g)(request_, k_.all, head_).tile({row}, {kC}), *g_);
    k_.copy((*t_.beta)(request_, k_.all, head_).tile({row}, {kC}), *beta_);
  }

  /// Decays from the start of the chunk to its tokens, and from them to its end.
  void decays(const Value& row, const Value& length) {
    k_.parallel({kC}, [&](Value t) {
      auto log = k_.let("log", log2_decay((*g_)(t)));
      auto rate = k_.let("given_rate", f32((*beta_)(t)));
      auto counts = row + t < length;
      (*sums_)(t) = t_.lengths ? select(counts, log, 0.0f) : log;
      (*rate_)(t) = t_.lengths ? select(counts, rate, 0.0f) : rate;
    });
    k_.if_(k_.thread() == 0, [&] {
      constexpr int64_t kTogether = 8;  // loads on their way
      auto sum = k_.var(kF32, 0.0f, "sum");
      k_.rolled(0, kC / kTogether, [&](Value turn) {
        k_.unrolled(kTogether, [&](Value i) {
          auto t = turn * kTogether + i;
          sum += (*sums_)(t);
          (*sums_)(t) = sum;
        });
      });
    });
    k_.parallel({kC}, [&](Value t) {
      Value end = (*sums_)(kC - 1), own = (*sums_)(t);
      (*to_start_)(t) = decay_of(k_.let("from_start", own));
      (*to_end_)(t) = decay_of(k_.let("until_end", end - own));
    });
  }

  void step(const Value& row, const Value& length, const Ref& state) {
    load(row, length);
    decays(row, length);
    const Ref &q = q_normed_ ? *q_normed_ : *q_, &keys = keys_normed_ ? *keys_normed_ : *keys_;
    if (eps_) norm_rows(k_, *q_, q, s_.dk, *eps_), norm_rows(k_, *keys_, keys, s_.dk, *eps_);
    const auto zeros = [&](int64_t columns, const char* name) {
      auto made = k_.fragment(kF32, {kC, columns}, name);
      k_.fill(made, 0.0f);
      return made;
    };
    auto kk = zeros(kC, "kk"), qk = zeros(kC, "qk");
    auto p = k_.fragment(s_.dtype, {kC, kC}, "p"), a = k_.fragment(s_.dtype, {kC, kC}, "a");
    k_.gemm(keys, keys.transposed(), kk, kDown), k_.gemm(q, keys.transposed(), qk, kDown);
    k_.parallel({kC, kC}, [&](Value t, Value i) {
      Value until_t = (*sums_)(t), until_i = (*sums_)(i);
      auto decay = k_.let("decay", decay_of(k_.let("log_between", until_t - until_i)));
      Value rate = (*rate_)(t), of_keys = kk(t, i), of_query = qk(t, i);
      (*lower_)(t, i) = select(i < t, rate * (of_keys * decay), 0.0f);
      p(t, i) = cast(s_.dtype, select(i <= t, of_query * decay * scale_, 0.0f));
      (*inverse_)(t, i) = select(i == t, 1.0f, 0.0f);
    });
    Inverse(k_, *lower_, *inverse_).solve();
    k_.parallel({kC, kC}, [&](Value t, Value i) {
      Value inverse = (*inverse_)(t, i), rate = (*rate_)(i);
      a(t, i) = cast(s_.dtype, select(i <= t, inverse * rate, 0.0f));
    });
    k_.copy(state, *state16_);
    auto seen = zeros(s_.columns, "seen"), u = zeros(s_.columns, "u"), o = zeros(s_.columns, "o");
    k_.gemm(keys, *state16_, seen, kDown), k_.gemm(q, *state16_, o, kDown);
    k_.parallel({kC, s_.columns}, [&](Value t, Value c) {
      Value to_start = (*to_start_)(t), before = seen(t, c), value = (*v_)(t, c);
      (*rows_)(t, c) = cast(s_.dtype, fma(-to_start, before, f32(value)));
      o(t, c) *= to_start * scale_;
    });
    k_.gemm(a, *rows_, u, kDown);
    k_.copy(u, *rows_);
    k_.gemm(p, *rows_, o, kDown);
    k_.copy(o, out_at(row));
    k_.parallel({kC, s_.columns}, [&](Value t, Value c) {
      Value update = u(t, c), to_end = (*to_end_)(t);
      (*rows_)(t, c) = cast(s_.dtype, update * to_end);
    });
    k_.parallel({s_.dk, s_.columns},
                [&](Value d, Value c) { state(d, c) *= (*to_start_)(kC - 1); });
    k_.gemm(keys.transposed(), *rows_, state, kDown);
  }

  Builder& k_;
  const ChunkSpec& s_;
  const Tokens& t_;
  const Value scale_;
  const std::optional<Value> eps_;
  const Value request_, head_, key_head_, block_;
  std::optional<Ref> q_, keys_, v_, state16_, g_, beta_, q_normed_, keys_normed_, sums_, rate_,
      to_start_, to_end_, lower_, inverse_, rows_;
};

}  // namespace

ir::Kernel build_chunks(const ChunkSpec& s) {
  Builder k("gated_delta_fwd");
  auto batch = s.has_tokens ? k.dim("batch") : k.scalar("B", DType::i32);
  auto heads = k.dim("heads");
  std::optional<Tokens> tokens;
  std::optional<Value> scale, eps;
  if (s.has_tokens) {
    tokens.emplace(k, s, batch, heads);
    scale = k.scalar("scale", kF32);
    if (s.has_norm) eps = k.scalar("norm_eps", kF32);
  }
  std::optional<States> from, to;
  if (s.reads_state) {
    from.emplace(k, s, s.has_pool ? "pool" : "initial_state", s.has_pool, heads);
  }
  if (s.writes_state && !s.has_pool) to.emplace(k, s, "final_state", true, heads);
  const States* written = to ? &*to : s.writes_state ? &*from : nullptr;
  std::optional<Ref> read_slots, write_slots;
  if (s.has_read_slots) read_slots = k.input("read_slots", DType::i32, {batch}, {.align = 4});
  if (s.has_write_slots) write_slots = k.input("write_slots", DType::i32, {batch}, {.align = 4});
  const int64_t blocks = s.dv / s.columns;
  auto at = k.launch({batch * heads * blocks}, {.threads = static_cast<int>(32 * kWarps)});
  k.let_next_kernel_start();
  auto block = k.let("block", at.x % blocks), head = k.let("head", at.x / blocks % heads);
  auto request = k.let("request", at.x / blocks / heads);
  k.wait_for_previous_kernel();
  auto state = k.fragment(kF32, {s.dk, s.columns}, "state");
  k.fill(state, 0.0f);
  const auto load_state = [&](const Value& slot) {
    k.copy(from->columns(slot, head, block * s.columns, s.dk), state);
  };
  if (read_slots) {
    auto slot = slot_of(k, (*read_slots)(request), from->slots, "read_slots");
    k.if_(k.uniform(slot) >= 0, [&] { load_state(k.uniform(slot)); });
  } else if (from) {
    load_state(request);
  }
  if (tokens) {
    auto key_head = k.let("key_head", head / (heads / tokens->key_heads));
    Chunks(k, s, *tokens, *scale, eps, request, head, key_head, block).run(state);
  }
  const auto store_state = [&](const Value& slot) {
    k.copy(state, written->columns(slot, head, block * s.columns, s.dk));
  };
  if (write_slots && written != nullptr) {
    auto slot = slot_of(k, (*write_slots)(request), written->slots, "write_slots");
    k.if_(k.uniform(slot) >= 0, [&] { store_state(k.uniform(slot)); });
  } else if (written != nullptr) {
    store_state(request);
  }
  return k.finish();
}

}  // namespace tessera::kernels::linear
