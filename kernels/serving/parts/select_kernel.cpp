// The exact top-k of a row by filtering: scores become words of 64 bits that order as the result does (the key of the score
// above, the complement of the column below), a floor rises while the row is read, and only words above it are kept.
//
//   1. first floor      the maxima of groups of 4 scores of the first chunk: their k-th largest is reached by at least k
//                       scores. A histogram rounds it down to an edge. A cluster takes the least of its blocks' edges, each
//                       for its share of k
//   2. reading          a chunk is in registers while the next one is loaded. Scores above the floor are appended to a list in
//                       shared memory. If they do not fit, the chunk is appended in steps, and shrink() selects the best k
//                       words of the list and raises the floor before each step that could run over
//   3. cluster          every block has a list; a bound below the last chosen word keeps most of them at home. It is the
//                       greater of: the k-th word of any block, and the least of the blocks' words number k / blocks.
//                       The rest goes to the first block. If it would be more than that can take (many equal scores),
//                       raise() narrows the bound by 5 bits of the words a round, counted over all blocks, until k to
//                       most_sent() words are left: no two words are equal, so it ends
//   4. finish           finish_row() (select_result.h) selects among the words that are left, sorts them if asked, and writes
//
// Equal scores are chosen by the lower column, since the complement of the column is part of the word: the result does not
// depend on the order in which threads append. NaN and -inf share the lowest key, 0x007FFFFF; a row with no more columns than
// k is written without reading scores, unless values are wanted in order.

#include "kernels/serving/parts/select_kernel.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "kernels/serving/parts/select_result.h"

namespace tessera::kernels::serving {
namespace {

using namespace dsl;

// Scores per group; the first threshold comes from the maxima of groups.
constexpr int64_t kGroup = 4;
constexpr int64_t kKeyBelowZero = 0x7FFFFFFF;  // no score has it: -0 has the key of +0

// The report of a block of a cluster about its words.
constexpr int64_t kWhole = 0, kPart = 1, kReports = 2;
constexpr int64_t kAttempts =
    2;                         // to send the words: the second with a bound that leaves few enough
constexpr int kRaiseBits = 5;  // of a word, a digit per lane
constexpr int64_t kRaises = 16;  // rounds; a shift may leave a bit of a digit unused

class Selection : SelectResult {
 public:
  explicit Selection(const SelectSpec& s) : SelectResult(s) {}

  ir::Kernel build() {
    declare();
    auto at = k_.launch(
        {i32(*rows_) * s_.cluster},
        {.threads = s_.threads, .min_blocks_per_sm = s_.blocks_per_sm, .cluster = s_.cluster});
    k_.let_next_kernel_start();
    row_ = k_.let("row", at.x / s_.cluster);
    rank_ = s_.cluster > 1 ? k_.let("rank", k_.cluster_rank()) : i32(0);
    lane_ = k_.let("lane", k_.lane());
    make_buffer(s_.room);
    make_list();
    make_range();
    if (s_.cluster > 1) make_mail();
    k_.wait_for_previous_kernel();
    find_range();
    const auto all = [&] {
      on_first_block([&] {
        each_place([&](const Value& place) {
          k_.if_else(
              place < end_ - start_, [&] { write(place, start_ + place); }, [&] { pad(place); });
        });
      });
    };
    if (s_.by_value || skips_lowest()) {
      select_some();
    } else {
      k_.if_else(
          end_ - start_ > s_.topk, [&] { select_some(); }, all);
    }
    return k_.finish();
  }

 private:
  void select_some() {
    auto total = read_row();
    if (s_.cluster > 1) {
      gather(total);
    } else {
      const Value lowest = word_of_floor();
      finish_row(total, lowest, highest());
    }
  }

  // ---- One reading of the row

  /// Reads the chunks of the blocks in turn and returns the number of candidates. Later columns lose
  /// ties, so only scores above the key of the last candidate count.
  Value read_row() {
    base_ = k_.let("first_chunk", start_ / vector_ * vector_);
    chunks_ = k_.let("chunks", ceil_div(end_ - base_, s_.chunk()));
    k_.assume(chunks_ <= i32(1 << 24));  // a chunk has thousands of scores: no step leaves an i32
    chunk_ = k_.local(dtype_, {s_.keys}, "chunk");
    auto total = k_.var(DType::i32, 0, "total_read");
    const auto first_of = [&](const Value& chunk) { return base_ + chunk * i32(s_.chunk()); };
    if (s_.has_one_chunk) {
      if (has_first_threshold()) highest_ = k_.var(DType::u32, 0, "highest_key");
      auto first = k_.let("first", first_of(rank_));
      auto edge = k_.var(DType::u32, 0, "edge");
      k_.if_(rank_ < chunks_, [&] { load_chunk(first, *chunk_); });
      if (has_first_threshold()) set_first_floor(*chunk_, edge);
      k_.if_(rank_ < chunks_, [&] { take_chunk(first, edge, total); });
      return k_.let("total", total);
    }
    next_chunk_ = k_.local(dtype_, {s_.keys}, "next_chunk");
    auto edge = k_.var(DType::u32, 0, "edge");
    k_.if_(rank_ < chunks_, [&] { load_chunk(first_of(rank_), *next_chunk_); });
    if (has_first_threshold()) set_first_floor(*next_chunk_, edge);
    k_.rolled(
        rank_, chunks_,
        [&](Value chunk) {  // while the next chunk is in flight
          auto first = k_.let("first", first_of(chunk));
          k_.unrolled(s_.keys, [&](Value i) { (*chunk_)(i) = (*next_chunk_)(i); });
          auto next = k_.let("next", chunk + s_.cluster);
          k_.if_(next < chunks_, [&] { load_chunk(first_of(next), *next_chunk_); });
          take_chunk(first, edge, total);
        },
        s_.cluster);
    return k_.let("total", total);
  }

  /// Computes `edge`, a key that at least topk scores of the first chunks of all blocks reach, or 0, and
  /// puts the floor below it. Each block has its share of topk scores at its own key; the least of these
  /// keys serves all blocks.
  void set_first_floor(const Ref& chunk, const Ref& edge) {
    if (s_.cluster == 1) {
      k_.if_(chunks_ > 0, [&] { edge = first_threshold(chunk, i32(s_.topk)); });
    } else {
      edge = cast(DType::u32, -1);
      k_.if_(rank_ < chunks_, [&] { edge = first_threshold(chunk, share_of_block()); });
      k_.if_(k_.thread() < s_.cluster, [&] { k_.of_block(*edges_, k_.thread())(rank_) = edge; });
      k_.sync_cluster();
      k_.unrolled(s_.cluster, [&](Value r) { edge = min(edge, (*edges_)(r)); });
    }
    const Value below = max(edge, cast(DType::u32, 1)) - u32(i32(1));
    *floor_ = skips_lowest() ? max(below, least_floor()) : below;
  }

  /// Appends the chunk's candidates to the `total` words.
  void take_chunk(const Value& first, const Ref& edge, const Ref& total) {
    append_chunk(first);
    auto now = k_.let("total_now", count_words());
    const auto keep = [&] {
      *floor_ = max(*floor_, edge);
      total = now;
    };
    if (s_.has_one_chunk && s_.room >= s_.chunk()) return keep();
    k_.if_else(
        now > s_.room,
        [&] {
          append_in_steps(first, total);
          total = (*count_)(0);
        },
        keep);
  }

  Value highest() const { return highest_ ? Value(*highest_) : Value(); }
  bool has_first_threshold() const {
    return (s_.topk + s_.cluster - 1) / s_.cluster <= s_.chunk() / kGroup / 2;
  }

  /// The part of topk that each block with scores of this row has to find.
  Value share_of_block() {
    auto active = k_.let("active", min(chunks_, s_.cluster));
    return k_.let("share_of_block", (s_.topk + active - 1) / active);
  }

  void append_chunk(const Value& first) {
    auto chunk = *chunk_;
    auto place = [&](const Value& i) { return column(first, i / vector_) + i % vector_; };
    auto mask = k_.var(DType::u32, 0, "passing");
    auto by_keys = [&] {
      mask = mask_of(s_.keys, [&](const Value& i) {
        const Value key = key_of(chunk(i));
        return is_inside(place(i)) && key > *floor_;
      });
    };
    auto by_scores = [&] {
      auto bits = k_.var(DType::u32, *floor_, "bits_of_floor");
      bits = select(bits == cast(DType::u32, kKeyBelowZero), bits - u32(i32(1)), bits);
      const Value is_positive = bits > cast(DType::u32, kKeyBelowZero);
      const Value sign = select(is_positive, cast(DType::u32, 0x80000000LL), cast(DType::u32, -1));
      auto above = k_.let("above", reinterpret(DType::f32, bits ^ sign));
      mask = mask_of(s_.keys, [&](const Value& i) { return f32(chunk(i)) > above; });
    };
    if (skips_lowest()) {
      by_scores();
    } else {
      k_.if_else(*floor_ < cast(DType::u32, kLowestKey), by_keys, by_scores);
    }
    append(s_.keys, mask, [&](const Value& i) { return word_of(key_of(chunk(i)), place(i)); });
  }

  void make_range() {
    range_ = k_.shared(DType::u32, {2}, "range");
    k_.if_(k_.thread() == 0, [&] {
      (*range_)(0) = cast(DType::u32, -1);
      (*range_)(1) = cast(DType::u32, 0);
    });
  }

  /// Returns a key that at least `need` scores of the chunk reach, or 0: the need-th largest group
  /// maximum, rounded down to an edge of the histogram.
  Value first_threshold(const Ref& chunk, const Value& need) {
    const int64_t groups = s_.keys / kGroup;
    auto keys = k_.local(DType::u32, {groups}, "group_keys");
    k_.unrolled(groups, [&](Value g) {
      auto best = k_.var(DType::f32, f32(chunk(g * kGroup)), "best_of_group");
      k_.unrolled(kGroup - 1, [&](Value i) { best = max(best, f32(chunk(g * kGroup + i + 1))); });
      keys(g) = key_of(best);
    });
    auto high = k_.var(DType::u32, 0, "highest"),
         low = k_.var(DType::u32, cast(DType::u32, -1), "lowest");
    k_.unrolled(groups, [&](Value g) { high = max(high, keys(g)); });
    const auto rank = [&](const Value& key) {
      low = min(low, select(key > cast(DType::u32, kLowestKey), key, cast(DType::u32, -1)));
    };
    if (s_.topk <= s_.threads) {
      rank(high);
    } else {
      k_.unrolled(groups, [&](Value g) { rank(keys(g)); });
    }
    auto range = *range_;
    auto low_of_warp = k_.let("low_of_warp", k_.warp_min(low));
    auto high_of_warp = k_.let("high_of_warp", k_.warp_max(high));
    k_.if_(lane_ == 0, [&] {
      k_.atomic_min(range(0), low_of_warp);
      k_.atomic_max(range(1), high_of_warp);
    });
    auto top = k_.let("top", range(1));
    if (highest_) *highest_ = top;
    auto bottom = k_.let("bottom", min(range(0), top));
    auto shift = k_.let("shift", shift_of(top - bottom));
    k_.unrolled(groups, [&](Value g) {
      k_.if_(keys(g) >= bottom, [&] { count_digit(i32((top - keys(g)) >> shift)); });
    });
    const Found found = find_digit(need);
    auto reach = k_.let("reach", (u32(found.digit + 1) << shift) - u32(i32(1)));
    auto edge = select(top - bottom >= reach, top - reach, bottom);
    return k_.let("edge_found", select(found.equal > 0, edge, cast(DType::u32, 0)));
  }

  /// Appends a chunk with more passing scores than room, a few scores per thread at a time.
  void append_in_steps(const Value& first, const Value& before) {
    set_count(before);
    const int64_t step = s_.threads * kSelectStep;
    auto part = k_.local(dtype_, {kSelectStep}, "part");
    k_.rolled(
        0, i32(s_.chunk()),
        [&](Value offset) {
          auto total = k_.let("total_before", count_words());
          k_.if_(total > s_.room - step, [&] { shrink(total); });
          auto at = k_.let("at", first + offset + k_.thread() * kSelectStep);
          load_part(kSelectStep, at, part, i32(0));
          auto key = [&](const Value& i) { return key_of(part(i)); };
          append(kSelectStep,
                 mask_of(kSelectStep,
                         [&](const Value& i) {
                           const Value reached = key(i);
                           return is_inside(at + i) && reached > *floor_;
                         }),
                 [&](const Value& i) { return word_of(key(i), at + i); });
        },
        step);
    k_.sync();
  }

  // ---- The blocks of a cluster

  void make_mail() {
    reports_ = k_.shared(DType::u64, {s_.cluster, kReports}, "reports");
    edges_ = k_.shared(DType::u32, {s_.cluster}, "edges");
    sent_ = k_.shared(DType::u64, {s_.most_sent()}, "sent");
    sent_counts_ = k_.shared(DType::i32, {kAttempts, s_.cluster}, "sent_counts");
    sending_ = k_.shared(DType::i32, {kAttempts}, "sending");
    reserved_ = k_.shared(DType::i32, {kAttempts}, "reserved");
    place_ = k_.shared(DType::i32, {1}, "first_place");
    digits_ = k_.shared(DType::i32, {kRaises, 32}, "digits");
    all_digits_ = k_.shared(DType::i32, {kRaises, 32}, "all_digits");
    k_.if_(k_.thread() == 0,
           [&] { k_.unrolled(kAttempts, [&](Value i) { (*sending_)(i) = (*reserved_)(i) = 0; }); });
    k_.fill(*digits_, 0);
    k_.fill(*all_digits_, 0);
    k_.sync_cluster();  // before the first access to another block
  }

  /// Moves all candidates that may be chosen to the cluster's first block, which finishes the row.
  /// Words below a lower bound of the last chosen word stay where they are. Where too many words are
  /// above the bound, bisection raises it.
  void gather(const Value& total) {
    auto bound = k_.var(DType::u64, word_of_floor(), "bound");
    if (!s_.has_one_chunk) raise_to_best_of_blocks(bound, total);
    auto received = k_.var(DType::i32, 0, "received");
    k_.rolled(0, kAttempts, [&](Value attempt) {
      auto is_needed = k_.let("is_needed", attempt == 0 || received > s_.most_sent());
      k_.if_(is_needed, [&] {
        k_.if_(attempt > 0, [&] { raise(bound, total); });
        received = send(total, bound, attempt);
      });
    });
    k_.if_(rank_ == 0, [&] {
      words_.emplace(*sent_);  // what follows reads the words of all blocks
      const Value lowest = bound,
                  total_received =
                      received;  // as arguments, compilers read them in different orders
      finish_row(total_received, lowest, Value());
    });
  }

  /// Raises `bound` to the larger of two lower bounds of the last chosen word: the topk-th word of any
  /// block, and the minimum over the blocks of their word with number topk / blocks.
  void raise_to_best_of_blocks(const Ref& bound, const Value& total) {
    auto share = share_of_block();
    auto whole = k_.var(DType::u64, 0, "whole"), part = k_.var(DType::u64, 0, "part");
    k_.if_(total > 0, [&] {
      const Bounds b =
          narrow(total, min(total, s_.topk), min(total, share), word_of_floor(), highest());
      whole = select(total >= s_.topk, b.low, cast(DType::u64, 0));
      part = select(total >= share, b.share, cast(DType::u64, 0));
    });
    part = select(rank_ < chunks_, part, cast(DType::u64, -1));
    k_.if_(k_.thread() < s_.cluster, [&] {
      auto there = k_.of_block(*reports_, k_.thread());
      there(rank_, kWhole) = whole;
      there(rank_, kPart) = part;
    });
    k_.sync_cluster();
    auto least = k_.var(DType::u64, cast(DType::u64, -1), "least");
    k_.unrolled(s_.cluster, [&](Value r) {
      bound = max(bound, (*reports_)(r, kWhole));
      least = min(least, (*reports_)(r, kPart));
    });
    bound = max(bound, least);
  }

  /// Sends the words from `bound` on to the first block, as far as it has places. Returns the number of
  /// such words of all blocks, after a barrier of the cluster.
  Value send(const Value& total, const Value& bound, const Value& attempt) {
    auto mine = k_.var(DType::i32, 0, "mine");
    each_word(total, [&](const Value& word) { mine += select(word >= bound, 1, 0); });
    auto through = sum_through_lane(mine);
    auto base = k_.var(DType::i32, 0, "base");
    k_.if_(lane_ == 31, [&] { base = k_.atomic_fetch_add((*sending_)(attempt), through); });
    auto place = k_.var(DType::i32, k_.shuffle(base, 31) + through - mine, "place");
    auto count = k_.let("count_sent", (*sending_)(attempt));
    k_.if_(k_.thread() == 0,
           [&] { (*place_)(0) = k_.atomic_fetch_add(k_.of_block(*reserved_, 0)(attempt), count); });
    k_.if_(k_.thread() < s_.cluster,
           [&] { k_.of_block(*sent_counts_, k_.thread())(attempt, rank_) = count; });
    place = place + (*place_)(0);
    auto target = k_.of_block(*sent_, 0);
    each_word(total, [&](const Value& word) {
      k_.if_(word >= bound, [&] {
        k_.if_(place < s_.most_sent(), [&] { target(place) = word; });
        place = place + 1;
      });
    });
    k_.sync_cluster();
    Value all = (*sent_counts_)(attempt, 0);
    for (int r = 1; r < s_.cluster; ++r) all = all + (*sent_counts_)(attempt, r);
    return k_.uniform(all);
  }

  /// Raises `bound` until the blocks have topk to most_sent() words from it on. They have more than
  /// most_sent() from the old bound on, and no two words are equal. A round takes 5 bits of the words:
  /// lane d counts those with digit d, of all blocks.
  void raise(const Ref& bound, const Value& total) {
    auto low = k_.var(DType::u64, bound, "low_of_range");
    auto high = k_.var(DType::u64, cast(DType::u64, -1), "high_of_range");
    auto before = k_.var(DType::i32, 0, "before_range");  // words above the range
    auto is_found = k_.var(DType::boolean, false, "is_found");
    auto here = *digits_, of_all = k_.of_block(*all_digits_, 0);
    k_.rolled(0, kRaises, [&](Value round) {
      k_.if_(!is_found, [&] {
        auto shift = k_.let("shift_of_range", shift_of(high - low, kRaiseBits));
        each_word(total, [&](const Value& word) {
          k_.if_(word >= low && word <= high,
                 [&] { k_.atomic_add(here(round, i32((high - word) >> shift)), 1); });
        });
        k_.sync();
        k_.if_(k_.thread() < 32, [&] { k_.atomic_add(of_all(round, lane_), here(round, lane_)); });
        k_.sync_cluster();
        auto through = k_.let("through_digit", before + sum_through_lane(of_all(round, lane_)));
        auto digit = k_.let("digit", k_.uniform(k_.warp_sum(select(through < s_.topk, 1, 0))));
        auto last = k_.let("words_from_bound", k_.uniform(k_.shuffle(through, digit)));
        auto above = k_.let("words_above", k_.uniform(k_.shuffle(through, max(digit - 1, 0))));
        before = select(digit > 0, above, before);
        high = high - (cast(DType::u64, digit) << shift);
        auto width = k_.let("width_less_1", (cast(DType::u64, 1) << shift) - cast(DType::u64, 1));
        low = select(high - low >= width, high - width, low);
        is_found = last <= s_.most_sent();
      });
    });
    bound = low;
  }

  void on_first_block(const std::function<void()>& body) {
    if (s_.cluster > 1) {
      k_.if_(rank_ == 0, body);
    } else {
      body();
    }
  }

  Value base_, chunks_;
  std::optional<Ref> highest_;  // the largest key, if there is only one chunk
  std::optional<Ref> range_;    // of the group maxima
  // of a cluster
  std::optional<Ref> reports_, edges_, sent_, sent_counts_, sending_, reserved_, place_, digits_,
      all_digits_;
};

}  // namespace

int64_t SelectSpec::list_size() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(topk)));
}

int64_t SelectSpec::shared_bytes() const {
  const int64_t words = room + most_sent() + list_size();
  return 8 * words + 4 * (topk + SelectWords::kBins) + 8192;
}

ir::Kernel build_select(const SelectSpec& s) {
  return Selection(s).build();
}

}  // namespace tessera::kernels::serving
