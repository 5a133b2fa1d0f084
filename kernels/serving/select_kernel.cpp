#include "kernels/serving/select_kernel.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "kernels/serving/select_result.h"

namespace tessera::kernels::serving {
namespace {

using namespace dsl;

// Scores per group; the first threshold comes from the maxima of groups.
constexpr int64_t kGroup = 4;
constexpr int64_t kLowestKey = 0x007FFFFF;     // of -inf and NaN
constexpr int64_t kKeyBelowZero = 0x7FFFFFFF;  // no score has it: -0 has the key of +0

// What a block of a cluster reports about its words.
constexpr int64_t kWhole = 0, kPart = 1, kBest = 2, kReports = 3;

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
    make_buffer(std::max<int64_t>(s_.room, s_.cluster * s_.most_sent()));
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
    chunk_ = k_.local(dtype_, {s_.keys}, "chunk");
    auto total = k_.var(DType::i32, 0, "total_read");
    const auto first_of = [&](const Value& chunk) { return base_ + chunk * i32(s_.chunk()); };
    if (s_.has_one_chunk) {
      if (has_first_threshold()) highest_ = k_.var(DType::u32, 0, "highest_key");
      k_.if_(rank_ < chunks_, [&] {
        auto first = k_.let("first", first_of(rank_));
        load_chunk(first, *chunk_);
        auto edge = k_.var(DType::u32, 0, "edge");
        if (has_first_threshold()) set_first_floor(edge);
        take_chunk(first, edge, total);
      });
      return k_.let("total", total);
    }
    next_chunk_ = k_.local(dtype_, {s_.keys}, "next_chunk");
    k_.if_(rank_ < chunks_, [&] { load_chunk(first_of(rank_), *next_chunk_); });
    k_.serial(
        rank_, chunks_,
        [&](Value chunk) {  // while the next chunk is in flight
          auto first = k_.let("first", first_of(chunk));
          k_.unrolled(s_.keys, [&](Value i) { (*chunk_)(i) = (*next_chunk_)(i); });
          auto next = k_.let("next", chunk + s_.cluster);
          k_.if_(next < chunks_, [&] { load_chunk(first_of(next), *next_chunk_); });
          auto edge = k_.var(DType::u32, 0, "edge");
          if (has_first_threshold()) k_.if_(chunk == rank_, [&] { set_first_floor(edge); });
          take_chunk(first, edge, total);
        },
        s_.cluster);
    return k_.let("total", total);
  }

  void set_first_floor(const Ref& edge) {
    edge = first_threshold();
    *floor_ = max(edge, cast(DType::u32, 1)) - u32(i32(1));
  }

  /// Appends the chunk's candidates to the `total` words.
  void take_chunk(const Value& first, const Ref& edge, const Ref& total) {
    append_chunk(first);
    auto now = k_.let("total_now", count_words());
    k_.if_else(
        now > s_.room,
        [&] {
          append_in_steps(first, total);
          total = (*count_)(0);
        },
        [&] {
          *floor_ = max(*floor_, edge);
          total = now;
        });
  }

  Value highest() const { return highest_ ? Value(*highest_) : Value(); }
  bool has_first_threshold() const { return s_.topk <= s_.chunk() / kGroup / 2; }

  void append_chunk(const Value& first) {
    auto chunk = *chunk_;
    auto place = [&](const Value& i) { return column(first, i / vector_) + i % vector_; };
    auto word = [&](const Value& i) { return word_of(key_of(chunk(i)), place(i)); };
    auto by_keys = [&] {
      append(
          s_.keys,
          [&](const Value& i) {
            const Value key = key_of(chunk(i));
            return is_inside(place(i)) && key > *floor_;
          },
          word);
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

  void make_range() {
    range_ = k_.shared(DType::u32, {2}, "range");
    k_.if_(k_.thread() == 0, [&] {
      (*range_)(0) = cast(DType::u32, -1);
      (*range_)(1) = cast(DType::u32, 0);
    });
  }

  /// Returns a key that at least topk scores of the chunk reach, or 0: the topk-th largest group
  /// maximum, rounded down to an edge of the histogram.
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
    const Found found = find_digit(i32(s_.topk));
    auto reach = k_.let("reach", (u32(found.digit + 1) << shift) - u32(i32(1)));
    auto edge = select(top - bottom >= reach, top - reach, bottom);
    return k_.let("edge_found", select(found.equal > 0, edge, cast(DType::u32, 0)));
  }

  /// Appends a chunk with more passing scores than room, a few scores per thread at a time.
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
              kSelectStep,
              [&](const Value& i) {
                const Value reached = key(i);
                return is_inside(at + i) && reached > *floor_;
              },
              [&](const Value& i) { return word_of(key(i), at + i); });
        },
        step);
    k_.sync();
  }

  // ---- The blocks of a cluster

  void make_mail() {
    reports_ = k_.shared(DType::u64, {s_.cluster, kReports}, "reports");
    sent_ = k_.shared(DType::u64, {s_.cluster, s_.most_sent()}, "sent");
    sent_counts_ = k_.shared(DType::i32, {s_.cluster}, "sent_counts");
    sending_ = k_.shared(DType::i32, {1}, "sending");
    k_.if_(k_.thread() == 0, [&] { (*sending_)(0) = 0; });
    k_.sync_cluster();  // before the first access to another block
  }

  /// Moves all candidates that may be chosen into the buffer of the cluster's first block, which
  /// finishes the row. A word is dropped below either of two lower bounds of the last chosen word: the
  /// topk-th word of any block, and the minimum over the blocks of their word with number topk /
  /// blocks.
  void gather(const Value& total) {
    auto active = k_.let("active", min(chunks_, s_.cluster));
    auto share = k_.let("share_of_block", (s_.topk + active - 1) / active);
    auto whole = k_.var(DType::u64, 0, "whole"), part = k_.var(DType::u64, 0, "part");
    auto best = k_.var(DType::u64, 0, "best_of_block");
    k_.if_(total > 0, [&] {
      const Value lowest = word_of_floor();
      const Bounds b = narrow(total, min(total, s_.topk), min(total, share), lowest, highest());
      whole = select(total >= s_.topk, b.low, cast(DType::u64, 0));
      part = select(total >= share, b.share, cast(DType::u64, 0));
      best = b.best;
    });
    part = select(rank_ < active, part, cast(DType::u64, -1));
    k_.if_(k_.thread() < s_.cluster, [&] {
      auto there = k_.of_block(*reports_, k_.thread());
      there(rank_, kWhole) = whole;
      there(rank_, kPart) = part;
      there(rank_, kBest) = best;
    });
    k_.sync_cluster();
    auto least = k_.var(DType::u64, cast(DType::u64, -1), "least");
    auto bound = k_.var(DType::u64, 0, "bound");
    best = cast(DType::u64, 0);
    k_.unrolled(s_.cluster, [&](Value r) {
      bound = max(bound, (*reports_)(r, kWhole));
      least = min(least, (*reports_)(r, kPart));
      best = max(best, (*reports_)(r, kBest));
    });
    bound = max(bound, least);
    send(total, bound);
    k_.sync_cluster();
    k_.if_(rank_ == 0, [&] {
      const Value received = receive();
      const Value best_key = k_.let("best_key", u32(best >> u32(32)));
      finish_row(received, bound, best_key);
    });
  }

  void send(const Value& total, const Value& bound) {
    auto target = k_.of_block(*sent_, 0);
    each_word(total, [&](const Value& word) {
      k_.if_(word >= bound, [&] {
        auto place = k_.let("place", k_.atomic_fetch_add((*sending_)(0), 1));
        target(rank_, place) = word;
      });
    });
    auto count = k_.let("count_sent", (*sending_)(0));
    k_.if_(k_.thread() == 0, [&] { k_.of_block(*sent_counts_, 0)(rank_) = count; });
  }

  /// Returns the number of words sent.
  Value receive() {
    const int64_t blocks = std::bit_ceil(static_cast<uint32_t>(s_.cluster)),
                  threads = s_.threads / blocks;
    auto of_lane = k_.let("sent_of_lane", (*sent_counts_)(min(lane_, s_.cluster - 1)));
    auto all = k_.let("sent_by_all", k_.warp_sum(select(lane_ < s_.cluster, of_lane, 0)));
    auto block = k_.let("block_of_thread", k_.thread() / threads);
    auto to = k_.let("to", k_.warp_sum(select(lane_ < block, of_lane, 0)));
    k_.if_(block < s_.cluster, [&] {
      auto size = k_.let("size", (*sent_counts_)(block));
      k_.serial(
          k_.thread() % threads, size,
          [&](Value i) {
            auto word = k_.let("word_sent", (*sent_)(block, i));
            k_.manual_sync([&] { (*words_)(to + i) = word; });
          },
          threads);
    });
    set_count(all);
    return count_words();
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
  std::optional<Ref> reports_, sent_, sent_counts_, sending_;  // of a cluster
};

}  // namespace

int64_t SelectSpec::list_size() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(topk)));
}

int64_t SelectSpec::shared_bytes() const {
  const int64_t mail = cluster * most_sent();
  const int64_t words = std::max<int64_t>(room, mail) + mail + list_size();
  return 8 * words + 4 * (topk + SelectWords::kBins) + 4096;
}

ir::Kernel build_select(const SelectSpec& s) {
  return Selection(s).build();
}

}  // namespace tessera::kernels::serving
