// The ops of the library, in the order of the contract, for an OP(name) that the including file
// defines. A new op is a line here and the file that defines it.

OP(topk_gate);
OP(top2_sum_gate);
OP(get_fused_mapping);
OP(expand_to_fused_with_sf);
OP(reduce_fused);
OP(per_token_cast);
OP(per_token_cast_with_sf_only);
OP(per_token_cast_with_precomputed_sf);
OP(per_token_cast_to_e5m6);
OP(per_channel_cast_and_transpose);
OP(cast_back);
OP(per_token_cast_back);
OP(cast_back_e5m6);
OP(swiglu_forward_and_per_token_cast);
OP(transpose);
OP(batched_transpose);
OP(engram_gate_fwd);
OP(engram_hash);
OP(expand_to_mhc_fwd);
OP(norm_fn_fwd);
OP(pre_split_mixes_fwd);
OP(sinkhorn_fwd);
OP(sinkhorn_bwd);
OP(pre_apply_mix_fwd);
OP(post_fwd);
OP(post_bwd);
OP(pre_big_fuse);
