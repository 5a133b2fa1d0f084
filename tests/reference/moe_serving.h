#pragma once
// The ops around the products of experts, by definition.

#include <optional>

#include "tests/reference/ops.h"
#include "tests/reference/per_token_cast.h"

namespace tessera::reference {

/// moe_plan: one expert after the other, the pairs of each ascending, each expert's rows from a multiple of `alignment` on.
///
///   topk_idx      i32/i64 [T, K]
///   topk_weights  f32 [T, K], num_tokens i32 [1], each may be absent
struct PlanOptions {
  int64_t num_experts = 1, alignment = 1;
  int64_t num_rows = 0;  // 0: enough for any ids
  bool saves_m_indices = false;
};
test::HostTensors moe_plan(const test::HostTensors& in, const PlanOptions& o);

/// moe_gather_cast: per_token_cast of row pos_to_pair[p] / num_topk of x at row p. Rows without such a row of x hold zero
/// bytes, or stay unset.
///
///   x            bf16 [T, H]
///   pos_to_pair  i32 [P]
struct GatherCastOptions {
  int64_t num_topk = 1;
  CastOptions cast;
  bool fills_padding = true;
};
test::HostTensors moe_gather_cast(const test::HostTensor& x, const test::HostTensor& pos_to_pair,
                                  const GatherCastOptions& o);

/// swiglu_psum_cast: the activation of the rows that psum gives to experts, times topk_weights if given, cast as
/// per_token_cast does; zero bytes in other rows.
struct PsumCastOptions {
  float clamp = 10;
  int64_t alignment = 128;
  CastOptions cast;
};
test::HostTensors swiglu_psum_cast(const test::HostTensors& in, const PsumCastOptions& o);

/// combine_reduce: bf16 sums of rows of x that `pos` names, slots ascending, from base or +0; +0 from token num_tokens on.
test::HostTensor combine_reduce(const test::HostTensors& in);

/// moe_forward: moe_plan, moe_gather_cast or the rows as they are, a grouped product, swiglu_psum_cast or swiglu_fwd, a
/// grouped product, combine_reduce.
///
///   x bf16 [T, H]; topk_idx, topk_weights [T, K]; w13 e4m3 [E, 2I, H], w2 [E, H, I] with scales of blocks of 128 x 128, or
///   both by mxfp4_prepack with w13_shift, w2_shift; base bf16 [T, H] and num_tokens i32 [1], each may be absent
struct ForwardOptions {
  std::optional<float> clamp;
  bool is_bf16 = false;                        // rows of both products, which are e4m3 else
  int64_t group = 128;                         // columns of a scale of rows
  bool round_sf = false, weighs_sums = false;  // at combine_reduce, else at the activation
};
test::HostTensor moe_forward(const test::HostTensors& in, const ForwardOptions& o);

/// The reference of one of these ops, or null if it is none.
Runner moe_serving_runner(const std::string& op);

}  // namespace tessera::reference
