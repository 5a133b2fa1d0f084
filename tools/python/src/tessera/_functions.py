"""The autograd functions of Engram's gate and of the gated activation: each joins a forward op to its backward op."""

from __future__ import annotations

from typing import Any, Final

import torch

import tessera
from tessera._autograd import Function, Owners, accumulators, differentiable_once, parameter_gradients, rows

Tensor = torch.Tensor


class EngramGate(Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        k: Tensor,
        v: Tensor,
        weight_hidden: Tensor,
        weight_embed: Tensor,
        image_token_mask: Tensor | None,
        eps: float,
        clamp_value: float,
        owners: Owners | None,
    ) -> Tensor:
        made = tessera.engram_fwd(
            hidden_states,
            k,
            v,
            weight_hidden,
            weight_embed,
            image_token_mask=image_token_mask,
            eps=eps,
            clamp_value=clamp_value,
            save_for_backward=True,
        )
        ctx.save_for_backward(
            hidden_states,
            k,
            v,
            made.weight_fused,
            made.dot,
            made.gate_score,
            made.rstd_x,
            made.rstd_k,
            weight_hidden,
            weight_embed,
            image_token_mask,
        )
        ctx.clamp_value, ctx.owners = clamp_value, owners
        return made.out

    @staticmethod
    @differentiable_once("engram_gate")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        *saved, image_token_mask = ctx.saved_tensors
        grads = tessera.engram_bwd(
            rows(grad_out),
            *saved,
            image_token_mask=image_token_mask,
            clamp_value=ctx.clamp_value,
            **accumulators(ctx.owners),
        )
        return (
            grads.grad_hidden_states,
            grads.grad_k,
            grads.grad_v,
            *parameter_gradients(ctx.owners, grads, weight_hidden=saved[8], weight_embed=saved[9]),
            *(None, None, None, None),
        )


class SwigluKept:
    """Results of the backward pass of swiglu_and_per_token_cast beside its gradient; None until it has run.

      out            bf16 [P, H]     the activation, weighted: of the x that the pass reads
      grad_x_fp8     e4m3 [P, 2H]    the gradient of x
      grad_x_fp8_sf  f32 [P, 2H/128]

    The product that made x reads grad_x_fp8 for the gradient of its rows. The gradient of the weight of the product after
    the activation is a product with `out`.
    """

    __slots__ = ("grad_x_fp8", "grad_x_fp8_sf", "out")

    def __init__(self) -> None:
        self.out: Tensor | None = None
        self.grad_x_fp8: Tensor | None = None
        self.grad_x_fp8_sf: Tensor | None = None


class SwigluAndPerTokenCast(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        topk_weights: Tensor | None,
        pos_to_token_topk: Tensor | None,
        token_topk_to_pos: Tensor | None,
        pos_to_expert: Tensor | None,
        options: dict[str, Any],
        kept: SwigluKept | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = tessera.swiglu_forward_and_per_token_cast(
            x,
            pos_to_token_topk=pos_to_token_topk,
            topk_weights=topk_weights,
            pos_to_expert=pos_to_expert,
            **options,
        )
        # The backward op reads x as e4m3, half the bytes of bf16.
        saved = tessera.per_token_cast(x, format="e4m3", num_per_channels=_GROUP)
        ctx.save_for_backward(
            saved.out, saved.out_sf, topk_weights, pos_to_token_topk, token_topk_to_pos, pos_to_expert
        )
        ctx.dtype, ctx.options, ctx.kept = x.dtype, options, kept
        ctx.mark_non_differentiable(made.out, made.out_sf)
        activation = x.new_zeros((), dtype=torch.bfloat16).expand(x.shape[0], x.shape[1] // 2)
        return made.out, made.out_sf, activation

    @staticmethod
    @differentiable_once("swiglu_and_per_token_cast")
    def backward(ctx: Any, _grad_out: Tensor, _grad_out_sf: Tensor, grad_activation: Tensor) -> Any:
        x, x_sf, weights, row_to_slot, slot_to_row, pos_to_expert = ctx.saved_tensors
        count = x.shape[0]
        has_weights = weights is not None
        if not has_weights:  # one slot of weight 1 per row
            row_to_slot = torch.arange(count, dtype=torch.int32, device=x.device)
            slot_to_row = row_to_slot.view(count, 1)
            weights = torch.ones(count, 1, dtype=torch.float32, device=x.device)
        if pos_to_expert is not None:  # padding has weight 0
            row_to_slot = torch.where(pos_to_expert < 0, -1, row_to_slot).to(torch.int32)
        grads = tessera.swiglu_backward_and_per_token_cast(
            x,
            x_sf,
            rows(grad_activation),
            weights,
            row_to_slot,
            slot_to_row,
            num_per_channels=_GROUP,
            round_sf=ctx.options["round_sf"],
            swiglu_clamp_value=ctx.options["swiglu_clamp_value"],
        )
        if ctx.kept is not None:
            ctx.kept.out, ctx.kept.grad_x_fp8, ctx.kept.grad_x_fp8_sf = grads.out, grads.grad_x_fp8, grads.grad_x_fp8_sf
        return (
            grads.grad_x.to(ctx.dtype),
            grads.grad_weight if has_weights else None,
            *(None, None, None, None, None),
        )


_GROUP: Final = 128  # columns of the saved x with one scale
