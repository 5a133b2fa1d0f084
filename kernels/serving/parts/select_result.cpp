#include "kernels/serving/parts/select_result.h"

#include <limits>

#include "kernels/checks/value_check.h"
#include "kernels/serving/parts/select_values.h"
#include "kernels/serving/parts/value_sort.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr int kLargestBin = 64;  // words; larger bins are sorted, smaller ones compare all pairs
constexpr int64_t kListed = 0, kTied = 1, kIsCrowded = 2, kCounters = 3;

Value one(const Value& condition) {
  return select(condition, 1, 0);
}

Value u64(const Value& x) {
  return cast(DType::u64, x);
}

}  // namespace

void SelectResult::finish_row(const Value& total, const Value& lowest, const Value& highest) {
  auto sure_from = k_.var(DType::u64, 0, "sure_from"),
       tied_from = k_.var(DType::u64, 0, "tied_from");
  auto left = k_.var(DType::i32, 0, "left_of_tied"), ties = k_.var(DType::i32, 0, "ties");
  auto low = k_.var(DType::u64, u64(start_), "low_item"),
       high = k_.var(DType::u64, u64(end_), "high_item");
  k_.if_(total > (s_.by_value ? 0 : s_.topk), [&] {
    const Bounds b = narrow(total, min(total, s_.topk), {}, lowest, highest);
    tied_from = b.low;
    left = b.left;
    ties = select(b.members > b.left, b.members, 0);
    sure_from = select(ties > 0, b.high + u64(i32(1)), b.low);
    if (s_.by_value) {
      low = item_of(b.best);
      high = item_of(b.low);
    }
  });
  auto count = k_.let("count", min(total, s_.topk));
  chosen_ = count;
  auto shift = k_.let("shift", shift_of(high - low));
  auto digit = [&](const Value& item) { return i32((item - low) >> shift); };
  const Value sure = sure_from, tied = tied_from, left_of_tied = left, tied_items = ties;
  list_chosen(total, sure, tied, left_of_tied, tied_items, digit);
  auto in_order = [&] {
    each_place([&](const Value& place) {
      k_.if_else(
          place < count, [&] { write(place, column_of(k_.let("item", (*list_)(place)))); },
          [&] { pad(place); });
    });
  };
  auto by_bins = [&] {
    scan_bins();
    auto firsts = *bins_, sorted = *words_;  // the words of these arrays are no longer needed
    k_.sync();
    k_.manual_sync([&] {
      each_chosen(count, [&](const Value& place) {
        auto item = k_.let("item", (*list_)(place));
        const Value first = firsts(digit(item));
        sorted(first + (*arrivals_)(place)) = item;
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
                k_.rolled(from, to, [&](Value i) { rank = rank + one(sorted(i) < item); });
              });
              write(rank, column_of(item));
            },
            [&] { pad(place); });
      });
    });
  };
  k_.if_else((*counters_)(kIsCrowded) == 1,
             [&] {
               sort_ascending(k_, *list_, s_.list_size());
               in_order();
             },
             by_bins);
  if (s_.outputs() > s_.topk) k_.if_(k_.thread() == 0, [&] { pad(i32(s_.topk)); });
}

void SelectResult::make_list() {
  list_ = k_.shared(DType::u64, {s_.list_size()}, "list");
  arrivals_ = k_.shared(DType::i32, {s_.topk}, "arrivals");
  tied_ = k_.shared(DType::u64, {kFewWords}, "tied");
  counters_ = k_.shared(DType::i32, {kCounters}, "counters");
  k_.if_(k_.thread() == 0, [&] { k_.unrolled(kCounters, [&](Value i) { (*counters_)(i) = 0; }); });
  k_.fill(*list_, cast(DType::u64, -1));
}

Value SelectResult::item_of(const Value& word) {
  const Value turned = word ^ cast(DType::u64, -1);
  return s_.by_value ? turned : turned & cast(DType::u64, 0xFFFFFFFFLL);
}

void SelectResult::list_chosen(const Value& total, const Value& sure_from, const Value& tied_from,
                               const Value& left, const Value& ties,
                               const std::function<Value(const Value& item)>& digit) {
  const auto put = [&](const Value& word) {
    auto item = k_.let("item", item_of(word));
    auto place = k_.let("place", k_.atomic_fetch_add((*counters_)(kListed), 1));
    auto arrival = k_.let("arrival", k_.atomic_fetch_add((*bins_)(digit(item)), 1));
    k_.manual_sync([&] {
      (*list_)(place) = item;
      (*arrivals_)(place) = arrival;
    });
    k_.if_(arrival == kLargestBin, [&] { k_.atomic_max((*counters_)(kIsCrowded), 1); });
  };
  each_word(total, [&](const Value& word) {
    k_.if_else(
        word >= sure_from, [&] { put(word); },
        [&] {
          k_.if_(word >= tied_from, [&] {
            auto place = k_.let("place", k_.atomic_fetch_add((*counters_)(kTied), 1));
            k_.manual_sync([&] { (*tied_)(place) = word; });
          });
        });
  });
  k_.sync();
  k_.if_(ties > 0, [&] {
    k_.if_(k_.thread() < ties, [&] {
      auto mine = k_.var(DType::u64, 0, "mine");
      auto better = k_.var(DType::i32, 0, "better");
      k_.manual_sync([&] {
        mine = (*tied_)(k_.thread());
        k_.rolled(0, ties, [&](Value i) { better = better + one((*tied_)(i) > mine); });
      });
      k_.if_(better < left, [&] { put(mine); });
    });
    k_.sync();
  });
}

void SelectResult::scan_bins() {
  const int64_t per = kBins / s_.threads, warps = s_.threads / 32;
  auto sums = k_.shared(DType::i32, {warps}, "sums");
  auto first = k_.let("first_bin", k_.thread() * per);
  auto mine = k_.var(DType::i32, 0, "mine");
  auto counts = k_.local(DType::i32, {per}, "counts");
  k_.vectorized(per, [&](Value i) { counts(i) = (*bins_)(first + i); });
  k_.unrolled(per, [&](Value i) { mine += counts(i); });
  auto through = sum_through_lane(mine);
  k_.if_(lane_ == 31, [&] { sums(k_.warp()) = through; });
  auto of_lane = k_.let("of_lane", sums(min(lane_, warps - 1)));
  auto before = k_.let("before_warp", k_.warp_sum(select(lane_ < k_.warp(), of_lane, 0)));
  auto from = k_.var(DType::i32, before + through - mine, "from");
  k_.unrolled(per, [&](Value i) {
    (*bins_)(first + i) = from;
    from += counts(i);
  });
  k_.if_(k_.thread() == s_.threads - 1, [&] { (*bins_)(kBins) = from; });
}

void SelectResult::each_chosen(const Value& count,
                               const std::function<void(const Value& place)>& body) {
  each_place([&](const Value& place) { k_.if_(place < count, [&] { body(place); }); });
}

void SelectResult::each_place(const std::function<void(const Value& place)>& body) {
  const int64_t rounds = (s_.topk + s_.threads - 1) / s_.threads;
  k_.unrolled(rounds, [&](Value round) {
    auto place = k_.let("place", round * s_.threads + k_.thread());
    if (s_.topk % s_.threads == 0) return body(place);
    k_.if_(place < s_.topk, [&] { body(place); });
  });
}

void SelectResult::write(const Value& place, const Value& column) {
  Value of_row = column;
  if (s_.from == SelectFrom::blocks) {
    Value block = (*blocks_)(row_, column >> i32(s_.block_shift));
    of_row = (block << i32(s_.block_shift)) + (column & i32((1 << s_.block_shift) - 1));
  }
  const Value first = s_.from == SelectFrom::blocks ? first_key_ : start_;
  auto raw = k_.let("raw", s_.is_relative ? of_row - first : of_row);
  auto index = k_.var(DType::i32, raw, "index");
  if (s_.has_pages) {
    auto page_column = k_.let("page_column", raw >> *page_shift_);
    auto exists = k_.let("page_exists", page_column < *pages_);
    k_.report_unless(exists, s_.has_out_table ? kNoOutPage : kNoPage);
    Value of_table = row_ / *rows_of_table_;
    if (table_row_) {
      Value given = (*table_row_)(row_);
      auto has_table = k_.let("has_table", given >= 0 && given < *tables_);
      k_.report_unless(has_table, out_of_range("table_row"));
      of_table = given, exists = exists && has_table;
    }
    index = i32(-1);
    k_.if_(exists, [&] {
      auto page = k_.let("page", (*page_table_)(of_table, page_column).unchecked());
      auto inside = raw - (page_column << *page_shift_);
      auto fits = k_.let("page_fits", page <= (i32(INT32_MAX) >> *page_shift_));
      k_.report_unless(fits, out_of_range(s_.has_out_table ? "out_page_table" : "page_table"));
      index = select(page < 0 || !fits, -1, (page << *page_shift_) + inside);
    });
  }
  (*indices_)(row_, place) = index;
  if (s_.saves_raw) (*raw_indices_)(row_, place) = raw;
  if (s_.saves_values) (*values_)(row_, place) = (*scores_)(row_, column).unchecked();
}

void SelectResult::pad(const Value& place) {
  if (s_.from == SelectFrom::maxima) {  // the last block comes behind all others
    (*indices_)(row_, place) = select(place == chosen_, last_block_, -1);
    return;
  }
  (*indices_)(row_, place) = -1;
  if (s_.saves_raw) (*raw_indices_)(row_, place) = -1;
  if (s_.saves_values) {
    (*values_)(row_, place) = cast(dtype_, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace tessera::kernels::serving
