#pragma once
// Ops whose times no record has yet. A record takes an op off this list.

#include <set>
#include <string>

namespace tessera::test {

inline bool is_not_measured(const std::string& op) {
  static const std::set<std::string> ops = {"pre_big_fuse_and_norm",
                                            "mhc_boundary",
                                            "router_logits",
                                            "moe_gate",
                                            "kv_store",
                                            "kv_load",
                                            "q_norm_rope",
                                            "index_q_store",
                                            "kv_norm_rope_store",
                                            "causal_conv1d_fwd",
                                            "gated_delta_fwd",
                                            "rmsnorm_gated_fwd",
                                            "causal_conv1d_update",
                                            "gated_delta_decode"};
  return ops.contains(op);
}

}  // namespace tessera::test
