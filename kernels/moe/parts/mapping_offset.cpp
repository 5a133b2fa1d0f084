// The phase offset of the chunked get_fused_mapping and moe_plan: one block lays out the experts and computes the
// start of each chunk's pairs.

#include "kernels/moe/parts/chunk_tensors.h"
#include "kernels/moe/parts/mapping_chunks.h"
#include "kernels/moe/parts/mapping_values.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int kThreads = 1024;
constexpr int64_t kChunksPerLane = 4;

class MappingOffset : ChunkTensors {
 public:
  explicit MappingOffset(const MappingSpec& s)
      : ChunkTensors(s.is_plan ? "moe_plan_offset" : "get_fused_mapping_offset", s) {}

  ir::Kernel build() {
    launch(i32(1), kThreads);
    k_.let_next_kernel_start();
    k_.wait_for_previous_kernel();
    auto sizes = shared("sizes"), ends = shared("ends");
    constexpr int64_t kTogether = kThreads / 32;  // experts, one warp each
    k_.serial(0, (s_.experts + kTogether - 1) / kTogether, [&](Value i) {
      auto expert = k_.let("expert", i * kTogether + k_.warp());
      k_.if_(expert < s_.experts, [&] {
        auto size = k_.let("size", offsets_of(expert));
        k_.if_(k_.lane() == 0, [&] { sizes(expert) = size; });
      });
    });
    lay_out(sizes, ends);
    return k_.finish();
  }

 private:
  /// Replaces an expert's counts by chunk with exclusive sums; returns their total. One warp reads
  /// 128 counts at a time: the L2 latency exceeds all other work.
  Value offsets_of(const Value& expert) {
    auto total = k_.var(DType::i32, 0, "total");
    auto slots = k_.local(DType::i32, {kChunksPerLane}, "slots");
    auto counts = k_.local(DType::i32, {kChunksPerLane}, "counts");
    constexpr int64_t kTogether = 32 * kChunksPerLane;
    k_.serial(0, (num_chunks_ + (kTogether - 1)) / kTogether, [&](Value round) {
      auto first = k_.let("first_chunk", round * kTogether + k_.lane() * kChunksPerLane);
      k_.unrolled(kChunksPerLane, [&](Value i) {
        slots(i) = begin_of(first + i) + expert;
        counts(i) = select(first + i < num_chunks_, (*token_topk_to_pos_)(slots(i)), 0);
      });
      auto mine = k_.var(DType::i32, 0, "mine");
      k_.unrolled(kChunksPerLane, [&](Value i) { mine += counts(i); });
      auto before =
          k_.var(DType::i32, total + k_.let("inclusive", lane_prefix_sum(mine)) - mine, "before");
      total = k_.shuffle(before + mine, 31);
      k_.unrolled(kChunksPerLane, [&](Value i) {
        k_.if_(first + i < num_chunks_, [&] { (*token_topk_to_pos_)(slots(i)) = before; });
        before += counts(i);
      });
    });
    return total;
  }

  /// Computes the padded ranges of experts of these sizes: writes psum and counts, or expert_start and
  /// num_tokens_per_expert, and expert_end still without padding. `ends` is shared memory.
  void lay_out(const Ref& sizes, const Ref& ends) {
    k_.parallel({s_.experts}, [&](Value expert) { ends(expert) = aligned(sizes(expert)); });
    k_.scan_sum(ends, ends, Axis(0));
    k_.parallel({s_.experts}, [&](Value expert) {
      auto padded = k_.let("padded", aligned(sizes(expert)));
      auto end = k_.let("end_of_expert", ends(expert));
      if (s_.is_plan) return write_range(expert, end, padded, sizes(expert));
      (*expert_start_)(expert) = end - padded;
      (*num_tokens_per_expert_)(expert) = padded;
      k_.report_unless(end <= positions_, kTooFewPositions);
      (*expert_end_)(expert) = end - padded + sizes(expert);
    });
  }
};

}  // namespace

ir::Kernel build_mapping_offset(const MappingSpec& s) {
  return MappingOffset(s).build();
}

}  // namespace tessera::kernels::moe
