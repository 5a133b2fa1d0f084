#pragma once
// The tensors that the counting kernels share, and the store of a count.

#include <optional>

#include "dsl/builder.h"
#include "kernels/moe/parts/count_kernels.h"

namespace tessera::kernels::moe {

class CountTensors {
 protected:
  explicit CountTensors(const CountSpec& s);

  /// Stores to `out` the count of a group, or its fraction.
  void store(const dsl::Value& group, const dsl::Value& count) const;

  const CountSpec s_;
  dsl::Builder k_;
  dsl::Value slots_, chunks_;
  std::optional<dsl::Ref> ids_, partials_;

 private:
  dsl::Value expected_;
  std::optional<dsl::Ref> out_;
};

}  // namespace tessera::kernels::moe
