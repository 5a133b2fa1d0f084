#include "kernels/moe/parts/mapping_chunks.h"

#include "kernels/moe/parts/chunk_tensors.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int kThreads = 512, kWarps = 16;
constexpr int64_t kPairsPerLane = kPairsPerChunk / kThreads;

class ChunkedMapping : ChunkTensors {
 public:
  explicit ChunkedMapping(const MappingSpec& s) : ChunkTensors(name_of(s), s) {}

  ir::Kernel build() {
    if (s_.phase == MappingPhase::count) {
      count();
    } else {
      place_chunk();
    }
    return k_.finish();
  }

 private:
  static const char* name_of(const MappingSpec& s) {
    const bool counts = s.phase == MappingPhase::count;
    if (s.is_plan) return counts ? "moe_plan_count" : "moe_plan_place";
    return counts ? "get_fused_mapping_count" : "get_fused_mapping_place";
  }

  void load_chunk(const Value& chunk) {
    begin_ = k_.let("begin", begin_of(chunk));
    load_pairs(begin_, k_.let("end", begin_of(chunk + 1)), i32(kPairsPerLane), kPairsPerLane);
  }

  void count() {
    auto chunk = launch(num_chunks_, kThreads);
    k_.let_next_kernel_start();
    auto sizes = shared("sizes");
    load_chunk(chunk);
    k_.fill(sizes, 0);
    each_pair([&](const Value& i, const Value&) {
      auto expert = expert_of(i);
      k_.if_(expert >= 0, [&] { k_.atomic_add(sizes(expert), 1); });
    });
    k_.parallel({s_.experts},
                [&](Value expert) { (*token_topk_to_pos_)(begin_ + expert) = sizes(expert); });
  }

  void place_chunk() {
    auto chunk = launch(num_chunks_, kThreads);
    auto starts = shared("starts");
    make_table(kWarps);
    load_chunk(chunk);
    number_pairs();
    for (int64_t begin = 0; begin < s_.experts; begin += kThreads) {
      auto expert = k_.let("expert", k_.thread() + i32(begin));
      auto size = k_.var(DType::i32, 0, "size");
      k_.if_(expert < s_.experts, [&] { sum_over_warps(expert, size); });
    }
    // Experts that this warp pads. The last warps of a block come first: the first warps are busy with
    // starts.
    auto warps = k_.let("warps", num_chunks_ * kWarps);
    auto first = k_.let("first_expert", chunk + (kWarps - 1 - k_.warp()) * num_chunks_);
    auto rounds = k_.let("rounds_of_padding", max(s_.experts - first + warps - 1, 0) / warps);
    k_.wait_for_previous_kernel();  // the code above reads only the caller's pairs
    k_.parallel({s_.experts}, [&](Value expert) {
      starts(expert) = start_of(expert) + (*token_topk_to_pos_)(begin_ + expert);
    });
    k_.serial(0, rounds, [&](Value i) { pad_expert(first + i * warps); });
    if (s_.fills) pad_rest(chunk);
    place_pairs(starts);
  }

  /// Run by one warp.
  void pad_expert(const Value& index) {
    auto expert = k_.let("expert", index);
    auto behind = k_.let("behind", (*expert_end_)(expert));
    auto end = k_.let("end_of_expert",
                      s_.is_plan ? aligned(behind)
                                 : (*expert_start_)(expert) + (*num_tokens_per_expert_)(expert));
    if (!s_.is_plan) {
      k_.sync_warp();
      k_.if_(k_.lane() == 0, [&] { (*expert_end_)(expert) = end; });
    }
    pad(behind + k_.lane(), min(end, positions_), i32(32));
  }

  /// Pads after the last expert.
  void pad_rest(const Value& block) {
    const int64_t last = s_.experts - 1;
    auto total =
        k_.let("total", s_.is_plan ? aligned((*expert_end_)(last))
                                   : (*expert_start_)(last) + (*num_tokens_per_expert_)(last));
    pad(total + block * kThreads + k_.thread(), positions_, num_chunks_ * kThreads);
  }

  Value begin_;
};

}  // namespace

ir::Kernel build_chunked_mapping(const MappingSpec& s) {
  return ChunkedMapping(s).build();
}

}  // namespace tessera::kernels::moe
