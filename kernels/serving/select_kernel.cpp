#include "kernels/serving/select_kernel.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "kernels/serving/select_words.h"
#include "kernels/serving/value_sort.h"

namespace tessera::kernels::serving {
namespace {

using namespace dsl;

constexpr int64_t kGroup = 4;    // scores whose largest the first threshold is taken from
constexpr int kLargestBin = 64;  // of words that are ordered by comparing all with all
constexpr int64_t kLowestKey = 0x007FFFFF;     // of -inf and NaN
constexpr int64_t kKeyBelowZero = 0x7FFFFFFF;  // no score has it: -0 has the key of +0

Value one(const Value& condition) {
  return select(condition, 1, 0);
}

class Selection : SelectWords {
 public:
  explicit Selection(const SelectSpec& s) : SelectWords(s) {}

  ir::Kernel build() {
    declare();
    auto at = k_.launch(
        {i32(*rows_) * s_.cluster},
        {.threads = s_.threads, .min_blocks_per_sm = s_.blocks_per_sm, .cluster = s_.cluster});
    k_.let_next_kernel_start();
    row_ = k_.let("row", at.x / s_.cluster);
    rank_ = s_.cluster > 1 ? k_.let("rank", k_.cluster_rank()) : i32(0);
    lane_ = k_.let("lane", k_.lane());
    make_buffer(std::max<int64_t>(s_.room, s_.cluster * s_.most_sent()));
    make_list();
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
    if (s_.by_value) {
      select_some();
    } else {
      k_.if_else(
          end_ - start_ > s_.topk, [&] { select_some(); }, all);
    }
    return k_.finish();
  }

 private:
  void select_some() {
    read_row();
    if (s_.cluster > 1) {
      gather(count_words());
      k_.if_(rank_ == 0, [&] { finish_row(count_words()); });
    } else {
      finish_row(count_words());
    }
  }

  // ---- One reading of the row

  /// Chunks go to the blocks in turn. Scores of later columns than a block has seen lose against equal
  /// ones, so that only those above the key of its last candidate count.
  void read_row() {
    base_ = k_.let("first_chunk", start_ / vector_ * vector_);
    chunks_ = k_.let("chunks", ceil_div(end_ - base_, s_.chunk()));
    auto before = k_.var(DType::i32, 0, "words_before");
    k_.serial(
        rank_, chunks_,
        [&](Value chunk) {
          auto first = k_.let("first", base_ + chunk * i32(s_.chunk()));
          load_chunk(first);
          auto edge = k_.var(DType::u32, 0, "edge");
          if (has_first_threshold()) {
            k_.if_(chunk == rank_, [&] {
              edge = first_threshold();
              *floor_ = max(edge, cast(DType::u32, 1)) - u32(i32(1));
            });
          }
          append_chunk(first);
          auto total = k_.let("total_now", count_words());
          k_.if_else(
              total > s_.room, [&] { append_in_steps(first, before); },
              [&] { *floor_ = max(*floor_, edge); });
          before = (*count_)(0);
        },
        s_.cluster);
  }

  bool has_first_threshold() const { return s_.topk <= s_.chunk() / kGroup / 2; }

  void append_chunk(const Value& first) {
    auto chunk = *chunk_;
    auto place = [&](const Value& i) { return column(first, i / vector_) + i % vector_; };
    auto word = [&](const Value& i) { return word_of(key_of(chunk(i)), place(i)); };
    auto by_keys = [&] {
      append(
          s_.keys,
          [&](const Value& i) { return is_inside(place(i)) && key_of(chunk(i)) > *floor_; }, word);
    };
    auto by_scores = [&] {
      auto bits = k_.var(DType::u32, *floor_, "bits_of_floor");
      bits = select(bits == cast(DType::u32, kKeyBelowZero), bits - u32(i32(1)), bits);
      const Value is_positive = bits > cast(DType::u32, kKeyBelowZero);
      const Value mask = select(is_positive, cast(DType::u32, 0x80000000LL), cast(DType::u32, -1));
      auto above = k_.let("above", reinterpret(DType::f32, bits ^ mask));
      append(
          s_.keys, [&](const Value& i) { return f32(chunk(i)) > above; }, word);
    };
    k_.if_else(*floor_ < cast(DType::u32, kLowestKey), by_keys, by_scores);
  }

  /// A key that at least topk scores of the chunk reach, or 0: of the largest scores of groups, the
  /// one with this number, rounded down to an edge of the histogram.
  Value first_threshold() {
    const int64_t groups = s_.keys / kGroup;
    auto keys = k_.local(DType::u32, {groups}, "group_keys");
    k_.unrolled(groups, [&](Value g) {
      auto best = k_.var(DType::f32, f32((*chunk_)(g * kGroup)), "best_of_group");
      k_.unrolled(kGroup - 1,
                  [&](Value i) { best = max(best, f32((*chunk_)(g * kGroup + i + 1))); });
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
    auto range = k_.shared(DType::u32, {2}, "range");
    k_.if_(k_.thread() == 0, [&] {
      range(0) = cast(DType::u32, -1);
      range(1) = cast(DType::u32, 0);
    });
    auto low_of_warp = k_.let("low_of_warp", k_.warp_min(low));
    auto high_of_warp = k_.let("high_of_warp", k_.warp_max(high));
    k_.if_(lane_ == 0, [&] {
      k_.atomic_min(range(0), low_of_warp);
      k_.atomic_max(range(1), high_of_warp);
    });
    auto top = k_.let("top", range(1));
    auto bottom = k_.let("bottom", min(range(0), top));
    auto shift = k_.let("shift", shift_of(top - bottom));
    k_.unrolled(groups, [&](Value g) {
      k_.if_(keys(g) >= bottom, [&] { count_digit(i32((top - keys(g)) >> shift)); });
    });
    const Found found = find_digit(i32(s_.topk));
    auto reach = k_.let("reach", (u32(found.digit + 1) << shift) - u32(i32(1)));
    auto edge = select(top - bottom >= reach, top - reach, bottom);
    return k_.let("edge_found", select(found.equal > 0, edge, cast(DType::u32, 0)));
  }

  /// A chunk of which more scores pass than there is room for: a few per thread at a time.
  void append_in_steps(const Value& first, const Value& before) {
    set_count(before);
    const int64_t step = s_.threads * kSelectStep;
    auto part = k_.local(dtype_, {kSelectStep}, "part");
    k_.serial(
        0, i32(s_.chunk()),
        [&](Value offset) {
          auto total = k_.let("total_before", count_words());
          k_.if_(total > s_.room - step, [&] { shrink(total); });
          auto at = k_.let("at", first + offset + k_.thread() * kSelectStep);
          load_part(kSelectStep, at, part, i32(0));
          auto key = [&](const Value& i) { return key_of(part(i)); };
          append(
              kSelectStep, [&](const Value& i) { return is_inside(at + i) && key(i) > *floor_; },
              [&](const Value& i) { return word_of(key(i), at + i); });
        },
        step);
    k_.sync();
  }

  // ---- The blocks of a cluster

  void make_mail() {
    low_bounds_ = k_.shared(DType::u64, {s_.cluster, 2}, "low_bounds");
    sent_ = k_.shared(DType::u64, {s_.cluster, s_.most_sent()}, "sent");
    sent_counts_ = k_.shared(DType::i32, {s_.cluster}, "sent_counts");
    k_.sync_cluster();  // before the first access to another block
  }

  /// Moves the candidates of all blocks that may be chosen into the buffer of the first one. Two lower
  /// bounds of the last word that is chosen: the topk-th word of any block, and the least of all blocks'
  /// words with number topk / blocks.
  void gather(const Value& total) {
    auto active = k_.let("active", min(chunks_, s_.cluster));
    auto share = k_.let("share_of_block", (s_.topk + active - 1) / active);
    auto whole = k_.var(DType::u64, 0, "whole"), part = k_.var(DType::u64, 0, "part");
    k_.if_(total > 0, [&] {
      const Bounds b = narrow(total, min(total, s_.topk), min(total, share));
      whole = select(total >= s_.topk, b.low, cast(DType::u64, 0));
      part = select(total >= share, b.share, cast(DType::u64, 0));
    });
    part = select(rank_ < active, part, cast(DType::u64, -1));
    k_.if_(k_.thread() < s_.cluster, [&] {
      auto there = k_.of_block(*low_bounds_, k_.thread());
      there(rank_, 0) = whole;
      there(rank_, 1) = part;
    });
    k_.sync_cluster();
    auto least = k_.var(DType::u64, cast(DType::u64, -1), "least");
    auto bound = k_.var(DType::u64, 0, "bound");
    k_.unrolled(s_.cluster, [&](Value r) {
      bound = max(bound, (*low_bounds_)(r, 0));
      least = min(least, (*low_bounds_)(r, 1));
    });
    bound = max(bound, least);
    send(total, bound);
    k_.sync_cluster();
    k_.if_(rank_ == 0, [&] { receive(); });
  }

  void send(const Value& total, const Value& bound) {
    auto sending = k_.shared(DType::i32, {1}, "sending");
    k_.if_(k_.thread() == 0, [&] { sending(0) = 0; });
    k_.sync();
    auto target = k_.of_block(*sent_, 0);
    each_word(total, [&](const Value& word) {
      k_.if_(word >= bound, [&] {
        auto place = k_.let("place", k_.atomic_fetch_add(sending(0), 1));
        target(rank_, place) = word;
      });
    });
    auto count = k_.let("count_sent", sending(0));
    k_.if_(k_.thread() == 0, [&] { k_.of_block(*sent_counts_, 0)(rank_) = count; });
  }

  void receive() {
    auto of_lane = k_.let("sent_of_lane", (*sent_counts_)(min(lane_, s_.cluster - 1)));
    auto all = k_.let("sent_by_all", k_.warp_sum(select(lane_ < s_.cluster, of_lane, 0)));
    k_.serial(
        k_.warp(), s_.cluster,
        [&](Value r) {
          auto to = k_.let("to", k_.warp_sum(select(lane_ < r, of_lane, 0)));
          auto size = k_.let("size", (*sent_counts_)(r));
          k_.serial(
              lane_, size,
              [&](Value i) {
                auto word = k_.let("word_sent", (*sent_)(r, i));
                k_.manual_sync([&] { (*words_)(to + i) = word; });
              },
              32);
        },
        s_.threads / 32);
    set_count(all);
  }

  // ---- The result

  /// Orders the chosen words and writes them.
  void finish_row(const Value& total) {
    auto last = k_.var(DType::u64, 0, "last_chosen");
    k_.if_(total > s_.topk, [&] { last = last_word(narrow(total, i32(s_.topk), {}), total); });
    list_chosen(total, last);
    auto count = k_.let("count", min(total, s_.topk));
    Value low, high;
    if (s_.by_value) {
      low = k_.let("first_item", (*ends_)(0));
      high = k_.let("last_item", (*ends_)(1));
    } else {
      low = cast(DType::u64, start_);
      high = cast(DType::u64, end_);
    }
    auto shift = k_.let("shift", shift_of(high - low));
    auto digit = [&](const Value& item) { return i32((item - low) >> shift); };
    const int64_t rounds = (s_.topk + s_.threads - 1) / s_.threads;
    auto arrivals = k_.local(DType::i32, {rounds}, "arrivals");
    each_chosen(count, [&](const Value& round, const Value& place) {
      auto item = k_.let("item", (*list_)(place));
      auto arrival = k_.let("arrival", k_.atomic_fetch_add((*bins_)(digit(item)), 1));
      arrivals(round) = arrival;
      k_.if_(arrival == kLargestBin, [&] { k_.atomic_max((*crowded_)(0), 1); });
    });
    auto in_order = [&] {
      each_place([&](const Value& place) {
        k_.if_else(
            place < count, [&] { write(place, column_of(k_.let("item", (*list_)(place)))); },
            [&] { pad(place); });
      });
    };
    auto by_bins = [&] {
      scan_bins();
      auto firsts = *bins_, sorted = *words_;  // done with as words
      k_.sync();
      k_.manual_sync([&] {
        each_chosen(count, [&](const Value& round, const Value& place) {
          auto item = k_.let("item", (*list_)(place));
          sorted(firsts(digit(item)) + arrivals(round)) = item;
        });
        k_.sync();
        each_place([&](const Value& place) {
          k_.if_else(
              place < count,
              [&] {
                auto item = k_.let("item", sorted(place));
                auto bin = k_.let("bin", digit(item));
                auto rank = k_.var(DType::i32, firsts(bin), "rank");
                auto from = k_.let("from", firsts(bin)), to = k_.let("to", firsts(bin + 1));
                k_.if_(to > from + 1, [&] {
                  k_.serial(from, to, [&](Value i) { rank = rank + one(sorted(i) < item); });
                });
                write(rank, column_of(item));
              },
              [&] { pad(place); });
        });
      });
    };
    k_.if_else((*crowded_)(0) == 1,
               [&] {
                 sort_ascending(k_, *list_, s_.list_size());
                 in_order();
               },
               by_bins);
  }

  void make_list() {
    list_ = k_.shared(DType::u64, {s_.list_size()}, "list");
    listed_ = k_.shared(DType::i32, {1}, "listed");
    crowded_ = k_.shared(DType::i32, {1}, "crowded");
    if (s_.by_value) ends_ = k_.shared(DType::u64, {2}, "ends");
    k_.if_(k_.thread() == 0, [&] {
      (*listed_)(0) = 0;
      (*crowded_)(0) = 0;
      if (s_.by_value) {
        (*ends_)(0) = cast(DType::u64, -1);
        (*ends_)(1) = cast(DType::u64, 0);
      }
    });
    k_.fill(*list_, cast(DType::u64, -1));
  }

  /// What is sorted upwards, of a word: its column, or its complement, the best word first.
  Value item_of(const Value& word) {
    const Value turned = word ^ cast(DType::u64, -1);
    return s_.by_value ? turned : turned & cast(DType::u64, 0xFFFFFFFFLL);
  }
  static Value column_of(const Value& item) { return i32(item); }

  void list_chosen(const Value& total, const Value& last) {
    auto low = k_.var(DType::u64, cast(DType::u64, -1), "low_item"),
         high = k_.var(DType::u64, 0, "high_item");
    each_word(total, [&](const Value& word) {
      k_.if_(word >= last, [&] {
        auto item = k_.let("item", item_of(word));
        auto place = k_.let("place", k_.atomic_fetch_add((*listed_)(0), 1));
        k_.manual_sync([&] { (*list_)(place) = item; });
        if (s_.by_value) {
          low = min(low, item);
          high = max(high, item);
        }
      });
    });
    if (s_.by_value) {
      auto low_of_warp = k_.let("low_of_warp", k_.warp_min(low));
      auto high_of_warp = k_.let("high_of_warp", k_.warp_max(high));
      k_.if_(lane_ == 0, [&] {
        k_.atomic_min((*ends_)(0), low_of_warp);
        k_.atomic_max((*ends_)(1), high_of_warp);
      });
    }
    k_.sync();
  }

  /// Turns the histogram into the number of items in the bins before each bin.
  void scan_bins() {
    const int64_t per = kBins / s_.threads, warps = s_.threads / 32;
    auto sums = k_.shared(DType::i32, {warps}, "sums");
    auto first = k_.let("first_bin", k_.thread() * per);
    auto mine = k_.var(DType::i32, 0, "mine");
    auto counts = k_.local(DType::i32, {per}, "counts");
    k_.vectorized(per, [&](Value i) { counts(i) = (*bins_)(first + i); });
    k_.unrolled(per, [&](Value i) { mine = mine + counts(i); });
    auto through = sum_through_lane(mine);
    k_.if_(lane_ == 31, [&] { sums(k_.warp()) = through; });
    auto of_lane = k_.let("of_lane", sums(min(lane_, warps - 1)));
    auto before = k_.let("before_warp", k_.warp_sum(select(lane_ < k_.warp(), of_lane, 0)));
    auto from = k_.var(DType::i32, before + through - mine, "from");
    k_.unrolled(per, [&](Value i) {
      (*bins_)(first + i) = from;
      from = from + counts(i);
    });
    k_.if_(k_.thread() == s_.threads - 1, [&] { (*bins_)(kBins) = from; });
  }

  void each_place(const std::function<void(const Value& place)>& body) {
    each_round([&](const Value&, const Value& place) { body(place); });
  }
  void each_chosen(const Value& count,
                   const std::function<void(const Value& round, const Value& place)>& body) {
    each_round([&](const Value& round, const Value& place) {
      k_.if_(place < count, [&] { body(round, place); });
    });
  }
  /// All places of the result, spread over the threads.
  void each_round(const std::function<void(const Value& round, const Value& place)>& body) {
    const int64_t rounds = (s_.topk + s_.threads - 1) / s_.threads;
    k_.unrolled(rounds, [&](Value round) {
      auto place = k_.let("place", round * s_.threads + k_.thread());
      if (s_.topk % s_.threads == 0) return body(round, place);
      k_.if_(place < s_.topk, [&] { body(round, place); });
    });
  }

  void on_first_block(const std::function<void()>& body) {
    if (s_.cluster > 1) {
      k_.if_(rank_ == 0, body);
    } else {
      body();
    }
  }

  void write(const Value& place, const Value& column) {
    auto raw = k_.let("raw", s_.is_relative ? column - start_ : column);
    auto index = k_.var(DType::i32, raw, "index");
    if (s_.has_pages) {
      auto page_column = k_.let("page_column", raw >> *page_shift_);
      auto exists = k_.let("page_exists", page_column < *pages_);
      k_.report_unless(exists, "argument 'page_table' has too few columns");
      index = i32(-1);
      k_.if_(exists, [&] {
        auto page = k_.let("page", (*page_table_)(row_, page_column).unchecked());
        auto inside = raw - (page_column << *page_shift_);
        index = select(page < 0, -1, (page << *page_shift_) + inside);
      });
    }
    (*indices_)(row_, place) = index;
    if (s_.saves_raw) (*raw_indices_)(row_, place) = raw;
    if (s_.saves_values) (*values_)(row_, place) = (*scores_)(row_, column).unchecked();
  }

  void pad(const Value& place) {
    (*indices_)(row_, place) = -1;
    if (s_.saves_raw) (*raw_indices_)(row_, place) = -1;
    if (s_.saves_values) {
      (*values_)(row_, place) = cast(dtype_, -std::numeric_limits<float>::infinity());
    }
  }

  Value base_, chunks_;
  std::optional<Ref> low_bounds_, sent_, sent_counts_;  // of a cluster
  std::optional<Ref> list_, listed_, crowded_, ends_;
};

}  // namespace

int64_t SelectSpec::list_size() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(topk)));
}

int64_t SelectSpec::shared_bytes() const {
  const int64_t mail = cluster * most_sent();
  const int64_t words = std::max<int64_t>(room, mail) + mail + list_size();
  return 8 * words + 4 * SelectWords::kBins + 2048;
}

ir::Kernel build_select(const SelectSpec& s) {
  return Selection(s).build();
}

}  // namespace tessera::kernels::serving
