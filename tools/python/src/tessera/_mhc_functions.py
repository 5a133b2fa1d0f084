"""The autograd functions of the hyper-connections: each joins a forward op to its backward op."""

from __future__ import annotations

from typing import Any

import torch

import tessera
from tessera._autograd import Function, Owners, accumulators, differentiable_once, parameter_gradients, rows
from tessera._residual_grad import sum_of

Tensor = torch.Tensor


def _of_overwritten(ctx: Any, grad_out: Tensor) -> Tensor | None:
    """The gradient of a given `out`, whose old values nothing reads. It is the first argument of its function, and its gradient
    is no None: else torch forgets other gradients of the tensor that `out` is a view of."""
    return grad_out.new_zeros(()).expand_as(grad_out) if ctx.needs_input_grad[0] else None


class ExpandToMhc(Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor | None, x: Tensor, mhc_mult: int) -> Tensor:
        if out is not None:
            ctx.mark_dirty(out)
        return tessera.expand_to_mhc_fwd(x, mhc_mult=mhc_mult, out=out)

    @staticmethod
    @differentiable_once("expand_to_mhc")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        return _of_overwritten(ctx, grad_out), tessera.expand_to_mhc_bwd(rows(grad_out)), None


class NormFn(Function):
    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor,
        fn: Tensor,
        norm_weight: Tensor | None,
        norm_eps: float,
        n_splits: int,
        owners: Owners | None,
        passes_on: bool,
    ) -> Any:
        made = tessera.norm_fn_fwd(
            residual, fn, norm_weight=norm_weight, norm_eps=norm_eps, n_splits=n_splits, save_for_backward=True
        )
        ctx.save_for_backward(residual, fn, norm_weight, made.out_mul, made.sqrsum)
        ctx.norm_eps, ctx.owners = norm_eps, owners
        if not passes_on:
            return made.out
        ctx.set_materialize_grads(False)
        return made.out, residual

    @staticmethod
    @differentiable_once("norm_fn")
    def backward(ctx: Any, grad_out: Tensor | None, later: Tensor | None = None) -> Any:
        if grad_out is None:
            return later, *(None,) * 6
        residual, fn, norm_weight, out_mul, sqrsum = ctx.saved_tensors
        grads = tessera.norm_fn_bwd(
            rows(grad_out),
            residual,
            fn,
            out_mul,
            sqrsum,
            norm_weight=norm_weight,
            norm_eps=ctx.norm_eps,
            grad_residual=sum_of(later),
            **accumulators(ctx.owners),
        )
        return (
            grads.grad_residual,
            *parameter_gradients(ctx.owners, grads, fn=fn, norm_weight=norm_weight),
            *(None, None, None, None),
        )


class PreSplitMixes(Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_mixes: Tensor,
        scale: Tensor,
        base: Tensor,
        post_mult_value: float,
        pre_eps: float,
        owners: Owners | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = tessera.pre_split_mixes_fwd(
            input_mixes, scale, base, post_mult_value=post_mult_value, pre_eps=pre_eps
        )
        ctx.save_for_backward(input_mixes, made.post_mix, scale, base)
        ctx.post_mult_value, ctx.owners = post_mult_value, owners
        return made.pre_mix, made.post_mix, made.comb_logits

    @staticmethod
    @differentiable_once("pre_split_mixes")
    def backward(ctx: Any, grad_pre_mix: Tensor, grad_post_mix: Tensor, grad_comb_logits: Tensor) -> Any:
        input_mixes, post_mix, scale, base = ctx.saved_tensors
        grads = tessera.pre_split_mixes_bwd(
            rows(grad_pre_mix),
            rows(grad_post_mix),
            rows(grad_comb_logits),
            input_mixes,
            post_mix,
            scale,
            base,
            post_mult_value=ctx.post_mult_value,
            **accumulators(ctx.owners),
        )
        return (
            grads.grad_input_mixes,
            *parameter_gradients(ctx.owners, grads, scale=scale, base=base),
            *(None, None, None),
        )


class Sinkhorn(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, repeat: int, eps: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.repeat, ctx.eps = repeat, eps
        return tessera.sinkhorn_fwd(x, repeat=repeat, eps=eps)

    @staticmethod
    @differentiable_once("sinkhorn")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return tessera.sinkhorn_bwd(rows(grad_out), x, repeat=ctx.repeat, eps=ctx.eps), None, None


class PreApplyMix(Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor | None, x: Tensor, mix: Tensor, passes_on: bool) -> Any:
        if out is not None:
            ctx.mark_dirty(out)
        ctx.save_for_backward(x, mix)
        made = tessera.pre_apply_mix_fwd(x, mix, out=out)
        if not passes_on:
            return made
        ctx.set_materialize_grads(False)
        return made, x

    @staticmethod
    @differentiable_once("pre_apply_mix")
    def backward(ctx: Any, grad_out: Tensor | None, later: Tensor | None = None) -> Any:
        if grad_out is None:
            return None, later, None, None
        x, mix = ctx.saved_tensors
        grads = tessera.pre_apply_mix_bwd(rows(grad_out), x, mix, grad_x=sum_of(later))
        return _of_overwritten(ctx, grad_out), grads.grad_x, grads.grad_mix, None


class Post(Function):
    @staticmethod
    def forward(
        ctx: Any,
        out: Tensor | None,
        x: Tensor,
        residual: Tensor,
        post_mix: Tensor,
        comb_mix: Tensor,
    ) -> Tensor:
        if out is not None:
            ctx.mark_dirty(out)
        ctx.save_for_backward(x, residual, post_mix, comb_mix)
        return tessera.post_fwd(x, residual, post_mix, comb_mix, out=out)

    @staticmethod
    @differentiable_once("post")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        grads = tessera.post_bwd(rows(grad_out), *ctx.saved_tensors)
        return (
            _of_overwritten(ctx, grad_out),
            grads.grad_x,
            grads.grad_residual,
            grads.grad_post_mix,
            grads.grad_comb_mix,
        )


class HeadComputeMix(Function):
    @staticmethod
    def forward(
        ctx: Any, input_mix: Tensor, scale: Tensor, base: Tensor, pre_eps: float, owners: Owners | None
    ) -> Tensor:
        ctx.save_for_backward(input_mix, scale, base)
        ctx.owners = owners
        return tessera.head_compute_mix_fwd(input_mix, scale, base, pre_eps=pre_eps)

    @staticmethod
    @differentiable_once("head_compute_mix")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        input_mix, scale, base = ctx.saved_tensors
        grads = tessera.head_compute_mix_bwd(
            rows(grad_out), input_mix, scale, base, **accumulators(ctx.owners)
        )
        return (
            grads.grad_input_mix,
            *parameter_gradients(ctx.owners, grads, scale=scale, base=base),
            *(None, None),
        )


class MhcPre(Function):
    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor,
        fn: Tensor,
        scale: Tensor,
        base: Tensor,
        norm_weight: Tensor | None,
        options: dict[str, Any],
        owners: Owners | None,
        passes_on: bool,
    ) -> tuple[Tensor, ...]:
        made = tessera.mhc_pre_fwd(
            residual, fn, scale, base, norm_weight=norm_weight, save_for_backward=True, **options
        )
        ctx.save_for_backward(
            residual,
            fn,
            scale,
            base,
            norm_weight,
            made.out_mul,
            made.sqrsum,
            made.input_mixes,
            made.pre_mix,
            made.post_mix,
            made.comb_logits,
        )
        ctx.options, ctx.owners = options, owners
        if not passes_on:
            return made.layer_input, made.post_mix, made.comb_mix
        ctx.set_materialize_grads(False)
        return made.layer_input, made.post_mix, made.comb_mix, residual

    @staticmethod
    @differentiable_once("mhc_pre")
    def backward(
        ctx: Any,
        grad_layer_input: Tensor | None,
        grad_post_mix: Tensor | None,
        grad_comb_mix: Tensor | None,
        later: Tensor | None = None,
    ) -> Any:
        if grad_layer_input is None and grad_post_mix is None and grad_comb_mix is None:
            return later, *(None,) * 7
        residual, fn, scale, base, norm_weight, *made = ctx.saved_tensors
        options = ctx.options
        grads = tessera.mhc_pre_bwd(
            rows(grad_layer_input, residual[..., 0, :]),
            rows(grad_post_mix, made[4]),
            rows(grad_comb_mix, made[5]),
            residual,
            fn,
            scale,
            base,
            *made,
            norm_weight=norm_weight,
            norm_eps=options["norm_eps"],
            sinkhorn_eps=options["sinkhorn_eps"],
            post_mult_value=options["post_mult_value"],
            sinkhorn_repeat=options["sinkhorn_repeat"],
            grad_residual=sum_of(later),
            **accumulators(ctx.owners),
        )
        return (
            grads.grad_residual,
            *parameter_gradients(ctx.owners, grads, fn=fn, scale=scale, base=base, norm_weight=norm_weight),
            *(None, None, None),
        )


class MhcHead(Function):
    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor,
        fn: Tensor,
        scale: Tensor,
        base: Tensor,
        norm_weight: Tensor | None,
        options: dict[str, Any],
        owners: Owners | None,
    ) -> Tensor:
        made = tessera.mhc_head_fwd(
            residual, fn, scale, base, norm_weight=norm_weight, save_for_backward=True, **options
        )
        ctx.save_for_backward(
            residual, fn, scale, base, norm_weight, made.out_mul, made.sqrsum, made.input_mix, made.pre_mix
        )
        ctx.norm_eps, ctx.owners = options["norm_eps"], owners
        out: Tensor = made.out
        return out

    @staticmethod
    @differentiable_once("mhc_head")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        residual, fn, scale, base, norm_weight, *made = ctx.saved_tensors
        grads = tessera.mhc_head_bwd(
            rows(grad_out),
            residual,
            fn,
            scale,
            base,
            *made,
            norm_weight=norm_weight,
            norm_eps=ctx.norm_eps,
            **accumulators(ctx.owners),
        )
        return (
            grads.grad_residual,
            *parameter_gradients(ctx.owners, grads, fn=fn, scale=scale, base=base, norm_weight=norm_weight),
            *(None, None),
        )
