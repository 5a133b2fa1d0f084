"""The autograd functions of norms, activations, rotations and gates: each joins a forward op to its backward op."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

import tessera
from tessera._autograd import Function, Owners, accumulators, differentiable_once, parameter_gradients, rows

Tensor = torch.Tensor


class RmsNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        residual: Tensor | None,
        norm_eps: float,
        out_scale: float,
        owners: Owners | None,
    ) -> Any:
        made = tessera.norm_fwd(
            x, weight=weight, residual=residual, norm_eps=norm_eps, out_scale=out_scale, save_rstd=True
        )
        normed = x if residual is None else made.residual_out
        ctx.save_for_backward(normed, weight, made.rstd)
        ctx.out_scale, ctx.owners = out_scale, owners
        ctx.set_materialize_grads(False)
        return made.out if residual is None else (made.out, made.residual_out)

    @staticmethod
    @differentiable_once("rms_norm")
    def backward(ctx: Any, grad_out: Tensor | None, grad_residual_out: Tensor | None = None) -> Any:
        x, weight, rstd = ctx.saved_tensors
        if grad_out is None and grad_residual_out is None:
            return (None,) * 6
        of_residual = None if grad_residual_out is None else rows(grad_residual_out)
        grads = tessera.norm_bwd(
            rows(grad_out, like=x),
            x,
            rstd,
            weight=weight,
            grad_residual_out=of_residual,
            out_scale=ctx.out_scale,
            **accumulators(ctx.owners),
        )
        grad_weight = None
        if weight is not None:
            (grad_weight,) = parameter_gradients(ctx.owners, grads, weight=weight)
        # The residual, which is added to x, has the gradient of x.
        return grads.grad_x, grad_weight, grads.grad_x if ctx.needs_input_grad[2] else None, None, None, None


class Linear(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: str, owners: Owners | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.owners = owners
        out: Tensor = tessera.gemm_bf16(x, weight, bias=bias, out_dtype=out_dtype)
        return out

    @staticmethod
    @differentiable_once("linear")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, weight, bias = ctx.saved_tensors
        gradient, grad_x = rows(grad_out), None
        codes = gradient.to(torch.bfloat16)
        if ctx.needs_input_grad[0]:
            grad_x = tessera.gemm_bf16(codes, weight.T)
        made = SimpleNamespace(grad_weight=None, grad_bias=None)
        if ctx.needs_input_grad[1]:
            made.grad_weight = tessera.gemm_bf16(codes.T, x.T, out_dtype="f32")
        if ctx.needs_input_grad[2]:
            made.grad_bias = gradient.float().sum(0)
        for name, buffer in accumulators(ctx.owners).items():
            setattr(made, name, buffer.add_(getattr(made, name)))
        return grad_x, *parameter_gradients(ctx.owners, made, weight=weight, bias=bias), None, None


class Swiglu(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, topk_weights: Tensor | None, psum: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        ctx.save_for_backward(x, topk_weights, psum)
        ctx.options = options
        out: Tensor = tessera.swiglu_fwd(x, topk_weights=topk_weights, psum=psum, **options)
        return out

    @staticmethod
    @differentiable_once("swiglu")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, topk_weights, psum = ctx.saved_tensors
        options = {**ctx.options, "out_dtype": "f32" if x.dtype == torch.float32 else "bf16"}
        grads = tessera.swiglu_bwd(x, rows(grad_out), topk_weights=topk_weights, psum=psum, **options)
        return grads.grad_x, grads.grad_weight, None, None


class Rotary(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, cos_sin: Tensor, positions: Tensor | None, conjugate: bool, options: dict[str, Any]
    ) -> Tensor:
        ctx.save_for_backward(cos_sin, positions)
        ctx.conjugate, ctx.options = conjugate, options
        return _rotated(x, cos_sin, positions, conjugate, options)

    @staticmethod
    @differentiable_once("rotary")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        cos_sin, positions = ctx.saved_tensors
        return _rotated(grad_out, cos_sin, positions, not ctx.conjugate, ctx.options), None, None, None, None


class TopkGate(Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
        num_seqs: int,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = tessera.moe_topk_gate_fwd(logits, bias=bias, mask=mask, save_scores=True, **options)
        counts = mask
        if mask is None:
            counts = torch.ones(logits.shape[0], dtype=torch.bool, device=logits.device)
        sums = tessera.gate_scores_sum(made.scores, counts, num_seqs=num_seqs)
        ctx.save_for_backward(made.scores, made.topk_idx, made.topk_weights, counts)
        ctx.factor, ctx.num_topk = options["routed_scaling_factor"], options["num_topk"]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(made.topk_idx)
        return made.topk_idx, made.topk_weights, sums

    @staticmethod
    @differentiable_once("topk_gate")
    def backward(ctx: Any, _grad_idx: Tensor | None, grad_weights: Tensor | None, grad_sums: Tensor | None) -> Any:
        scores, topk_idx, topk_weights, counts = ctx.saved_tensors
        if grad_weights is None and grad_sums is None:
            return (None,) * 5
        routed = slice(None), slice(0, ctx.num_topk)  # shared experts have weight 1
        gradient = tessera.moe_topk_gate_bwd(
            scores,
            topk_idx[routed].contiguous(),
            topk_weights[routed].contiguous(),
            rows(grad_weights, like=topk_weights)[routed].contiguous(),
            mask=None if grad_sums is None else counts,
            grad_scores_sum=None if grad_sums is None else rows(grad_sums),
            routed_scaling_factor=ctx.factor,
        )
        return gradient, None, None, None, None


def _rotated(x: Tensor, cos_sin: Tensor, positions: Tensor | None, conjugate: bool, options: dict[str, Any]) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    tessera.apply_rotary(cos_sin, out, positions=positions, conjugate=conjugate, **options)
    return out
