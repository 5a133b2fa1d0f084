// The list of all ops.

#include "kernels/engram/engram_gate_fwd.h"
#include "kernels/engram/engram_hash.h"
#include "kernels/mhc/expand_to_mhc_fwd.h"
#include "kernels/mhc/norm_fn_fwd.h"
#include "kernels/mhc/post_bwd.h"
#include "kernels/mhc/post_fwd.h"
#include "kernels/mhc/pre_apply_mix_fwd.h"
#include "kernels/mhc/pre_big_fuse.h"
#include "kernels/mhc/pre_split_mixes_fwd.h"
#include "kernels/mhc/sinkhorn_bwd.h"
#include "kernels/mhc/sinkhorn_fwd.h"
#include "kernels/moe/expand_to_fused_with_sf.h"
#include "kernels/moe/get_fused_mapping.h"
#include "kernels/moe/reduce_fused.h"
#include "kernels/moe/top2_sum_gate.h"
#include "kernels/moe/topk_gate.h"
#include "kernels/op.h"
#include "kernels/op_call.h"
#include "kernels/quant/cast_back.h"
#include "kernels/quant/cast_back_e5m6.h"
#include "kernels/quant/per_channel_cast_and_transpose.h"
#include "kernels/quant/per_token_cast.h"
#include "kernels/quant/per_token_cast_back.h"
#include "kernels/quant/per_token_cast_to_e5m6.h"
#include "kernels/quant/per_token_cast_with_precomputed_sf.h"
#include "kernels/quant/per_token_cast_with_sf_only.h"
#include "kernels/quant/swiglu_forward_and_per_token_cast.h"
#include "kernels/transpose/batched_transpose.h"

namespace tessera::kernels {
namespace {

/// The ops with a `run` that knows again what it has checked before.
const std::vector<OpInfo>* with_memory(std::vector<OpInfo> listed) {
  for (OpInfo& op : listed) {
    op.run = [raw = op](const Tensors& tensors, const Params& params, Stream stream) {
      call_op(raw, tensors, params, stream);
    };
  }
  return new std::vector<OpInfo>(std::move(listed));
}

}  // namespace

const std::vector<OpInfo>& ops() {
  // In the order of the contract: moe, quant, transpose, engram, mhc. One line per op: copies of
  // the tables in kernels/<family>.
  static const auto* all = new std::vector<OpInfo>{topk_gate_op(),
                                                   top2_sum_gate_op(),
                                                   get_fused_mapping_op(),
                                                   expand_to_fused_with_sf_op(),
                                                   reduce_fused_op(),
                                                   per_token_cast_op(),
                                                   per_token_cast_with_sf_only_op(),
                                                   per_token_cast_with_precomputed_sf_op(),
                                                   per_token_cast_to_e5m6_op(),
                                                   per_channel_cast_and_transpose_op(),
                                                   cast_back_op(),
                                                   per_token_cast_back_op(),
                                                   cast_back_e5m6_op(),
                                                   swiglu_forward_and_per_token_cast_op(),
                                                   transpose_op(),
                                                   batched_transpose_op(),
                                                   engram_gate_fwd_op(),
                                                   engram_hash_op(),
                                                   expand_to_mhc_fwd_op(),
                                                   norm_fn_fwd_op(),
                                                   pre_split_mixes_fwd_op(),
                                                   sinkhorn_fwd_op(),
                                                   sinkhorn_bwd_op(),
                                                   pre_apply_mix_fwd_op(),
                                                   post_fwd_op(),
                                                   post_bwd_op(),
                                                   pre_big_fuse_op()};
  static const auto* remembering = with_memory(*all);
  return *remembering;
}

const OpInfo& find_op(const std::string& name) {
  return find_op(ops(), name);
}

}  // namespace tessera::kernels
