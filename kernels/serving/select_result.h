#pragma once
// The result of a row: the chosen words in order, and how they are written.

#include <functional>
#include <optional>

#include "kernels/serving/select_words.h"

namespace tessera::kernels::serving {

class SelectResult : protected SelectWords {
 protected:
  explicit SelectResult(const SelectSpec& s) : SelectWords(s) {}

  /// Shared memory of the result and its first values.
  void make_list();
  /// Orders the chosen of `total` words from `lowest` on and writes them.
  void finish_row(const dsl::Value& total, const dsl::Value& lowest, const dsl::Value& highest);
  /// All places of the result, spread over the threads.
  void each_place(const std::function<void(const dsl::Value& place)>& body);
  /// Writes the column to a place of the result, as its options say.
  void write(const dsl::Value& place, const dsl::Value& column);
  /// Writes that a place of the result holds no column.
  void pad(const dsl::Value& place);

 private:
  /// What is sorted upwards, of a word: its column, or its complement, the best word first.
  dsl::Value item_of(const dsl::Value& word);
  static dsl::Value column_of(const dsl::Value& item) { return dsl::i32(item); }
  /// Lists the words from `sure_from` on and the best `left` of those from `tied_from` on, as items, and
  /// counts their digits.
  void list_chosen(const dsl::Value& total, const dsl::Value& sure_from,
                   const dsl::Value& tied_from, const dsl::Value& left, const dsl::Value& ties,
                   const std::function<dsl::Value(const dsl::Value& item)>& digit);
  /// Turns the histogram into the number of items in the bins before each bin.
  void scan_bins();
  void each_chosen(const dsl::Value& count,
                   const std::function<void(const dsl::Value& place)>& body);

  std::optional<dsl::Ref> list_, arrivals_, tied_, counters_;
};

}  // namespace tessera::kernels::serving
