"""The autograd functions of attention, which join a forward op to its backward op, and the form of torch."""

from __future__ import annotations

from typing import Any

import torch

import tessera
from tessera import _errors
from tessera._autograd import Function, differentiable_once, rows

Tensor = torch.Tensor


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
    ) -> tuple[Tensor, Tensor]:
        made = tessera.attention_fwd(q, k, v, q_lengths=q_lengths, k_lengths=k_lengths, sink=sink, **options)
        ctx.save_for_backward(q, k, v, made.out, made.lse, q_lengths, k_lengths, sink)
        ctx.options = options
        ctx.set_materialize_grads(False)
        if sink is not None:  # the backward op takes no gradient of lse beside a sink
            ctx.mark_non_differentiable(made.lse)
        return made.out, made.lse

    @staticmethod
    @differentiable_once("attention")
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        q, k, v, out, lse, q_lengths, k_lengths, sink = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return (None,) * 7
        grads = tessera.attention_bwd(
            rows(grad_out, like=out),
            q,
            k,
            v,
            out,
            lse,
            q_lengths=q_lengths,
            k_lengths=k_lengths,
            sink=sink,
            grad_lse=None if grad_lse is None or sink is not None else rows(grad_lse),
            **ctx.options,
        )
        grad_sink = grads.grad_sink if sink is not None else None
        return grads.grad_q, grads.grad_k, grads.grad_v, None, None, grad_sink, None


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
    ) -> tuple[Tensor, Tensor]:
        made = tessera.attention_varlen_fwd(q, k, v, cu_q, cu_k, sink=sink, **options)
        ctx.save_for_backward(q, k, v, made.out, made.lse, cu_q, cu_k, sink)
        ctx.options = options
        ctx.set_materialize_grads(False)
        if sink is not None:  # the backward op takes no gradient of lse beside a sink
            ctx.mark_non_differentiable(made.lse)
        return made.out, made.lse

    @staticmethod
    @differentiable_once("attention_varlen")
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        q, k, v, out, lse, cu_q, cu_k, sink = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return (None,) * 7
        grads = tessera.attention_varlen_bwd(
            rows(grad_out, like=out),
            q,
            k,
            v,
            out,
            lse,
            cu_q,
            cu_k,
            sink=sink,
            grad_lse=None if grad_lse is None or sink is not None else rows(grad_lse),
            **ctx.options,
        )
        grad_sink = grads.grad_sink if sink is not None else None
        return grads.grad_q, grads.grad_k, grads.grad_v, None, None, grad_sink, None


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
