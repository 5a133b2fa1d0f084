#pragma once
// The candidates of a block: words in shared memory, and the search for the best of them.

#include <functional>
#include <optional>

#include "kernels/serving/select_row.h"

namespace tessera::kernels::serving {

/// A word is the key of a score above the complement of its column: the larger word comes first in the
/// result, and no two words are equal. Their order in the buffer does not matter.
class SelectWords : protected SelectRow {
 public:
  static constexpr int64_t kBins = 2048;

 protected:
  using OfScore = std::function<dsl::Value(const dsl::Value& i)>;

  explicit SelectWords(const SelectSpec& s) : SelectRow(s) {}

  /// Shared memory and its first values; `words` is the size of the buffer.
  void make_buffer(int64_t words);

  dsl::Value word_of(const dsl::Value& key, const dsl::Value& column);

  /// Appends word(i) of every i < n that passes. Those without room are lost, though counted.
  void append(int64_t n, const OfScore& passes, const OfScore& word);
  /// The number of words. A barrier: all of them are there.
  dsl::Value count_words();
  void set_count(const dsl::Value& count);
  /// `body` for each of the first `total` words, spread over the threads.
  void each_word(const dsl::Value& total, const std::function<void(const dsl::Value& word)>& body);

  /// The lane's share of a scan over the warp: the sum of `mine` of the lanes before and its own.
  dsl::Value sum_through_lane(const dsl::Value& mine);
  /// Counts a digit, 0 .. kBins - 1, in the histogram.
  void count_digit(const dsl::Value& digit);
  /// Clears the histogram, and finds the digit of the `need`th one, where digits ascend: its digit, how
  /// many come before the digit, how many have it. All 0 if there are fewer.
  struct Found {
    dsl::Value digit, before, equal;
  };
  Found find_digit(const dsl::Value& need);
  /// The same for a second number from the same counts.
  Found find_digits(const dsl::Value& need, const dsl::Value& second, Found& of_second);

  /// Shift after which numbers up to `span`, u32 or u64, are below kBins.
  static dsl::Value shift_of(const dsl::Value& span);

  /// The best `need` of `total` words are those from `low` on, less `members - left` of the `members`
  /// words in [low, high]; either no more than kFewWords or all of them are left. `best` is an upper
  /// bound of all words, `share` a lower bound of the word with the number `second`.
  struct Bounds {
    dsl::Ref low, high, left, members, share;
    dsl::Value best;
  };
  /// All words are at least `lowest`; `highest` is their best key or a larger one, where it is known.
  Bounds narrow(const dsl::Value& total, const dsl::Value& need, const dsl::Value& second,
                const dsl::Value& lowest, const dsl::Value& highest);
  /// The best key of `total` words.
  dsl::Value best_key(const dsl::Value& total);
  /// The lowest word that may be in the buffer.
  dsl::Value word_of_floor();
  /// Keeps the best topk words, at most kFewWords more, and raises the floor to the last one's key.
  void shrink(const dsl::Value& total);

  // The floor: later scores up to this key lose.
  std::optional<dsl::Ref> words_, bins_, count_, floor_;  // bins_ has room for a sum of all

 private:
  std::optional<dsl::Ref> top_, totals_, found_;
};

}  // namespace tessera::kernels::serving
