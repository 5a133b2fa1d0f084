#pragma once
// What the kernels that count ids share: their tensors, and how a count is stored.

#include <optional>

#include "dsl/builder.h"
#include "kernels/moe/count_kernels.h"

namespace tessera::kernels::moe {

class CountTensors {
 protected:
  explicit CountTensors(const CountSpec& s);

  /// Into `out`: the count of a group, or the fraction that it makes.
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
