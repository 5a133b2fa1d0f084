#pragma once
// A row of scores as keys in the registers of the threads that select from it.

#include <functional>
#include <optional>

#include "dsl/builder.h"
#include "kernels/serving/select_kernel.h"

namespace tessera::kernels::serving {

inline constexpr int kSelectWarps = kSelectThreads / 32;
inline constexpr uint32_t kNoKey = ~0U;  // behind that of every score

/// Keys order like places in the result: the smaller, the larger the score.
class SelectRow {
 protected:
  explicit SelectRow(const SelectSpec& s)
      : s_(s),
        dtype_(s.score_bytes == 4 ? DType::f32 : DType::bf16),
        vector_(16 / s.score_bytes),
        units_held_(s.keys / vector_),
        k_("topk_select") {}

  void declare();
  /// The columns that count, reported and cut where they lie outside of the row.
  void find_range();
  /// The part of the row that a warp looks at: units of 32 vectors.
  void share_out();
  /// Reads units from `first` on, as many as are held.
  void load_units(const dsl::Value& first);

  /// Column of the first score of the lane in a unit.
  dsl::Value column(const dsl::Value& unit);
  dsl::Value key_of(const dsl::Value& score);

  /// Every unit of the warp in the order of the row, its keys held as the `slot`th.
  using OfUnit = std::function<void(const dsl::Value& unit, const dsl::Value& slot)>;
  void each_unit(const OfUnit& body);
  void each_key(const std::function<void(const dsl::Value& key)>& body);

  const SelectSpec s_;
  const DType dtype_;
  const int64_t vector_, units_held_;
  dsl::Builder k_;
  std::optional<dsl::Value> rows_, cols_, pages_, page_shift_;
  std::optional<dsl::Ref> scores_, lengths_, starts_, page_table_, indices_, raw_indices_, values_;
  dsl::Value row_, rank_, lane_, start_, end_;
  dsl::Value units_, first_;      // of the warp; the vector of the lane in the first one
  std::optional<dsl::Ref> keys_;  // of the lane

 private:
  void load(const dsl::Value& unit, const dsl::Value& slot);
};

}  // namespace tessera::kernels::serving
