#pragma once
// Tokens of a call may have several dimensions, [batch, sequence, ...], the same ones in every
// tensor. Ops check them as they come and launch on one flat token axis.

#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernels/arg_check.h"

namespace tessera::kernels::mhc {

class TokenDims {
 public:
  /// Of the tensor `name`, which has `other_dims` dimensions behind those of the tokens. One
  /// dimension if the tensor is absent or its rank too small: the check that follows reports it.
  TokenDims(const Tensors& tensors, std::string_view name, int other_dims);

  /// What a check expects: "T" (or "T0", "T1", ...) and the other extents.
  std::vector<Extent> shape(std::initializer_list<Extent> others) const;
  /// The token extents of a tensor that passed the check, then `others`: the shape of an output. An
  /// unsupported Error if that is too many.
  Dims output(const ArgCheck& check, std::string_view name, const TensorView& checked,
              std::initializer_list<int64_t> others) const;
  /// A checked, contiguous tensor as [tokens, others...].
  TensorView flat(const TensorView& checked) const;
  /// The same of a checked tensor with free strides: they stay, and several token dimensions must
  /// lie evenly apart, else an unsupported Error.
  TensorView flat_rows(const ArgCheck& check, std::string_view name,
                       const TensorView& checked) const;

 private:
  int rank_ = 1;
};

/// The extent bound to "n", which came from `tensor`, is 1 .. `most`; more is unsupported.
void require_streams(const ArgCheck& check, std::string_view tensor, int64_t most);

}  // namespace tessera::kernels::mhc
