#pragma once
// Routers from the tokens themselves, by definition.

#include "tests/reference/ops.h"

namespace tessera::reference {

/// The product of a router: chunks of 1024 columns, each summed in steps of 16 by the tensor cores of sm_90 from +0, and
/// added in f32 from the first chunk on.
///
///   x, w      bf16 [T, H], [E, H]
///   returns   f32 [T, E]
test::HostTensor router_logits(const test::HostTensor& x, const test::HostTensor& w);

/// moe_gate: router_logits, then moe_topk_gate_fwd, or hash_gate where routing is hash. Logits, and
/// scores with hash, are +0 in rows that mask or num_tokens leave out.
test::HostTensors moe_gate(const test::HostTensors& in, const kernels::Params& params);

/// The reference of one of these ops, or null if it is none.
Runner router_runner(const std::string& op);

}  // namespace tessera::reference
