// Attention of a few new tokens over a paged cache.
//
// The rows of a tile are the queries of several tokens and of all heads that share a head of keys, so a key is
// loaded once for all of them. A request's keys are cut into parts of fixed length from its first key. An item of
// work is a part of one request for one tile and one head of keys. Blocks walk the items of all requests, which they
// find by prefix sums of the lengths: the grid depends on neither lengths nor batch. A request with one part is
// finished here; parts of others go to memory, and the second kernel joins them from left to right.
//
// The warps share the keys of a block for the scores, and the columns of values for p v; with 32 rows or more two warps
// share the rows too. Between the two products scores pass through shared memory: a warp takes whole rows, and lane
// (u, w) the keys j of class (j mod 8 = u, j div 16 mod 4 = w), so a class is one register. Eight warps halve the
// sums and the code of a thread beside four, so heads of 96 and 256 do not spill.
//
// Pages are looked up key by key. A page that does not exist makes its keys invisible; rows behind the
// request's end are zeros, whatever its pages hold.
//
// Bound         bytes of keys and values. 64 keys of 128: 128 mma.sync, about 210 clocks of an SM, beside 1800 for
//               the bytes (900 for e4m3) at 4.2 TB/s.
// Measured      on 29 November 2026 with four warps in a block; not since. One H200, us (FlashAttention-3 in the same
//               call): 32 requests of 4096 keys, 32 / 8 heads of 128, pages of 64 188 (142), of 16 194 (145), 4 tokens
//               216 (143); 128 of 8192, 64 / 8 heads 1373 (985); 256 of 1024 358 (292); one request, 32 / 4 heads, 1 K
//               and 8 K keys 39 (14), 48 (19); e4m3 4 K to 256 K 48, 48, 65, 238. About 70 % of the copy rate, and
//               39 us for the smallest call: pages are looked up key by key, and keys come by pieces, not by tensor
//               copies.

#include "kernels/attention/parts/decode_kernel.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/parts/online_softmax.h"
#include "kernels/attention/parts/prefix_search.h"
#include "kernels/attention/parts/request_parts.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Axis;
using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLanesOfW = 8;                // the classes of one w
constexpr int64_t kMaxKeys = int64_t{1} << 29;  // of a request

struct DecodeTensors {
  explicit DecodeTensors(const DecodeSpec& s)
      : spec(s),
        k("attention_decode"),
        batch(k.dim("B")),
        tokens(k.dim("n")),
        heads(k.dim("h")),
        k_heads(k.dim("g")),
        pages(k.dim("P")),
        page_size(s.page_size > 0 ? dsl::i32(s.page_size) : k.dim("ps")),
        columns(k.dim("Q")),
        c(k.scalar("c", kF32)),
        part_blocks(k.scalar("part_blocks", kI32)),
        group(k.scalar("group", kI32)),
        q(input("q", dtype(), {batch, tokens, heads, s.width}, s.q_vector)),
        k_cache(cache("k_cache", s.width, s.k_vector)),
        v_cache(cache("v_cache", s.value_width, s.v_vector)),
        table(k.input("block_table", kI32, {batch, columns},
                      {.strides = {k.stride("of_table"), 1}, .align = 4})),
        lengths(k.input("lengths", kI32, {batch}, {.align = 4})),
        out(k.output("out", dtype(), {batch, tokens, heads, s.value_width}, {.align = 4})),
        lse(k.output("lse", kF32, {batch, heads, tokens}, {.align = 4})) {
    if (s.has_softcap != 0) cap = k.scalar("cap", kF32);
    if (s.has_left != 0) left = k.scalar("left", kI32);
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
  Ref input(const char* name, DType type, const std::vector<dsl::Arg>& shape, int vector) {
    std::vector<dsl::Arg> strides;
    for (const char* of : {"_of_request", "_of_row", "_of_head"}) {
      strides.emplace_back(k.stride(std::string(name) + of, {.multiple_of = vector}));
    }
    strides.emplace_back(1);
    return k.input(name, type, shape, {.strides = strides, .align = vector * bytes(type)});
  }
  Ref cache(const char* name, int64_t width, int vector) {
    return input(name, cache_dtype(), {pages, page_size, k_heads, width}, vector);
  }

  /// The keys of a request, after a look at its length.
  DecodeRequest request(const Value& at, bool reports) {
    Value given = lengths(at);
    auto most = k.let("most", columns * page_size);
    if (reports) k.report_unless(given >= 0 && given <= most, out_of_range("lengths"));
    return {k.let("length", min(max(given, 0), most)), tokens, left,
            k.let("part_keys", part_blocks * spec.keys()), spec.is_causal != 0};
  }

  const DecodeSpec spec;
  dsl::Builder k;
  Value batch, tokens, heads, k_heads, pages, page_size, columns, c, part_blocks, group;
  Ref q, k_cache, v_cache, table, lengths, out, lse;
  std::optional<Ref> sink, k_sf, v_sf, parts;
  std::optional<Value> cap, left;
};

/// The tiles of a block, and its work on one item.
class DecodeItem {
 public:
  explicit DecodeItem(DecodeTensors& tensors)
      : t_(tensors),
        k_(tensors.k),
        rows_(tensors.spec.rows),
        keys_(tensors.spec.keys()),
        value_width_(tensors.spec.value_width),
        warps_(tensors.spec.warps),
        rows_of_warp_(rows_ / warps_),
        q_tile_(k_.shared(t_.dtype(), {rows_, t_.spec.width}, "q_tile")),
        k_tile_(k_.shared(t_.cache_dtype(), {keys_, t_.spec.width}, "k_tile")),
        // Where both do not fit, values take the place of keys: the widths that need it have the wider keys.
        v_tile_(t_.spec.stages > 0 ? k_.shared(t_.cache_dtype(), {keys_, value_width_}, "v_tile")
                                   : k_tile_.tile({0, 0}, {keys_, value_width_})),
        score_tile_(k_.shared(kF32, {rows_, keys_}, "score_tile")),
        p_tile_(k_.shared(t_.dtype(), {rows_, keys_}, "p_tile")),
        factor_(k_.shared(kF32, {rows_}, "factor")),
        empty_(k_.shared(kI32, {rows_}, "empty")),
        begin_(k_.shared(kI32, {rows_}, "begin")),
        end_(k_.shared(kI32, {rows_}, "end")),
        token_(k_.shared(kI32, {rows_}, "token")),
        head_(k_.shared(kI32, {rows_}, "head")),
        place_(k_.shared(kI32, {7}, "place")),
        top_(k_.local(kF32, {rows_of_warp_}, "top")),
        scaled_(k_.local(kF32, {rows_of_warp_}, "scaled")),
        sum_(k_.local(kF32, {rows_of_warp_}, "sum")),
        scores_(k_.fragment(kF32, {rows_, keys_}, "scores")),
        o_(k_.fragment(kF32, {rows_, value_width_}, "o")) {
    if (t_.spec.is_e4m3 != 0) {
      widened_ = k_.shared(t_.dtype(), {keys_, t_.spec.width}, "widened");
    }
    k_.fill(p_tile_, dsl::cast(t_.dtype(), 0.0f));
  }

  /// One part of a request for one tile of rows and one head of keys.
  void run(const Value& request, const Value& item) {
    request_ = request;
    k_.assume(request_ >= 0 && request_ < t_.batch);
    const DecodeRequest r = t_.request(request, false);
    length_ = r.length;
    find_place(r, item);
    scale_keys();
    start(r);
    const auto place = [&](const Value& i) { return std::vector<Value>{token_(i), head_(i)}; };
    k_.copy(t_.q(request_).rows(rows_, place), q_tile_);
    const auto body = [&](Value j) { visit(j); };
    if (t_.spec.stages > 0) {
      k_.pipelined(first_, end_block_, {.stages = t_.spec.stages, .in_place = true}, body);
    } else {
      k_.serial(first_, end_block_, body);
    }
    finish();
  }

 private:
  /// Finds the head, rows, part and blocks of an item. One thread divides; the others read what it found, so neither the
  /// code nor the proofs of bounds repeat the divisions.
  void find_place(const DecodeRequest& r, const Value& item) {
    k_.if_(k_.thread() == 0, [&] {
      auto shared_rows = k_.let("shared_rows", t_.tokens * t_.group);
      auto tiles = k_.let("tiles", ceil_div(shared_rows, rows_));
      auto rest = k_.let("rest", item / t_.k_heads);
      auto row = k_.let("row_of_tile", rest % tiles * rows_);
      auto count = k_.let("rows_of_tile", min(shared_rows - row, rows_));
      auto first_part = k_.let("first_part", r.first_part());
      auto part = k_.let("part_of_item", first_part + rest / tiles);
      auto from = max(r.begin(row / t_.group), part * r.part_keys);
      auto to = min(r.end((row + count - 1) / t_.group), (part + 1) * r.part_keys);
      place_(0) = item % t_.k_heads, place_(1) = row, place_(2) = count, place_(3) = part;
      place_(4) = dsl::i32(r.end_part() - first_part <= 1);
      place_(5) = from / keys_, place_(6) = ceil_div(max(to, 0), keys_);
    });
    const auto at = [&](int i) { return k_.uniform(place_(i)); };
    k_head_ = at(0), row_ = at(1), count_ = at(2), part_ = at(3);
    is_alone_ = k_.let("is_alone", at(4) == 1), first_ = at(5), end_block_ = at(6);
    k_.assume(k_head_ >= 0 && k_head_ < t_.k_heads);
    k_.assume(row_ >= 0 && part_ >= 0 && first_ >= 0 && end_block_ <= kMaxKeys / keys_);
  }

  /// The factors of scores with the scale of the keys; with one that is out of range rows are NaN.
  void scale_keys() {
    c_ = t_.c, cap_ = t_.cap;
    if (!t_.k_sf) return;
    Value k_sf = (*t_.k_sf)(k_head_);
    auto scaled = k_.let("scaled_factor", (cap_ ? *cap_ : c_) * k_sf);
    is_sane_ = k_.let("is_sane", scaled > 0.0f && scaled <= kLargest);
    k_.report_unless(*is_sane_, out_of_range("k_sf"));
    (cap_ ? *cap_ : c_) = k_.let("factor_of_scores", select(*is_sane_, scaled, 1.0f));
  }

  void start(const DecodeRequest& r) {
    k_.fill(o_, 0.0f);
    k_.fill(factor_, 0.0f), k_.fill(empty_, 1);
    k_.parallel({rows_}, [&](Value i) {
      auto row = k_.let("row_of_group", row_ + i), token = k_.let("token", row / t_.group);
      begin_(i) = r.begin(token), end_(i) = r.end(token);
      token_(i) = select(i < count_, token, -1);
      head_(i) = k_head_ * t_.group + (row - token * t_.group);
    });
    k_.unrolled(rows_of_warp_,
                [&](Value i) { top_(i) = kLowest, scaled_(i) = kLowest, sum_(i) = 0.0f; });
  }
  Value row_of_warp(const Value& i) const { return i * warps_ + k_.warp(); }

  /// Copies rows of the cache; those behind the request, and of pages that do not exist, are zeros. Returns the tile in
  /// the dtype of q.
  Ref load(const Ref& cache, const Value& j, const Ref& tile) {
    const auto place = [&](const Value& r) {
      auto key = j * keys_ + r;
      Value page = t_.table(request_, key / t_.page_size);
      return std::vector<Value>{select(key < length_, page, -1), key % t_.page_size, k_head_};
    };
    k_.copy(cache.rows(keys_, place), tile);
    if (!widened_) return tile;
    k_.copy(tile, *widened_);
    return *widened_;
  }

  void visit(const Value& j) {
    const int warp_rows = warps_ == 8 && rows_ >= 32 ? 2 : 1;
    const dsl::GemmOptions by_columns = {.warp_rows = warp_rows,
                                         .warp_columns = static_cast<int>(warps_) / warp_rows};
    const Ref keys = load(t_.k_cache, j, k_tile_);
    k_.fill(scores_, 0.0f);
    k_.gemm(q_tile_, keys.transposed(), scores_, by_columns);
    k_.copy(scores_, score_tile_);
    step(j);
    k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
      Value before = o_(r, d);
      o_(r, d) = before * factor_(r);
    });
    const Ref values = load(t_.v_cache, j, v_tile_);
    k_.gemm(p_tile_, values, o_, by_columns);
  }

  /// From scores to p, and the sums of rows.
  void step(const Value& j) {
    std::vector<Value> columns, keys, is_there;
    for (int64_t e = 0; e < keys_ / 32; ++e) {
      auto class_of_lane = k_.lane() % kLanesOfW + k_.lane() / kLanesOfW * 16;
      columns.push_back(k_.let("column", class_of_lane + (e % 2 * 8 + e / 2 * 64)));
      keys.push_back(k_.let("key", j * keys_ + columns.back()));
      Value page = t_.table(request_, keys.back() / t_.page_size);
      is_there.push_back(k_.let("is_there", page >= 0 && page < t_.pages));
      k_.report_unless(is_there.back() || keys.back() >= length_, out_of_range("block_table"));
    }
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto r = k_.let("r", row_of_warp(i));
      k_.if_(r < count_, [&] {
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
      k_.if_(r < count_, [&] {
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
        Value o = o_(r, d);
        o_(r, d) = select(empty_(r) == 1, 0.0f, fma(o, factor_(r), 0.0f));
      });
      k_.copy(o_, t_.out(request_).rows(rows_, [&](const Value& i) {
        return std::vector<Value>{token_(i), head_(i)};
      }));
    };
    if (!t_.parts) return whole();
    k_.if_else(is_alone_, whole, [&] {
      k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
        Value o = o_(r, d);
        auto is_empty = empty_(r) == 1;
        k_.if_(r < count_,
               [&] { (*t_.parts)(part_, row_of_parts(r), d) = select(is_empty, 0.0f, o); });
      });
    });
  }
  void finish_row(const Value& r, const Value& sum, const Value& scaled, const Value& is_empty) {
    Value divisor = sum;
    if (t_.sink) {
      Value sink = (*t_.sink)(head_(r));
      divisor = with_sink(sum, scaled, sink);
    }
    Value inverse = 1.0f / divisor;
    if (t_.v_sf) inverse = inverse * (*t_.v_sf)(k_head_);
    factor_(r) = inverse, empty_(r) = dsl::i32(is_empty);
    const auto whole = [&] {
      t_.lse(request_, head_(r), token_(r)) = lse_of(sum, scaled, is_empty);
    };
    if (!t_.parts) return whole();
    k_.if_else(is_alone_, whole, [&] {
      const Ref part = (*t_.parts)(part_, row_of_parts(r));
      part(value_width_) = sum, part(value_width_ + 1) = scaled;
    });
  }
  Value row_of_parts(const Value& r) const {
    Value token = token_(r), head = head_(r);
    return (request_ * t_.tokens + token) * t_.heads + head;
  }

  DecodeTensors& t_;
  dsl::Builder& k_;
  const int64_t rows_, keys_, value_width_, warps_, rows_of_warp_;
  const Ref q_tile_, k_tile_, v_tile_, score_tile_, p_tile_, factor_, empty_, begin_, end_, token_,
      head_, place_;
  const Ref top_, scaled_, sum_;  // of the rows of a warp
  const Ref scores_, o_;
  std::optional<Ref> widened_;
  // The item's own:
  Value request_, length_, k_head_, row_, count_, part_, is_alone_, first_, end_block_, c_;
  std::optional<Value> cap_, is_sane_;
};

}  // namespace

int64_t DecodeSpec::shared_bytes() const {
  // Rows that no swizzle fits are padded by 16 bytes.
  const auto padded = [](int64_t columns) { return columns % 64 == 0 ? columns : columns + 8; };
  const int64_t element = is_e4m3 != 0 ? 1 : 2, k_width = padded(width);
  const int64_t tiles = keys() * (k_width + padded(value_width)) * element * std::max(stages, 1);
  const int64_t widened = is_e4m3 != 0 ? keys() * k_width * 2 : 0;
  return tiles + widened + rows * (2 * k_width + 6 * keys() + 24) + kRequests * 4 + 2048;
}

ir::Kernel build_decode(const DecodeSpec& spec) {
  DecodeTensors t(spec);
  dsl::Builder& k = t.k;
  auto of_part = ceil_div(t.tokens * t.group, spec.rows) * t.k_heads;  // items
  auto most = t.batch * of_part * ceil_div(t.columns * t.page_size, spec.keys());
  auto blocks = min(most, k.device_blocks(spec.blocks_per_sm));
  auto at =
      k.launch({blocks}, {.threads = spec.warps * 32, .min_blocks_per_sm = spec.blocks_per_sm});
  k.assume(t.group >= 1);
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  auto step = k.let("step", blocks), items_of_part = k.let("items_of_part", of_part);
  DecodeItem work(t);
  auto ends = k.shared(kI32, {kRequests}, "ends");
  auto before = k.var(kI32, 0, "before");  // items of the requests of earlier rounds
  k.serial(0, ceil_div(t.batch, kRequests), [&](Value chunk) {
    k.parallel({kRequests}, [&](Value i) {
      auto items = k.var(kI32, 0, "items");
      k.if_(chunk * kRequests + i < t.batch, [&] {
        const DecodeRequest r = t.request(chunk * kRequests + i, true);
        items = max(r.end_part() - r.first_part(), 1) * items_of_part;
      });
      ends(i) = items;
    });
    k.scan_sum(ends, ends, Axis(0));
    Value until = k.uniform(before), all = ends(kRequests - 1);
    auto rest = k.let("rest", (at.x - until) % step);
    auto first = k.let("first_item", select(rest < 0, rest + step, rest));
    auto rounds = k.let("rounds", select(first < all, (all - first - 1) / step + 1, 0));
    k.rolled(0, rounds, [&](Value round) {
      auto item = k.let("item", first + round * step);
      auto owner = k.let("owner", find_owner(k, ends, item));
      auto of_request = k.let("of_request", item - sum_before(ends, owner));
      work.run(k.let("request", chunk * kRequests + owner), of_request);
    });
    before = until + all;
  });
  return k.finish();
}

}  // namespace tessera::kernels::attention
