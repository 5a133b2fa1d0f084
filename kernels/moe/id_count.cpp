// Counters in shared memory, for few groups several of each, so that the warps of a block add to
// different ones; sums of integers, which have the same bits in any order. Up to 4096 ids one block
// does it all. Beyond, blocks leave the counts of their chunk in the workspace, and a second kernel,
// which begins while the first one runs, adds them up, one warp per group.
//
// Tuned    H100, 16 thousand ids of 9 groups: 3.1 us, a copy of the same bytes 1.7. One cluster of 16
//          blocks takes 3.6 with 1024 threads, 3.3 with 512 or 256; counting by ballots 4.5; chunks
//          of 4096 ids 3.5 to 3.9, of 512 and 1024 ids 3.1, but 4.5 instead of 4.0 for 175 thousand.

#include "kernels/moe/id_count.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "dsl/builder.h"
#include "kernels/value_check.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int64_t kMostCopies = 4, kCountersOfCopies = 2048;
constexpr int kTotalWarps = 8;        // groups per block
constexpr int64_t kPartsPerLane = 4;  // that it reads at a time

std::string kernel_name(const CountSpec& s) {
  const std::string op = s.is_fraction ? "aux_fi" : "group_count";
  if (s.phase == CountPhase::chunk) return op + "_chunks";
  return s.phase == CountPhase::total ? op + "_total" : op;
}

class Counting {
 public:
  explicit Counting(const CountSpec& s)
      : s_(s),
        k_(kernel_name(s)),
        range_(std::min<int64_t>(s.num_groups, kGroupsPerBlock)),
        ranges_((s.num_groups + range_ - 1) / range_) {
    const bool is_total = s.phase == CountPhase::total;
    if (s.has_ids && !is_total) {
      slots_ = k_.dim("slots", {.multiple_of = s.vector});
      ids_ = k_.input("ids", DType::i64, {slots_}, {.align = s.vector * int64_t{8}});
    }
    if (s.phase == CountPhase::chunk || is_total) {
      chunks_ = k_.dim("chunks");
      const std::vector<Arg> shape = {s.num_groups, chunks_};
      partials_ = is_total ? k_.input("partials", DType::i32, shape, {.align = 4})
                           : k_.output("partials", DType::i32, shape, {.align = 4});
    }
    if (s.phase != CountPhase::chunk) {
      out_ =
          k_.output("out", s.is_fraction ? DType::f32 : DType::i32, {s.num_groups}, {.align = 4});
      if (s.is_fraction && s.has_ids) expected_ = k_.scalar("expected", DType::f32);
    }
  }

  ir::Kernel build() {
    switch (s_.phase) {
      case CountPhase::chunk:
        count_chunk();
        break;
      case CountPhase::total:
        add_chunks();
        break;
      default:
        count_all();
        break;
    }
    return k_.finish();
  }

 private:
  /// Adds up the ids of vectors `vector`, + `step`, + 2 `step` .. in counters for each warp or some.
  void count(const Value& vector, const Value& step, int threads) {
    copies_ = std::clamp<int64_t>(kCountersOfCopies / range_, 1,
                                  std::min<int64_t>(kMostCopies, threads / 32));
    counters_ = k_.shared(DType::i32, {copies_, range_}, "counters");
    const int64_t vectors = kIdsPerThread / s_.vector;
    auto held = k_.local(DType::i64, {kIdsPerThread}, "held");
    if (s_.has_ids) {
      k_.unrolled(vectors, [&](Value v) {
        auto first = k_.let("first", (vector + v * step) * s_.vector);
        k_.unrolled(s_.vector, [&](Value i) { held(v * s_.vector + i) = i64(-1); });
        k_.if_(first < slots_, [&] {
          k_.vectorized(s_.vector,
                        [&](Value i) { held(v * s_.vector + i) = (*ids_)(first + i).unchecked(); });
        });
      });
    }
    k_.fill(*counters_, 0);
    if (!s_.has_ids) return;
    k_.unrolled(kIdsPerThread, [&](Value i) {
      Value id = held(i);
      k_.report_unless(id >= -1 && id < s_.num_groups,
                       out_of_range(s_.is_fraction ? "topk_idx" : "group_idx"));
      auto group = k_.let("group", id - i64(first_group_));
      k_.if_(id >= 0 && group >= 0 && group < range_ && id < s_.num_groups,
             [&] { k_.atomic_add((*counters_)(k_.warp() % i32(copies_), i32(group)), 1); });
    });
  }
  /// What the block has counted of a group of its range.
  Value sum_over_copies(const Value& group) {
    auto sum = k_.var(DType::i32, 0, "sum");
    k_.unrolled(copies_, [&](Value copy) { sum += (*counters_)(copy, group); });
    return sum;
  }

  void store(const Value& group, const Value& count) {
    if (!s_.is_fraction) {
      (*out_)(group) = count;
    } else if (!s_.has_ids) {
      (*out_)(group) = 0.0f;
    } else {
      (*out_)(group) = f32(i64(count) * i64(s_.num_groups)) / expected_;
    }
  }

  void count_all() {
    auto at = k_.launch({ranges_}, {.threads = kCountThreads});
    first_group_ = k_.let("first_group", at.x * range_);
    count(k_.thread(), i32(kCountThreads), kCountThreads);
    k_.parallel({range_}, [&](Value group) {
      k_.if_(first_group_ + group < s_.num_groups,
             [&] { store(first_group_ + group, sum_over_copies(group)); });
    });
  }

  void count_chunk() {
    auto at = k_.launch({chunks_, ranges_}, {.threads = kChunkThreads});
    k_.let_next_kernel_start();
    first_group_ = k_.let("first_group", at.y * range_);
    const int64_t vectors = kIdsPerChunk / s_.vector;
    count(at.x * vectors + k_.thread(), i32(kChunkThreads), kChunkThreads);
    k_.parallel({range_}, [&](Value group) {
      k_.if_(first_group_ + group < s_.num_groups,
             [&] { (*partials_)(first_group_ + group, at.x) = sum_over_copies(group); });
    });
  }

  void add_chunks() {
    auto at =
        k_.launch({(s_.num_groups + kTotalWarps - 1) / kTotalWarps}, {.threads = kTotalWarps * 32});
    k_.wait_for_previous_kernel();
    auto group = k_.let("group", at.x * kTotalWarps + k_.warp());
    k_.if_(group < s_.num_groups, [&] {
      auto mine = k_.var(DType::i32, 0, "mine");
      constexpr int64_t kTogether = 32 * kPartsPerLane;
      k_.serial(0, ceil_div(chunks_, kTogether), [&](Value round) {
        k_.unrolled(kPartsPerLane, [&](Value i) {
          auto chunk = k_.let("chunk", round * kTogether + i * 32 + k_.lane());
          k_.if_(chunk < chunks_, [&] { mine += (*partials_)(group, chunk); });
        });
      });
      auto total = k_.let("total", k_.warp_sum(mine));
      k_.if_(k_.lane() == 0, [&] { store(group, total); });
    });
  }

  const CountSpec s_;
  Builder k_;
  const int64_t range_, ranges_;  // groups that a block counts, and how many such ranges
  int64_t copies_ = 1;            // of the counters
  Value slots_, chunks_, expected_, first_group_;
  std::optional<Ref> ids_, partials_, out_, counters_;
};

int64_t num_chunks(int64_t slots) {
  return (slots + kIdsPerChunk - 1) / kIdsPerChunk;
}

}  // namespace

ir::Kernel build_count(const CountSpec& s) {
  return Counting(s).build();
}

void count_ids(const Call& c, Launches& go, const char* ids) {
  const TensorView& given = c.given(ids);
  const int64_t slots = given.size(), groups = c["groups"];
  const bool is_fraction = c.dtype("out") == DType::f32;
  More more{{{"ids", {given.data, DType::i64, {slots}, given.device}}}, {}};
  if (slots > kMaxBlockIds) {
    more.tensors.push_back(
        {"partials",
         {c.given("workspace").data, DType::i32, {groups, num_chunks(slots)}, c.device()}});
  }
  if (is_fraction) {
    more.scalars.push_back(
        {"expected", double{static_cast<float>(c["T"] * int64_t{c.i32("num_aux_topk")})}});
  }
  const auto add = [&](CountPhase phase) {
    go.add(build_count,
           CountSpec{c.i32("groups"), phase, slots > 0, is_fraction,
                     static_cast<uint8_t>(std::gcd(c.i32("K"), c.align({ids}) / 8))},
           more);
  };
  if (slots <= kMaxBlockIds) return add(CountPhase::block);
  add(CountPhase::chunk);
  add(CountPhase::total);
}

int64_t count_elements(const Call& c) {
  const int64_t slots = c["T"] * c["K"];
  return slots <= kMaxBlockIds ? 0 : c["groups"] * num_chunks(slots);
}

int64_t spread_id(int64_t slot, int64_t num_groups) {
  return slot % 8 == 7 ? int64_t{-1} : slot * 7919 / 3 % num_groups;
}

}  // namespace tessera::kernels::moe
