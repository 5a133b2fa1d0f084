#pragma once
// A window of the compressor in the registers of threads: which rows it takes, and their weighted sums.

#include <optional>
#include <utility>

#include "dsl/builder.h"
#include "kernels/serving/parts/compress_kernel.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kGroup = 8, kGroups = 16;  // slots; groups of a window of 128
inline constexpr int64_t kGroupLanes = 16;          // threads of such a group
inline constexpr int64_t kAhead = 8;                // elements of bf16 of a copy ahead

/// Channels of a thread at a time. The eight slots of a group fit in 64 registers.
int64_t lane_channels(const WindowSpec& s);
/// Channels of a block, ratio 128.
int64_t span_channels(const WindowSpec& s);

/// Calls body(i) for 0 .. count - 1, in vector accesses of `width` elements.
template <class Fn>
void each_run(dsl::Builder& k, int64_t count, int64_t width, const Fn& body) {
  for (int64_t first = 0; first < count; first += width) {
    k.vectorized(width, [&](dsl::Value i) { body(first == 0 ? i : i + first); });
  }
}

class CompressWindow {
 protected:
  /// Declares the tensors but those of the entry.
  explicit CompressWindow(const WindowSpec& s);

  /// Reads the row of a window and finds out what of it is there.
  void read_plan(const dsl::Value& window);
  /// Drops the location of a row whose plan was made for pages of another size.
  void require_page_size(const dsl::Value& page_size);
  /// Slots `first` .. `first` + 7, for the channels from `column` on.
  void load(const dsl::Value& first, const dsl::Value& column);
  /// Copies the bias of channels `first` .. `first` + span - 1 to shared memory, for add_bias.
  void share_bias(const dsl::Value& first);
  /// In a pipelined loop, in place of load: copies those channels of the rows of x of a window ahead, and reads
  /// slots `slot` .. `slot` + 7 of them, from channel `channel` of the span on. load then adds those of the state.
  void load_ahead(const dsl::Value& window, const dsl::Value& slot, const dsl::Value& channel);
  /// Biased scores of the group, and their maxima.
  void add_bias(const dsl::Value& first, const dsl::Value& column);
  /// The sums of the group, with the maxima of the window.
  void weigh(const dsl::Ref& peak);
  /// Where `is_needed`, loads columns `column` .. of each part of the row of a token, lane_channels_ of them; else zeros.
  void load_token(const dsl::Value& column, const dsl::Value& is_needed);
  /// Stores what load_token loaded to the token's slot.
  void store_token(const dsl::Value& column);

  const WindowSpec s_;
  const int64_t slots_;
  const bool overlaps_;
  const int64_t lane_channels_, span_;
  dsl::Builder k_;
  dsl::Value windows_, x_rows_, state_rows_;
  std::optional<dsl::Ref> x_, state_, ape_, plan_, entries_, out_;
  dsl::Value last_, location_;
  dsl::Value is_whole_;  // all rows are there, and the window ends
  dsl::Value stores_;    // of decode: the token has a slot
  std::optional<dsl::Ref> peak_, weights_, values_;

 private:
  void declare_slots();
  void find_window();
  dsl::Value has_slots();
  void find_token();
  std::pair<int64_t, int64_t> parts_of(int64_t nth) const;
  void load_slot(const dsl::Ref& row, int64_t width, int64_t nth, const dsl::Value& column);
  void load_from_x(const dsl::Value& slot, int64_t nth, const dsl::Value& column);
  void load_of_decode(const dsl::Value& first, const dsl::Value& column);
  void take_token(int64_t nth, const dsl::Value& is_own);
  void load_from_state(const dsl::Value& slot, int64_t nth, const dsl::Value& column);

  dsl::Value row_, from_state_, older_, own_, own_slot_, is_first_, is_known_;
  dsl::Value planned_page_size_;
  std::optional<dsl::Ref> kv_, score_, biased_, token_;
  std::optional<dsl::Ref> shared_bias_;
  dsl::Value first_shared_;  // its first channel
};

}  // namespace tessera::kernels::serving
