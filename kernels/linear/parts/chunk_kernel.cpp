// The gated delta rule in chunks of 64 tokens: the tokens of a chunk meet in products, chunks follow each other.
//
// Shapes   q, k [batch, tokens, key_heads, dk], v, out [batch, tokens, heads, dv], g, beta [batch, tokens, heads], states
//          [slots, heads, dk, dv]
// Maths    Rows after the end of a request are zeros, with a decay of 1 and a rate of 0. Logarithms are to base 2 and added
//          in order, G_t = G_(t-1) + max(g_t log2 e, -128); E_t = 2^G_t, D_ti = 2^(G_t - G_i), Z_t = 2^(G_63 - G_t).
//            L_ti = beta_t ((k_t k_i) D_ti), i < t      T = (1 + L)^-1
//            A_ti = round(T_ti beta_i), i <= t          P_ti = round(((q_t k_i) D_ti) scale), i <= t
//            W = round(v - E (k round(S)))              U = A W
//            out = round((q round(S)) (E scale) + P round(U))
//            S = S E_63 + k^T round(U Z)
//          Row t of T depends on rows up to t alone (triangle_inverse.h), so no token sees a later one.
// Method   A, P, E and Z do not depend on the state: the first kernel (prepare_kernel.cpp) has a block for each chunk. In the
//          second, this one, a block has 64 or 128 columns of the state of a value head and walks its chunks. All products
//          stand transposed, columns of the state as rows: S^T is the sum of one product and, rounded, the left operand of
//          the next, and so are W^T and U^T. Left operands lie in registers as sums do (wgmma_left), so nothing but
//          q, k, v, A and P passes through shared memory, and a group of four warps never waits for another one.
//          By roles, one warp loads chunks by tensor copies into a ring; a group of four warps multiplies 64 columns.
// Bound    second kernel: 6 dk dv + 128 dv operations of the tensor cores per token and head, 2048 clocks of a chunk of
//          128 columns; bytes of q, k, v, out, A and P. 8 x 4096 x 16 heads: 670 MB, 160 us at 4.2 TB/s.
// Measured One H200, medians of interleaved calls, us, in brackets the second kernel. Heads of q and v, tokens: 16/16, 8 x 4096
//          318 (169); 16/32, 1 x 32768 819 (542), 4 x 8192 554 (283), 8 x 1024 160 (80), 1 x 2048 70 (40); 16/64, 1 x 8192
//          296 (150); 2/8, 1 x 32768 609 (530). One kernel that computed the triangles of its chunks by itself, with products by
//          mma.sync, took 1764, 7152, 3550, 885, 445, 1745, 6951.
// Lost     128 columns of a block where half of the multiprocessors have none: 1104 in place of 822. 64 columns where all have
//          some: 357 in place of 317. Waits above the stores of out: 859 in place of 822.

#include "kernels/linear/parts/chunk_kernel.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear/parts/chunk_tensors.h"
#include "kernels/linear/parts/slots.h"

namespace tessera::kernels::linear {

using namespace dsl;

namespace {

constexpr auto kF32 = DType::f32;
constexpr int64_t kC = kChunk;

/// A tensor of states.
struct States {
  States(Builder& k, const ChunkSpec& s, const std::string& name, bool is_output,
         const Value& heads)
      : slots(k.dim(name + "_slots")), dk(s.dk) {
    const auto stride = [&](const char* of) { return Arg(k.stride(name + of)); };
    const TensorOptions options = {
        .strides = {stride("_slot"), stride("_head"), stride("_row"), stride("_column")},
        .align = bytes(s.state_dtype)};
    const std::vector<Arg> shape = {slots, heads, s.dk, s.dv};
    states = is_output ? k.output(name, s.state_dtype, shape, options)
                       : k.input(name, s.state_dtype, shape, options);
  }
  /// Columns of a state, as rows.
  Ref columns(const Value& slot, const Value& head, const Value& first) const {
    return (*states)(slot, head).tile({0, first}, {dk, kColumns}).transposed();
  }

  Value slots;
  int64_t dk;
  std::optional<Ref> states;
};

/// The tensors of the tokens.
struct Tokens {
  Tokens(Builder& k, const ChunkSpec& s, const Value& batch, const Value& heads)
      : count(k.dim("tokens")),
        key_tokens(k.dim("key_tokens")),
        key_heads(k.dim("key_heads")),
        places(k.dim("places")) {
    queries = rows_of(k, "q", s.dtype, {batch, key_tokens, key_heads, s.dk}, s.row_width);
    keys = rows_of(k, "k", s.dtype, {batch, key_tokens, key_heads, s.dk}, s.row_width);
    const std::vector<Arg> parts = {batch, count, heads, s.dv / kColumns, kColumns};
    const DimOptions apart{.multiple_of = s.row_width};
    values = k.input("v", s.dtype, parts,
                     {.strides = {k.stride("v_request", apart), k.stride("v_token", apart),
                                  k.stride("v_head", apart), kColumns, 1},
                      .align = int64_t{bytes(s.dtype)} * s.row_width});
    a = k.input("a", s.dtype, {places, kC, kC}), p = k.input("p", s.dtype, {places, kC, kC});
    decays = k.input("decays", kF32, {places, 2 * kC});
    out = k.output("out", s.dtype, parts, {.align = int64_t{bytes(s.dtype)} * s.out_width});
    if (s.has_lengths) lengths = k.input("lengths", DType::i32, {batch}, {.align = 4});
    if (!s.is_packed) return;
    bounds = k.dim("bounds");
    cu_seqlens = k.input("cu_seqlens", DType::i32, {*bounds}, {.align = 4});
  }

  Value count, key_tokens, key_heads, places;
  std::optional<Ref> queries, keys, values, a, p, decays, out, lengths, cu_seqlens;
  std::optional<Value> bounds;  // requests of a packed call, and one
};

/// The chunks of one request, value head and block of columns.
class Chunks {
 public:
  Chunks(Builder& k, const ChunkSpec& s, const Tokens& t, const Value& scale, const Value& heads,
         const Value& request, const Value& head)
      : k_(k),
        s_(s),
        t_(t),
        scale_(scale),
        heads_(heads),
        head_(head),
        key_head_(k.let("key_head", head / (heads / t.key_heads))) {
    if (s.is_packed) {
      const PackedRequest found = packed_request(k, *t.cu_seqlens, *t.bounds - 1, t.count, request);
      request_ = k.let("tensor", 0), first_ = found.first, length_ = found.length;
      first_place_ = k.let("first_place", found.place * heads + head);
      first_key_ = s.has_norm ? k.let("first_key", found.place * kC) : first_;
    } else {
      request_ = request, first_ = first_key_ = k.let("first", 0);
      length_ = t.lengths ? length_of(k, *t.lengths, request, t.count) : t.count;
      first_place_ = k.let("first_place", request * ceil_div(t.count, kC) * heads + head);
    }
    chunks_ = k.let("chunks", ceil_div(length_, kC));
    if (s.by_roles) ring_.emplace(k.ring({.stages = s.stages}));
    const auto tile = [&](DType dtype, const std::vector<int64_t>& shape, const char* name) {
      return ring_ ? ring_->shared(dtype, shape, name) : Ref(k_.shared(dtype, shape, name));
    };
    q_ = tile(s.dtype, {kC, s.dk}, "q_tile"), keys_ = tile(s.dtype, {kC, s.dk}, "k_tile");
    a_ = tile(s.dtype, {kC, kC}, "a_tile"), p_ = tile(s.dtype, {kC, kC}, "p_tile");
    decays_ = tile(kF32, {2 * kC}, "decays_tile");
    for (int group = 0; group < s.groups; ++group) {
      v_.push_back(tile(s.dtype, {kC, kColumns}, "v_tile"));
      out_.push_back(k.shared(s.dtype, {kC, kColumns}, "out_tile"));
    }
  }

  /// Runs all chunks on the state [64, dk] of block `block` of columns, which is that of `group`.
  void run(const Ref& state, const Value& block, size_t group) {
    const auto multiply_chunk = [&](Value chunk) { multiply(chunk, state, block, group); };
    if (ring_) {
      k_.serial(0, chunks_, [&](Value chunk) { ring_->take([&] { multiply_chunk(chunk); }); });
    } else {
      const auto body = [&](Value chunk) { load(chunk, block), multiply_chunk(chunk); };
      s_.stages > 1 ? k_.pipelined(0, chunks_, s_.stages, body) : k_.serial(0, chunks_, body);
    }
    if (t_.lengths) clear(chunks_, ceil_div(t_.count, kC), block);
  }
  /// Zeros after all packed requests, of which this is none.
  void clear_rest(const Value& block) const { clear(0, ceil_div(t_.count - first_, kC), block); }
  /// By roles.
  void fill_ring(const Value& first_block) {
    k_.serial(0, chunks_, [&](Value chunk) { ring_->fill([&] { load(chunk, first_block); }); });
  }

 private:
  bool has_tails() const { return s_.has_lengths || s_.is_packed; }
  TileRef out_at(const Value& row, const Value& block) const {
    return (*t_.out)(request_, k_.all, head_, block).tile({first_ + row, 0}, {kC, kColumns});
  }
  void clear(const Arg& begin, const Value& end, const Value& block) const {
    k_.serial(begin, end,
              [&](Value chunk) { k_.fill(out_at(chunk * kC, block), cast(s_.dtype, 0.0f)); });
  }
  CopyOptions by_engine() const {
    return s_.by_roles ? CopyOptions{.engine = ir::Engine::tensor} : CopyOptions{};
  }

  void load(const Value& chunk, const Value& first_block) {
    auto row = chunk * kC, place = first_place_ + chunk * heads_;
    const auto copy_rows = [&](const Ref& from, const Ref& to) {
      k_.copy(from(request_, k_.all, key_head_).tile({first_key_ + row, 0}, {kC, s_.dk}), to,
              by_engine());
    };
    const auto copy_keys = [&] { copy_rows(*t_.keys, *keys_); };
    // Rows after the end are zeros: updates of 0 must not meet a NaN.
    const auto copy_tail = [&] {
      k_.copy(t_.keys->rows(kC,
                            [&](Value r) {
                              auto token = select(row + r < length_, first_key_ + row + r, -1);
                              return std::vector<Value>{request_, token, key_head_};
                            }),
              *keys_);
    };
    copy_rows(*t_.queries, *q_);
    if (!has_tails() || s_.has_norm) {
      copy_keys();
    } else if (s_.by_roles) {
      k_.if_else(row + kC <= length_, copy_keys, copy_tail);
    } else {
      copy_tail();
    }
    for (size_t group = 0; group < v_.size(); ++group) {
      auto block = first_block + static_cast<int>(group);
      k_.copy((*t_.values)(request_, k_.all, head_, block).tile({first_ + row, 0}, {kC, kColumns}),
              v_[group], by_engine());
    }
    k_.copy((*t_.a)(place, k_.all, k_.all), *a_, by_engine());
    k_.copy((*t_.p)(place, k_.all, k_.all), *p_, by_engine());
    k_.copy((*t_.decays)(place, k_.all), *decays_);
  }

  void multiply(const Value& chunk, const Ref& state, const Value& block, size_t group) {
    auto row = chunk * kC;
    const GemmOptions by_columns = {
        .warp_rows = 4,
        .instruction = s_.by_roles ? ir::Instruction::wgmma : ir::Instruction::automatic};
    const auto sum = [&](const char* name) {
      auto made = k_.fragment(kF32, {kColumns, kC}, name);
      k_.fill(made, 0.0f);
      return made;
    };
    const auto rounded = [&](int64_t width, const char* name) {
      return k_.fragment(s_.dtype, {kColumns, width}, name);
    };
    const auto to_start = [&](const Value& t) { return (*decays_)(t); };
    const auto to_end = [&](const Value& t) { return (*decays_)(kC + t); };
    auto state16 = rounded(s_.dk, "state16"), w = rounded(kC, "w");
    auto u16 = rounded(kC, "u16"), uz = rounded(kC, "uz");
    auto seen = sum("seen"), o = sum("o"), u = sum("u");
    k_.copy(state, state16);
    k_.gemm(state16, keys_->transposed(), seen, by_columns);
    k_.gemm(state16, q_->transposed(), o, by_columns);
    k_.parallel({kColumns, kC}, [&](Value c, Value t) {
      Value decay = to_start(t), before = seen(c, t), value = v_[group](t, c);
      auto change = fma(-decay, before, f32(value));
      if (has_tails()) change = select(row + t < length_, change, 0.0f);
      w(c, t) = cast(s_.dtype, change);
    });
    k_.gemm(w, a_->transposed(), u, by_columns);
    auto end = k_.let("end", (*decays_)(kC - 1));
    k_.parallel({kColumns, s_.dk}, [&](Value c, Value d) { state(c, d) *= end; });
    k_.parallel({kColumns, kC}, [&](Value c, Value t) {
      Value decay = to_start(t);
      o(c, t) *= decay * scale_;
    });
    k_.copy(u, u16);
    k_.gemm(u16, p_->transposed(), o, by_columns);
    k_.parallel({kColumns, kC}, [&](Value c, Value t) {
      Value update = u(c, t), decay = to_end(t);
      uz(c, t) = cast(s_.dtype, update * decay);
    });
    k_.gemm(uz, *keys_, state, by_columns);
    k_.parallel({kColumns, kC}, [&](Value c, Value t) {
      Value value = o(c, t);
      out_[group](t, c) =
          cast(s_.dtype, s_.has_lengths ? select(row + t < length_, value, 0.0f) : value);
    });
    const auto copy_whole = [&] { k_.copy(out_[group], out_at(row, block), by_engine()); };
    const auto copy_tail = [&] {  // the rows of the request alone
      k_.copy(out_[group], t_.out->rows(kC, [&](Value t) {
        auto token = select(row + t < length_, first_ + row + t, -1);
        return std::vector<Value>{request_, token, head_, block};
      }));
    };
    if (s_.is_packed) {
      // A tensor store begins at no row before the first: what the compiler cannot know.
      k_.if_else(first_ + row >= 0 && row + kC <= length_, copy_whole, copy_tail);
    } else {
      copy_whole();
    }
  }

  Builder& k_;
  const ChunkSpec& s_;
  const Tokens& t_;
  const Value scale_, heads_, head_, key_head_;
  // A request is rows of tensor `request_` from `first_` on, and from `first_key_` on in the tensors of keys; `first_place_` is
  // that of its first chunk and this head.
  Value request_, first_, first_key_, length_, chunks_, first_place_;
  std::optional<Ring> ring_;
  std::optional<Ref> q_, keys_, a_, p_, decays_;
  std::vector<Ref> v_, out_;  // of each group
};

}  // namespace

ir::Kernel build_chunks(const ChunkSpec& s) {
  Builder k("gated_delta_fwd");
  auto batch = s.has_tokens ? k.dim("batch") : k.scalar("B", DType::i32);
  auto heads = k.dim("heads");
  std::optional<Tokens> tokens;
  std::optional<Value> scale;
  if (s.has_tokens) {
    tokens.emplace(k, s, batch, heads);
    scale = k.scalar("scale", kF32);
  }
  std::optional<States> from, to;
  if (s.reads_state) {
    from.emplace(k, s, s.has_pool ? "pool" : "initial_state", s.has_pool, heads);
  }
  if (s.writes_state && !s.has_pool) to.emplace(k, s, "final_state", true, heads);
  const States* written = to ? &*to : s.writes_state ? &*from : nullptr;
  std::optional<Ref> read_slots, write_slots;
  const auto slots = [&](const char* name) {
    return k.input(name, DType::i32, {k.dim(std::string(name) + "_given")}, {.align = 4});
  };
  if (s.has_read_slots) read_slots = slots("read_slots");
  if (s.has_write_slots) write_slots = slots("write_slots");
  const int64_t blocks = s.dv / (s.groups * kColumns);
  const bool by_roles = s.by_roles && s.has_tokens;
  const bool is_packed = s.is_packed && s.has_tokens;
  auto requests = is_packed ? *tokens->bounds - 1 : batch;
  auto parts = is_packed ? *tokens->bounds : batch;  // one more for what follows all requests
  auto at = k.launch({parts * heads * blocks}, {.threads = (s.groups + (by_roles ? 1 : 0)) * 128});
  k.let_next_kernel_start();
  auto first_block = k.let("first_block", at.x % blocks * static_cast<int>(s.groups));
  auto head = k.let("head", at.x / blocks % heads);
  auto request = k.let("request", at.x / blocks / heads);
  k.wait_for_previous_kernel();
  std::optional<Chunks> chunks;
  if (tokens) chunks.emplace(k, s, *tokens, *scale, heads, request, head);
  const auto walk_request = [&](size_t group, const Value& block) {
    auto state = k.fragment(kF32, {kColumns, s.dk}, "state");
    k.fill(state, 0.0f);
    const auto load_state = [&](const Value& slot) {
      k.copy(from->columns(slot, head, block * kColumns), state);
    };
    if (read_slots) {
      auto slot = slot_of(k, (*read_slots)(request), from->slots, "read_slots");
      k.if_(k.uniform(slot) >= 0, [&] { load_state(k.uniform(slot)); });
    } else if (from) {
      load_state(request);
    }
    if (chunks) chunks->run(state, block, group);
    const auto store_state = [&](const Value& slot) {
      k.copy(state, written->columns(slot, head, block * kColumns));
    };
    if (write_slots && written != nullptr) {
      auto slot = slot_of(k, (*write_slots)(request), written->slots, "write_slots");
      k.if_(k.uniform(slot) >= 0, [&] { store_state(k.uniform(slot)); });
    } else if (written != nullptr) {
      store_state(request);
    }
  };
  const auto walk = [&](size_t group) {
    auto block = k.let("block", first_block + static_cast<int>(group));
    if (!is_packed) return walk_request(group, block);
    k.if_else(
        request < requests, [&] { walk_request(group, block); },
        [&] { chunks->clear_rest(block); });
  };
  if (!by_roles) {
    walk(0);
    return k.finish();
  }
  // Rows of a tail take the role that loads more registers.
  const bool has_tails = (s.has_lengths || s.is_packed) && !s.has_norm;
  std::vector<dsl::Role> roles;
  for (int group = 0; group < s.groups; ++group) {
    roles.push_back({.name = group == 0 ? "multiply" : "multiply_too",
                     .warpgroups = 1,
                     .registers = has_tails ? 224 : 240,
                     .body = [&walk, group] { walk(static_cast<size_t>(group)); }});
  }
  roles.push_back({.name = "load", .warps = 1, .registers = has_tails ? 56 : 24, .body = [&] {
                     chunks->fill_ring(first_block);
                   }});
  k.roles(roles);
  return k.finish();
}

}  // namespace tessera::kernels::linear
