#include "kernels/moe/mapping_chunks.h"

#include "kernels/moe/mapping_tensors.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int kThreads = 256, kWarps = 8;
constexpr int kOffsetThreads = 1024;
constexpr int64_t kPairsPerLane = kPairsPerChunk / kThreads;

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
  Ref shared_table() { return k_.shared(DType::i32, {kWarps, s_.experts}, "table"); }

  Value begin_of(const Value& chunk) const { return i32(i64(chunk) * pairs_ / i64(num_chunks_)); }

  /// The pairs of this block, [begin, end), to registers: those of a lane are 32 apart, those of a
  /// warp one run.
  void load_pairs(const Value& chunk) {
    begin_ = k_.let("begin", begin_of(chunk));
    end_ = k_.let("end", begin_of(chunk + 1));
    first_ = k_.let("first", begin_ + k_.warp() * (32 * kPairsPerLane) + k_.lane());
    experts_ = k_.local(DType::i32, {kPairsPerLane}, "experts");
    k_.unrolled(kPairsPerLane, [&](Value i) {
      auto pair = k_.let("pair", first_ + i * 32);
      auto id = k_.let("id", select(pair < end_, (*topk_idx_)(pair), i64(-1)));
      (*experts_)(i) = expert_of(id);
    });
  }
  /// Adds one to counter(expert) for every pair of the block.
  template <class Counter>
  void count_pairs(const Counter& counter) {
    k_.unrolled(kPairsPerLane, [&](Value i) {
      auto expert = k_.let("expert", (*experts_)(i));
      k_.if_(expert >= 0, [&] { k_.atomic_add(counter(expert), 1); });
    });
  }
  /// Row w of the table: pairs of each expert in the warps before w. `sizes`: in all of them.
  void fill_table(const Ref& table, const Ref& sizes) {
    k_.fill(table, 0);
    count_pairs([&](const Value& expert) { return table(k_.warp(), expert); });
    for (int64_t begin = 0; begin < s_.experts; begin += kThreads) {
      auto expert = k_.let("expert", k_.thread() + i32(begin));
      k_.if_(expert < s_.experts, [&] {
        auto size = k_.var(DType::i32, 0, "size");
        k_.unrolled(kWarps, [&](Value warp) {
          auto here = k_.let("here", table(warp, expert));
          table(warp, expert) = size;
          size = size + here;
        });
        sizes(expert) = size;
      });
    }
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
      (*expert_end_)(expert) = end - padded + sizes(expert);
    });
  }

  /// Gives every pair its position, in ascending order of pairs. `starts` [experts]: position of
  /// the first pair of the block; `table` counts what each warp has placed since.
  void place_pairs(const Ref& starts, const Ref& table) {
    auto lower_lanes = k_.let("lower_lanes", (u32(1) << u32(k_.lane())) - 1);
    k_.sync();
    k_.manual_sync([&] {  // a warp reads and writes its own row of the table
      k_.unrolled(kPairsPerLane, [&](Value i) {
        auto pair = k_.let("pair", first_ + i * 32);
        auto expert = k_.let("expert", (*experts_)(i));
        auto is_valid = expert >= 0;
        auto column = k_.let("column", max(expert, 0));
        auto same = k_.let("same", k_.match_any(expert));
        auto before = k_.let("before", i32(popcount(same & lower_lanes)));
        auto placed = k_.let("placed", table(k_.warp(), column));
        k_.sync_warp();
        k_.if_(is_valid && before == 0,
               [&] { table(k_.warp(), expert) = placed + i32(popcount(same)); });
        k_.sync_warp();
        auto position = k_.let("position", starts(column) + placed + before);
        auto fits = k_.let("fits", is_valid && position < positions_);
        k_.if_(pair < end_, [&] { place(pair, expert, position, fits); });
      });
    });
  }

  void count() {
    auto at = k_.launch({num_chunks_}, {.threads = kThreads});
    k_.let_next_kernel_start();
    auto sizes = shared("sizes");
    load_pairs(at.x);
    k_.fill(sizes, 0);
    count_pairs([&](const Value& expert) { return sizes(expert); });
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
  /// one warp.
  Value offsets_of(const Value& expert) {
    auto size = k_.var(DType::i32, 0, "total");
    k_.serial(0, (num_chunks_ + 31) / 32, [&](Value round) {
      auto chunk = k_.let("chunk", round * 32 + k_.lane());
      auto slot = k_.let("slot", begin_of(chunk) + expert);
      auto mine = k_.let("mine", select(chunk < num_chunks_, (*token_topk_to_pos_)(slot), 0));
      auto sum = inclusive(mine);
      k_.if_(chunk < num_chunks_, [&] { (*token_topk_to_pos_)(slot) = size + sum - mine; });
      size = size + k_.shuffle(sum, 31);
    });
    return size;
  }
  void offset() {
    k_.launch({1}, {.threads = kOffsetThreads});
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
    auto at = k_.launch({num_chunks_}, {.threads = kThreads});
    auto table = shared_table(), starts = shared("starts");
    load_pairs(at.x);
    fill_table(table, starts);
    k_.wait_for_previous_kernel();  // the pairs are the caller's
    k_.parallel({s_.experts}, [&](Value expert) {
      starts(expert) = (*expert_start_)(expert) + (*token_topk_to_pos_)(begin_ + expert);
    });
    place_pairs(starts, table);
    // padding of the experts chunk, chunk + num_chunks, ..., one warp each
    auto warps = k_.let("warps", num_chunks_ * kWarps);
    auto first = k_.let("first_expert", at.x + k_.warp() * num_chunks_);
    k_.serial(0, max(s_.experts - first + warps - 1, 0) / warps, [&](Value i) {
      auto expert = k_.let("expert", first + i * warps);
      auto behind = k_.let("behind", (*expert_end_)(expert));
      auto end =
          k_.let("end_of_expert", (*expert_start_)(expert) + (*num_tokens_per_expert_)(expert));
      k_.sync_warp();
      k_.if_(k_.lane() == 0, [&] { (*expert_end_)(expert) = end; });
      pad(behind + k_.lane(), min(end, positions_), i32(32));
    });
    if (!s_.fills) return;
    // behind the last expert
    const int64_t last = s_.experts - 1;
    auto total = k_.let("total", (*expert_start_)(last) + (*num_tokens_per_expert_)(last));
    pad(total + at.x * kThreads + k_.thread(), positions_, num_chunks_ * kThreads);
  }

  Value num_chunks_;
  Value begin_, end_, first_;   // pairs of the block, first pair of the lane
  std::optional<Ref> experts_;  // of the pairs of the lane, -1: none
};

}  // namespace

ir::Kernel build_chunked_mapping(const MappingSpec& s) {
  return ChunkedMapping(s).build();
}

}  // namespace tessera::kernels::moe
