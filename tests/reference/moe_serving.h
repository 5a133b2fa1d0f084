#pragma once
// The ops around the products of experts, by definition.

#include "tests/reference/ops.h"

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

/// The reference of one of these ops, or null if it is none.
Runner moe_serving_runner(const std::string& op);

}  // namespace tessera::reference
