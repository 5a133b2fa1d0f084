"""The differentiable functions by definition, in any precision: the tests differentiate these in f64."""

import torch


def attention(q, k, v, *, sink=None, scale=None, causal=False):
    group = q.shape[2] // k.shape[2]
    queries = q.transpose(1, 2)
    keys, values = (t.repeat_interleave(group, 2).transpose(1, 2) for t in (k, v))
    scores = queries @ keys.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(ones.triu(scores.shape[-1] - scores.shape[-2] + 1), -torch.inf)
    lse = torch.logsumexp(scores, -1)
    whole = lse if sink is None else torch.logaddexp(lse, sink[:, None].expand_as(lse))
    out = torch.exp(scores - whole.unsqueeze(-1)) @ values
    return out.transpose(1, 2), lse


def attention_varlen(q, k, v, *, cu_q, cu_k, sink=None, scale=None, causal=False):
    out, lse = [], []
    for begin_q, end_q, begin_k, end_k in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:]):
        of_q, of_k = slice(begin_q, end_q), slice(begin_k, end_k)
        one = attention(q[None, of_q], k[None, of_k], v[None, of_k], sink=sink, scale=scale, causal=causal)
        out.append(one[0][0])
        lse.append(one[1][0])
    return torch.cat(out), torch.cat(lse, -1)


def scaled_dot_product_attention(query, key, value, *, is_causal=False, scale=None, enable_gqa=False):
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    return attention(q, k, v, scale=scale, causal=is_causal)[0].transpose(1, 2)


def engram_gate(hidden_states, k, v, weight_hidden, weight_embed, *, eps, image_token_mask=None, clamp_value=1e-6):
    width = hidden_states.shape[-1]
    rstd_x = torch.rsqrt(hidden_states.square().mean(-1) + eps)
    rstd_k = torch.rsqrt(k.square().mean(-1) + eps)
    dot = (hidden_states * weight_hidden * weight_embed * k).sum(-1)
    score = dot * rstd_x * rstd_k * width**-0.5
    gate = torch.sigmoid(score.sign() * score.abs().clamp(min=clamp_value).sqrt())
    gated = hidden_states + gate.unsqueeze(-1) * v.unsqueeze(-2)
    return gated if image_token_mask is None else torch.where(image_token_mask[..., None, None], hidden_states, gated)


def expand_to_mhc(x, *, mhc_mult=4):
    return x.unsqueeze(-2).expand(*x.shape[:-1], mhc_mult, x.shape[-1])


def norm_fn(residual, fn, *, norm_weight=None, norm_eps=1e-6, n_splits=16):
    row = residual.flatten(-2)
    merged = fn if norm_weight is None else fn * norm_weight
    scale = torch.rsqrt(row.square().mean(-1, keepdim=True) + norm_eps)
    return scale * (row @ merged.T)


def pre_split_mixes(input_mixes, scale, base, *, post_mult_value=1.0, pre_eps=1e-6):
    streams = int((input_mixes.shape[-1] + 1) ** 0.5) - 1
    pre, post, comb = input_mixes.split([streams, streams, streams * streams], -1)
    base_pre, base_post, base_comb = base.split([streams, streams, streams * streams])
    logits = comb * scale[2] + base_comb
    return (
        torch.sigmoid(pre * scale[0] + base_pre) + pre_eps,
        torch.sigmoid(post * scale[1] + base_post) * post_mult_value,
        logits.unflatten(-1, (streams, streams)),
    )


def sinkhorn(x, *, repeat=10, eps=1e-6):
    x = torch.softmax(x, -1) + eps
    x = x / (x.sum(-2, keepdim=True) + eps)
    for _ in range(repeat - 1):
        x = x / (x.sum(-1, keepdim=True) + eps)
        x = x / (x.sum(-2, keepdim=True) + eps)
    return x


def pre_apply_mix(x, mix):
    return (x * mix.unsqueeze(-1)).sum(-2)


def post(x, residual, post_mix, comb_mix):
    return post_mix.unsqueeze(-1) * x.unsqueeze(-2) + comb_mix.transpose(-1, -2) @ residual


def head_compute_mix(input_mix, scale, base, *, pre_eps=1e-6):
    return torch.sigmoid(input_mix * scale + base) + pre_eps


def mhc_pre(
    residual,
    fn,
    scale,
    base,
    *,
    norm_weight=None,
    norm_eps=1e-6,
    pre_eps=1e-6,
    sinkhorn_eps=1e-6,
    post_mult_value=1.0,
    sinkhorn_repeat=10,
    n_splits=16,
):
    mixes = norm_fn(residual, fn, norm_weight=norm_weight, norm_eps=norm_eps)
    pre_mix, post_mix, logits = pre_split_mixes(
        mixes, scale, base, post_mult_value=post_mult_value, pre_eps=pre_eps
    )
    return pre_apply_mix(residual, pre_mix), post_mix, sinkhorn(logits, repeat=sinkhorn_repeat, eps=sinkhorn_eps)


def mhc_head(residual, fn, scale, base, *, norm_weight=None, norm_eps=1e-6, pre_eps=1e-6, n_splits=16):
    streams = residual.shape[-2]
    mix = norm_fn(residual, fn, norm_weight=norm_weight, norm_eps=norm_eps)[..., :streams]
    return pre_apply_mix(residual, head_compute_mix(mix, scale, base, pre_eps=pre_eps))


def expand_to_fused(x, token_topk_to_pos, pos_to_expert):
    made = [torch.zeros_like(x[0]) for _ in pos_to_expert]
    for token, positions in enumerate(token_topk_to_pos.tolist()):
        for position in positions:
            if position >= 0:
                made[position] = x[token]
    return torch.stack(made)


def reduce_fused(x, token_topk_to_pos, *, topk_weights=None, x_sf=None):
    made = []
    for token, positions in enumerate(token_topk_to_pos.tolist()):
        row = torch.zeros_like(x[0])
        for slot, position in enumerate(positions):
            if position >= 0:
                factor = 1.0 if topk_weights is None else topk_weights[token, slot]
                row = row + x[position] * factor * (1.0 if x_sf is None else x_sf[position])
        made.append(row)
    return torch.stack(made)


def linear(x, weight, *, bias=None, out_dtype=None):
    out = x @ weight.T
    return out if bias is None else out + bias


def rms_norm(x, weight=None, *, residual=None, norm_eps=1e-6, out_scale=1.0):
    added = x if residual is None else x + residual
    out = added * torch.rsqrt(added.square().mean(-1, keepdim=True) + norm_eps) * out_scale
    out = out if weight is None else out * weight
    return out if residual is None else (out, added)


def rotary(x, cos_sin, *, positions, interleaved=False, conjugate=False, cos_sin_layout="halves"):
    width = x.shape[-1]
    angles = cos_sin.to(x.dtype)[positions.long()].unsqueeze(-2)
    cos, sin = (angles[..., ::2], angles[..., 1::2]) if cos_sin_layout == "pairs" else angles.chunk(2, -1)
    sin = -sin if conjugate else sin
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = first * cos - second * sin, first * sin + second * cos
    return torch.stack(turned, -1).reshape(*x.shape[:-1], width) if interleaved else torch.cat(turned, -1)


def topk_gate(
    logits, *, num_topk, bias=None, mask=None, num_seqs=1, num_shared_experts=0, routed_scaling_factor=1.0
):
    scores = torch.nn.functional.softplus(logits).sqrt()
    keys = scores if bias is None else scores + bias
    chosen = keys.topk(num_topk, -1).indices
    weights = scores.gather(-1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * routed_scaling_factor
    shared = torch.arange(num_shared_experts, device=logits.device) + logits.shape[-1]
    chosen = torch.cat([chosen, shared.expand(len(logits), -1)], -1)
    weights = torch.cat([weights, torch.ones_like(weights[:, :1]).expand(-1, num_shared_experts)], -1)
    share = scores / scores.sum(-1, keepdim=True)
    if mask is not None:
        chosen, weights = chosen.masked_fill(~mask[:, None], -1), weights.masked_fill(~mask[:, None], 0)
        share = share.masked_fill(~mask[:, None], 0)
    return chosen, weights, share.unflatten(0, (num_seqs, -1)).sum(1)


def swiglu(
    x,
    *,
    weight=None,
    clamp=None,
    topk_weights=None,
    psum=None,
    alignment=128,
    routed_scaling_factor=None,
    swiglu_clamp_value=None,
):
    weight = topk_weights if weight is None else weight
    clamp = swiglu_clamp_value if clamp is None else clamp
    if routed_scaling_factor is not None and weight is not None:
        weight = weight * routed_scaling_factor
    if psum is not None:  # rows of no expert are 0
        is_row, start = torch.zeros(len(x), dtype=torch.bool), 0
        for end in psum.tolist():
            is_row[-(-start // alignment) * alignment : end] = True
            start = end
        x = x.masked_fill(~is_row[:, None], 0)
    gate, up = x.chunk(2, -1)
    if clamp is not None:
        gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
    out = gate * torch.sigmoid(gate) * up
    return out if weight is None else out * weight.unsqueeze(-1)
