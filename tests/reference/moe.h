#pragma once
// The routing ops by definition, one token at a time.

#include <string>

#include "tests/reference/scale.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Bytes of rows at the positions of their tokens; zeros where pos_to_expert is negative; every other
/// row stays unset. Positions out of range are dropped.
///
///   x                   any dtype [T, H]
///   token_topk_to_pos   i32 [T, K]
///   pos_to_expert       i32 [P]
///   returns             as x [P, H]
test::HostTensor expand_to_fused(const test::HostTensor& x,
                                 const test::HostTensor& token_topk_to_pos,
                                 const test::HostTensor& pos_to_expert);

/// Bytes of rows and scales at the positions of their tokens; zeros where pos_to_expert is negative;
/// every other row stays unset. Positions out of range are dropped.
///
///   x                   e4m3 [T, H], or i8 [T, H / 2]
///   x_sf                f32 [T, C] or i32 [T, C / 4]
///   token_topk_to_pos   i32 [T, K]
///   pos_to_expert       i32 [P]
///   returns             as x [P, ..] and as x_sf [P, ..] in `layout`
struct Expanded {
  test::HostTensor out, out_sf;
};
Expanded expand_to_fused_with_sf(const test::HostTensor& x, const test::HostTensor& x_sf,
                                 const test::HostTensor& token_topk_to_pos,
                                 const test::HostTensor& pos_to_expert, SfLayout layout);

/// out[t] = convert(acc * sf) with acc = fma(x[p], weight * x_sf[p], acc) from +0 over the slots of t
/// whose position p is in range. Null: absent.
test::HostTensor reduce_fused(const test::HostTensor& x, const test::HostTensor* x_sf,
                              const test::HostTensor* topk_weights,
                              const test::HostTensor& token_topk_to_pos, const test::HostTensor* sf,
                              DType out_dtype);

}  // namespace tessera::reference
