// Attention of a few new tokens over a paged cache.
//
// Blocks walk items of work: a part of one request for one tile of rows and one head of keys (paged_items.h). A request
// with one part is finished here; parts of others go to memory, and the second kernel joins them from left to right.
//
// Some warps load, others multiply. Those that load walk the same items ahead of the others, and fill a ring of tiles, of
// keys and of values in turn: page by page by tensor copies where that is faster and a block ends before the request
// does, else row by row, with a look at the page of each key. Pages that do not exist make their keys invisible, which a
// note in the ring says; rows behind the request's end are zeros, whatever its pages hold.
//
// The warps that multiply share the keys of a block for the scores, and the columns of values for p v; with 32 rows or
// more two warps share the rows too. Between the two products scores pass through shared memory: a warp takes whole
// rows, and lane (u, w) the keys j of class (j mod 8 = u, j div 16 mod 4 = w), so a class is one register.
//
// Codes of e4m3 are decoded where the products take their right operand, in registers (decode_codes.h). A thread takes four
// adjacent codes of a key for the scores, so columns of q lie in that order; for p v it takes four adjacent columns of
// four keys, so columns of `o` are permuted until they are written.
//
// Bound         bytes of keys and values. 64 keys of 128: 128 mma.sync, about 210 clocks of an SM, beside 1800 for
//               the bytes (900 for e4m3) at 4.2 TB/s.
// Measured      One H200, us (FlashAttention-3 on the same card in a call of that hour): 32 requests of 4096 keys, 32 / 8
//               heads of 128, pages of 64 142 (147), of 16 146 (149), 4 tokens 159 (149); 128 of 8192, 64 / 8 heads
//               1062 (1007); 256 of 1024 266 (304); 64 requests with a window of 128 15 (30). Interleaved calls, one request,
//               32 / 4 heads, by events: 1 K and 8 K keys 17.0 and 27.4 with tensor copies, 24.4 and 33.1 row by row.
// Lost          loads by the warps that multiply, eight of them: 150 in place of 142. One block of eight warps and four that load
//               157 (but 21 in place of 30 for one request, so few items take it), one warp that loads 173, three
//               blocks with one stage 178. Looking up pages in the warps that multiply: e4m3 208 in place of 191. Tensor
//               copies where two blocks run at once: 152 in place of 148, 271 in place of 266, one warp that loads the same.
//               e4m3, 32 requests of 32768 keys, 157 now: codes widened through shared memory 168; from a tile without a
//               swizzle, by conversions in registers 163, in three blocks 170, by operations on words 170; with the
//               swizzle (conflicts of the example 320 in place of 13632) 165, all steps unrolled.
#include "kernels/attention/parts/decode_kernel.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/parts/decode_codes.h"
#include "kernels/attention/parts/online_softmax.h"
#include "kernels/attention/parts/paged_items.h"
#include "kernels/attention/parts/prefix_search.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLanesOfW = 8;      // the classes of one w
constexpr int64_t kCodesAtOnce = 16;  // of k, decoded for an instruction

struct DecodeTensors : PagedTensors {
  explicit DecodeTensors(const DecodeSpec& s)
      : PagedTensors("attention_decode", {.rows = s.rows,
                                          .keys = s.keys(),
                                          .page_size = s.page_size,
                                          .is_causal = s.is_causal != 0,
                                          .has_left = s.has_left != 0}),
        spec(s),
        c(k.scalar("c", kF32)),
        q(input("q", dtype(), {batch, tokens, heads, s.width}, s.q_vector)),
        k_cache(cache("k_cache", s.width, s.k_vector)),
        v_cache(cache("v_cache", s.value_width, s.v_vector)),
        out(k.output("out", dtype(), {batch, tokens, heads, s.value_width}, {.align = 4})),
        lse(k.output("lse", kF32, {batch, heads, tokens}, {.align = 4})) {
    if (s.has_softcap != 0) cap = k.scalar("cap", kF32);
    if (s.has_sink != 0) sink = k.input("sink", kF32, {heads}, {.align = 4});
    if (s.is_e4m3 != 0) {
      k_sf = k.input("k_sf", kF32, {k_heads}, {.align = 4});
      v_sf = k.input("v_sf", kF32, {k_heads}, {.align = 4});
    }
    if (s.has_parts == 0) return;
    auto rows = batch * tokens * heads;
    parts = k.output("parts", kF32, {k.dim("part_count"), rows, s.value_width + 2}, {.align = 8});
  }

  DType dtype() const { return spec.is_f16 != 0 ? DType::f16 : DType::bf16; }
  DType cache_dtype() const { return spec.is_e4m3 != 0 ? DType::e4m3 : dtype(); }
  Ref input(const char* name, DType type, const std::vector<dsl::Arg>& extents, int vector) {
    std::vector<dsl::Arg> strides;
    for (const char* of : {"_of_request", "_of_row", "_of_head"}) {
      strides.emplace_back(k.stride(std::string(name) + of, {.multiple_of = vector}));
    }
    strides.emplace_back(1);
    return k.input(name, type, extents, {.strides = strides, .align = vector * bytes(type)});
  }
  Ref cache(const char* name, int64_t width, int vector) {
    return input(name, cache_dtype(), {pages, page_size, k_heads, width}, vector);
  }

  const DecodeSpec spec;
  Value c;
  Ref q, k_cache, v_cache, out, lse;
  std::optional<Ref> sink, k_sf, v_sf, parts;
  std::optional<Value> cap;
};

/// Loads a block of keys: page by page by tensor copies if the block ends before the request does, else row by row.
class KeyBlock {
 public:
  KeyBlock(DecodeTensors& tensors, const PagedPlace& place, const Value& j)
      : t_(tensors), place_(place), j_(j) {
    if (t_.spec.by_engine == 0) return;
    for (int64_t i = 0; i < t_.spec.keys() / rows_of_box(); ++i) {
      Value page = t_.table(place_.request, first_key(i) / t_.page_size);
      pages_.push_back(t_.k.let("page", t_.k.uniform(page)));
    }
  }

  void load(const Ref& cache, const Ref& tile) const {
    const auto by_rows = [&] { load_rows(t_, place_, cache, j_, tile); };
    if (t_.spec.by_engine == 0) return by_rows();
    const auto by_pages = [&] {
      const int64_t rows = rows_of_box(), width = tile.extents()[1];
      for (size_t i = 0; i < pages_.size(); ++i) {
        const auto box = static_cast<int64_t>(i);
        t_.k.copy(cache(pages_[i], dsl::Builder::all, place_.k_head)
                      .tile({first_key(box) % t_.page_size, 0}, {rows, width}),
                  tile.tile({box * rows, 0}, {rows, width}), {.engine = ir::Engine::tensor});
      }
    };
    t_.k.if_else(first_key(0) + t_.spec.keys() <= place_.length, by_pages, by_rows);
  }

 private:
  int64_t rows_of_box() const { return std::min<int64_t>(t_.spec.page_size, t_.spec.keys()); }
  Value first_key(int64_t box) const { return j_ * t_.spec.keys() + box * rows_of_box(); }

  DecodeTensors& t_;
  const PagedPlace& place_;
  const Value j_;
  std::vector<Value> pages_;  // of the boxes
};

/// The tiles of a block, and its work on one item.
class DecodeItem {
 public:
  DecodeItem(DecodeTensors& tensors, dsl::Ring& ring, const Ref& k_tile, const Ref& v_tile,
             const Ref& has_page)
      : t_(tensors),
        k_(tensors.k),
        at_(tensors),
        ring_(ring),
        k_tile_(k_tile),
        v_tile_(v_tile),
        has_page_(has_page),
        rows_(tensors.spec.rows),
        keys_(tensors.spec.keys()),
        value_width_(tensors.spec.value_width),
        warps_(tensors.spec.warps),
        rows_of_warp_(rows_ / warps_),
        q_tile_(k_.shared(t_.dtype(), {rows_, t_.spec.width}, "q_tile")),
        score_tile_(k_.shared(kF32, {rows_, keys_}, "score_tile")),
        p_tile_(k_.shared(t_.dtype(), {rows_, keys_}, "p_tile")),
        factor_(k_.shared(kF32, {rows_}, "factor")),
        empty_(k_.shared(kI32, {rows_}, "empty")),
        is_there_(k_.shared(kI32, {keys_}, "is_there")),
        begin_(k_.shared(kI32, {rows_}, "begin")),
        end_(k_.shared(kI32, {rows_}, "end")),
        token_(k_.shared(kI32, {rows_}, "token")),
        head_(k_.shared(kI32, {rows_}, "head")),
        top_(k_.local(kF32, {rows_of_warp_}, "top")),
        scaled_(k_.local(kF32, {rows_of_warp_}, "scaled")),
        sum_(k_.local(kF32, {rows_of_warp_}, "sum")),
        scores_(k_.fragment(kF32, {rows_, keys_}, "scores")),
        o_(k_.fragment(kF32, {rows_, value_width_}, "o")) {
    if (t_.spec.is_e4m3 != 0) {
      key_codes_ = k_.fragment(t_.dtype(), {kCodesAtOnce, keys_}, "key_codes");
      value_codes_ = k_.fragment(t_.dtype(), {kCodesAtOnce, value_width_}, "value_codes");
    }
    k_.fill(p_tile_, dsl::cast(t_.dtype(), 0.0f));
  }

  /// One part of a request for one tile of rows and one head of keys.
  void run(const Value& request, const Value& item) {
    at_.find(request, item);
    scale_keys();
    start(t_.request(request, false));
    const auto place = [&](const Value& i) { return std::vector<Value>{token_(i), head_(i)}; };
    if (has_codes()) {
      load_queries_for_codes(request);
    } else {
      k_.copy(t_.q(request).rows(rows_, place), q_tile_);
    }
    k_.serial(at_.first, at_.end, [&](Value j) { visit(j); });
    finish();
  }

 private:
  /// The factors of scores with the scale of the keys; with one that is out of range rows are NaN.
  void scale_keys() {
    c_ = t_.c, cap_ = t_.cap;
    if (!t_.k_sf) return;
    Value k_sf = (*t_.k_sf)(at_.k_head);
    auto scaled = k_.let("scaled_factor", (cap_ ? *cap_ : c_) * k_sf);
    is_sane_ = k_.let("is_sane", scaled > 0.0f && scaled <= kLargest);
    k_.report_unless(*is_sane_, out_of_range("k_sf"));
    (cap_ ? *cap_ : c_) = k_.let("factor_of_scores", select(*is_sane_, scaled, 1.0f));
  }

  void start(const DecodeRequest& r) {
    k_.fill(o_, 0.0f);
    k_.fill(factor_, 0.0f), k_.fill(empty_, 1);
    k_.parallel({rows_}, [&](Value i) {
      auto row = k_.let("row_of_group", at_.row + i), token = k_.let("token", row / t_.group);
      begin_(i) = r.begin(token), end_(i) = r.end(token);
      token_(i) = select(i < at_.count, token, -1);
      head_(i) = at_.k_head * t_.group + (row - token * t_.group);
    });
    k_.unrolled(rows_of_warp_,
                [&](Value i) { top_(i) = kLowest, scaled_(i) = kLowest, sum_(i) = 0.0f; });
  }
  Value row_of_warp(const Value& i) const { return i * warps_ + k_.warp(); }

  bool has_codes() const { return t_.spec.is_e4m3 != 0; }
  int warp_rows() const { return warps_ == 8 && rows_ >= 32 ? 2 : 1; }
  dsl::GemmOptions by_columns() const {
    return {.warp_rows = warp_rows(), .warp_columns = static_cast<int>(warps_) / warp_rows()};
  }

  /// scores += q k^T of the taken tile.
  void multiply_keys() {
    if (!has_codes()) return k_.gemm(q_tile_, k_tile_.transposed(), scores_, by_columns());
    const CodeWords words(k_, t_.dtype());
    each_step(t_.spec.width, [&](const Value& d) {
      k_.parallel({keys_ / 8, 8, 4}, [&](Value tile, Value key_of_tile, Value lane) {
        // As an expression: the swizzle of the tile is chosen by places that are known.
        const Value key = tile * 8 + key_of_tile;
        auto codes = k_.local(DType::e4m3, {1, 4}, "codes");
        k_.vectorized(4, [&](Value i) { codes(0, i) = k_tile_(key, d + lane * 4 + i); });
        const Value word = words.word_of(codes, 0, 4);
        auto values = k_.local(t_.dtype(), {4}, "values");
        for (int64_t e = 0; e < 4; e += 2) words.decode(word, e, word, e + 1, values, e);
        words.if_nan({word}, [&] {
          for (int64_t e = 0; e < 4; ++e) words.mend(word, e, values(e));
        });
        k_.unrolled(2, [&](Value half) {
          k_.unrolled(2, [&](Value i) {
            (*key_codes_)(half * 8 + lane * 2 + i, key) = values(half * 2 + i);
          });
        });
      });
      k_.gemm(q_tile_.tile({0, d}, {rows_, kCodesAtOnce}), *key_codes_, scores_, by_columns());
    });
  }
  /// Runs `body` for each step of k, two in a round: NVRTC takes twice the time for all of them.
  template <class Body>
  void each_step(int64_t size, const Body& body) {
    k_.rolled(0, size / (2 * kCodesAtOnce), [&](Value round) {
      for (int64_t i = 0; i < 2; ++i) body(round * (2 * kCodesAtOnce) + i * kCodesAtOnce);
    });
  }
  /// Columns of q in the order in which a thread takes four adjacent codes of a key: column 4 t + e of 16 at 2 t + e of the
  /// first half for e < 2, of the second half else. The order within an instruction changes no bit.
  void load_queries_for_codes(const Value& request) {
    k_.parallel({rows_, t_.spec.width / 2}, [&](Value r, Value pair) {
      Value token = token_(r), head = head_(r);
      auto place = k_.let("place_of_pair", pair / 8 * 16 + pair % 2 * 8 + pair % 8 / 2 * 2);
      const auto load = [&](Value i) {
        q_tile_(r, place + i) = t_.q(request, token, head, pair * 2 + i);
      };
      t_.spec.q_vector > 1 ? k_.vectorized(2, load) : k_.unrolled(2, load);
    });
  }

  /// Adjacent columns of values that a thread takes from a row of codes.
  int64_t columns_at_once() const {
    return std::min<int64_t>(4, value_width_ * warp_rows() / warps_ / 8);
  }
  /// The column of values that column `c` of o has.
  Value value_column(const Value& c) const {
    const int64_t at_once = columns_at_once(), of_tiles = 8 * at_once;
    return c / of_tiles * of_tiles + c % 8 * at_once + c % of_tiles / 8;
  }

  /// o += p v of the taken tile.
  void multiply_values() {
    if (!has_codes()) return k_.gemm(p_tile_, v_tile_, o_, by_columns());
    const int64_t at_once = columns_at_once(), of_tiles = 8 * at_once;
    const CodeWords words(k_, t_.dtype());
    each_step(keys_, [&](const Value& first) {
      k_.parallel({value_width_ / of_tiles, 8, 4}, [&](Value tiles, Value group, Value lane) {
        auto codes = k_.local(DType::e4m3, {4, at_once}, "codes");
        const Value key = lane * 2;
        std::vector<Value> of_keys;
        for (int64_t e = 0; e < 4; ++e) {
          k_.vectorized(at_once, [&](Value i) {
            codes(e, i) =
                v_tile_(first + key + (e / 2 * 8 + e % 2), tiles * of_tiles + group * at_once + i);
          });
          of_keys.push_back(words.word_of(codes, e, at_once));
        }
        auto values = k_.local(t_.dtype(), {at_once * 4}, "values");  // of each column four keys
        for (int64_t i = 0; i < at_once * 4; i += 2) {
          words.decode(of_keys[static_cast<size_t>(i % 4)], i / 4,
                       of_keys[static_cast<size_t>(i % 4 + 1)], i / 4, values, i);
        }
        words.if_nan(of_keys, [&] {
          for (int64_t i = 0; i < at_once * 4; ++i) {
            words.mend(of_keys[static_cast<size_t>(i % 4)], i / 4, values(i));
          }
        });
        k_.unrolled(2, [&](Value half) {
          k_.unrolled(at_once, [&](Value column) {
            k_.unrolled(2, [&](Value i) {
              (*value_codes_)(half * 8 + key + i, tiles * of_tiles + column * 8 + group) =
                  values(column * 4 + half * 2 + i);
            });
          });
        });
      });
      k_.gemm(p_tile_.tile({0, first}, {rows_, kCodesAtOnce}), *value_codes_, o_, by_columns());
    });
  }

  void visit(const Value& j) {
    ring_.take([&] {
      k_.fill(scores_, 0.0f);
      multiply_keys();
      k_.copy(has_page_, is_there_);
    });
    k_.copy(scores_, score_tile_);
    step(j);
    k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
      Value before = o_(r, d);
      o_(r, d) = before * factor_(r);
    });
    ring_.take([&] { multiply_values(); });
  }

  /// From scores to p, and the sums of rows.
  void step(const Value& j) {
    std::vector<Value> columns, keys, is_there;
    for (int64_t e = 0; e < keys_ / 32; ++e) {
      auto class_of_lane = k_.lane() % kLanesOfW + k_.lane() / kLanesOfW * 16;
      columns.push_back(k_.let("column", class_of_lane + (e % 2 * 8 + e / 2 * 64)));
      keys.push_back(k_.let("key", j * keys_ + columns.back()));
      Value noted = is_there_(columns.back());
      is_there.push_back(k_.let("is_there", noted == 1));
    }
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto r = k_.let("r", row_of_warp(i));
      k_.if_(r < at_.count, [&] {
        std::vector<Value> x;
        Value high = k_.let("lowest", kLowest), begin = begin_(r), end = end_(r);
        for (size_t e = 0; e < columns.size(); ++e) {
          Value score = score_tile_(r, columns[e]);
          if (cap_) score = tanh(score * *cap_);
          auto is_seen = is_there[e] && keys[e] >= begin && keys[e] < end;
          x.push_back(k_.let("x", select(is_seen, score, kLowest)));
          high = max(high, x.back());
        }
        Value top = top_(i), scaled = scaled_(i), sum = sum_(i);
        const NextTop next(top, scaled, k_.let("high", k_.warp_max(high)), c_);
        auto base = k_.let("base", next.base), shrink = k_.let("shrink", next.shrink);
        top_(i) = next.top, scaled_(i) = next.scaled;
        for (size_t e = 0; e < columns.size(); ++e) {
          auto p = k_.let("p", exp2_approx(fma(x[e], c_, -base)));
          sum = e == 0 ? fma(sum, shrink, p) : sum + p;
          p_tile_(r, columns[e]) = cast(t_.dtype(), p);
        }
        sum_(i) = sum;
        k_.if_(k_.lane() == 0, [&] { factor_(r) = shrink; });
      });
    });
  }

  /// Joins the classes of each row, and writes the rows or, of a request with several parts, this part of them.
  void finish() {
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto r = k_.let("r", row_of_warp(i));
      k_.if_(r < at_.count, [&] {
        Value sum = sum_(i), top = top_(i), scaled = scaled_(i);
        for (const int64_t distance :
             {kLanesOfW, 2 * kLanesOfW, int64_t{1}, int64_t{2}, int64_t{4}}) {
          auto other = k_.shuffle_xor(sum, distance);
          sum = k_.let("sum", sum + other);
        }
        auto is_empty = k_.let("is_empty", top == kLowest && sum == 0.0f);
        if (is_sane_) sum = k_.let("checked_sum", select(*is_sane_ || is_empty, sum, kNan));
        k_.if_(k_.lane() == 0, [&] { finish_row(r, sum, scaled, is_empty); });
      });
    });
    const auto whole = [&] {
      k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
        // As variables: compilers would read arguments in different orders.
        Value o = o_(r, d), is_none = empty_(r), factor = factor_(r);
        o_(r, d) = select(is_none == 1, 0.0f, fma(o, factor, 0.0f));
      });
      if (has_codes()) return write_columns();
      k_.copy(o_, t_.out(at_.request).rows(rows_, [&](const Value& i) {
        return std::vector<Value>{token_(i), head_(i)};
      }));
    };
    if (!t_.parts) return whole();
    k_.if_else(at_.is_alone, whole, [&] {
      k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
        Value o = o_(r, d);
        auto is_empty = empty_(r) == 1;
        k_.if_(r < at_.count, [&] {
          (*t_.parts)(at_.part, row_of_parts(r), column_of(d)) = select(is_empty, 0.0f, o);
        });
      });
    });
  }
  Value column_of(const Value& c) const { return has_codes() ? value_column(c) : c; }
  void write_columns() {
    k_.parallel({rows_, value_width_}, [&](Value r, Value c) {
      Value o = o_(r, c), token = token_(r), head = head_(r);
      k_.if_(r < at_.count,
             [&] { t_.out(at_.request, token, head, value_column(c)) = cast(t_.dtype(), o); });
    });
  }
  void finish_row(const Value& r, const Value& sum, const Value& scaled, const Value& is_empty) {
    Value divisor = sum;
    if (t_.sink) {
      Value sink = (*t_.sink)(head_(r));
      divisor = with_sink(sum, scaled, sink);
    }
    Value inverse = 1.0f / divisor;
    if (t_.v_sf) inverse = inverse * (*t_.v_sf)(at_.k_head);
    factor_(r) = inverse, empty_(r) = dsl::i32(is_empty);
    const auto whole = [&] {
      Value head = head_(r), token = token_(r);
      t_.lse(at_.request, head, token) = lse_of(sum, scaled, is_empty);
    };
    if (!t_.parts) return whole();
    k_.if_else(at_.is_alone, whole, [&] {
      const Ref part = (*t_.parts)(at_.part, row_of_parts(r));
      part(value_width_) = sum, part(value_width_ + 1) = scaled;
    });
  }
  Value row_of_parts(const Value& r) const {
    Value token = token_(r), head = head_(r);
    return (at_.request * t_.tokens + token) * t_.heads + head;
  }

  DecodeTensors& t_;
  dsl::Builder& k_;
  PagedPlace at_;
  dsl::Ring& ring_;
  const Ref k_tile_, v_tile_, has_page_;
  const int64_t rows_, keys_, value_width_, warps_, rows_of_warp_;
  const Ref q_tile_, score_tile_, p_tile_, factor_, empty_, is_there_, begin_, end_, token_, head_;
  const Ref top_, scaled_, sum_;  // of the rows of a warp
  const Ref scores_, o_;
  std::optional<Ref> key_codes_, value_codes_;  // operands, decoded
  // The item's own:
  Value c_;
  std::optional<Value> cap_, is_sane_;
};

}  // namespace

int64_t DecodeSpec::shared_bytes() const {
  // Rows that no swizzle fits are padded by 16 bytes.
  const auto padded = [](int64_t columns) { return columns % 64 == 0 ? columns : columns + 8; };
  const int64_t element = is_e4m3 != 0 ? 1 : 2, k_width = padded(width);
  const int64_t tiles = keys() * k_width * element * stages;
  return tiles + rows * (2 * k_width + 6 * keys() + 24) + kRequests * 8 + 2048;
}

ir::Kernel build_decode(const DecodeSpec& spec) {
  DecodeTensors t(spec);
  dsl::Builder& k = t.k;
  auto most = t.batch * t.of_part() * ceil_div(t.columns * t.page_size, spec.keys());
  auto blocks = min(most, k.device_blocks(spec.blocks_per_sm));
  auto at = k.launch({blocks}, {.threads = (spec.warps + spec.load_warps) * 32,
                                .min_blocks_per_sm = spec.blocks_per_sm});
  k.assume(t.group >= 1);
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  t.start(at.x, blocks);
  auto ring = k.ring({.stages = spec.stages});
  auto k_tile = ring.shared(t.cache_dtype(), {spec.keys(), spec.width}, "tile");
  auto has_page = ring.shared(kI32, {spec.keys()}, "has_page");
  // Keys and values take turns. Where widths differ, those of keys are the wider ones.
  const Ref v_tile = spec.width == spec.value_width
                         ? Ref(k_tile)
                         : Ref(k_tile.tile({0, 0}, {spec.keys(), spec.value_width}));
  const auto multiply = [&] {
    DecodeItem work(t, ring, k_tile, v_tile, has_page);
    each_item(t, true, [&](const Value& request, const Value& item) { work.run(request, item); });
  };
  const auto fetch = [&] {
    PagedPlace place(t);
    each_item(t, false, [&](const Value& request, const Value& item) {
      place.find(request, item);
      k.serial(place.first, place.end, [&](Value j) {
        const KeyBlock block(t, place, j);
        ring.fill([&] {
          block.load(t.k_cache, k_tile);
          note_pages(t, place, j, has_page);
        });
        ring.fill([&] { block.load(t.v_cache, v_tile); });
      });
    });
  };
  const bool has_moves = spec.has_moves != 0;
  // Wider rows take the role that loads more.
  const int of_load = spec.width > 192 ? 136 : spec.width > 128 ? 104 : 72;
  const int of_multiply = spec.width > 192 ? 184 : spec.width > 128 ? 200 : 216;
  k.roles({{.name = "multiply",
            .warpgroups = spec.warps / 4,
            .registers = has_moves ? of_multiply : 0,
            .body = multiply},
           {.name = "load",
            .warps = spec.load_warps,
            .registers = has_moves ? of_load : 0,
            .body = fetch}});
  return k.finish();
}

}  // namespace tessera::kernels::attention
