// The compressor. A thread has the eight slots of a group for some channels: it loads kv and score of
// each, adds the bias, and weighs kv by the exponentials.
//
// Method   ratio 4: a window is one group, its channels are those of a few warps. Every element is read
//          once, so the bound is bytes / copy bandwidth.
//          ratio 128: a window is 16 groups of half a warp, which exchange maxima and sums by shared
//          memory; a block has a span of the channels. An entry that is stored goes to the workspace, and
//          a second kernel normalises and stores it as ratio 4 does, with a warp for 128 channels.
//          Where there are more blocks than run at once, a block has several windows in turn, keeps its
//          bias in shared memory, as many bytes as it reads of bf16 rows, and copies the rows of the next
//          window there while it computes. In decode one token of 128 ends a window, and the rows of a
//          block's tokens are stored side by side before.
//          Decode waits for three loads in turn, the plan, the rows and what the entry needs. Rows are
//          loaded without a branch, and the token's own row once, for its slot and for the state.
//          Rows of x are the first to leave the caches: the bias stays.
// Maths    exp(t - max), sums of a group in ascending order, groups in pairs at distance 1, 2, 4, 8;
//          IEEE division
// Tuned    on an H100, in % of a copy of as many bytes at 32 K tokens, or in us
//          compress_fwd, ratio 4: D = 512 bf16 92.6 (56.4 us), f32 96.7; D = 128 81.5 and 85.0, of 36 MB.
//          compress_store: D = 512 bf16 87.3 (55.6 us; 92.1 at 128 K tokens), f32 93.2; D = 128 64.2 (19.8 us).
//          Several windows of a warp in turn, the rows of the next on their way while an entry is stored, bias
//          in registers (without): compress_fwd D = 128 17.5 us (18.2), D = 512 57.9 (56.4), 4 K tokens 10.3
//          (11.6); compress_store D = 128 19.5 (19.7), D = 512 58.9 (55.9). With 12 warps, not 16: 23.0 and 69.
//          compress_fwd, ratio 128, D = 512: bf16 81.8 (30.0 us), f32 89.8; at 128 K tokens 86.8. Bound there: two
//          blocks of 256 threads with 121 registers issue in 46 % of the cycles between waits. Measured (bf16 /
//          f32): rows not marked for the caches 36.0 / 58.2, marked 33.2 / 52.6, without lines in L1 36.4 / 56.4;
//          bf16 rows ahead 30.0 (f32: 57.2); in spans of 32 channels by 3 or 4 blocks 33.6 and 32.6.
//          compress_store, ratio 128, D = 512 bf16: 33.9 us. By one kernel, a cluster of blocks to a window that
//          exchange the norm: 42.7; with several windows of a block in turn 62.6.
//          Decode, D = 512 bf16, 1 / 32 / 256 / 1024 tokens: ratio 4 3.3 / 3.6 / 4.7 / 8.6 us, stored 4.0 / 4.3 /
//          5.2 / 8.9; ratio 128 3.4 / 3.5 / 5.2 / 9.4, stored 5.5 / 5.6 / 7.4 / 11.3 (goal 4).
//          Measured, ratio 128 stored, 1 / 32 / 1024 tokens: one kernel with clusters 6.6 / 6.8 / 13.6; weights
//          and angles loaded before the norm is exchanged 6.3 / 6.8 / 13.6; the token's row in registers
//          meanwhile 6.7 / 6.6 / 12.1; two kernels 5.7 / 5.9 / 11.3; no branch around the last slot 5.5 / 5.6 /
//          11.6; two blocks per SM, not three 5.5 / 5.6 / 11.3, but 40 tokens, two of a block, 6.7 (5.6).
//          Ratio 4, stored, 1 token: branches around the first slots 4.4, none 4.1.

#include "kernels/serving/parts/compress_kernel.h"

#include <algorithm>
#include <optional>

#include "kernels/serving/parts/compress_window.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {
namespace {

using namespace dsl;

constexpr int64_t kManyProcessors = 132;  // of a large device
constexpr int64_t kMostTokens = 32;       // of a block of decode

/// Several blocks of 256 threads wait for each other's loads, with all the registers they need. The row of a token
/// takes some while its window is computed.
int blocks_per_sm(const WindowSpec& s) {
  if (lane_channels(s) != kLaneChannels) return 4;
  return s.is_ahead || s.is_decode ? 2 : 3;
}

class Compress : CompressWindow {
 public:
  explicit Compress(const WindowSpec& s) : CompressWindow(s) {
    if (s.step != Step::windows) entry_.emplace(k_, s.entry, s.channels);
  }

  ir::Kernel build() {
    if (overlaps_ || s_.step == Step::entries) {
      by_warps();
    } else {
      by_block();
    }
    return k_.finish();
  }

 private:
  void store_out(const Value& window, const Value& column, const Ref& values) {
    k_.if_(window < windows_, [&] {
      each_run(k_, kLaneChannels, s_.out_width, [&](const Value& i) {
        (*out_)(window, column + i).unchecked() = cast(s_.out, values(i));
      });
    });
  }

  /// Four channels of the entry of a window, if it is there.
  void compute_entry(const Value& column, const Ref& values) {
    k_.if_(is_whole_, [&] {
      load(i32(0), column);
      add_bias(i32(0), column);
      weigh(*peak_);
      k_.unrolled(kLaneChannels, [&](Value i) { values(i) = (*values_)(i) / (*weights_)(i); });
    });
  }
  void load_entry(const Value& window, const Value& column, const Ref& values) {
    k_.if_(is_whole_, [&] {
      each_run(k_, kLaneChannels, s_.out_width,
               [&](const Value& i) { values(i) = (*entries_)(window, column + i).unchecked(); });
    });
  }

  /// A warp has 128 channels of a window: ratio 4, and entries that are there already.
  void by_warps() {
    const EntryWarps warps(s_.channels);
    auto at = k_.launch({ceil_div(windows_, warps.entries)}, {.threads = warps.threads()});
    k_.let_next_kernel_start();
    const EntryPart part = entry_part(k_, warps, at.x);
    const Value &window = part.entry, &column = part.column;
    k_.wait_for_previous_kernel();
    read_plan(window);
    if (entry_) require_page_size(entry_->page_size());
    const CacheEntry::Place place{column, last_ / s_.ratio * s_.ratio, location_};
    auto values = k_.local(DType::f32, {kLaneChannels}, "entry");
    k_.unrolled(kLaneChannels, [&](Value i) { values(i) = 0.0f; });
    if (entry_) k_.if_(is_whole_, [&] { entry_->prefetch(place); });
    if (s_.step == Step::entries) {
      load_entry(window, column, values);
    } else {
      if (s_.is_decode) load_token(column, stores_);
      compute_entry(column, values);
      if (s_.is_decode) k_.if_(stores_, [&] { store_token(column); });
    }
    if (entry_) store_entry(part.pass, values, place);
    if (out_) store_out(window, column, values);
  }

  void store_entry(const Value& pass, const Ref& values, const CacheEntry::Place& place) {
    const Value total = entry_->sum_of_squares(values, pass);
    k_.if_(is_whole_, [&] {
      entry_->normalize(values, total, place);
      entry_->store(values, place, "plan");
    });
  }

  /// Ratio 128: a block has a span of channels of one window, or of several in turn.
  void by_block() {
    const int64_t spans = s_.channels / span_;
    if (s_.loops) per_block_ = k_.scalar("windows_per_block", DType::i32);
    blocks_ = s_.loops ? (windows_ + per_block_ - 1) / per_block_ : windows_;
    auto at = k_.launch({blocks_ * spans},
                        {.threads = kGroups * kGroupLanes, .min_blocks_per_sm = blocks_per_sm(s_)});
    k_.let_next_kernel_start();
    block_ = k_.let("block", at.x / spans);
    first_ = k_.let("first_channel", at.x % spans * span_);
    peaks_ = k_.shared(DType::f32, {kGroups, span_}, "peaks");
    all_weights_ = k_.shared(DType::f32, {kGroups, span_}, "all_weights");
    all_values_ = k_.shared(DType::f32, {kGroups, span_}, "all_values");
    k_.wait_for_previous_kernel();
    if (!s_.loops) {
      read_plan(block_);
      if (s_.is_decode) begin_token();
      compress_or_fill(block_);
      if (s_.is_decode) end_token();
    } else if (s_.is_decode) {
      by_tokens();
    } else {
      share_bias(first_);
      each_window([&](Value nth) {
        auto window = k_.let("window", nth_window(nth));
        if (s_.is_ahead) {
          auto slot = first_slot(), channel = channel_of_thread();
          load_ahead(window, slot, channel);
        }
        k_.if_(window < windows_, [&] {
          read_plan(window);
          compress_or_fill(window);
        });
      });
    }
  }

  /// The threads of the last slots have the row of the token too: it is on its way while the window is
  /// compressed.
  void begin_token() {
    token_column_ = k_.let("token_column", first_ + channel_of_thread());
    has_token_ = k_.let("has_token", stores_ && k_.thread() / kGroupLanes == kGroups - 1);
    load_token(token_column_, has_token_);
  }
  void end_token() {
    k_.if_(has_token_, [&] { store_token(token_column_); });
  }

  template <class Fn>
  void each_window(const Fn& body) {
    if (!s_.is_ahead) return k_.serial(0, per_block_, body);
    k_.pipelined(0, per_block_, {.stages = 1, .in_place = true}, body);
  }

  /// The windows of a block lie apart, because requests that end theirs at a time are often neighbours.
  Value nth_window(const Value& nth) const { return nth * blocks_ + (block_ + nth) % blocks_; }

  /// Decode, several tokens to a block: the rows of all are stored first, side by side, then the few
  /// windows that end are compressed.
  void by_tokens() {
    auto ends = k_.shared(DType::i32, {kMostTokens}, "ends");
    auto place = k_.let("place", k_.thread() / kGroupLanes);
    auto column = k_.let("column_of_thread", first_ + channel_of_thread());
    k_.serial(0, ceil_div(per_block_, kGroups), [&](Value pass) {
      auto nth = k_.let("nth", pass * kGroups + place);
      k_.if_(nth < per_block_, [&] {
        auto token = k_.let("token", nth_window(nth));
        read_plan(token);
        load_token(column, stores_);
        k_.if_(stores_, [&] { store_token(column); });
        k_.if_(k_.thread() % kGroupLanes == 0, [&] { ends(nth) = select(is_whole_, 1, 0); });
        if (s_.fills_out) {
          k_.if_(token < windows_ && !Value(is_whole_), [&] {
            each_run(k_, lane_channels_, std::min<int64_t>(lane_channels_, s_.out_width),
                     [&](const Value& i) {
                       (*out_)(token, column + i).unchecked() = cast(s_.out, 0.0f);
                     });
          });
        }
      });
    });
    k_.serial(0, per_block_, [&](Value nth) {
      k_.if_(ends(nth) != 0, [&] {
        auto window = k_.let("window", nth_window(nth));
        read_plan(window);
        begin_token();
        compress_span(window);
      });
    });
  }

  void compress_or_fill(const Value& window) {
    k_.if_else(
        is_whole_, [&] { compress_span(window); },
        [&] {
          if (!s_.fills_out) return;
          k_.parallel({span_}, [&](Value c) {
            (*out_)(window, first_ + c).unchecked() = cast(s_.out, 0.0f);
          });
        });
  }

  Value channel_of_thread() { return k_.let("mine", k_.thread() % kGroupLanes * lane_channels_); }
  Value first_slot() { return k_.let("first_slot", k_.thread() / kGroupLanes * kGroup); }

  /// The channels of the block of an entry.
  void compress_span(const Value& window) {
    auto mine = channel_of_thread();
    auto group_of_thread = k_.let("group", k_.thread() / kGroupLanes);
    auto slot = first_slot();
    load(slot, first_ + mine);
    add_bias(slot, first_ + mine);
    k_.vectorized(lane_channels_,
                  [&](Value i) { (*peaks_)(group_of_thread, mine + i) = (*peak_)(i); });
    auto peak = k_.local(DType::f32, {lane_channels_}, "peak_of_window");
    auto next = k_.local(DType::f32, {lane_channels_}, "next_peak");
    k_.vectorized(lane_channels_, [&](Value i) { peak(i) = (*peaks_)(0, mine + i); });
    for (int64_t group = 1; group < kGroups; ++group) {
      k_.vectorized(lane_channels_, [&](Value i) { next(i) = (*peaks_)(group, mine + i); });
      k_.unrolled(lane_channels_, [&](Value i) { peak(i) = max(peak(i), next(i)); });
    }
    weigh(peak);
    k_.vectorized(lane_channels_,
                  [&](Value i) { (*all_weights_)(group_of_thread, mine + i) = (*weights_)(i); });
    k_.vectorized(lane_channels_,
                  [&](Value i) { (*all_values_)(group_of_thread, mine + i) = (*values_)(i); });
    k_.parallel({span_}, [&](Value channel) {
      const Value values = sum_of_groups(*all_values_, channel);
      const Value weights = sum_of_groups(*all_weights_, channel);
      (*out_)(window, first_ + channel).unchecked() = cast(s_.out, values / weights);
    });
  }

  Value sum_of_groups(const Ref& sums, const Value& channel) {
    auto parts = k_.local(DType::f32, {kGroups}, "parts");
    k_.unrolled(kGroups, [&](Value group) { parts(group) = sums(group, channel); });
    for (int64_t distance = 1; distance < kGroups; distance *= 2) {
      for (int64_t group = 0; group < kGroups; group += 2 * distance) {
        parts(group) += parts(group + distance);
      }
    }
    return k_.let("sum_of_groups", parts(0));
  }

  std::optional<CacheEntry> entry_;
  std::optional<Ref> peaks_, all_weights_, all_values_;  // of the groups
  // Ratio 128
  Value per_block_, blocks_;        // windows of a block; blocks of a span
  Value block_, first_;             // among those of its span; its first channel
  Value token_column_, has_token_;  // of decode
};

int64_t access_width(const Call& c, const char* name, int64_t most) {
  const TensorView& view = c.given(name);
  return common_vector(view, std::min<int64_t>(most, 16 / bytes(view.dtype)));
}

WindowSpec window_spec(const Call& c) {
  WindowSpec s{};
  s.channels = c.i32("D");
  s.ratio = static_cast<uint8_t>(c["ratio"]);
  s.x = c.dtype("x");
  s.state = c.dtype("state");
  const int64_t most = lane_channels(s);
  s.x_width = static_cast<uint8_t>(access_width(c, "x", most));
  s.state_width = static_cast<uint8_t>(access_width(c, "state", most));
  s.ape_width = static_cast<uint8_t>(access_width(c, "ape", most));
  s.out_width = static_cast<uint8_t>(std::max<int64_t>(1, c.align({"out"}) / 4));
  return s;
}

/// Adds the kernel of ratio 128. Where there are more blocks than run at once, a block has several
/// windows instead: those of prefill then read the bias once and copy rows of bf16 ahead, tokens of
/// decode that end no window share a block.
void add_spans(const Call& c, Launches& go, WindowSpec s, const Args& args) {
  const int64_t spans = s.channels / span_channels(s), windows = c.given("plan").shape[0];
  s.is_ahead =
      !s.is_decode && lane_channels(s) == kLaneChannels && access_width(c, "x", kAhead) == kAhead;
  const int64_t at_once = std::max<int64_t>(kManyProcessors * blocks_per_sm(s) / spans, 1);
  const int64_t per_block = (windows + at_once - 1) / at_once;
  s.loops = per_block > 1;
  if (!s.loops) {
    s.is_ahead = false;
    return go.add(build_compress, s, args);
  }
  Args with_count = args;
  with_count.scalars.push_back(
      {"windows_per_block", s.is_decode ? std::min(per_block, kMostTokens) : per_block});
  go.add(build_compress, s, with_count);
}

struct ZeroSpec {
  int32_t channels, is_bf16;
};

/// The entries of windows where there is no row: +0.
ir::Kernel build_zeros(const ZeroSpec& s) {
  constexpr int kThreads = 128;
  const DType dtype = s.is_bf16 ? DType::bf16 : DType::f32;
  Builder k("compress_no_rows");
  auto windows = k.dim("windows");
  auto out = k.output("out", dtype, {windows, s.channels}, {.align = bytes(dtype)});
  auto at = k.launch({windows}, {.threads = kThreads});
  k.serial(
      k.thread(), i32(s.channels), [&](Value column) { out(at.x, column) = cast(dtype, 0.0f); },
      kThreads);
  return k.finish();
}

}  // namespace

ir::Kernel build_compress(const WindowSpec& s) {
  return Compress(s).build();
}

void launch_compress(const Call& c, Launches& go, bool is_decode) {
  if (c.given("plan").shape[0] == 0) return;
  if (c.given("x").shape[0] == 0) {
    const bool is_bf16 = !c.find("format") && c.dtype("out_dtype") == DType::bf16;
    if (c.writes("out")) go.add(build_zeros, ZeroSpec{c.i32("D"), is_bf16}, {}, "zeros");
    return;
  }
  WindowSpec s = window_spec(c);
  s.is_decode = is_decode;
  s.has_out = s.fills_out = true;
  if (!c.find("format")) {
    s.out = c.dtype("out_dtype");
    return s.ratio == 4 ? go.add(build_compress, s) : add_spans(c, go, s, {});
  }
  s.out = DType::f32;
  Args args{.tensors = cache_tensors(c)};
  if (s.ratio == 128) {
    const TensorView& entries = c.given("workspace");
    s.fills_out = false;
    s.out_width = static_cast<uint8_t>(c.align({"out", "workspace"}) / 4);
    add_spans(c, go, s, {.tensors = {{"out", entries}}});
    args.tensors.push_back({"entries", entries});
  }
  s.step = s.ratio == 4 ? Step::store : Step::entries;
  s.has_out = c.flag("save_out");
  s.entry = entry_spec(c);
  go.add(build_compress, s, args);
}

}  // namespace tessera::kernels::serving
