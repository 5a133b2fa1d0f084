#pragma once
// The result of a row: sorts the chosen words and writes them.

#include <functional>
#include <optional>

#include "kernels/serving/parts/select_words.h"

namespace tessera::kernels::serving {

class SelectResult : protected SelectWords {
 protected:
  explicit SelectResult(const SelectSpec& s) : SelectWords(s) {}

  /// Allocates and initialises the shared memory of the result.
  void make_list();
  /// Sorts the chosen of `total` words from `lowest` on and writes them.
  void finish_row(const dsl::Value& total, const dsl::Value& lowest, const dsl::Value& highest);
  /// Calls body for all places of the result, spread over the threads.
  void each_place(const std::function<void(const dsl::Value& place)>& body);
  /// Writes the column to a place of the result, in the form that the options ask for.
  void write(const dsl::Value& place, const dsl::Value& column);
  /// Marks a place of the result as empty.
  void pad(const dsl::Value& place);

 private:
  /// The ascending sort key of a word: its column, or its complement to put the best word first.
  dsl::Value item_of(const dsl::Value& word);
  static dsl::Value column_of(const dsl::Value& item) { return dsl::i32(item); }
  /// Lists as items the words from `sure_from` on and the best `left` of those from `tied_from` on, and
  /// counts their digits.
  void list_chosen(const dsl::Value& total, const dsl::Value& sure_from,
                   const dsl::Value& tied_from, const dsl::Value& left, const dsl::Value& ties,
                   const std::function<dsl::Value(const dsl::Value& item)>& digit);
  /// Replaces the histogram with the number of items in earlier bins.
  void scan_bins();
  void each_chosen(const dsl::Value& count,
                   const std::function<void(const dsl::Value& place)>& body);

  std::optional<dsl::Ref> list_, arrivals_, tied_, counters_;
  dsl::Value chosen_;  // of maxima: how many
};

}  // namespace tessera::kernels::serving
