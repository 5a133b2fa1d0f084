// Attention of a few new tokens over a paged cache.
//
// The rows of a tile are the queries of several tokens and of all heads that share a head of keys, so a key is
// loaded once for all of them. A request's keys are cut into parts of fixed length from its first key. An item of
// work is a part of one request for one tile and one head of keys. Blocks walk the items of all requests, which they
// find by prefix sums of the lengths: the grid depends on neither lengths nor batch. A request with one part is
// finished here; parts of others go to memory, and the second kernel joins them from left to right.
//
// Some warps load, others multiply. Those that load look up pages key by key, walk the same items ahead of the others, and
// fill a ring of tiles, of keys and of values in turn. Pages that do not exist make their keys invisible, which a note
// in the ring says; rows behind the request's end are zeros, whatever its pages hold.
//
// The warps that multiply share the keys of a block for the scores, and the columns of values for p v; with 32 rows or
// more two warps share the rows too. Between the two products scores pass through shared memory: a warp takes whole
// rows, and lane (u, w) the keys j of class (j mod 8 = u, j div 16 mod 4 = w), so a class is one register.
//
// Bound         bytes of keys and values. 64 keys of 128: 128 mma.sync, about 210 clocks of an SM, beside 1800 for
//               the bytes (900 for e4m3) at 4.2 TB/s.
// Measured      One H200, us (FlashAttention-3 on the same card in a call of that hour): 32 requests of 4096 keys, 32 / 8
//               heads of 128, pages of 64 142 (147), of 16 146 (149), 4 tokens 159 (149); 128 of 8192, 64 / 8 heads
//               1062 (1007); 256 of 1024 266 (304); one request, 32 / 4 heads, 1 K and 8 K keys 21 (17), 25 (21); 64
//               requests with a window of 128 15 (30). e4m3 is bound by the warps that multiply, which widen codes
//               through shared memory: 42 % of the copy rate.
// Lost          loads by the warps that multiply, eight of them: 150 in place of 142. One block of eight warps and four that load
//               157 (but 21 in place of 30 for one request, so few items take it), one warp that loads 173, three
//               blocks with one stage 178. Looking up pages in the warps that multiply: e4m3 208 in place of 191.
#include "kernels/attention/parts/decode_kernel.h"

#include <algorithm>
#include <functional>
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
        table(k.input("page_table", kI32, {batch, columns},
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
  Value block, step, items_of_part;  // of the grid: items go to blocks in turn
};

/// The place of an item in the call. Each role has one of its own.
class DecodePlace {
 public:
  explicit DecodePlace(DecodeTensors& tensors)
      : t_(tensors), k_(tensors.k), place_(k_.shared(kI32, {7}, "place")) {}

  /// Finds the head, rows, part and blocks of an item. One thread divides; the others read what it found, so neither the
  /// code nor the proofs of bounds repeat the divisions.
  void find(const Value& of_request, const Value& item) {
    const int64_t rows = t_.spec.rows, keys = t_.spec.keys();
    request = of_request;
    k_.assume(request >= 0 && request < t_.batch);
    const DecodeRequest r = t_.request(request, false);
    length = r.length;
    k_.if_(k_.thread() == 0, [&] {
      auto shared_rows = k_.let("shared_rows", t_.tokens * t_.group);
      auto tiles = k_.let("tiles", ceil_div(shared_rows, rows));
      auto rest = k_.let("rest", item / t_.k_heads);
      auto first_row = k_.let("row_of_tile", rest % tiles * rows);
      auto rows_of_tile = k_.let("rows_of_tile", min(shared_rows - first_row, rows));
      auto first_part = k_.let("first_part", r.first_part());
      auto of_item = k_.let("part_of_item", first_part + rest / tiles);
      auto from = max(r.begin(first_row / t_.group), of_item * r.part_keys);
      auto to = min(r.end((first_row + rows_of_tile - 1) / t_.group), (of_item + 1) * r.part_keys);
      place_(0) = item % t_.k_heads, place_(1) = first_row, place_(2) = rows_of_tile;
      place_(3) = of_item, place_(4) = dsl::i32(r.end_part() - first_part <= 1);
      place_(5) = from / keys, place_(6) = ceil_div(max(to, 0), keys);
    });
    const auto at = [&](int i) { return k_.uniform(place_(i)); };
    k_head = at(0), row = at(1), count = at(2), part = at(3);
    is_alone = k_.let("is_alone", at(4) == 1), first = at(5), end = at(6);
    k_.assume(k_head >= 0 && k_head < t_.k_heads);
    k_.assume(row >= 0 && part >= 0 && first >= 0 && end <= kMaxKeys / keys);
  }

  Value request, length, k_head, row, count, part, is_alone;
  Value first, end;  // blocks of keys

 private:
  DecodeTensors& t_;
  dsl::Builder& k_;
  const Ref place_;
};

/// Calls `body` for each item of the block. The items of a round of requests are found by prefix sums of their parts.
void each_item(DecodeTensors& t, bool reports, const std::function<void(Value, Value)>& body) {
  dsl::Builder& k = t.k;
  auto ends = k.shared(kI32, {kRequests}, "ends");
  auto before = k.var(kI32, 0, "before");  // items of the requests of earlier rounds
  k.serial(0, ceil_div(t.batch, kRequests), [&](Value chunk) {
    k.parallel({kRequests}, [&](Value i) {
      auto items = k.var(kI32, 0, "items");
      k.if_(chunk * kRequests + i < t.batch, [&] {
        const DecodeRequest r = t.request(chunk * kRequests + i, reports);
        items = max(r.end_part() - r.first_part(), 1) * t.items_of_part;
      });
      ends(i) = items;
    });
    k.scan_sum(ends, ends, Axis(0));
    Value until = k.uniform(before), all = ends(kRequests - 1);
    auto rest = k.let("rest", (t.block - until) % t.step);
    auto first = k.let("first_item", select(rest < 0, rest + t.step, rest));
    auto rounds = k.let("rounds", select(first < all, (all - first - 1) / t.step + 1, 0));
    k.rolled(0, rounds, [&](Value round) {
      auto item = k.let("item", first + round * t.step);
      auto owner = k.let("owner", find_owner(k, ends, item));
      auto of_request = k.let("of_request", item - sum_before(ends, owner));
      body(k.let("request", chunk * kRequests + owner), of_request);
    });
    before = until + all;
  });
}

/// Copies rows of the cache; those behind the request, and of pages that do not exist, are zeros. Notes in `is_there`, if
/// given, which keys have a page.
void load(DecodeTensors& t, const DecodePlace& at, const Ref& cache, const Value& j,
          const Ref& tile, const std::optional<Ref>& is_there) {
  dsl::Builder& k = t.k;
  const auto place = [&](const Value& r) {
    auto key = j * t.spec.keys() + r;
    Value page = t.table(at.request, key / t.page_size);
    return std::vector<Value>{select(key < at.length, page, -1), key % t.page_size, at.k_head};
  };
  k.copy(cache.rows(t.spec.keys(), place), tile);
  if (!is_there) return;
  k.parallel({t.spec.keys()}, [&](Value r) {
    auto key = k.let("key", j * t.spec.keys() + r);
    Value page = t.table(at.request, key / t.page_size);
    auto has_page = k.let("has_page", page >= 0 && page < t.pages);
    k.report_unless(has_page || key >= at.length, out_of_range("page_table"));
    (*is_there)(r) = dsl::i32(has_page);
  });
}

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
      widened_ = k_.shared(t_.dtype(), {keys_, t_.spec.width}, "widened");
    }
    k_.fill(p_tile_, dsl::cast(t_.dtype(), 0.0f));
  }

  /// One part of a request for one tile of rows and one head of keys.
  void run(const Value& request, const Value& item) {
    at_.find(request, item);
    scale_keys();
    start(t_.request(request, false));
    const auto place = [&](const Value& i) { return std::vector<Value>{token_(i), head_(i)}; };
    k_.copy(t_.q(request).rows(rows_, place), q_tile_);
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

  /// The taken tile in the dtype of q.
  Ref widened(const Ref& tile) {
    if (!widened_) return tile;
    k_.copy(tile, *widened_);
    return *widened_;
  }

  void visit(const Value& j) {
    const int warp_rows = warps_ == 8 && rows_ >= 32 ? 2 : 1;
    const dsl::GemmOptions by_columns = {.warp_rows = warp_rows,
                                         .warp_columns = static_cast<int>(warps_) / warp_rows};
    ring_.take([&] {
      const Ref keys = widened(k_tile_);
      k_.fill(scores_, 0.0f);
      k_.gemm(q_tile_, keys.transposed(), scores_, by_columns);
      k_.copy(has_page_, is_there_);
    });
    k_.copy(scores_, score_tile_);
    step(j);
    k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
      Value before = o_(r, d);
      o_(r, d) = before * factor_(r);
    });
    ring_.take([&] { k_.gemm(p_tile_, widened(v_tile_), o_, by_columns); });
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
      k_.copy(o_, t_.out(at_.request).rows(rows_, [&](const Value& i) {
        return std::vector<Value>{token_(i), head_(i)};
      }));
    };
    if (!t_.parts) return whole();
    k_.if_else(at_.is_alone, whole, [&] {
      k_.parallel({rows_, value_width_}, [&](Value r, Value d) {
        Value o = o_(r, d);
        auto is_empty = empty_(r) == 1;
        k_.if_(r < at_.count,
               [&] { (*t_.parts)(at_.part, row_of_parts(r), d) = select(is_empty, 0.0f, o); });
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
  DecodePlace at_;
  dsl::Ring& ring_;
  const Ref k_tile_, v_tile_, has_page_;
  const int64_t rows_, keys_, value_width_, warps_, rows_of_warp_;
  const Ref q_tile_, score_tile_, p_tile_, factor_, empty_, is_there_, begin_, end_, token_, head_;
  const Ref top_, scaled_, sum_;  // of the rows of a warp
  const Ref scores_, o_;
  std::optional<Ref> widened_;
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
  const int64_t widened = is_e4m3 != 0 ? keys() * k_width * 2 : 0;
  return tiles + widened + rows * (2 * k_width + 6 * keys() + 24) + kRequests * 8 + 2048;
}

ir::Kernel build_decode(const DecodeSpec& spec) {
  DecodeTensors t(spec);
  dsl::Builder& k = t.k;
  auto of_part = ceil_div(t.tokens * t.group, spec.rows) * t.k_heads;  // items
  auto most = t.batch * of_part * ceil_div(t.columns * t.page_size, spec.keys());
  auto blocks = min(most, k.device_blocks(spec.blocks_per_sm));
  auto at = k.launch({blocks}, {.threads = (spec.warps + spec.load_warps) * 32,
                                .min_blocks_per_sm = spec.blocks_per_sm});
  k.assume(t.group >= 1);
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  t.block = at.x, t.step = k.let("step", blocks), t.items_of_part = k.let("items_of_part", of_part);
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
    DecodePlace place(t);
    each_item(t, false, [&](const Value& request, const Value& item) {
      place.find(request, item);
      k.serial(place.first, place.end, [&](Value j) {
        ring.fill([&] { load(t, place, t.k_cache, j, k_tile, has_page); });
        ring.fill([&] { load(t, place, t.v_cache, j, v_tile, {}); });
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
