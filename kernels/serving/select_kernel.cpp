#include "kernels/serving/select_kernel.h"

#include <bit>
#include <functional>
#include <limits>
#include <optional>

#include "kernels/serving/select_row.h"
#include "kernels/serving/value_sort.h"

namespace tessera::kernels::serving {
namespace {

using namespace dsl;

constexpr int kCopies = 4;  // of a histogram, so that lanes with equal scores collide less
constexpr int kBits[] = {11, 11, 10}, kShifts[] = {21, 10, 0};  // of the digits
constexpr int64_t kBins = 2048;

/// The first digits of the last score that is chosen are `prefix`, once the digits have been counted
/// from the top; `need` of the scores with these digits are chosen, the first ones of the row.
class Selection : SelectRow {
 public:
  explicit Selection(const SelectSpec& s) : SelectRow(s) {}

  ir::Kernel build() {
    declare();
    auto at =
        k_.launch({i32(*rows_) * s_.cluster}, {.threads = kSelectThreads, .cluster = s_.cluster});
    k_.let_next_kernel_start();
    row_ = k_.let("row", at.x / s_.cluster);
    rank_ = s_.cluster > 1 ? k_.let("rank", k_.cluster_rank()) : Value();
    lane_ = k_.let("lane", k_.lane());
    k_.wait_for_previous_kernel();
    find_range();
    auto count = k_.let("count", min(end_ - start_, s_.topk));
    make_list();
    auto all = [&] {
      on_first_block([&] {
        k_.parallel({s_.topk}, [&](Value place) {
          k_.if_(place < count, [&] { put(*list_, place, start_ + place); });
        });
      });
    };
    k_.if_else(
        end_ - start_ > s_.topk, [&] { select_some(); }, all);
    on_first_block([&] {
      if (s_.by_value) sort_ascending(k_, *list_, list_size());
      write(count);
    });
    return k_.finish();
  }

 private:
  void select_some() {
    share_out();
    if (!s_.streams) load_units(i32(0));
    prefix_ = k_.var(DType::u32, 0, "prefix");
    need_ = k_.var(DType::i32, s_.topk, "need");
    shift_ = k_.var(DType::u32, 31, "shift");
    make_counters();
    narrow(0);
    place_chosen();
  }

  void make_counters() {
    counts_ = k_.shared(DType::i32, {kBins * kCopies}, "counts");
    through_ = k_.shared(DType::i32, {kBins}, "through");
    found_ = k_.shared(DType::i32, {3}, "found");
    if (s_.cluster > 1) of_row_ = k_.shared(DType::i32, {kBins}, "counts_of_row");
  }

  /// How often the digit of a round occurs among the keys that begin like the last one chosen: its
  /// counts in this block.
  Ref count_digit(int round) {
    auto counts = *counts_;
    k_.fill(counts, 0);
    each_key([&](const Value& key) {
      Value is_counted = key != cast(DType::u32, kNoKey);
      if (round > 0) is_counted = (key >> u32(kShifts[round - 1])) == *prefix_;
      k_.if_(is_counted, [&] {
        auto digit = i32((key >> u32(kShifts[round])) & u32((1 << kBits[round]) - 1));
        k_.atomic_add(counts(digit * kCopies + lane_ % kCopies), 1);
      });
    });
    // One for each round: blocks that are behind still read the one before.
    auto sums = k_.shared(DType::i32, {kBins}, "sums");
    k_.parallel({kBins}, [&](Value digit) {
      Value sum = counts(digit * kCopies);
      for (int copy = 1; copy < kCopies; ++copy) sum = sum + counts(digit * kCopies + copy);
      sums(digit) = sum;
    });
    return sums;
  }

  Ref sum_of_blocks(const Ref& sums) {
    if (s_.cluster == 1) return sums;
    k_.sync_cluster();
    k_.parallel({kBins}, [&](Value digit) {
      auto sum = k_.var(DType::i32, 0, "sum");
      k_.unrolled(s_.cluster, [&](Value rank) { sum = sum + k_.of_block(sums, rank)(digit); });
      (*of_row_)(digit) = sum;
    });
    return *of_row_;
  }

  /// Finds the next digit of the last key that is chosen; goes on until all keys that begin like it are
  /// chosen, or are equal.
  void narrow(int round) {
    const Ref sums = sum_of_blocks(count_digit(round));
    auto through = *through_, found = *found_;  // digit, keys before it, more like it
    k_.scan_sum(sums, through, Axis(0));
    auto mine = k_.var(DType::i32, -1, "mine"), before = k_.var(DType::i32, 0, "before");
    k_.unrolled(kBins / kSelectThreads, [&](Value i) {
      auto digit = k_.let("digit", i * kSelectThreads + k_.thread());
      auto last = k_.let("last", through(digit)), first = k_.let("first", last - sums(digit));
      auto is_mine = k_.let("is_mine", first < *need_ && *need_ <= last);
      mine = select(is_mine, digit, mine);
      before = select(is_mine, first, before);
    });
    k_.if_(mine >= 0, [&] {  // one thread
      found(0) = mine;
      found(1) = before;
      found(2) = one(through(mine) > *need_);
    });
    *prefix_ = (*prefix_ << u32(kBits[round])) | u32(found(0));
    *need_ = *need_ - found(1);
    *shift_ = u32(kShifts[round]);
    const int last_round = s_.score_bytes == 2 ? 1 : 2;  // bf16 has no bits below the second digit
    if (round < last_round) k_.if_(found(2) == 1, [&] { narrow(round + 1); });
  }

  static Value one(const Value& condition) { return select(condition, 1, 0); }
  Value is_before(const Value& key) { return (key >> *shift_) < *prefix_; }
  Value is_last(const Value& key) { return (key >> *shift_) == *prefix_; }

  /// The sum of `mine` over the warps in front, and the blocks in front.
  Value sum_before(const char* name, const Value& mine) {
    auto sums = k_.shared(DType::i32, {kSelectWarps}, name);
    auto sum = k_.let("sum_of_warp", k_.warp_sum(mine));
    k_.if_(lane_ == 0, [&] { sums(k_.warp()) = sum; });
    auto before = k_.var(DType::i32, 0, "before");
    if (s_.cluster == 1) {
      before = select(lane_ < k_.warp(), sums(lane_), 0);
    } else {
      k_.sync_cluster();
      k_.unrolled(s_.cluster, [&](Value rank) {
        auto there = k_.let("there", k_.of_block(sums, rank)(lane_));
        auto is_before = rank < rank_ || (rank == rank_ && lane_ < k_.warp());
        before = before + select(is_before, there, 0);
      });
    }
    return k_.let("sum_before", k_.warp_sum(before));
  }

  void place_chosen() {
    auto sure = k_.var(DType::i32, 0, "sure"), equal = k_.var(DType::i32, 0, "equal");
    each_key([&](const Value& key) {
      sure = sure + one(is_before(key));
      equal = equal + one(is_last(key));
    });
    auto sure_before = k_.var(DType::i32, sum_before("sure_of_warps", sure), "sure_before");
    auto equal_before = k_.var(DType::i32, sum_before("equal_of_warps", equal), "equal_before");
    k_.sync();  // the list is filled
    k_.manual_sync([&] {
      each_unit([&](const Value& unit, const Value& slot) {
        place_unit(unit, slot, sure_before, equal_before);
      });
    });
    k_.sync();
    if (s_.cluster > 1) k_.sync_cluster();
  }

  /// Places what is chosen of a unit; the counts move on behind it.
  void place_unit(const Value& unit, const Value& slot, const Ref& sure_before,
                  const Ref& equal_before) {
    // Two counts in one word: of keys before the last one, of keys like it.
    auto mine = k_.var(DType::i32, 0, "mine");
    k_.unrolled(vector_, [&](Value i) {
      auto key = k_.let("key", (*keys_)(slot * vector_ + i));
      mine = mine + select(is_before(key), 1, select(is_last(key), 0x10000, 0));
    });
    k_.if_(k_.warp_any(mine != 0), [&] {
      auto through = k_.var(DType::i32, mine, "through_lane");
      for (int distance = 1; distance < 32; distance *= 2) {
        auto other = k_.let("other", k_.shuffle_up(through, distance));
        through = through + select(lane_ >= distance, other, 0);
      }
      auto before = k_.let("before_lane", through - mine);
      auto sures = k_.var(DType::i32, sure_before + (before & 0xFFFF), "sures");
      auto equals = k_.var(DType::i32, equal_before + (before >> 16), "equals");
      k_.unrolled(vector_, [&](Value i) {
        auto key = k_.let("key", (*keys_)(slot * vector_ + i));
        auto first = k_.let("comes_first", is_before(key));
        auto tied = k_.let("tied", is_last(key));
        k_.if_(first || (tied && equals < *need_),
               [&] { put(*target_, sures + min(equals, *need_), column(unit) + i, key); });
        sures = sures + one(first);
        equals = equals + one(tied);
      });
      auto all = k_.let("all_of_unit", k_.shuffle(through, 31));
      sure_before = sure_before + (all & 0xFFFF);
      equal_before = equal_before + (all >> 16);
    });
  }

  int64_t list_size() const {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(s_.topk)));
  }

  /// Columns that are chosen, in the first block of a cluster; with keys above them where they are to be
  /// sorted.
  void make_list() {
    if (s_.by_value) {
      list_ = k_.shared(DType::u64, {list_size()}, "list");
      k_.fill(*list_, cast(DType::u64, -1));
    } else {
      list_ = k_.shared(DType::i32, {s_.topk}, "list");
    }
    if (s_.cluster > 1) {
      k_.sync_cluster();
      target_ = k_.of_block(*list_, 0);
    } else {
      target_ = list_;
    }
  }

  void put(const Ref& list, const Value& place, const Value& column, const Value& key) {
    if (s_.by_value) {
      list(place) = (cast(DType::u64, key) << u32(32)) | cast(DType::u64, column);
    } else {
      list(place) = column;
    }
  }
  void put(const Ref& list, const Value& place, const Value& column) {
    put(list, place, column, s_.by_value ? key_of((*scores_)(row_, column).unchecked()) : Value());
  }

  void on_first_block(const std::function<void()>& body) {
    if (s_.cluster > 1) {
      k_.if_(rank_ == 0, body);
    } else {
      body();
    }
  }

  void write(const Value& count) {
    k_.parallel({s_.topk}, [&](Value place) {
      auto index = k_.var(DType::i32, -1, "index"), raw = k_.var(DType::i32, -1, "raw");
      k_.if_(place < count, [&] {
        Value column = s_.by_value ? i32((*list_)(place)) : Value((*list_)(place));
        raw = s_.is_relative ? column - start_ : column;
        index = raw;
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
        if (s_.saves_values) {
          (*values_)(row_, place) = (*scores_)(row_, column).unchecked();
        }
      });
      (*indices_)(row_, place) = index;
      if (s_.saves_raw) (*raw_indices_)(row_, place) = raw;
      if (s_.saves_values) {
        k_.if_(place >= count, [&] {
          (*values_)(row_, place) = cast(dtype_, -std::numeric_limits<float>::infinity());
        });
      }
    });
  }

  std::optional<Ref> counts_, of_row_, through_, found_;
  std::optional<Ref> prefix_, need_, shift_;
  std::optional<Ref> list_, target_;  // of this block, of the first one
};

}  // namespace

ir::Kernel build_select(const SelectSpec& s) {
  return Selection(s).build();
}

}  // namespace tessera::kernels::serving
