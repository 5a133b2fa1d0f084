// The compressor. A thread has the eight slots of a group for some channels: it loads kv and score of
// each, adds the bias, and weighs kv by the exponentials.
//
// Method   ratio 4: a window is one group, its channels are those of a few warps. Every element is read
//          once, so the bound is bytes / copy bandwidth.
//          ratio 128: a window is 16 groups, one of each warp, which exchange maxima and sums by shared
//          memory. Where an entry is stored, a cluster shares its channels and exchanges the norm.
// Maths    exp(t - max), sums of a group in ascending order, groups in pairs at distance 1, 2, 4, 8;
//          IEEE division

#include "kernels/serving/compress_kernel.h"

#include <algorithm>
#include <optional>

#include "kernels/alignment.h"
#include "kernels/serving/compress_window.h"

namespace tessera::kernels::serving {
namespace {

using namespace dsl;

/// Warps of the kernel for ratio 4: a window's, or those of several windows.
int64_t warps_of(int64_t channels) {
  return std::max<int64_t>(channels / kWarpChannels,
                           4 / (channels / kWarpChannels) * (channels / kWarpChannels));
}

class Compress : CompressWindow {
 public:
  explicit Compress(const WindowSpec& s) : CompressWindow(s) {
    if (s.entry.format != CacheFormat::none) entry_.emplace(k_, s.entry, s.channels);
  }

  ir::Kernel build() {
    if (overlaps_) {
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

  CacheEntry::Place place_of(const Value& column) const {
    return {column, last_ / s_.ratio * s_.ratio, location_};
  }

  /// The entry of the window that a warp has four channels a lane of, with the sum over all of them.
  void store_entry(const Value& window, const Value& column, const Ref& values,
                   const Value& total) {
    k_.if_(is_whole_, [&] {
      const CacheEntry::Place place = place_of(column);
      if (!overlaps_) entry_->prefetch(place);  // before, it takes registers of the rows
      entry_->normalize(values, total, place);
      entry_->store(values, place);
    });
    if (out_) store_out(window, column, values);
  }

  /// Ratio 4.
  void by_warps() {
    const int64_t passes = s_.channels / kWarpChannels, warps = warps_of(s_.channels);
    const int64_t windows = warps / passes;  // of a block
    auto at = k_.launch({ceil_div(windows_, windows)}, {.threads = static_cast<int>(warps * 32)});
    k_.let_next_kernel_start();
    auto window = k_.let("window", at.x * windows + (windows == 1 ? i32(0) : k_.warp() / passes));
    auto pass = k_.let("pass", k_.warp() % passes);
    auto column = k_.let("column", pass * kWarpChannels + k_.lane() * kLaneChannels);
    k_.wait_for_previous_kernel();
    read_plan(window);
    auto values = k_.local(DType::f32, {kLaneChannels}, "entry");
    k_.unrolled(kLaneChannels, [&](Value i) { values(i) = 0.0f; });
    if (entry_) k_.if_(is_whole_, [&] { entry_->prefetch(place_of(column)); });
    k_.if_(is_whole_, [&] {
      load(i32(0), column);
      add_bias(i32(0), column);
      weigh(*peak_);
      k_.unrolled(kLaneChannels, [&](Value i) { values(i) = (*values_)(i) / (*weights_)(i); });
    });
    if (s_.is_decode) k_.if_(stores_, [&] { store_token(column); });
    if (!entry_) {
      store_out(window, column, values);
      return;
    }
    auto total = k_.var(DType::f32, entry_->sum_of_squares(values), "total");
    if (passes > 1) {
      auto sums = k_.shared(DType::f32, {warps}, "sums");
      k_.if_(k_.lane() == 0, [&] { sums(k_.warp()) = total; });
      auto first = k_.let("first_warp", k_.warp() - pass);
      total = sums(first);
      k_.unrolled(passes - 1, [&](Value i) { total += sums(first + (i + 1)); });
    }
    store_entry(window, column, values, total);
  }

  /// Several blocks of 256 threads wait for each other's loads, with all the registers they need.
  int blocks_per_sm() const {
    return s_.lanes == 32 ? 1 : entry_ ? 2 : lane_channels_ == 4 ? 3 : 4;
  }

  /// Ratio 128: one block per window and span of channels.
  void by_block() {
    const int64_t chunk = s_.lanes * lane_channels_;  // channels at a time
    const int64_t spans = s_.channels / s_.span;
    auto at = k_.launch({windows_ * spans}, {.threads = static_cast<int>(kGroups * s_.lanes),
                                             .min_blocks_per_sm = blocks_per_sm(),
                                             .cluster = s_.cluster});
    k_.let_next_kernel_start();
    auto window = k_.let("window", at.x / spans);
    auto first = k_.let("first_channel", at.x % spans * s_.span);
    peaks_ = k_.shared(DType::f32, {kGroups, chunk}, "peaks");
    all_weights_ = k_.shared(DType::f32, {kGroups, chunk}, "all_weights");
    all_values_ = k_.shared(DType::f32, {kGroups, chunk}, "all_values");
    auto entry = k_.shared(DType::f32, {s_.span}, "entry");
    k_.wait_for_previous_kernel();
    read_plan(window);
    k_.if_else(
        is_whole_,
        [&] {
          k_.serial(0, s_.span / chunk, [&](Value i) {
            compress_chunk(first + i * chunk, entry, k_.let("chunk_start", i * chunk));
          });
        },
        [&] { k_.fill(entry, 0.0f); });
    if (s_.is_decode) {
      k_.if_(stores_ && k_.thread() < s_.span / kLaneChannels,
             [&] { store_token(first + k_.thread() * kLaneChannels); });
    }
    if (!entry_) {
      k_.parallel({s_.span}, [&](Value c) {
        (*out_)(window, first + c).unchecked() = cast(s_.out, entry(c));
      });
      return;
    }
    share_entry(window, first, entry);
  }

  /// The entry's channels from `column` on to `entry` from `start` on.
  void compress_chunk(const Value& column, const Ref& entry, const Value& start) {
    const int64_t chunk = s_.lanes * lane_channels_;
    auto mine = k_.let("mine", k_.thread() % s_.lanes * lane_channels_);
    auto group_of_thread = k_.let("group", k_.thread() / s_.lanes);
    auto slot = k_.let("first_slot", group_of_thread * kGroup);
    load(slot, column + mine);
    add_bias(slot, column + mine);
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
    k_.parallel({chunk}, [&](Value c) {
      const Value values = sum_of_groups(*all_values_, c);
      entry(start + c) = values / sum_of_groups(*all_weights_, c);
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

  /// Norm over the blocks of the window, and the channels of the block by its first warps.
  void share_entry(const Value& window, const Value& first, const Ref& entry) {
    const int64_t passes = s_.span / kWarpChannels;
    auto values = k_.local(DType::f32, {kLaneChannels}, "values_of_lane");
    auto sums = k_.shared(DType::f32, {passes}, "sums");
    auto column = k_.let("column", k_.warp() * kWarpChannels + k_.lane() * kLaneChannels);
    auto takes_part = k_.let("takes_part", k_.warp() < passes);
    k_.if_(takes_part, [&] {
      k_.vectorized(kLaneChannels, [&](Value i) { values(i) = entry(column + i); });
      auto sum = entry_->sum_of_squares(values);
      k_.if_(k_.lane() == 0, [&] { sums(k_.warp()) = sum; });
    });
    if (s_.cluster > 1) k_.sync_cluster();
    auto total = k_.var(DType::f32, 0.0f, "total");
    for (int64_t pass = 0; pass < s_.channels / kWarpChannels; ++pass) {
      total += s_.cluster > 1 ? k_.of_block(sums, i32(pass / passes))(pass % passes) : sums(pass);
    }
    k_.if_(takes_part, [&] { store_entry(window, first + column, values, total); });
  }

  std::optional<CacheEntry> entry_;
  std::optional<Ref> peaks_, all_weights_, all_values_;  // of the groups
};

int64_t access_width(const Call& c, const char* name, int64_t most) {
  const TensorView& view = c.given(name);
  return common_vector(view, std::min<int64_t>(most, 16 / bytes(view.dtype)));
}

WindowSpec window_spec(const Call& c) {
  WindowSpec s{};
  s.cluster = 1;
  s.channels = c.i32("D");
  s.ratio = c.i32("ratio");
  s.x = c.dtype("x");
  s.state = c.dtype("state");
  const int64_t most = lane_channels(s);
  s.x_width = static_cast<uint8_t>(access_width(c, "x", most));
  s.state_width = static_cast<uint8_t>(access_width(c, "state", most));
  s.ape_width = static_cast<uint8_t>(access_width(c, "ape", most));
  s.out_width = static_cast<uint8_t>(std::max<int64_t>(1, c.align({"out"}) / 4));
  return s;
}

}  // namespace

ir::Kernel build_compress(const WindowSpec& s) {
  return Compress(s).build();
}

void launch_compress(const Call& c, Launches& go, bool is_decode) {
  if (c.given("plan").shape[0] == 0) return;
  WindowSpec s = window_spec(c);
  s.is_decode = is_decode;
  s.lanes =
      is_decode && c.find("format") ? 32 : 16;  // few windows: a block has more of one at a time
  if (!c.find("format")) {
    s.out = c.dtype("out_dtype");
    s.has_out = true;
    s.span = s.ratio == 4 ? s.channels : static_cast<int32_t>(s.lanes * lane_channels(s));
    go.add(build_compress, s);
    return;
  }
  s.out = DType::f32;
  s.has_out = c.flag("save_out");
  s.entry = entry_spec(c);
  go.in_clusters([&](int limit) {
    const int64_t blocks = s.channels / kWarpChannels;
    s.cluster = s.ratio == 128 && blocks <= limit ? static_cast<int32_t>(blocks) : 1;
    s.span = s.channels / s.cluster;
    go.add(build_compress, s, {.tensors = cache_tensors(c)});
  });
}

}  // namespace tessera::kernels::serving
