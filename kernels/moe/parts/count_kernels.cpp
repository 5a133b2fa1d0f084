// Counts ids in shared memory. With few groups a block keeps several copies of the counters, so that
// its warps add to different ones. Integer sums have the same bits in any order. One block counts up
// to 4096 ids. Beyond, each block writes the counts of its chunk to the workspace, and a second
// kernel (count_total.cpp), launched early by PDL, adds them up.
//
// Tuned    H100, 16 thousand ids of 9 groups: 3.1 us, a copy of the same bytes 1.7. One cluster of 16
//          blocks takes 3.6 with 1024 threads, 3.3 with 512 or 256; counting by ballots 4.5; chunks
//          of 4096 ids 3.5 to 3.9, of 512 and 1024 ids 3.1, but 4.5 instead of 4.0 for 175 thousand.

#include "kernels/moe/parts/count_kernels.h"

#include <algorithm>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/count_tensors.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int64_t kMostCopies = 4, kCountersOfCopies = 2048;

class Counting : CountTensors {
 public:
  explicit Counting(const CountSpec& s)
      : CountTensors(s),
        range_(std::min<int64_t>(s.num_groups, kGroupsPerBlock)),
        ranges_((s.num_groups + range_ - 1) / range_) {}

  ir::Kernel build() {
    if (s_.phase == CountPhase::chunk) {
      count_chunk();
    } else {
      count_all();
    }
    return k_.finish();
  }

 private:
  /// Counts the ids of vectors `vector`, + `step`, + 2 `step`, ... Each warp, or group of warps, has
  /// its own counters.
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
  /// The block's count of a group of its range.
  Value sum_over_copies(const Value& group) {
    auto sum = k_.var(DType::i32, 0, "sum");
    k_.unrolled(copies_, [&](Value copy) { sum += (*counters_)(copy, group); });
    return sum;
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

  const int64_t range_, ranges_;  // groups that a block counts, and the number of such ranges
  int64_t copies_ = 1;            // of the counters
  Value first_group_;
  std::optional<Ref> counters_;
};

}  // namespace

ir::Kernel build_count(const CountSpec& s) {
  return Counting(s).build();
}

}  // namespace tessera::kernels::moe
