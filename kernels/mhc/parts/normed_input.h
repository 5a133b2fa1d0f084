#pragma once
// The input of a sub-layer and its norm, by blocks of whole rows: the thread that has a column of all streams
// makes the layer input's, in registers, where norm_output.h takes it.

#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/mhc/parts/mix_kernel.h"
#include "kernels/mhc/parts/row_tile.h"
#include "kernels/serving/norm/parts/norm_output.h"

namespace tessera::kernels::mhc {

class NormedInput {
 public:
  /// The tile of the rows: that of norm_row.h.
  static RowTile tile(int64_t hidden);

  /// Declares the tensors and scalars of the norm.
  NormedInput(dsl::Builder& k, const MixSpec& s, const dsl::Value& tokens);

  /// Rows that the launch must cover.
  const dsl::Value& rows() const { return out_.rows(); }
  /// Loads the streams of the thread's columns, residual [tokens, streams, hidden], and the norm's weight.
  void load(const dsl::Ref& residual, const dsl::Value& first_token);
  /// Sums the streams with their weights, `mixes` [rows, ..], into the layer input; stores it, if it has a
  /// tensor, and the outputs of its norm.
  void store(const dsl::Ref& mixes, const std::optional<dsl::Ref>& layer_input);

 private:
  dsl::Builder& k_;
  const int64_t streams_, hidden_, width_;
  const dsl::Value tokens_;
  serving::NormOutput out_;
  std::optional<serving::NormRow> row_;
  dsl::Value token_, valid_;
  std::vector<dsl::Ref> held_;  // of each stream, [steps, 8]
};

}  // namespace tessera::kernels::mhc
