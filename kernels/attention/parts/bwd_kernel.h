#pragma once
// The kernels of attention_bwd and attention_varlen_bwd.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::attention {

/// Keys that one part of grad_q has: a part of the op's definition.
constexpr int64_t keys_of_part(int64_t width) {
  return width > 128 ? 64 : 128;
}

/// Everything that generated code depends on.
struct BackwardSpec {
  int32_t width, value_width;  // of a head: dk, dv
  int32_t is_f16;              // else bf16
  int32_t q_vector, k_vector, v_vector, grad_vector,
      o_vector;                                        // elements that rows begin at multiples of
  int32_t has_left, has_right, has_softcap, has_sink;  // 0 or 1
  int32_t has_q_lengths, has_k_lengths, has_grad_lse;
  int32_t has_group;  // several heads of q share one of k and v
  int32_t
      is_packed;  // requests lie one behind the other: tensors have one request, cu_q and cu_k bound those in it
  // No bit of the result depends on these.
  int32_t tile;      // rows, and keys: 32 or 64
  int32_t by_roles;  // 1: one role loads, two groups of warps multiply 64 rows or keys each

  /// Bytes of shared memory, about.
  int64_t shared_bytes() const;
};

/// Writes for each row lse * log2 e with the sink, delta - grad_lse and, with a sink, its share and delta, to the tensor
/// `rows` f32 [2 or 4, B, h, Sq].
ir::Kernel build_backward_rows(const BackwardSpec& spec);
/// grad_k and grad_v. Scalars: c, cap, scale (f32), left, right (i32). With several heads that share one of keys the
/// outputs are f32 [B, Sk, h, dk] and [B, Sk, h, dv], one for each head of q, before the scale.
ir::Kernel build_backward_keys(const BackwardSpec& spec);
/// grad_q. Scalars as above.
ir::Kernel build_backward_queries(const BackwardSpec& spec);
/// The same by roles.
ir::Kernel build_backward_keys_by_roles(const BackwardSpec& spec);
ir::Kernel build_backward_queries_by_roles(const BackwardSpec& spec);

struct GroupSpec {
  int32_t width, is_f16;
};
/// Adds what the heads of a group gave, ascending, times the scalar `scale`: `parts` f32 [rows, g, heads, width] to `out`
/// [rows, g, width].
ir::Kernel build_backward_group(const GroupSpec& spec);

struct SinkSpec {
  int32_t is_packed;  // requests end where cu_q says
};
/// Adds to grad_sink from `rows`.
ir::Kernel build_backward_sink(const SinkSpec& spec);

}  // namespace tessera::kernels::attention
