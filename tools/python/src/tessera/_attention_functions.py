"""The autograd function of attention: it joins the forward op to the backward op."""

from __future__ import annotations

from typing import Any

import torch

import tessera
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
