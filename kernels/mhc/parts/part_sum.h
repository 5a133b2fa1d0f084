#pragma once
// The partial results of a projection, added up by the next kernel.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"
#include "kernels/mhc/parts/projection_parts.h"

namespace tessera::kernels::mhc {

/// How a kernel adds up partial results.
struct PartSum {
  int32_t entries, parts, parts_per_run, halves;  // projection_parts.h
  int32_t align;                                  // bytes, of the workspace

  PartSum(const ProjectionShape& shape, int32_t workspace_align);
  int64_t stored() const { return int64_t{parts} * halves; }
};

/// For a block of one token: only the products of the first `entries` are needed, unless `all`.
struct FewProducts {
  int64_t entries = 0;
  dsl::Value all;
};

/// The sums over all parts of a block's `rows` tokens from `first_token` on; 0 outside the tensors.
/// All threads of the block load the parts into shared memory; the thread that asks for a sum adds
/// them up. Shared memory: 4 bytes per stored part, token, and entry or square.
///
///   const SummedParts sums(k, sum, products, squares, first_token, rows);
///   out(first_token + row, j) = sums.product(row, j);
class SummedParts {
 public:
  /// products [stored, tokens * entries], squares [tokens, stored].
  SummedParts(dsl::Builder& k, const PartSum& sum, const dsl::Ref& products,
              const dsl::Ref& squares, const dsl::Value& first_token, int64_t rows,
              const FewProducts& few = {});

  dsl::Value product(const dsl::Value& row, const dsl::Value& entry) const;
  dsl::Value square(const dsl::Value& row) const;

 private:
  dsl::Value add_runs(const std::function<dsl::Value(const dsl::Value& stored)>& of_stored) const;

  dsl::Builder& k_;
  PartSum sum_;
  dsl::Ref products_;  // shared [stored, rows * entries]
  dsl::Ref squares_;   // shared [rows, stored]
};

/// 1 / sqrt(squares / width + eps), the factor of every product.
inline dsl::Value norm_factor(const dsl::Value& squares, int64_t width, const dsl::Value& eps) {
  return dsl::rsqrt(squares / static_cast<float>(width) + eps);
}

}  // namespace tessera::kernels::mhc
