// get_fused_mapping or moe_plan in one kernel. Every warp takes a run of pairs and numbers the pairs of each
// expert in registers and in its own row of a table. Thread e then adds up expert e over the warps of
// its block and, through DSMEM, over the earlier blocks of the cluster.

#include "kernels/moe/parts/mapping_kernels.h"

#include "kernels/moe/parts/mapping_chunks.h"
#include "kernels/moe/parts/mapping_tensors.h"
#include "kernels/moe/parts/mapping_values.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int kWarps = kMappingThreads / 32;

class OneKernel : MappingTensors {
 public:
  explicit OneKernel(const MappingSpec& s)
      : MappingTensors(s.is_plan ? "moe_plan" : "get_fused_mapping", s),
        blocks_(s.phase == MappingPhase::cluster ? kMappingCluster : 1),
        per_thread_(s.phase == MappingPhase::cluster ? kClusterPairsPerThread
                                                     : kBlockPairsPerThread) {
    k_.scalar("num_chunks", DType::i32);
  }

  ir::Kernel build() {
    k_.launch({blocks_}, {.threads = kMappingThreads, .cluster = blocks_});
    rank_ = k_.let("rank", k_.cluster_rank());
    make_table(kWarps);
    first_pair_ = k_.shared(DType::i32, {s_.experts}, "first_pair");
    if (s_.has_pairs) load_block();
    if (s_.fills) pad(rank_ * kMappingThreads + k_.thread(), positions_, blocks_ * kMappingThreads);
    if (s_.has_pairs) number_pairs();
    lay_out();
    if (s_.has_pairs) place_pairs(*first_pair_);
    if (!s_.fills) pad_experts();
    return k_.finish();
  }

 private:
  Ref per_expert(const char* name) { return k_.shared(DType::i32, {s_.experts}, name); }
  Value expert() const { return k_.thread(); }
  Value owns_expert() const { return k_.thread() < s_.experts; }

  void load_block() {
    auto begin = k_.let("begin", i32(i64(rank_) * pairs_ / i64(blocks_)));
    auto end = k_.let("end", i32(i64(rank_ + 1) * pairs_ / i64(blocks_)));
    auto rounds = k_.let("rounds", (end - begin + (kMappingThreads - 1)) / kMappingThreads);
    load_pairs(begin, end, rounds, per_thread_);
  }

  /// The block's number of pairs of this thread's expert.
  Value count_block() {
    auto size = k_.var(DType::i32, 0, "size");
    if (s_.has_pairs) k_.if_(owns_expert(), [&] { sum_over_warps(expert(), size); });
    return size;
  }

  /// Inclusive prefix sum of `value` over the threads that own an expert.
  Value inclusive(const Value& value) {
    auto sum = lane_prefix_sum(value);
    if (s_.experts <= 32) return sum;
    auto sums = k_.shared(DType::i32, {kWarps}, "sums");
    k_.if_(k_.lane() == 31, [&] { sums(k_.warp()) = sum; });
    k_.sync();
    return sum + k_.warp_sum(select(k_.lane() < k_.warp(), sums(k_.lane()), 0));
  }

  /// Computes the padded ranges of the experts, and where the block begins in each.
  void lay_out() {
    auto size = k_.let("size_in_block", count_block());
    auto total = k_.var(DType::i32, size, "total"), before = k_.var(DType::i32, 0, "before");
    if (blocks_ > 1) {
      auto sizes = per_expert("sizes");
      k_.if_(owns_expert(), [&] { sizes(expert()) = size; });
      k_.sync_cluster();
      k_.if_(owns_expert(), [&] {
        total = i32(0);
        k_.unrolled(blocks_, [&](Value block) {
          auto there = k_.let("there", k_.of_block(sizes, block)(expert()));
          total += there;
          before += select(block < rank_, there, 0);
        });
      });
    }
    auto padded = k_.let("padded", select(owns_expert(), aligned(total), 0));
    auto end = k_.let("end_of_expert", inclusive(padded));
    if (!s_.fills) behind_ = per_expert("behind"), ends_ = per_expert("ends");
    k_.if_(owns_expert(), [&] {
      (*first_pair_)(expert()) = end - padded + before;
      if (!s_.fills) {
        (*behind_)(expert()) = end - padded + total;
        (*ends_)(expert()) = end;
      }
    });
    k_.if_(owns_expert() && rank_ == 0, [&] { write_range(expert(), end, padded, total); });
  }

  /// One warp of the cluster pads each expert.
  void pad_experts() {
    const int64_t warps = int64_t{kWarps} * blocks_;
    k_.unrolled((s_.experts + warps - 1) / warps, [&](Value i) {
      auto expert = k_.let("expert", i * warps + rank_ * kWarps + k_.warp());
      k_.if_(expert < s_.experts,
             [&] { pad((*behind_)(expert) + k_.lane(), min((*ends_)(expert), positions_), 32); });
    });
  }

  const int blocks_, per_thread_;
  Value rank_;
  std::optional<Ref> first_pair_;     // position of the first pair of the block, by expert
  std::optional<Ref> behind_, ends_;  // the padding of an expert begins and ends there
};

}  // namespace

std::vector<MappingPhase> mapping_phases(int64_t pairs, int64_t experts, int cluster_limit,
                                         int64_t shared_memory) {
  const int64_t table = 4 * experts * (kWarps + 4);  // the tables and what else each expert takes
  const bool fits = table + 1024 <= shared_memory;
  if (fits && pairs <= kMaxBlockPairs) return {MappingPhase::block};
  const bool in_cluster = pairs <= kMaxClusterPairs && kMappingCluster <= cluster_limit;
  if (fits && in_cluster) return {MappingPhase::cluster};
  return {MappingPhase::count, MappingPhase::offset, MappingPhase::place};
}

ir::Kernel build_mapping(const MappingSpec& s) {
  const bool one = s.phase == MappingPhase::block || s.phase == MappingPhase::cluster;
  if (one) return OneKernel(s).build();
  return s.phase == MappingPhase::offset ? build_mapping_offset(s) : build_chunked_mapping(s);
}

}  // namespace tessera::kernels::moe
