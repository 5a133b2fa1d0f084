#pragma once
// The sum over rows that several ops share: 264 blocks at most have runs of equally many rows and write a
// partial each; one more kernel adds the partials in ascending order. 264 is the same on every GPU, so the
// bits of a result do not depend on it, and no float is added by atomics.

#include <cstdint>
#include <string>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kPartials = 264;  // results depend on it

/// Rows of a run.
int64_t rows_per_partial(int64_t rows);
/// Runs that have rows.
int64_t num_partials(int64_t rows);

/// Everything that generated code depends on.
struct PartialSumSpec {
  DType dtype;       // of the result
  bool accumulates;  // the result is added to
  bool has_partials;
  uint8_t unused = 0;
  int32_t columns;
};

/// The kernel of that name. Tensors: partials f32 [num_partials, columns], `result` [columns].
ir::Kernel build_partial_sum(const std::string& name, const std::string& result,
                             const PartialSumSpec& spec);

}  // namespace tessera::kernels::serving
