#pragma once
// Rows that belong to experts, by the ends of the experts' rows: expert e owns rows align(psum[e - 1],
// alignment) .. psum[e] - 1, where psum[-1] = 0. All other rows are padding.

#include <cstdint>

#include "dsl/builder.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Ends are cut into ascending order: row p can only be of the first expert whose end is above p.
///
/// Tensors: psum i32 [experts]. Scalars: alignment.
class ExpertRows {
 public:
  explicit ExpertRows(dsl::Builder& k)
      : k_(k),
        experts_(k.dim("experts")),
        psum_(k.input("psum", DType::i32, {experts_}, {.align = 4})),
        alignment_(k.scalar("alignment", DType::i32)) {}

  /// True if an expert owns the row, the same in all lanes; the whole warp comes with one row.
  dsl::Value owned(const dsl::Value& row) const;
  /// Reports ends that are not ascending or beyond `rows`. One block does it.
  void report(const dsl::Value& rows, int threads) const;

 private:
  dsl::Builder& k_;
  dsl::Value experts_;
  dsl::Ref psum_;
  dsl::Value alignment_;
};

/// Requires ends of experts that ascend from 0 to at most P.
void require_expert_rows(const Call& c);

}  // namespace tessera::kernels::serving
