"""The autograd functions of attention, which join a forward op to its backward op, and the form of torch."""

from __future__ import annotations

from typing import Any

import torch

import tessera
from tessera import _errors
from tessera._autograd import Function, differentiable_once, rows

Tensor = torch.Tensor


def _forward(ctx: Any, op: Any, tensors: tuple[Tensor, ...], options: dict[str, Any], **more: Tensor | None) -> Any:
    made = op(*tensors, **more, **options)
    ctx.save_for_backward(*tensors, made.out, made.lse, *more.values())
    ctx.names, ctx.options = tuple(more), options
    ctx.set_materialize_grads(False)
    if more["sink"] is not None:  # the backward op takes no gradient of lse beside a sink
        ctx.mark_non_differentiable(made.lse)
    return made.out, made.lse


def _backward(ctx: Any, op: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
    q, k, v, out, lse, *rest = ctx.saved_tensors
    if grad_out is None and grad_lse is None:
        return (None,) * 7
    more = dict(zip(ctx.names, rest))
    has_sink = more["sink"] is not None
    of_lse = None if grad_lse is None or has_sink else rows(grad_lse)
    grads = op(rows(grad_out, like=out), q, k, v, out, lse, **more, grad_lse=of_lse, **ctx.options)
    return grads.grad_q, grads.grad_k, grads.grad_v, None, None, grads.grad_sink if has_sink else None, None


class Attention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_lengths: Tensor | None,
        k_lengths: Tensor | None,
        sink: Tensor | None,
        options: dict[str, Any],
    ) -> Any:
        more = {"q_lengths": q_lengths, "k_lengths": k_lengths, "sink": sink}
        return _forward(ctx, tessera.attention_fwd, (q, k, v), options, **more)

    @staticmethod
    @differentiable_once("attention")
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        return _backward(ctx, tessera.attention_bwd, grad_out, grad_lse)


class PackedAttention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_q: Tensor,
        cu_k: Tensor,
        sink: Tensor | None,
        options: dict[str, Any],
    ) -> Any:
        return _forward(ctx, tessera.attention_varlen_fwd, (q, k, v), options, cu_q=cu_q, cu_k=cu_k, sink=sink)

    @staticmethod
    @differentiable_once("attention_varlen")
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        return _backward(ctx, tessera.attention_varlen_bwd, grad_out, grad_lse)


def check_torch_form(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool, enable_gqa: bool
) -> None:
    """Errors: UnsupportedError for what torch's scaled_dot_product_attention has and the ops have not."""

    def refuse(argument: str, expected: str, got: str) -> None:
        op = "scaled_dot_product_attention"
        text = f"tessera: {op}: argument '{argument}' is not supported\n  expected  {expected}\n  got       {got}"
        raise _errors.UnsupportedError(text, op, argument, expected, got, "", "")

    if attn_mask is not None:
        refuse("attn_mask", "None; tessera.functional.attention has causal, windows and lengths", "a tensor")
    if dropout_p != 0:
        refuse("dropout_p", "0", str(dropout_p))
    if query.dim() != 4 or key.dim() != 4:
        refuse("query", "tensors [batch, heads, rows, width]", f"{query.dim()} and {key.dim()} dimensions")
    if is_causal and query.shape[2] != key.shape[2]:
        expected = "as many rows in 'query' as in 'key': torch aligns the mask at the first row, Tessera at the last"
        refuse("is_causal", expected, f"{query.shape[2]} and {key.shape[2]}")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        refuse("enable_gqa", "True where heads of 'query' share those of 'key'", "False")
