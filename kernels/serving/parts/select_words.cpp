// Selection among words in shared memory, by a histogram of digits (radix selection on a range that shrinks):
//
//   append()       a warp adds up how many words its lanes have, takes so many places by one atomic add, and each lane stores
//                  its words from its own place on. Words beyond the room are counted and dropped: the caller sees the count
//   find_digits()  the counts of the bins, kBins / threads to a thread: sums of warps in shared memory, then the warp that
//                  holds the number asked for finds its lane and bin. Reading a bin clears it for the next round
//   narrow()       the last chosen word lies in [low, high]. A round takes the top 11 bits of high - word of the words in
//                  that range, so that digits count down from the best word, finds the digit of word number `left`, and makes
//                  its range the next one. It ends when all words of the range are chosen or few are left, at the
//                  latest after 7 rounds (64 bits by 11), for no two words are equal
//   shrink()       keeps the words from `low` on: a step reads a word per thread, meets a barrier, and appends from the
//                  front. A word moves down only, to a place that has been read
//
// A shift that brings the range below 2^11 comes from the exponent of its float, which may round up to the next power of two;
// then one bit of the digits stays unused, and the number of rounds allows for it.

#include "kernels/serving/parts/select_words.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr int32_t kMostWords =
    1 << 24;  // far more than shared memory holds: no loop over words steps past an i32
constexpr int kRounds = 7;  // rounds of kDigitBits each: words have 64 bits

Value one(const Value& condition) {
  return select(condition, cast(DType::u32, 1), cast(DType::u32, 0));
}

Value u64(const Value& x) {
  return cast(DType::u64, x);
}

}  // namespace

void SelectWords::make_buffer(int64_t words) {
  words_ = k_.shared(DType::u64, {words}, "words");
  bins_ = k_.shared(DType::i32, {kBins + 4}, "bins");
  count_ = k_.shared(DType::i32, {1}, "count");
  top_ = k_.shared(DType::u32, {1}, "top");
  totals_ = k_.shared(DType::i32, {s_.threads / 32}, "totals");
  found_ = k_.shared(DType::i32, {2, 3}, "found");
  floor_ = k_.var(DType::u32, least_floor(), "floor");
  k_.fill(*bins_, 0);
  k_.if_(k_.thread() == 0, [&] {
    (*count_)(0) = 0;
    (*top_)(0) = cast(DType::u32, 0);
    k_.unrolled(2, [&](Value i) { k_.unrolled(3, [&](Value j) { (*found_)(i, j) = 0; }); });
  });
}

Value SelectWords::least_floor() const {
  return cast(DType::u32, skips_lowest() ? i32(kLowestKey) : i32(0));
}

Value SelectWords::word_of(const Value& key, const Value& column) {
  return (u64(key) << u32(32)) | u64(u32(column) ^ cast(DType::u32, -1));
}

Value SelectWords::sum_through_lane(const Value& mine) {
  auto through = k_.var(DType::i32, mine, "through_lane");
  for (int distance = 1; distance < 32; distance *= 2) {
    auto other = k_.let("other", k_.shuffle_up(through, distance));
    through = through + select(lane_ >= distance, other, 0);
  }
  return k_.let("through", through);
}

Value SelectWords::mask_of(int64_t n, const OfScore& passes) {
  auto mask = k_.var(DType::u32, 0, "mask");
  k_.unrolled(n, [&](Value i) { mask = mask | (one(passes(i)) << u32(i)); });
  return mask;
}

void SelectWords::append(int64_t n, const Value& mask, const OfScore& word) {
  auto mine = k_.let("mine", i32(popcount(mask)));
  k_.if_(k_.warp_any(mine > 0), [&] {
    auto through = sum_through_lane(mine);
    auto base = k_.var(DType::i32, 0, "base");
    k_.if_(lane_ == 31, [&] { base = k_.atomic_fetch_add((*count_)(0), through); });
    const Value first = k_.shuffle(base, 31);
    auto place = k_.var(DType::i32, first + through - mine, "place");
    k_.manual_sync([&] {
      k_.unrolled(n, [&](Value i) {
        k_.if_((mask >> u32(i) & u32(i32(1))) != u32(i32(0)), [&] {
          k_.if_(place < s_.room, [&] { (*words_)(place) = word(i); });
          place = place + 1;
        });
      });
    });
  });
}

Value SelectWords::count_words() {
  k_.sync();
  return k_.let("total", (*count_)(0));
}

void SelectWords::set_count(const Value& count) {
  k_.if_(k_.thread() == 0, [&] { (*count_)(0) = count; });
}

void SelectWords::each_word(const Value& total,
                            const std::function<void(const Value& word)>& body) {
  k_.assume(total <= i32(kMostWords));
  k_.rolled(
      k_.thread(), total,
      [&](Value i) {
        auto word = k_.var(DType::u64, 0, "word");
        k_.manual_sync([&] { word = (*words_)(i); });
        body(k_.let("the_word", word));
      },
      s_.threads);
}

void SelectWords::count_digit(const Value& digit) {
  k_.atomic_add((*bins_)(digit), 1);
}

SelectWords::Found SelectWords::find_digit(const Value& need) {
  Found none;
  return find_digits(need, {}, none);
}

SelectWords::Found SelectWords::find_digits(const Value& need, const Value& second,
                                            Found& of_second) {
  const int64_t per = kBins / s_.threads, warps = s_.threads / 32;
  auto bins = *bins_, totals = *totals_, found = *found_;
  auto counts = k_.local(DType::i32, {per}, "counts");
  auto first_bin = k_.let("first_bin", k_.thread() * per);
  k_.vectorized(per, [&](Value i) { counts(i) = bins(first_bin + i); });
  k_.vectorized(per, [&](Value i) { bins(first_bin + i) = 0; });
  auto mine = k_.var(DType::i32, 0, "mine");
  k_.unrolled(per, [&](Value i) { mine += counts(i); });
  auto of_warp = k_.let("of_warp", k_.warp_sum(mine));
  k_.if_(lane_ == 0, [&] { totals(k_.warp()) = of_warp; });
  auto of_lane = k_.let("of_lane", totals(min(lane_, warps - 1)));
  auto before = k_.let("before_warp", k_.warp_sum(select(lane_ < k_.warp(), of_lane, 0)));
  auto holds = [&](const Value& n, const Value& from, const Value& size) {
    return n > from && n <= from + size;
  };
  Value here = holds(need, before, of_warp);
  if (second.recorder() != nullptr) here = here || holds(second, before, of_warp);
  k_.if_(here, [&] {
    const Value through = sum_through_lane(mine);
    auto before_lane = k_.let("before_lane", before + through - mine);
    auto note = [&](const Value& n, int64_t row) {
      auto digit = k_.var(DType::i32, -1, "digit"), first = k_.var(DType::i32, 0, "first");
      auto size = k_.var(DType::i32, 0, "size"), from = k_.var(DType::i32, before_lane, "from");
      k_.unrolled(per, [&](Value i) {
        auto is_here = k_.let("is_here", holds(n, from, counts(i)));
        digit = select(is_here, first_bin + i, digit);
        first = select(is_here, from, first);
        size = select(is_here, counts(i), size);
        from += counts(i);
      });
      k_.if_(digit >= 0, [&] {  // one thread
        found(row, 0) = digit;
        found(row, 1) = first;
        found(row, 2) = size;
      });
    };
    note(need, 0);
    if (second.recorder() != nullptr) note(second, 1);
  });
  auto read = [&](int64_t row) {
    return Found{k_.let("digit", found(row, 0)), k_.let("before_digit", found(row, 1)),
                 k_.let("of_digit", found(row, 2))};
  };
  if (second.recorder() != nullptr) of_second = read(1);
  return read(0);
}

Value SelectWords::shift_of(const Value& span, int bits) {
  // The conversion to float may round up to a power of two. Then one bit less of the digits is
  // used.
  auto log2 = (reinterpret(DType::i32, f32(span)) >> 23) - 127;
  return u32(max(log2 - (bits - 1), 0));
}

Value SelectWords::best_key(const Value& total) {
  auto best = k_.var(DType::u32, 0, "best");
  each_word(total, [&](const Value& word) { best = max(best, u32(word >> u32(32))); });
  auto of_warp = k_.let("best_of_warp", k_.warp_max(best));
  k_.if_(lane_ == 0, [&] { k_.atomic_max((*top_)(0), of_warp); });
  return k_.let("best_key", (*top_)(0));
}

Value SelectWords::word_of_floor() {
  return u64(*floor_) << u32(32);
}

SelectWords::Bounds SelectWords::narrow(const Value& total, const Value& need, const Value& second,
                                        const Value& lowest, const Value& highest) {
  const bool is_known = highest.recorder() != nullptr;
  const Value key = is_known ? highest : best_key(total);
  auto best = k_.let("best_word", (u64(key) << u32(32)) | u64(cast(DType::u32, -1)));
  const Bounds b{k_.var(DType::u64, lowest, "low"), k_.var(DType::u64, best, "high"),
                 k_.var(DType::i32, need, "left"),  k_.var(DType::i32, total, "members"),
                 k_.var(DType::u64, 0, "share"),    best};
  k_.rolled(0, kRounds, [&](Value round) {
    k_.if_(round == 0 || (b.members > b.left && b.members > kFewWords), [&] {
      auto low = k_.let("low_now", b.low), high = k_.let("high_now", b.high);
      auto shift = k_.let("shift", shift_of(high - low));
      each_word(total, [&](const Value& word) {
        k_.if_(word >= low && word <= high, [&] { count_digit(i32((high - word) >> shift)); });
      });
      auto width = k_.let("width_less_1", (u64(i32(1)) << shift) - u64(i32(1)));
      auto high_of = [&](const Value& digit) { return high - (u64(digit) << shift); };
      auto low_of = [&](const Value& top) { return select(top - low >= width, top - width, low); };
      Found share;
      const Found found = find_digits(b.left, second, share);
      if (second.recorder() != nullptr) {
        k_.if_(round == 0, [&] { b.share = low_of(high_of(share.digit)); });
      }
      auto new_high = k_.let("new_high", high_of(found.digit));
      b.low = low_of(new_high);
      b.high = new_high;
      b.left = b.left - found.before;
      b.members = found.equal;
    });
  });
  if (!is_known) {
    k_.if_(k_.thread() == 0, [&] { (*top_)(0) = cast(DType::u32, 0); });
  }
  return b;
}

void SelectWords::shrink(const Value& total) {
  const Bounds b = narrow(total, i32(s_.topk), {}, word_of_floor(), {});
  auto low = k_.let("kept_from", b.low);
  set_count(i32(0));
  k_.assume(total <= i32(kMostWords));
  // A word moves down to a place that has been read already.
  k_.rolled(
      0, total,
      [&](Value first) {
        auto word = k_.var(DType::u64, 0, "word");
        k_.manual_sync([&] {
          k_.if_(first + k_.thread() < total, [&] { word = (*words_)(first + k_.thread()); });
        });
        k_.sync();
        append(1, mask_of(1, [&](const Value&) { return word >= low; }),
               [&](const Value&) { return Value(word); });
      },
      s_.threads);
  *floor_ = max(*floor_, u32(low >> u32(32)));
  k_.sync();
}

}  // namespace tessera::kernels::serving
