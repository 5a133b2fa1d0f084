// Method   a block per request. Its wanted tokens go to a hash table in shared memory: open addressing, by
//          compare and exchange; the first entry of a token by an atomic minimum. The place of a token in the
//          table depends on the order of the threads, but nothing that is read from it does.
//
//          1. Each slot, in the order of `lru`, looks its token up. Slots that are found are hits, the others
//             can be evicted.
//          2. Each first entry whose token has no slot is a miss. Its rank among the misses, in the order of
//             the entries, comes from a ballot per 32 entries and a scan over the ballots.
//          3. Ranks among hits and evictable slots come the same way, and with them the new order: slots that
//             stay evictable, slots that take the misses, hits. Miss r takes evictable slot r.
//          4. Each entry looks its token up again and writes the location of its slot.
//
//          A request that fits into its slots has token t in slot t and needs none of this.

#include "kernels/serving/hisparse/parts/swap_plan.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr int64_t kWarp = 32, kMostThreads = 1024, kLeastCapacity = 64;

int64_t threads_of(int64_t slots, int64_t capacity) {
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(slots, capacity / 2)))),
      128, kMostThreads);
}

/// Ballots of as many items, in whole blocks of threads.
int64_t words_of(int64_t items, int64_t threads) {
  return (items + threads - 1) / threads * threads / kWarp;
}

class SwapPlan {
 public:
  explicit SwapPlan(const SwapSpec& spec)
      : s_(spec),
        threads_(threads_of(spec.slots, spec.capacity)),
        k_("hisparse_swap_plan"),
        batch_(k_.dim("batch")),
        entries_(k_.dim("entries")),
        states_(k_.dim("states")),
        longest_(k_.dim("longest")),
        host_stride_(k_.stride("host_loc_stride")),
        tokens_(k_.input("tokens", DType::i32, {batch_, entries_}, {.align = 4})),
        seq_len_(k_.input("seq_len", DType::i32, {batch_}, {.align = 4})),
        req_(k_.input("req", DType::i32, {batch_}, {.align = 4})),
        hot_slots_(k_.input("hot_slots", DType::i32, {states_, s_.slots + 1}, {.align = 4})),
        host_loc_(k_.input("host_loc", DType::i64, {states_, longest_},
                           {.strides = {host_stride_, 1}, .align = 8})),
        hot_tokens_(k_.output("hot_tokens", DType::i32, {states_, s_.slots + 1}, {.align = 4})),
        lru_(k_.output("lru", DType::i16, {states_, s_.slots}, {.align = 2})),
        locations_(k_.output("locations", DType::i32, {batch_, entries_}, {.align = 4})),
        list_(k_.output("miss_list", DType::i64, {batch_, entries_, 2}, {.align = 8})),
        counts_(k_.output("miss_count", DType::i32, {batch_}, {.align = 4})),
        host_rows_(k_.scalar("host_rows", DType::i32)),
        cache_rows_(k_.scalar("cache_rows", DType::i32)) {
    if (s_.has_num_reqs) num_reqs_ = k_.input("num_reqs", DType::i32, {1}, {.align = 4});
  }

  ir::Kernel build() {
    auto at = k_.launch({batch_}, {.threads = static_cast<int>(threads_)});
    b_ = at.x;
    k_.let_next_kernel_start();
    auto is_twin = k_.shared(DType::i32, {1}, "is_twin");
    k_.if_(k_.thread() == 0, [&] { is_twin(0) = 0; });
    k_.wait_for_previous_kernel();
    auto requests = k_.let("requests", num_reqs_ ? min((*num_reqs_)(0).read(), batch_) : batch_);
    auto q = k_.let("q", req_(b_).unchecked());
    each(b_, [&](const Value& other) {
      k_.if_(other < requests && req_(other).unchecked().read() == q,
             [&] { k_.atomic_max(is_twin(0), 1); });
    });
    auto counts = k_.let("counts", b_ < requests);
    auto is_known = k_.let("is_known", q >= 0 && q < states_ && is_twin(0) == 0);
    k_.report_unless(is_known || !counts || k_.thread() > 0, out_of_range("req"));
    k_.if_else(
        counts && is_known,
        [&] {
          q_ = q;
          serve();
        },
        [&] {
          each(entries_, [&](const Value& j) { locations_(b_, j).unchecked() = -1; });
          write_rest(i32(0));
        });
    return k_.finish();
  }

 private:
  /// Runs body(i) for 0 .. count - 1, an index per thread and round.
  void each(const Value& count, const std::function<void(const Value&)>& body) {
    k_.serial(
        k_.thread(), count, [&](Value i) { body(i); }, threads_);
  }

  /// The count, and -1 in the entries beyond it.
  void write_rest(const Value& count) {
    k_.if_(k_.thread() == 0, [&] { counts_(b_) = count; });
    if (!s_.saves_misses) return;
    k_.serial(
        count + k_.thread(), entries_,
        [&](Value r) {
          list_(b_, r, 0).unchecked() = i64(-1);
          list_(b_, r, 1).unchecked() = i64(-1);
        },
        threads_);
  }

  void serve() {
    auto given = k_.let("given_length", seq_len_(b_).unchecked());
    k_.report_unless((given >= 0 && given <= longest_) || k_.thread() > 0, out_of_range("seq_len"));
    length_ = k_.let("length", min(max(given, 0), longest_));
    k_.if_else(
        length_ <= s_.slots,
        [&] {
          each(entries_, [&](const Value& j) {
            auto token = wanted(j);
            auto location = k_.var(DType::i32, -1, "location");
            k_.if_(token >= 0, [&] { location = location_of(token); });
            locations_(b_, j).unchecked() = location;
          });
          write_rest(i32(0));
        },
        [&] { k_.manual_sync([&] { swap(); }); });
  }

  /// The token of an entry; -1 for none and for one that the request does not have.
  Value wanted(const Value& j) {
    auto token = k_.let("token", tokens_(b_, j).unchecked());
    auto exists = k_.let("exists", token >= -1 && token < length_);
    k_.report_unless(exists, out_of_range("tokens"));
    return k_.let("wanted", select(exists, token, -1));
  }

  /// The device row of a slot; -1 if it has none.
  Value location_of(const Value& slot) {
    auto row = k_.let("row", hot_slots_(q_, slot).unchecked());
    auto exists = k_.let("row_exists", row >= -1 && row < cache_rows_);
    k_.report_unless(exists, out_of_range("hot_slots"));
    return k_.let("device_row", select(exists, row, -1));
  }

  /// The host row of a token; -1 if it has none.
  Value host_row(const Value& token) {
    auto row = k_.let("host_row", host_loc_(q_, token).unchecked());
    auto exists = k_.let("host_row_exists", row >= -1 && row < i64(host_rows_));
    k_.report_unless(exists, out_of_range("host_loc"));
    return k_.let("source", select(exists, row, i64(-1)));
  }

  Value hashed(const Value& token) {
    const int shift = 32 - std::countr_zero(static_cast<uint32_t>(s_.capacity));
    return i32(u32(token) * u32(0x9E3779B1) >> u32(static_cast<uint32_t>(shift)));
  }

  /// The cell of a token in the table; -1 if it is not there.
  Value find(const Value& token) {
    auto cell = k_.var(DType::i32, hashed(token), "cell");
    k_.loop([&] {
      auto key = k_.let("key", (*keys_)(cell).read());
      k_.break_if(key == token);
      k_.if_else(
          key == -1, [&] { cell = -1; }, [&] { cell = (Value(cell) + 1) & (s_.capacity - 1); });
      k_.break_if(Value(cell) < 0);
    });
    return k_.let("found", cell);
  }

  Value insert(const Value& token) {
    auto cell = k_.var(DType::i32, hashed(token), "cell");
    k_.loop([&] {
      auto before = k_.atomic_compare_exchange((*keys_)(cell), -1, token);
      k_.break_if(before == -1 || before == token);
      cell = (Value(cell) + 1) & (s_.capacity - 1);
    });
    return k_.let("inserted", cell);
  }

  /// Ranks of the items 0 .. count - 1 for which a condition holds.
  struct Ranks {
    Ref bits, before;  // u32, i32 [words]
    Value total;
  };

  Ranks ranks(const std::string& name, const Value& count, int64_t most,
              const std::function<Value(const Value&)>& holds) {
    const int64_t words = words_of(most, threads_);
    const Ref bits = k_.shared(DType::u32, {words}, name + "_bits");
    const Ref before = k_.shared(DType::i32, {words}, name + "_before");
    k_.serial(0, i32(words * kWarp / threads_), [&](Value round) {
      auto i = k_.let("item", round * threads_ + k_.thread());
      auto yes = k_.var(DType::boolean, false, "yes");
      k_.if_(i < count, [&] { yes = holds(i); });
      const Value ballot = k_.ballot(yes);
      k_.if_(k_.lane() == 0, [&] {
        bits(i / kWarp) = ballot;
        before(i / kWarp) = i32(popcount(ballot));
      });
    });
    k_.sync();
    auto last = k_.let("last_count", before(words - 1).read());
    k_.sync();
    k_.scan_sum(before, before, Axis(0), {.exclusive = true});
    k_.sync();
    return {bits, before, k_.let(name + "_total", before(words - 1) + last)};
  }

  static Value bit_of(const Ranks& ranks, const Value& i) {
    return (ranks.bits(i / kWarp) >> u32(i % kWarp) & u32(1)) == u32(1);
  }

  static Value rank_of(const Ranks& ranks, const Value& i) {
    auto below = (u32(1) << u32(i % kWarp)) - u32(1);
    return ranks.before(i / kWarp) + i32(popcount(ranks.bits(i / kWarp) & below));
  }

  /// The author's barriers: the passes stand in loops of threads, between which the compiler sees no place
  /// for one. In `place`: the position in lru of a hit, C of the newest token, C + 1 + r of miss r; -1 of none.
  void swap() {
    const int64_t slots = s_.slots, capacity = s_.capacity, most = capacity / 2;
    keys_ = k_.shared(DType::i32, {capacity}, "keys");
    const Ref first = k_.shared(DType::i32, {capacity}, "first");
    const Ref place = k_.shared(DType::i32, {capacity}, "place");
    const Ref cells = k_.shared(DType::i32, {most}, "cells");        // of the entries
    const Ref order = k_.shared(DType::i16, {slots}, "order");       // lru before
    const Ref entry_of = k_.shared(DType::i32, {most}, "entry_of");  // of the misses
    const Ref slot_of = k_.shared(DType::i32, {most}, "slot_of");    // of the misses
    k_.parallel({capacity}, [&](Value cell) {
      (*keys_)(cell) = -1;
      first(cell) = INT32_MAX;
      place(cell) = -1;
    });
    k_.sync();
    each(entries_, [&](const Value& j) {
      auto token = wanted(j);
      auto cell = k_.var(DType::i32, -1, "cell_of_entry");
      k_.if_(token >= 0, [&] {
        cell = insert(token);
        k_.atomic_min(first(cell), j);
      });
      cells(j) = cell;
    });
    k_.sync();
    auto newest = k_.let("newest", length_ - 1);
    auto is_first = [&](const Value& j) { return cells(j) >= 0 && first(max(cells(j), 0)) == j; };
    each(entries_, [&](const Value& j) {
      k_.if_(is_first(j), [&] {
        k_.if_((*keys_)(cells(j)) == newest,
               [&] { place(cells(j)) = i32(static_cast<int>(slots)); });
      });
    });
    k_.sync();
    const Ranks hits = ranks("hits", i32(static_cast<int>(slots)), slots, [&](const Value& i) {
      auto given = k_.let("given_slot", i32(lru_(q_, i)));
      auto is_slot = k_.let("is_slot", given >= 0 && given < static_cast<int>(slots));
      k_.report_unless(is_slot, out_of_range("lru"));
      auto slot = k_.let("slot", select(is_slot, given, 0));
      order(i) = cast(DType::i16, slot);
      auto token = k_.let("held_token", hot_tokens_(q_, slot).unchecked());
      auto cell = k_.var(DType::i32, -1, "hit_cell");
      k_.if_(token >= 0 && token < newest, [&] { cell = find(token); });
      k_.if_(Value(cell) >= 0, [&] { k_.atomic_max(place(cell), i); });
      return Value(cell) >= 0;
    });
    auto evictable = k_.let("evictable", static_cast<int>(slots) - hits.total);
    const Ranks misses = ranks("misses", entries_, most, [&](const Value& j) {
      auto missed = k_.var(DType::boolean, false, "missed");
      k_.if_(is_first(j), [&] {
        k_.if_(place(cells(j)) < 0, [&] { missed = host_row((*keys_)(cells(j))) >= i64(0); });
      });
      return Value(missed);
    });
    auto count = k_.let("count", min(misses.total, evictable));
    k_.report_unless(misses.total <= evictable || k_.thread() > 0,
                     "argument 'tokens' wants more tokens than there are slots");
    each(entries_, [&](const Value& j) {
      k_.if_(bit_of(misses, j), [&] {
        auto rank = k_.let("miss_rank", rank_of(misses, j));
        k_.if_(rank < count, [&] {
          entry_of(rank) = j;
          place(cells(j)) = static_cast<int>(slots) + 1 + rank;
        });
      });
    });
    k_.sync();
    auto kept = k_.let("kept", evictable - count);
    each(i32(static_cast<int>(slots)), [&](const Value& i) {
      auto hits_before = k_.let("hits_before", rank_of(hits, i));
      auto rank = k_.let("evictable_rank", i - hits_before);
      auto is_hit = k_.let("is_hit", bit_of(hits, i));
      auto is_taken = k_.let("is_taken", !is_hit && rank < count);
      k_.if_(is_taken, [&] { slot_of(rank) = i32(order(i)); });
      auto position =
          select(is_hit, evictable + hits_before, select(is_taken, kept + rank, rank - count));
      lru_(q_, position).unchecked() = order(i);
    });
    k_.sync();
    each(count, [&](const Value& r) {
      auto token = k_.let("missed_token", (*keys_)(cells(entry_of(r))).read());
      auto slot = k_.let("taken_slot", slot_of(r).read());
      hot_tokens_(q_, slot).unchecked() = token;
      list_(b_, r, 0).unchecked() = host_row(token);
      list_(b_, r, 1).unchecked() = i64(location_of(slot));
    });
    write_rest(count);
    each(entries_, [&](const Value& j) {
      auto location = k_.var(DType::i32, -1, "location");
      k_.if_(cells(j) >= 0, [&] {
        auto where = k_.let("where", place(cells(j)).read());
        k_.if_(where >= 0, [&] {
          auto slot = k_.var(DType::i32, static_cast<int>(slots), "slot_of_entry");
          k_.if_(where < static_cast<int>(slots), [&] { slot = i32(order(where)); });
          k_.if_(where > static_cast<int>(slots),
                 [&] { slot = slot_of(where - (static_cast<int>(slots) + 1)); });
          location = location_of(slot);
        });
      });
      locations_(b_, j).unchecked() = location;
    });
  }

  const SwapSpec s_;
  const int64_t threads_;
  Builder k_;
  const Value batch_, entries_, states_, longest_, host_stride_;
  const Ref tokens_, seq_len_, req_, hot_slots_, host_loc_, hot_tokens_, lru_, locations_, list_,
      counts_;
  const Value host_rows_, cache_rows_;
  std::optional<Ref> num_reqs_, keys_;
  Value b_, q_, length_;
};

}  // namespace

int64_t table_capacity(int64_t entries) {
  return std::max(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * entries))),
                  kLeastCapacity);
}

int64_t swap_plan_memory(int64_t slots, int64_t entries) {
  const int64_t capacity = table_capacity(entries), threads = threads_of(slots, capacity);
  const int64_t words = words_of(slots, threads) + words_of(capacity / 2, threads);
  return capacity * 18 + slots * 2 + words * 8 + 1024;
}

ir::Kernel build_swap_plan(const SwapSpec& spec) {
  return SwapPlan(spec).build();
}

}  // namespace tessera::kernels::serving
