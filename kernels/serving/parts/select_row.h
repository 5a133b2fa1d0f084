#pragma once
// The row of scores of a block or a cluster: its range and its chunks.

#include <optional>

#include "dsl/builder.h"
#include "kernels/serving/parts/select_kernel.h"

namespace tessera::kernels::serving {

/// Keys order like scores; larger is better. No score has key 0.
class SelectRow {
 protected:
  explicit SelectRow(const SelectSpec& s);

  void declare();
  /// Computes the range of columns that count. Reports and clamps a range outside the row.
  void find_range();

  /// The column of the thread's first score in a vector of the chunk that begins at column `first`.
  dsl::Value column(const dsl::Value& first, const dsl::Value& vector);
  dsl::Value is_inside(const dsl::Value& column);
  /// Loads the thread's scores of a chunk into `to`; NaN outside the range.
  void load_chunk(const dsl::Value& first, const dsl::Ref& to);
  /// Loads `n` scores from column `at` on into `to`, from `place` on; NaN outside the range.
  void load_part(int64_t n, const dsl::Value& at, const dsl::Ref& to, const dsl::Value& place);
  dsl::Value key_of(const dsl::Value& score);
  /// True if a score of -inf is never chosen.
  bool skips_lowest() const { return s_.from != SelectFrom::scores; }

  const SelectSpec s_;
  const DType dtype_;
  const int64_t vector_;
  dsl::Builder k_;
  std::optional<dsl::Value> rows_, cols_, pages_, page_shift_, rows_of_table_, tables_;
  std::optional<dsl::Ref> scores_, lengths_, starts_, page_table_, indices_, raw_indices_, values_,
      blocks_, k_start_, table_row_;
  dsl::Value row_, rank_, lane_, start_, end_;
  dsl::Value last_block_;                       // of maxima; -1: there is none
  dsl::Value first_key_;                        // of blocks, relative: the key that counts as 0
  std::optional<dsl::Ref> chunk_, next_chunk_;  // scores of the thread

 private:
  /// The score of a column, which exists.
  dsl::Value score_of(const dsl::Value& column);
  void report_unless(const dsl::Value& holds, const char* tensor);
};

}  // namespace tessera::kernels::serving
