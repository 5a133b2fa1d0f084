// gated_delta_fwd, first kernel: A, P and the decays of every chunk, as chunk_kernel.cpp defines them.
//
// A block has a chunk of a value head. Everything here is independent of the state, so all chunks of all requests run at
// once, and the second kernel is left with products alone. Heads that share a key head are neighbours: their products k k^T
// and q k^T are computed anew, from tiles in the cache. In a loop over these heads the addresses of everything below spilled.
// Bytes: 16.5 KB of each chunk and value head to memory and back.
//
// One H200, 8 x 4096 x 16 heads: about 147 us of 318 for both kernels, where its 402 MB take 96. Lost, us for both: four
// blocks of a multiprocessor in place of five 325, q and k by tensor copies 324, zeros in all of the inverse 321.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/checks/value_check.h"
#include "kernels/linear/parts/chunk_kernel.h"
#include "kernels/linear/parts/chunk_tensors.h"
#include "kernels/linear/parts/delta_call.h"
#include "kernels/linear/parts/triangle_inverse.h"

namespace tessera::kernels::linear {

using namespace dsl;

namespace {

constexpr auto kF32 = DType::f32;
constexpr int64_t kC = kChunk;
constexpr int64_t kWarps = 4;
constexpr int64_t kHalf = kC / 2;  // rows of a block of the inverse

/// Rows of a chunk divided by their lengths: the sum of squares in the order of norm_row.h, a quad per lane.
void norm_rows(Builder& k, const Ref& tile, int64_t width, const Value& eps) {
  constexpr int64_t kQuad = 4;
  const DType dtype = tile.dtype();
  k.rolled(0, kC / kWarps, [&](Value turn) {
    auto row = k.let("row_of_norm", turn * kWarps + k.warp());
    auto quad = k.local(kF32, {kQuad}, "quad");
    auto sum = k.var(kF32, 0.0f, "squares");
    k.if_(k.lane() * kQuad < width, [&] {
      k.unrolled(kQuad, [&](Value e) {
        quad(e) = f32(tile(row, k.lane() * kQuad + e));
        sum = fma(quad(e), quad(e), sum);
      });
    });
    for (const int distance : {1, 2, 4, 8, 16}) sum += k.shuffle_xor(sum, distance);
    auto r = k.let("r", 1.0f / sqrt(sum + eps));
    k.if_(k.lane() * kQuad < width, [&] {
      k.unrolled(kQuad,
                 [&](Value e) { tile(row, k.lane() * kQuad + e) = cast(dtype, quad(e) * r); });
    });
  });
}

class Prepare {
 public:
  explicit Prepare(const PrepareSpec& s)
      : s_(s),
        k_("gated_delta_prepare"),
        batch_(k_.dim("batch")),
        tokens_(k_.dim("tokens")),
        key_heads_(k_.dim("key_heads")),
        heads_(k_.dim("heads")),
        places_(k_.dim("places")),
        scale_(k_.scalar("scale", kF32)),
        q_(rows_of(k_, "q", s.dtype, {batch_, tokens_, key_heads_, s.dk}, s.row_width)),
        keys_(rows_of(k_, "k", s.dtype, {batch_, tokens_, key_heads_, s.dk}, s.row_width)),
        g_(gates("g", kF32)),
        beta_(gates("beta", s.beta_dtype)),
        a_(k_.output("a", s.dtype, {places_, kC, kC})),
        p_(k_.output("p", s.dtype, {places_, kC, kC})),
        decays_(k_.output("decays", kF32, {places_, 2 * kC})) {
    if (s.has_lengths) lengths_ = k_.input("lengths", DType::i32, {batch_}, {.align = 4});
    if (s.is_packed) {
      bounds_ = k_.dim("bounds");
      cu_seqlens_ = k_.input("cu_seqlens", DType::i32, {*bounds_}, {.align = 4});
    }
    if (!s.has_norm) return;
    eps_ = k_.scalar("norm_eps", kF32);
    normed_tokens_ = k_.dim("normed_tokens");
    const auto normed = [&](const char* name) {
      return k_.output(name, s.dtype, {batch_, *normed_tokens_, key_heads_, s.dk});
    };
    q_normed_ = normed("q_normed"), keys_normed_ = normed("k_normed");
  }

  ir::Kernel build() {
    auto chunks = s_.is_packed ? tokens_ / kC + (*bounds_ - 1) : ceil_div(tokens_, kC);
    auto at = k_.launch({batch_ * chunks * heads_},
                        {.threads = static_cast<int>(32 * kWarps), .min_blocks_per_sm = s_.blocks});
    k_.let_next_kernel_start();
    head_ = k_.let("head", at.x % heads_);
    auto chunk = k_.let("chunk", at.x / heads_);  // of all requests
    k_.wait_for_previous_kernel();
    if (s_.is_packed) {
      const PackedChunk found = packed_chunk(k_, *cu_seqlens_, *bounds_ - 1, tokens_, chunk);
      request_ = k_.let("tensor", 0), first_ = found.first, row_ = found.row;
      length_ = found.length, normed_row_ = k_.let("normed_row", chunk * kC);
    } else {
      request_ = k_.let("request", chunk / chunks), first_ = k_.let("first", 0);
      row_ = k_.let("row", chunk % chunks * kC), normed_row_ = row_;
      length_ = lengths_ ? length_of(k_, *lengths_, request_, tokens_) : tokens_;
    }
    if (has_tails()) k_.return_if(row_ >= length_);
    auto q = k_.shared(s_.dtype, {kC, s_.dk}, "q_tile"),
         keys = k_.shared(s_.dtype, {kC, s_.dk}, "k_tile");
    auto lower = k_.shared(kF32, {kC, kC}, "lower"), inverse = k_.shared(kF32, {kC, kC}, "inverse");
    auto p = k_.shared(s_.dtype, {kC, kC}, "p_tile");
    auto logs = k_.shared(kF32, {kC}, "logs"), rate = k_.shared(kF32, {kC}, "rate");
    auto sums = k_.shared(kF32, {kC}, "sums");
    load(q, keys, [&] { decays(logs, rate, sums); });
    auto kk = k_.fragment(kF32, {kC, kC}, "kk"), qk = k_.fragment(kF32, {kC, kC}, "qk");
    k_.fill(kk, 0.0f), k_.fill(qk, 0.0f);
    k_.gemm(keys, keys.transposed(), kk), k_.gemm(q, keys.transposed(), qk);
    auto sums_of_rows = k_.fragment(kF32, {kC}, "sums_of_rows");
    auto rate_of_rows = k_.fragment(kF32, {kC}, "rate_of_rows");
    k_.copy(sums, sums_of_rows), k_.copy(rate, rate_of_rows);
    k_.parallel({kC, kC}, [&](Value t, Value i) {
      Value until_t = sums_of_rows(t), until_i = sums(i), own_rate = rate_of_rows(t);
      auto decay = k_.let("decay", decay_of(k_.let("log_between", until_t - until_i)));
      Value of_keys = kk(t, i), of_query = qk(t, i);
      lower(t, i) = select(i < t, own_rate * (of_keys * decay), 0.0f);
      p(t, i) = cast(s_.dtype, select(i <= t, of_query * decay * scale_, 0.0f));
    });
    k_.copy(p, p_(at.x, k_.all, k_.all));
    k_.parallel({kC}, [&](Value t) {
      Value end = sums(kC - 1), own = sums(t);
      decays_(at.x, t) = decay_of(k_.let("from_start", own));
      decays_(at.x, kC + t) = decay_of(k_.let("until_end", end - own));
    });
    invert_triangle(k_, lower, inverse);
    const auto copy_a = [&](int64_t first, int64_t column) {
      k_.parallel({kC - first, kHalf}, [&](Value r, Value c) {
        auto t = first + r, i = column + c;
        Value of_inverse = inverse(t, i), rate_of_column = rate(i);
        a_(at.x, t, i) = cast(s_.dtype, select(i <= t, of_inverse * rate_of_column, 0.0f));
      });
    };
    copy_a(0, 0), copy_a(kHalf, kHalf);
    k_.fill(a_(at.x, k_.all, k_.all).tile({0, kHalf}, {kHalf, kHalf}), cast(s_.dtype, 0.0f));
    return k_.finish();
  }

 private:
  /// After the rows of a request there may be some that are not zeros.
  bool has_tails() const { return s_.has_lengths || s_.is_packed; }
  Ref gates(const std::string& name, DType dtype) {
    return k_.input(name, dtype, {batch_, tokens_, heads_},
                    {.strides = {k_.stride(name + "_request"), k_.stride(name + "_token"), 1},
                     .align = bytes(dtype)});
  }

  /// Rows of q and k, normed if asked. Runs `meanwhile` while they are on their way.
  void load(const Ref& q, const Ref& keys, const std::function<void()>& meanwhile) {
    auto group = k_.let("group", heads_ / key_heads_), key_head = k_.let("key_head", head_ / group);
    const bool is_wide = s_.row_width * bytes(s_.dtype) >= 4;  // else threads copy
    std::optional<AsyncToken> copied;
    const auto copy = [&](const auto& from, const Ref& to) {
      if (is_wide) {
        copied = k_.copy_async(from, to);
      } else {
        k_.copy(from, to);
      }
    };
    for (const auto& [from, to] : {std::pair(q_, q), std::pair(keys_, keys)}) {
      if (has_tails()) {
        copy(from.rows(kC,
                       [&](Value r) {
                         auto row = select(row_ + r < length_, first_ + row_ + r, -1);
                         return std::vector<Value>{request_, row, key_head};
                       }),
             to);
      } else {
        copy(from(request_, k_.all, key_head).tile({row_, 0}, {kC, s_.dk}), to);
      }
    }
    meanwhile();
    if (copied) k_.wait(*copied);
    if (!s_.has_norm) return;
    norm_rows(k_, q, s_.dk, *eps_), norm_rows(k_, keys, s_.dk, *eps_);
    const auto keep = [&](const Ref& from, const Ref& to) {
      k_.copy(from, to(request_, k_.all, key_head).tile({normed_row_, 0}, {kC, s_.dk}));
    };
    k_.if_(head_ % group == 0, [&] { keep(q, *q_normed_), keep(keys, *keys_normed_); });
  }

  /// Logarithms of decays and their sums from the start of the chunk, in order; rates.
  void decays(const Ref& logs, const Ref& rate, const Ref& sums) {
    k_.parallel({kC}, [&](Value t) {
      auto token = first_ + row_ + t;
      auto given = g_(request_, token, head_);
      auto log = k_.let("log", log2_decay(k_.let("given_gate", given)));
      auto given_rate = k_.let("given_rate", f32(beta_(request_, token, head_)));
      auto counts = row_ + t < length_;
      logs(t) = has_tails() ? select(counts, log, 0.0f) : log;
      rate(t) = has_tails() ? select(counts, given_rate, 0.0f) : given_rate;
    });
    k_.if_(k_.thread() < kC, [&] {
      auto t = k_.thread();
      constexpr int64_t kQuad = 4;
      auto sum = k_.var(kF32, logs(0), "sum");
      for (int64_t first = 0; first < kC; first += kQuad) {
        auto quad = k_.local(kF32, {kQuad}, "quad");
        k_.vectorized(kQuad, [&](Value e) { quad(e) = logs(first + e); });
        for (int64_t e = first == 0 ? 1 : 0; e < kQuad; ++e) {
          sum += select(first + e <= t, quad(e), -0.0f);  // -0 changes no sum
        }
      }
      sums(t) = sum;
    });
  }

  const PrepareSpec s_;
  Builder k_;
  Value batch_, tokens_, key_heads_, heads_, places_, scale_;
  Ref q_, keys_, g_, beta_, a_, p_, decays_;
  std::optional<Ref> lengths_, cu_seqlens_, q_normed_, keys_normed_;
  std::optional<Value> eps_, normed_tokens_, bounds_;
  // The block has the chunk at row `row_` of a request that begins at token `first_`.
  Value request_, head_, first_, row_, length_, normed_row_;
};

}  // namespace

ir::Kernel build_prepare(const PrepareSpec& s) {
  return Prepare(s).build();
}

}  // namespace tessera::kernels::linear
