#include "kernels/moe/mapping_chunks.h"

#include "kernels/moe/mapping_tensors.h"
#include "kernels/moe/mapping_values.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int kThreads = 512, kWarps = 16;
constexpr int kOffsetThreads = 1024;
constexpr int64_t kPairsPerLane = kPairsPerChunk / kThreads, kChunksPerLane = 4;

const char* kernel_name(MappingPhase phase) {
  switch (phase) {
    case MappingPhase::count:
      return "get_fused_mapping_count";
    case MappingPhase::offset:
      return "get_fused_mapping_offset";
    default:
      return "get_fused_mapping_place";
  }
}

class ChunkedMapping : MappingTensors {
 public:
  explicit ChunkedMapping(const MappingSpec& s)
      : MappingTensors(kernel_name(s.phase), s), num_chunks_(k_.scalar("num_chunks", DType::i32)) {}

  ir::Kernel build() {
    switch (s_.phase) {
      case MappingPhase::count:
        count();
        break;
      case MappingPhase::offset:
        offset();
        break;
      default:
        place_chunk();
        break;
    }
    return k_.finish();
  }

 private:
  Ref shared(const char* name) { return k_.shared(DType::i32, {s_.experts}, name); }

  Value launch(const Value& blocks, int threads) {
    auto at = k_.launch({blocks}, {.threads = threads});
    length_ = k_.let("length", pairs_ / num_chunks_);
    longer_ = k_.let("longer", pairs_ % num_chunks_);
    return at.x;
  }
  /// The first pair of a chunk: chunks differ by one pair at most.
  Value begin_of(const Value& chunk) const { return chunk * length_ + min(chunk, longer_); }

  void load_chunk(const Value& chunk) {
    begin_ = k_.let("begin", begin_of(chunk));
    load_pairs(begin_, k_.let("end", begin_of(chunk + 1)), i32(kPairsPerLane), kPairsPerLane);
  }

  /// Ranges of experts of these sizes, padded and one after the other: writes expert_start and
  /// num_tokens_per_expert; expert_end still without padding. `ends` is shared memory.
  void lay_out(const Ref& sizes, const Ref& ends) {
    k_.parallel({s_.experts}, [&](Value expert) { ends(expert) = aligned(sizes(expert)); });
    k_.scan_sum(ends, ends, Axis(0));
    k_.parallel({s_.experts}, [&](Value expert) {
      auto padded = k_.let("padded", aligned(sizes(expert)));
      auto end = k_.let("end_of_expert", ends(expert));
      (*expert_start_)(expert) = end - padded;
      (*num_tokens_per_expert_)(expert) = padded;
      k_.report_unless(end <= positions_, kTooFewPositions);
      (*expert_end_)(expert) = end - padded + sizes(expert);
    });
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

  /// The sum over the lanes up to this one.
  Value inclusive(const Value& value) {
    auto sum = k_.var(DType::i32, value, "sum");
    for (int delta = 1; delta < 32; delta *= 2) {
      auto lower = k_.let("lower", k_.shuffle_up(sum, delta));
      sum = sum + select(k_.lane() >= delta, lower, 0);
    }
    return k_.let("inclusive", sum);
  }
  /// Turns the counts of an expert by chunk into sums over the chunks before; gives their sum. By
  /// one warp, which reads 128 counts at a time: a trip to the L2 takes longer than all else.
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
      auto before = k_.var(DType::i32, total + inclusive(mine) - mine, "before");
      total = k_.shuffle(before + mine, 31);
      k_.unrolled(kChunksPerLane, [&](Value i) {
        k_.if_(first + i < num_chunks_, [&] { (*token_topk_to_pos_)(slots(i)) = before; });
        before += counts(i);
      });
    });
    return total;
  }
  void offset() {
    launch(i32(1), kOffsetThreads);
    k_.let_next_kernel_start();
    k_.wait_for_previous_kernel();
    auto sizes = shared("sizes"), ends = shared("ends");
    constexpr int64_t kTogether = kOffsetThreads / 32;  // experts, one warp each
    k_.serial(0, (s_.experts + kTogether - 1) / kTogether, [&](Value i) {
      auto expert = k_.let("expert", i * kTogether + k_.warp());
      k_.if_(expert < s_.experts, [&] {
        auto size = k_.let("size", offsets_of(expert));
        k_.if_(k_.lane() == 0, [&] { sizes(expert) = size; });
      });
    });
    lay_out(sizes, ends);
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
    // experts that this warp pads: the last warps of a block first, the first ones are busy with starts
    auto warps = k_.let("warps", num_chunks_ * kWarps);
    auto first = k_.let("first_expert", chunk + (kWarps - 1 - k_.warp()) * num_chunks_);
    auto rounds = k_.let("rounds_of_padding", max(s_.experts - first + warps - 1, 0) / warps);
    k_.wait_for_previous_kernel();  // nothing before needs it: the pairs are the caller's
    k_.parallel({s_.experts}, [&](Value expert) {
      starts(expert) = (*expert_start_)(expert) + (*token_topk_to_pos_)(begin_ + expert);
    });
    k_.serial(0, rounds, [&](Value i) { pad_expert(first + i * warps); });
    if (s_.fills) pad_rest(chunk);
    place_pairs(starts);
  }

  /// By one warp.
  void pad_expert(const Value& index) {
    auto expert = k_.let("expert", index);
    auto behind = k_.let("behind", (*expert_end_)(expert));
    auto end =
        k_.let("end_of_expert", (*expert_start_)(expert) + (*num_tokens_per_expert_)(expert));
    k_.sync_warp();
    k_.if_(k_.lane() == 0, [&] { (*expert_end_)(expert) = end; });
    pad(behind + k_.lane(), min(end, positions_), i32(32));
  }

  /// Behind the last expert.
  void pad_rest(const Value& block) {
    const int64_t last = s_.experts - 1;
    auto total = k_.let("total", (*expert_start_)(last) + (*num_tokens_per_expert_)(last));
    pad(total + block * kThreads + k_.thread(), positions_, num_chunks_ * kThreads);
  }

  Value num_chunks_, length_, longer_;  // pairs of most chunks, how many chunks have one more
  Value begin_;
};

}  // namespace

ir::Kernel build_chunked_mapping(const MappingSpec& s) {
  return ChunkedMapping(s).build();
}

}  // namespace tessera::kernels::moe
