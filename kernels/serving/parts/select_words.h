#pragma once
// The candidates of a block: 64-bit words in shared memory, and the selection of the best.

#include <functional>
#include <optional>

#include "kernels/serving/parts/select_row.h"

namespace tessera::kernels::serving {

/// A word is the key of a score above the complement of its column. Larger words come first in the
/// result, and no two words are equal. Their order in the buffer is irrelevant.
class SelectWords : protected SelectRow {
 public:
  static constexpr int kDigitBits = 11;
  static constexpr int64_t kBins = int64_t{1} << kDigitBits;
  static constexpr int64_t kLowestKey = 0x007FFFFF;  // of -inf and NaN

 protected:
  using OfScore = std::function<dsl::Value(const dsl::Value& i)>;

  explicit SelectWords(const SelectSpec& s) : SelectRow(s) {}

  /// Allocates and initialises shared memory for `words` words.
  void make_buffer(int64_t words);

  dsl::Value word_of(const dsl::Value& key, const dsl::Value& column);

  /// Returns a mask with bit i set for every i < n that passes, n <= 32.
  dsl::Value mask_of(int64_t n, const OfScore& passes);
  /// Appends word(i) of every bit i < n of `mask`. Words beyond the room are counted but dropped.
  void append(int64_t n, const dsl::Value& mask, const OfScore& word);
  /// Returns the number of words, after a barrier that makes them visible.
  dsl::Value count_words();
  void set_count(const dsl::Value& count);
  /// Calls `body` for each of the first `total` words, spread over the threads.
  void each_word(const dsl::Value& total, const std::function<void(const dsl::Value& word)>& body);

  /// Inclusive prefix sum of `mine` over the lanes of the warp.
  dsl::Value sum_through_lane(const dsl::Value& mine);
  /// Counts a digit, 0 .. kBins - 1, in the histogram.
  void count_digit(const dsl::Value& digit);
  /// Finds the digit of item number `need` in ascending order, and clears the histogram. `before` counts
  /// the items with smaller digits, `equal` those with this digit. All 0 if there are fewer items.
  struct Found {
    dsl::Value digit, before, equal;
  };
  Found find_digit(const dsl::Value& need);
  /// Finds a second number in the same histogram.
  Found find_digits(const dsl::Value& need, const dsl::Value& second, Found& of_second);

  /// The right shift that brings numbers up to `span`, u32 or u64, below 2^bits.
  static dsl::Value shift_of(const dsl::Value& span, int bits = kDigitBits);

  /// The best `need` of `total` words are the words from `low` on, except `members - left` of the
  /// `members` words in [low, high], where kFewWords or fewer, or all of them, are left. `best` is an
  /// upper bound of all words, `share` a lower bound of word number `second`.
  struct Bounds {
    dsl::Ref low, high, left, members, share;
    dsl::Value best;
  };
  /// All words are at least `lowest`. `highest` is the best key or an upper bound of it, if known.
  Bounds narrow(const dsl::Value& total, const dsl::Value& need, const dsl::Value& second,
                const dsl::Value& lowest, const dsl::Value& highest);
  /// Returns the best key of `total` words.
  dsl::Value best_key(const dsl::Value& total);
  /// Returns the smallest word that the buffer may hold.
  dsl::Value word_of_floor();
  /// Keeps the best topk words and at most kFewWords more, and raises the floor to the last one's
  /// key.
  void shrink(const dsl::Value& total);

  /// The floor before any score is known.
  dsl::Value least_floor() const;

  // The floor: later scores up to this key lose.
  std::optional<dsl::Ref> words_, bins_, count_, floor_;  // bins_ has room for a sum of all

 private:
  std::optional<dsl::Ref> top_, totals_, found_;
};

}  // namespace tessera::kernels::serving
