#pragma once
// The rows of a tile of mla_decode, whichever form multiplies: their factors, keys and results.

#include "kernels/attention/mla/parts/mla_roles.h"

namespace tessera::kernels::attention {

/// The factor of the scores of row `r` of the tile: c, or that times its scale; NaN for a scale that is out of range.
dsl::Value factor_of_row(MlaTensors& t, const PagedPlace& at, const dsl::Value& r);
/// The end of the keys that row `r` of the tile sees.
dsl::Value end_of_row(MlaTensors& t, const PagedPlace& at, const DecodeRequest& request,
                      const dsl::Value& r);

/// A row after its last block: the sum of its p, and its maximum times its factor.
struct MlaRowEnd {
  dsl::Value r, sum, scaled, is_empty;
};
/// `total` is the sum of all classes.
MlaRowEnd end_row(MlaTensors& t, const dsl::Value& r, const dsl::Value& total,
                  const dsl::Value& top, const dsl::Value& factor);
/// By what the output of the row is multiplied: -1 for an empty row.
dsl::Value factor_of_output(MlaTensors& t, const PagedPlace& at, const MlaRowEnd& row);
/// Writes what else there is of a row of the tile, by one thread.
void write_statistics(MlaTensors& t, const PagedPlace& at, const MlaRowEnd& row);

}  // namespace tessera::kernels::attention
