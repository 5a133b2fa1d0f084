"""The autograd functions of the hyper-connections: each joins a forward op to its backward op."""

from __future__ import annotations

from typing import Any

import torch

import tessera
from tessera._autograd import Function, Owners, accumulators, differentiable_once, parameter_gradients, rows
from tessera._residual_grad import ResidualUser

Tensor = torch.Tensor


def _accumulator(user: ResidualUser | None) -> Any:
    return None if user is None else user.accumulator()


def _finish(user: ResidualUser | None, gradient: Tensor) -> Tensor | None:
    return gradient if user is None else user.finish(gradient)


class ExpandToMhc(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor | None, mhc_mult: int) -> Tensor:
        if out is not None:
            ctx.mark_dirty(out)
        return tessera.expand_to_mhc_fwd(x, mhc_mult=mhc_mult, out=out)

    @staticmethod
    @differentiable_once("expand_to_mhc")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        return tessera.expand_to_mhc_bwd(rows(grad_out)), None, None


class NormFn(Function):
    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor,
        fn: Tensor,
        norm_weight: Tensor | None,
        norm_eps: float,
        n_splits: int,
        user: ResidualUser | None,
        owners: Owners | None,
    ) -> Tensor:
        made = tessera.norm_fn_fwd(
            residual, fn, norm_weight=norm_weight, norm_eps=norm_eps, n_splits=n_splits, save_for_backward=True
        )
        ctx.save_for_backward(residual, fn, norm_weight, made.out_mul, made.sqrsum)
        ctx.norm_eps, ctx.user, ctx.owners = norm_eps, user, owners
        return made.out

    @staticmethod
    @differentiable_once("norm_fn")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        residual, fn, norm_weight, out_mul, sqrsum = ctx.saved_tensors
        grads = tessera.norm_fn_bwd(
            rows(grad_out),
            residual,
            fn,
            out_mul,
            sqrsum,
            norm_weight=norm_weight,
            norm_eps=ctx.norm_eps,
            grad_residual=_accumulator(ctx.user),
            **accumulators(ctx.owners),
        )
        return (
            _finish(ctx.user, grads.grad_residual),
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
    def forward(ctx: Any, x: Tensor, mix: Tensor, out: Tensor | None, user: ResidualUser | None) -> Tensor:
        if out is not None:
            ctx.mark_dirty(out)
        ctx.save_for_backward(x, mix)
        ctx.user = user
        return tessera.pre_apply_mix_fwd(x, mix, out=out)

    @staticmethod
    @differentiable_once("pre_apply_mix")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, mix = ctx.saved_tensors
        grads = tessera.pre_apply_mix_bwd(rows(grad_out), x, mix, grad_x=_accumulator(ctx.user))
        return _finish(ctx.user, grads.grad_x), grads.grad_mix, None, None


class Post(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor,
        post_mix: Tensor,
        comb_mix: Tensor,
        out: Tensor | None,
        user: ResidualUser | None,
    ) -> Tensor:
        if out is not None:
            ctx.mark_dirty(out)
        ctx.save_for_backward(x, residual, post_mix, comb_mix)
        ctx.user = user
        return tessera.post_fwd(x, residual, post_mix, comb_mix, out=out)

    @staticmethod
    @differentiable_once("post")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        grads = tessera.post_bwd(rows(grad_out), *ctx.saved_tensors)
        return (
            grads.grad_x,
            _finish(ctx.user, grads.grad_residual),
            grads.grad_post_mix,
            grads.grad_comb_mix,
            None,
            None,
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
        user: ResidualUser | None,
        owners: Owners | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
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
        ctx.options, ctx.user, ctx.owners = options, user, owners
        return made.layer_input, made.post_mix, made.comb_mix

    @staticmethod
    @differentiable_once("mhc_pre")
    def backward(ctx: Any, grad_layer_input: Tensor, grad_post_mix: Tensor, grad_comb_mix: Tensor) -> Any:
        residual, fn, scale, base, norm_weight, *made = ctx.saved_tensors
        options = ctx.options
        grads = tessera.mhc_pre_bwd(
            rows(grad_layer_input),
            rows(grad_post_mix),
            rows(grad_comb_mix),
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
            grad_residual=_accumulator(ctx.user),
            **accumulators(ctx.owners),
        )
        return (
            _finish(ctx.user, grads.grad_residual),
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
