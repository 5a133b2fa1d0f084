"""The autograd functions of tessera.functional: each joins a forward op to its backward op."""

from __future__ import annotations

from typing import Any

import torch

import tessera
from tessera._autograd import Owners, accumulators, differentiable_once, parameter_gradient
from tessera._residual_grad import ResidualUser

Tensor = torch.Tensor


def _rows(gradient: Tensor) -> Tensor:
    """The backward ops read row-major gradients."""
    return gradient.contiguous()


def _accumulator(user: ResidualUser | None) -> Tensor | None:
    return None if user is None else user.accumulator()


def _finish(user: ResidualUser | None, gradient: Tensor) -> Tensor | None:
    return gradient if user is None else user.finish(gradient)


class EngramGate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        k: Tensor,
        v: Tensor,
        weight_hidden: Tensor,
        weight_embed: Tensor,
        eps: float,
        clamp_value: float,
        owners: Owners | None,
    ) -> Tensor:
        made = tessera.engram_fwd(
            hidden_states, k, v, weight_hidden, weight_embed, eps=eps, clamp_value=clamp_value, save_for_backward=True
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
        )
        ctx.clamp_value, ctx.owners = clamp_value, owners
        return made.out

    @staticmethod
    @differentiable_once("engram_gate")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        saved = ctx.saved_tensors
        grads = tessera.engram_bwd(
            _rows(grad_out), *saved, clamp_value=ctx.clamp_value, **accumulators(ctx.owners)
        )
        return (
            grads.grad_hidden_states,
            grads.grad_k,
            grads.grad_v,
            parameter_gradient(ctx.owners, "weight_hidden", saved[8], grads.grad_weight_hidden),
            parameter_gradient(ctx.owners, "weight_embed", saved[9], grads.grad_weight_embed),
            None,
            None,
            None,
        )


class ExpandToMhc(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor | None, mhc_mult: int) -> Tensor:
        if out is not None:
            ctx.mark_dirty(out)
        return tessera.expand_to_mhc_fwd(x, mhc_mult=mhc_mult, out=out)

    @staticmethod
    @differentiable_once("expand_to_mhc")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        return tessera.expand_to_mhc_bwd(_rows(grad_out)), None, None


class NormFn(torch.autograd.Function):
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
            _rows(grad_out),
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
            parameter_gradient(ctx.owners, "fn", fn, grads.grad_fn),
            parameter_gradient(ctx.owners, "norm_weight", norm_weight, grads.grad_norm_weight),
            None,
            None,
            None,
            None,
        )


class PreSplitMixes(torch.autograd.Function):
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
            _rows(grad_pre_mix),
            _rows(grad_post_mix),
            _rows(grad_comb_logits),
            input_mixes,
            post_mix,
            scale,
            base,
            post_mult_value=ctx.post_mult_value,
            **accumulators(ctx.owners),
        )
        return (
            grads.grad_input_mixes,
            parameter_gradient(ctx.owners, "scale", scale, grads.grad_scale),
            parameter_gradient(ctx.owners, "base", base, grads.grad_base),
            None,
            None,
            None,
        )


class Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, repeat: int, eps: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.repeat, ctx.eps = repeat, eps
        return tessera.sinkhorn_fwd(x, repeat=repeat, eps=eps)

    @staticmethod
    @differentiable_once("sinkhorn")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return tessera.sinkhorn_bwd(_rows(grad_out), x, repeat=ctx.repeat, eps=ctx.eps), None, None


class PreApplyMix(torch.autograd.Function):
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
        grads = tessera.pre_apply_mix_bwd(_rows(grad_out), x, mix, grad_x=_accumulator(ctx.user))
        return _finish(ctx.user, grads.grad_x), grads.grad_mix, None, None


class Post(torch.autograd.Function):
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
        grads = tessera.post_bwd(_rows(grad_out), *ctx.saved_tensors)
        return (
            grads.grad_x,
            _finish(ctx.user, grads.grad_residual),
            grads.grad_post_mix,
            grads.grad_comb_mix,
            None,
            None,
        )


class HeadComputeMix(torch.autograd.Function):
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
            _rows(grad_out), input_mix, scale, base, **accumulators(ctx.owners)
        )
        return (
            grads.grad_input_mix,
            parameter_gradient(ctx.owners, "scale", scale, grads.grad_scale),
            parameter_gradient(ctx.owners, "base", base, grads.grad_base),
            None,
            None,
        )


class MhcPre(torch.autograd.Function):
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
            _rows(grad_layer_input),
            _rows(grad_post_mix),
            _rows(grad_comb_mix),
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
            parameter_gradient(ctx.owners, "fn", fn, grads.grad_fn),
            parameter_gradient(ctx.owners, "scale", scale, grads.grad_scale),
            parameter_gradient(ctx.owners, "base", base, grads.grad_base),
            parameter_gradient(ctx.owners, "norm_weight", norm_weight, grads.grad_norm_weight),
            None,
            None,
            None,
        )


class MhcHead(torch.autograd.Function):
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
        return made.out

    @staticmethod
    @differentiable_once("mhc_head")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        residual, fn, scale, base, norm_weight, *made = ctx.saved_tensors
        grads = tessera.mhc_head_bwd(
            _rows(grad_out),
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
            parameter_gradient(ctx.owners, "fn", fn, grads.grad_fn),
            parameter_gradient(ctx.owners, "scale", scale, grads.grad_scale),
            parameter_gradient(ctx.owners, "base", base, grads.grad_base),
            parameter_gradient(ctx.owners, "norm_weight", norm_weight, grads.grad_norm_weight),
            None,
            None,
        )


class SwigluAndPerTokenCast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        topk_weights: Tensor | None,
        pos_to_token_topk: Tensor | None,
        token_topk_to_pos: Tensor | None,
        pos_to_expert: Tensor | None,
        options: dict[str, Any],
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
        ctx.dtype, ctx.options = x.dtype, options
        ctx.mark_non_differentiable(made.out, made.out_sf)
        activation = x.new_zeros((), dtype=torch.bfloat16).expand(x.shape[0], x.shape[1] // 2)
        return made.out, made.out_sf, activation

    @staticmethod
    @differentiable_once("swiglu_and_per_token_cast")
    def backward(ctx: Any, _grad_out: Tensor, _grad_out_sf: Tensor, grad_activation: Tensor) -> Any:
        x, x_sf, weights, row_to_slot, slot_to_row, pos_to_expert = ctx.saved_tensors
        rows = x.shape[0]
        has_weights = weights is not None
        if not has_weights:  # one slot of weight 1 per row
            row_to_slot = torch.arange(rows, dtype=torch.int32, device=x.device)
            slot_to_row = row_to_slot.view(rows, 1)
            weights = torch.ones(rows, 1, dtype=torch.float32, device=x.device)
        if pos_to_expert is not None:  # padding has weight 0
            row_to_slot = torch.where(pos_to_expert < 0, -1, row_to_slot).to(torch.int32)
        grads = tessera.swiglu_backward_and_per_token_cast(
            x,
            x_sf,
            _rows(grad_activation),
            weights,
            row_to_slot,
            slot_to_row,
            num_per_channels=_GROUP,
            swiglu_clamp_value=ctx.options["swiglu_clamp_value"],
        )
        return (
            grads.grad_x.to(ctx.dtype),
            grads.grad_weight if has_weights else None,
            None,
            None,
            None,
            None,
        )


_GROUP = 128  # columns of the saved x with one scale
