"""Differentiable functions over the ops of Tessera, for torch.

Tensors may have any leading dimensions, the same ones in every tensor of a call; `T..` stands for them.
Without gradients (torch.no_grad, or no input that requires one) a function runs the inference form of its op
and saves nothing; its values are those of the training form, bit for bit. Second derivatives, forward-mode
differentiation and transforms of torch.func are errors.

A parameter with an attribute `main_grad` (f32, the parameter's shape) gets its gradient added there where a backward
pass would add to `grad`: autograd gets None for it, and `grad_added_to_main_grad = True` is set on the parameter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

import tessera
from tessera import _attention_functions, _functions, _layer_functions, _mhc_functions
from tessera._autograd import check_out, owners_of, records
from tessera._experts import (
    GateResult,
    SwigluCast,
    SwigluKept,
    expand_to_fused,
    expert_linear,
    fp8_grouped_mlp,
    reduce_fused,
    swiglu,
    swiglu_and_per_token_cast,
    topk_gate,
)
from tessera._residual_grad import ResidualGrad

__all__ = [
    "GateResult",
    "MhcContext",
    "ResidualGrad",
    "SwigluCast",
    "SwigluKept",
    "attention",
    "attention_varlen",
    "engram_gate",
    "expand_to_fused",
    "expand_to_mhc",
    "expert_linear",
    "fp8_grouped_mlp",
    "head_compute_mix",
    "linear",
    "mhc_head",
    "mhc_post",
    "mhc_pre",
    "norm_fn",
    "post",
    "pre_apply_mix",
    "pre_split_mixes",
    "reduce_fused",
    "rms_norm",
    "rotary",
    "scaled_dot_product_attention",
    "sinkhorn",
    "swiglu",
    "swiglu_and_per_token_cast",
    "topk_gate",
]

Tensor = torch.Tensor


def __dir__() -> list[str]:
    return sorted(__all__)


# Ops that record no gradient, and the functions that compute the same and record one.
RECORDED = {
    "attention_fwd": "attention",
    "attention_varlen_fwd": "attention_varlen",
    "engram_fwd": "engram_gate",
    "gemm_bf16": "linear",
    "expand_to_mhc_fwd": "expand_to_mhc",
    "norm_fn_fwd": "norm_fn",
    "pre_split_mixes_fwd": "pre_split_mixes",
    "sinkhorn_fwd": "sinkhorn",
    "pre_apply_mix_fwd": "pre_apply_mix",
    "post_fwd": "post",
    "head_compute_mix_fwd": "head_compute_mix",
    "mhc_pre_fwd": "mhc_pre",
    "pre_big_fuse": "mhc_pre",
    "mhc_head_fwd": "mhc_head",
    "swiglu_forward_and_per_token_cast": "swiglu_and_per_token_cast",
    "expand_to_fused": "expand_to_fused",
    "reduce_fused": "reduce_fused",
    "norm_fwd": "rms_norm",
    "swiglu_fwd": "swiglu",
    "moe_topk_gate_fwd": "topk_gate",
}


class MhcContext(NamedTuple):
    """The results of an mhc_pre that the mhc_post behind it needs.

    post_mix       f32 [T.., n]     what each stream receives of the sub-layer's output
    comb_mix       f32 [T.., n, n]  from stream (row) to stream (column)
    residual_grad  ResidualGrad, or None where nothing is recorded
    """

    post_mix: Tensor
    comb_mix: Tensor
    residual_grad: ResidualGrad | None


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    q_lengths: Tensor | None = None,
    k_lengths: Tensor | None = None,
    sink: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Softmax of scaled products of queries and keys, times the values, and the log of the sum of exponentials.

      q                     bf16 or f16 [B, Sq, h, dk]   last stride 1
      k, v                  as q [B, Sk, g, dk], [B, Sk, g, dv]; heads of q share those of k and v in groups of h / g
      q_lengths, k_lengths  i32 [B], or None
      sink                  f32 [h], or None; beside one lse has no gradient
      result                as q [B, Sq, h, dv]; f32 [B, h, Sq]

    Errors:  those of the ops attention_fwd and attention_bwd.
    Example: out, lse = attention(q, k, v, causal=True)
    """
    options: dict[str, Any] = {
        "scale": scale,
        "causal": causal,
        "window_left": window_left,
        "window_right": window_right,
        "softcap": softcap,
    }
    if not records("attention", q, k, v, sink):
        made = tessera.attention_fwd(q, k, v, q_lengths=q_lengths, k_lengths=k_lengths, sink=sink, **options)
        return made.out, made.lse
    recorded: tuple[Tensor, Tensor] = _attention_functions.Attention.apply(
        q, k, v, q_lengths, k_lengths, sink, options
    )
    return recorded


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    *,
    sink: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """attention of requests that lie one behind the other, each with the bits that it has alone.

      q           bf16 or f16 [Tq, h, dk]   last stride 1
      k, v        as q [Tk, g, dk], [Tk, g, dv]; heads of q share those of k and v in groups of h / g
      cu_q, cu_k  i32 [requests + 1]: where requests end, from 0 on
      sink        f32 [h], or None; beside one lse has no gradient
      result      as q [Tq, h, dv]; f32 [h, Tq]

    Errors:  those of the ops attention_varlen_fwd and attention_varlen_bwd.
    Example: out, lse = attention_varlen(q, k, v, cu, cu, causal=True)
    """
    options: dict[str, Any] = {
        "scale": scale,
        "causal": causal,
        "window_left": window_left,
        "window_right": window_right,
        "softcap": softcap,
    }
    if not records("attention_varlen", q, k, v, sink):
        made = tessera.attention_varlen_fwd(q, k, v, cu_q, cu_k, sink=sink, **options)
        return made.out, made.lse
    recorded: tuple[Tensor, Tensor] = _attention_functions.PackedAttention.apply(q, k, v, cu_q, cu_k, sink, options)
    return recorded


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """attention with the arguments of torch.nn.functional.scaled_dot_product_attention.

      query       bf16 or f16 [B, h, Sq, dk]   last stride 1
      key, value  as query [B, g, Sk, dk], [B, g, Sk, dv]; g other than h with enable_gqa
      result      as query [B, h, Sq, dv], rows before heads in memory

    Errors:  those of attention; UnsupportedError for masks, dropout, and is_causal with Sq other than Sk.
    Example: out = scaled_dot_product_attention(query, key, value, is_causal=True)
    """
    records("scaled_dot_product_attention", query, key, value)  # refuses by this name what no function takes
    _attention_functions.check_torch_form(query, key, attn_mask, dropout_p, is_causal, enable_gqa)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    return attention(q, k, v, scale=scale, causal=is_causal)[0].transpose(1, 2)


def engram_gate(
    hidden_states: Tensor,
    k: Tensor,
    v: Tensor,
    weight_hidden: Tensor,
    weight_embed: Tensor,
    *,
    image_token_mask: Tensor | None = None,
    eps: float,
    clamp_value: float = 1e-6,
) -> Tensor:
    """Adds the value row to every residual stream, weighted by the gate of the stream.

      hidden_states                bf16 [T.., hc, D]
      k                            bf16 [T.., hc, D]   last stride 1
      v                            bf16 [T.., D]       last stride 1
      weight_hidden, weight_embed  bf16 [hc, D]        RMSNorm weights of the gate
      image_token_mask             bool [T..], or None: True for a token that is left as it is
      result                       bf16 [T.., hc, D]

    Errors:  those of the ops engram_fwd and engram_bwd; gradients need hc = 4 and D % 512 = 0.
    Example: out = engram_gate(hidden_states, k, v, weight_hidden, weight_embed, eps=1e-6)
    """
    if not records("engram_gate", hidden_states, k, v, weight_hidden, weight_embed):
        return tessera.engram_fwd(
            hidden_states,
            k,
            v,
            weight_hidden,
            weight_embed,
            image_token_mask=image_token_mask,
            eps=eps,
            clamp_value=clamp_value,
            save_for_backward=False,
        ).out
    owners = owners_of(weight_hidden=weight_hidden, weight_embed=weight_embed)
    recorded: Tensor = _functions.EngramGate.apply(
        hidden_states, k, v, weight_hidden, weight_embed, image_token_mask, eps, clamp_value, owners
    )
    return recorded


def expand_to_mhc(x: Tensor, *, mhc_mult: int = 4, out: Tensor | None = None) -> Tensor:
    """Copies each row into every residual stream; the gradient of x is the sum over the streams.

      x       bf16 [T.., H]
      result  bf16 [T.., mhc_mult, H]; `out` if given

    Errors:  those of the op expand_to_mhc_fwd.
    Example: residual = expand_to_mhc(embedding)
    """
    if not records("expand_to_mhc", x, out):
        return tessera.expand_to_mhc_fwd(x, mhc_mult=mhc_mult, out=out)
    check_out("expand_to_mhc", out)
    recorded: Tensor = _mhc_functions.ExpandToMhc.apply(out, x, mhc_mult)
    return recorded


def norm_fn(
    residual: Tensor,
    fn: Tensor,
    *,
    norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
    n_splits: int = 16,
    residual_grad: ResidualGrad | None = None,
) -> Tensor:
    """Projects the normalised residual: the mixes of a sub-layer are made from the result.

      residual     bf16 [T.., n, H]
      fn           f32 [M, n*H]
      norm_weight  f32 [n*H], or None
      result       f32 [T.., M]

    Errors:  those of the op norm_fn_fwd.
    Example: input_mixes = norm_fn(residual, fn)
    """
    if not records("norm_fn", residual, fn, norm_weight):
        return tessera.norm_fn_fwd(
            residual, fn, norm_weight=norm_weight, norm_eps=norm_eps, n_splits=n_splits, save_for_backward=False
        ).out
    handle = _handle(residual, residual_grad)
    owners = owners_of(fn=fn, norm_weight=norm_weight)
    recorded: Tensor = _passed_on(
        handle, _mhc_functions.NormFn, _read(residual, handle), fn, norm_weight, norm_eps, n_splits, owners
    )
    return recorded


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    norm_eps: float = 1e-6,
    out_scale: float = 1.0,
) -> Any:
    """Root mean square norm of rows, after an addition if `residual` is given.

      x         bf16 or f32 [T.., H]   last stride 1
      weight    as x [H], or None
      residual  as x [T.., H], or None: is added to x first
      result    as x [T.., H]; with `residual` also the sum, which is the next residual

    Errors:  those of the ops norm_fwd and norm_bwd.
    Example: out, residual = rms_norm(x, weight, residual=residual)
    """
    if not records("rms_norm", x, weight, residual):
        made = tessera.norm_fwd(x, weight=weight, residual=residual, norm_eps=norm_eps, out_scale=out_scale)
        return made.out if residual is None else (made.out, made.residual_out)
    owners = owners_of(weight=weight)
    return _layer_functions.RmsNorm.apply(x, weight, residual, norm_eps, out_scale, owners)


def linear(x: Tensor, weight: Tensor, *, bias: Tensor | None = None, out_dtype: str = "bf16") -> Tensor:
    """x @ weight.T + bias by the op gemm_bf16: products of bf16 added in f32, and so in its gradients.

      x       bf16 [T.., K]
      weight  bf16 [N, K]
      bias    f32 [N], or None
      result  out_dtype [T.., N], bf16 or f32; a gradient in f32 is rounded to bf16 before it is multiplied

    Errors:  those of the op gemm_bf16.
    Example: logits = linear(x, router, out_dtype="f32")
    """
    rows = x.flatten(0, -2)
    if not records("linear", x, weight, bias):
        out: Tensor = tessera.gemm_bf16(rows, weight, bias=bias, out_dtype=out_dtype)
    else:
        owners = owners_of(weight=weight, bias=bias)
        out = _layer_functions.Linear.apply(rows, weight, bias, out_dtype, owners)
    return out.view(*x.shape[:-1], weight.shape[0])


def rotary(
    x: Tensor,
    cos_sin: Tensor,
    *,
    positions: Tensor | None = None,
    interleaved: bool = False,
    conjugate: bool = False,
    position_offset: int = 0,
    cos_sin_layout: str = "halves",
) -> Tensor:
    """Rotates the pairs of each head by the angle of its token's position.

      x          bf16 or f32 [T.., h, R]
      cos_sin    f32 [angles, R], R 64 or 128
      positions  i32 or i64 [T..], or None: the number of each token in its sequence
      result     as x, a new tensor

    Errors:  those of the op apply_rotary.
    Example: query = rotary(query, cos_sin, positions=positions)
    """
    options: dict[str, Any] = {
        "interleaved": interleaved,
        "position_offset": position_offset,
        "cos_sin_layout": cos_sin_layout,
    }
    if not records("rotary", x):
        with torch.no_grad():
            return _layer_functions._rotated(x, cos_sin, positions, conjugate, options)
    recorded: Tensor = _layer_functions.Rotary.apply(x, cos_sin, positions, conjugate, options)
    return recorded


def pre_split_mixes(
    input_mixes: Tensor, scale: Tensor, base: Tensor, *, post_mult_value: float = 1.0, pre_eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Splits the projected residual into the mixes before and after a sub-layer and the logits between streams.

      input_mixes  f32 [T.., M], M = n (n + 2)
      scale        f32 [3]
      base         f32 [M]
      results      pre_mix, post_mix f32 [T.., n]; comb_logits f32 [T.., n, n]

    Errors:  those of the op pre_split_mixes_fwd; gradients need post_mult_value other than 0.
    Example: pre_mix, post_mix, comb_logits = pre_split_mixes(input_mixes, scale, base)
    """
    if not records("pre_split_mixes", input_mixes, scale, base):
        made = tessera.pre_split_mixes_fwd(input_mixes, scale, base, post_mult_value=post_mult_value, pre_eps=pre_eps)
        return made.pre_mix, made.post_mix, made.comb_logits
    owners = owners_of(scale=scale, base=base)
    recorded: tuple[Tensor, Tensor, Tensor] = _mhc_functions.PreSplitMixes.apply(input_mixes, scale, base, post_mult_value, pre_eps, owners)
    return recorded


def sinkhorn(x: Tensor, *, repeat: int = 10, eps: float = 1e-6) -> Tensor:
    """Makes matrices of logits nearly doubly stochastic.

      x       f32 [T.., n, n]
      result  f32 [T.., n, n]: softmax of the rows, then columns and rows in turn, `repeat` times

    Errors:  those of the op sinkhorn_fwd.
    Example: comb_mix = sinkhorn(comb_logits)
    """
    if not records("sinkhorn", x):
        return tessera.sinkhorn_fwd(x, repeat=repeat, eps=eps)
    recorded: Tensor = _mhc_functions.Sinkhorn.apply(x, repeat, eps)
    return recorded


def pre_apply_mix(
    x: Tensor, mix: Tensor, *, out: Tensor | None = None, residual_grad: ResidualGrad | None = None
) -> Tensor:
    """Sums the residual streams with the weights of mix: what a sub-layer reads.

      x       bf16 [T.., n, H]
      mix     f32 [T.., n]
      result  bf16 [T.., H]; `out` if given

    Errors:  those of the op pre_apply_mix_fwd.
    Example: layer_input = pre_apply_mix(residual, pre_mix)
    """
    if not records("pre_apply_mix", x, mix, out):
        return tessera.pre_apply_mix_fwd(x, mix, out=out)
    check_out("pre_apply_mix", out)
    handle = _handle(x, residual_grad)
    x = _read(x, handle)
    # torch refuses a function of several results that writes a view.
    recorded: Tensor = _passed_on(handle if out is None else None, _mhc_functions.PreApplyMix, out, x, mix)
    return recorded


def post(
    x: Tensor,
    residual: Tensor,
    post_mix: Tensor,
    comb_mix: Tensor,
    *,
    out: Tensor | None = None,
    residual_grad: ResidualGrad | None = None,
) -> Tensor:
    """The residual after a sub-layer: its output and the streams, mixed.

      x         bf16 [T.., H]     the sub-layer's output
      residual  bf16 [T.., n, H]
      post_mix  f32 [T.., n]
      comb_mix  f32 [T.., n, n]
      result    bf16 [T.., n, H]; `out` if given

    Errors:  those of the op post_fwd; gradients need n = 4.
    Example: residual = post(layer(layer_input), residual, post_mix, comb_mix)
    """
    if not records("post", x, residual, post_mix, comb_mix, out):
        return tessera.post_fwd(x, residual, post_mix, comb_mix, out=out)
    check_out("post", out)
    residual = _read(residual, _handle(residual, residual_grad))
    recorded: Tensor = _mhc_functions.Post.apply(out, x, residual, post_mix, comb_mix)
    return recorded


def head_compute_mix(input_mix: Tensor, scale: Tensor, base: Tensor, *, pre_eps: float = 1e-6) -> Tensor:
    """The weights with which the head reads the residual streams.

      input_mix  f32 [T.., n]   last stride 1
      scale      f32 [1]
      base       f32 [n]
      result     f32 [T.., n]

    Errors:  those of the op head_compute_mix_fwd.
    Example: mix = head_compute_mix(norm_fn(residual, fn)[..., :4], scale, base)
    """
    if not records("head_compute_mix", input_mix, scale, base):
        return tessera.head_compute_mix_fwd(input_mix, scale, base, pre_eps=pre_eps)
    recorded: Tensor = _mhc_functions.HeadComputeMix.apply(input_mix, scale, base, pre_eps, owners_of(scale=scale, base=base))
    return recorded


def mhc_pre(
    residual: Tensor,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
    pre_eps: float = 1e-6,
    sinkhorn_eps: float = 1e-6,
    post_mult_value: float = 1.0,
    sinkhorn_repeat: int = 10,
    n_splits: int = 16,
) -> tuple[Tensor, MhcContext]:
    """All that stands before a sub-layer: what it reads, and the mixes for mhc_post.

      residual     bf16 [T.., n, H]
      fn           f32 [M, n*H], M = n (n + 2)
      scale, base  f32 [3], f32 [M]
      norm_weight  f32 [n*H], or None
      results      layer_input bf16 [T.., H]; MhcContext

    Equal to norm_fn, pre_split_mixes, sinkhorn and pre_apply_mix in turn, bit for bit.

    Errors:  those of the ops pre_big_fuse and mhc_pre_bwd; gradients need post_mult_value other than 0.
    Example: layer_input, context = mhc_pre(residual, fn, scale, base)
             residual = mhc_post(layer(layer_input), residual, context)
    """
    options: dict[str, Any] = {
        "norm_eps": norm_eps,
        "pre_eps": pre_eps,
        "sinkhorn_eps": sinkhorn_eps,
        "post_mult_value": post_mult_value,
        "sinkhorn_repeat": sinkhorn_repeat,
        "n_splits": n_splits,
    }
    if not records("mhc_pre", residual, fn, scale, base, norm_weight):
        made = tessera.pre_big_fuse(residual, fn, scale, base, norm_weight=norm_weight, **options)
        return made.layer_input, MhcContext(made.post_mix, made.comb_mix, None)
    handle = _handle(residual, ResidualGrad())
    owners = owners_of(fn=fn, scale=scale, base=base, norm_weight=norm_weight)
    layer_input, post_mix, comb_mix = _passed_on(
        handle, _mhc_functions.MhcPre, _read(residual, handle), fn, scale, base, norm_weight, options, owners
    )
    return layer_input, MhcContext(post_mix, comb_mix, handle)


def mhc_post(x: Tensor, residual: Tensor, context: MhcContext, *, out: Tensor | None = None) -> Tensor:
    """The residual after a sub-layer, with the mixes of the mhc_pre before it.

      x         bf16 [T.., H]     the sub-layer's output
      residual  bf16 [T.., n, H]  the one that mhc_pre read
      context   of mhc_pre
      result    bf16 [T.., n, H]; `out` if given

    Errors:  those of post.
    Example: residual = mhc_post(layer(layer_input), residual, context)
    """
    return post(x, residual, context.post_mix, context.comb_mix, out=out, residual_grad=context.residual_grad)


def mhc_head(
    residual: Tensor,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
    pre_eps: float = 1e-6,
    n_splits: int = 16,
) -> Tensor:
    """One row per token from the streams of the last residual.

      residual     bf16 [T.., n, H]
      fn           f32 [R, n*H], n <= R <= 32; rows from the n-th on are not used
      scale, base  f32 [1], f32 [n]
      norm_weight  f32 [n*H], or None
      result       bf16 [T.., H]

    Errors:  those of the ops mhc_head_fwd and mhc_head_bwd.
    Example: logits = lm_head(mhc_head(residual, fn, scale, base))
    """
    options: dict[str, Any] = {"norm_eps": norm_eps, "pre_eps": pre_eps, "n_splits": n_splits}
    if not records("mhc_head", residual, fn, scale, base, norm_weight):
        made = tessera.mhc_head_fwd(
            residual, fn, scale, base, norm_weight=norm_weight, save_for_backward=False, **options
        )
        out: Tensor = made.out
        return out
    owners = owners_of(fn=fn, scale=scale, base=base, norm_weight=norm_weight)
    recorded: Tensor = _mhc_functions.MhcHead.apply(residual, fn, scale, base, norm_weight, options, owners)
    return recorded


def _handle(residual: Tensor, given: ResidualGrad | None) -> ResidualGrad | None:
    """The handle, where it is of use. A compiled graph adds the gradients itself."""
    return given if residual.requires_grad and not torch.compiler.is_compiling() else None


def _read(residual: Tensor, handle: ResidualGrad | None) -> Tensor:
    return residual if handle is None else handle.read(residual)


def _passed_on(handle: ResidualGrad | None, function: Any, *arguments: Any) -> Any:
    """Applies a function that returns the residual as its last result if it is asked to, which goes to the handle."""
    if handle is None:
        return function.apply(*arguments, False)
    *results, residual = function.apply(*arguments, True)
    handle.pass_on(residual)
    return results[0] if len(results) == 1 else results
