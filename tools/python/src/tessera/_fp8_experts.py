"""The autograd function of experts whose products are of e4m3, weight gradients too.

Forward   tokens and weights are quantised (tokens by 128 columns, weights by 128 x 128), tokens expanded to the rows of
          their experts, multiplied, activated and weighted with a cast, multiplied and added up
Backward  the gradient of a token is quantised once and expanded. The products of rows read the same codes of the weights,
          transposed, which is exact: blocks of 128 x 128 have one scale in both directions. swiglu_backward_and_per_token_cast
          gives the gradient of the first product in codes for the next product and in bf16, and the activation. The products
          of weights sum over the rows of an expert, so their operands are quantised by 128 rows.
Saved     x, the codes of the weights and of the first product, the plan
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import torch

import tessera
from tessera._autograd import Function, Owners, accumulators, differentiable_once, parameter_gradients, rows

Tensor = torch.Tensor

_BLOCK: Final = 128  # rows and columns that share a scale, and the alignment of the rows of experts


class Fp8GroupedMlp(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w13: Tensor,
        w2: Tensor,
        topk_weights: Tensor,
        topk_idx: Tensor,
        num_rows: int,
        options: dict[str, Any],
        owners: Owners | None,
    ) -> Tensor:
        plan = tessera.get_fused_mapping(
            topk_idx,
            num_experts=w13.shape[0],
            alignment=_BLOCK,
            num_expanded_tokens=num_rows,
            force_no_sync=num_rows > 0,
        )
        codes13, codes2 = _quantised(w13), _quantised(w2)
        hidden = _product(_expanded(x, plan.token_topk_to_pos, plan.pos_to_expert), codes13, plan.pos_to_expert)
        activation = tessera.swiglu_forward_and_per_token_cast(
            hidden,
            pos_to_token_topk=plan.pos_to_token_topk,
            topk_weights=topk_weights,
            pos_to_expert=plan.pos_to_expert,
            num_per_channels=_BLOCK,
            **options,
        )
        out = _product((activation.out, activation.out_sf), codes2, plan.pos_to_expert)
        kept = tessera.per_token_cast(hidden, format="e4m3", num_per_channels=_BLOCK)
        ctx.save_for_backward(
            *(x, w13, w2, topk_weights),
            *(kept.out, kept.out_sf, *codes13, *codes2),
            *(plan.pos_to_expert, plan.pos_to_token, plan.pos_to_token_topk, plan.token_topk_to_pos),
            torch.cat([plan.expert_start, plan.expert_end[-1:]]),
        )
        ctx.options, ctx.owners = options, owners
        return tessera.reduce_fused(out, plan.token_topk_to_pos)

    @staticmethod
    @differentiable_once("fp8_grouped_mlp")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, w13, w2, topk_weights, *saved = ctx.saved_tensors
        hidden, hidden_sf, w13_codes, w13_sf, w2_codes, w2_sf, *plan, ends = saved
        pos_to_expert, pos_to_token, pos_to_token_topk, token_topk_to_pos = plan
        wants_x, wants_w13, wants_w2, wants_weights = ctx.needs_input_grad[:4]
        gradient = rows(grad_out)
        grad_rows = _expanded(gradient, token_topk_to_pos, pos_to_expert)
        grads = tessera.swiglu_backward_and_per_token_cast(
            hidden,
            hidden_sf,
            _product(grad_rows, _transposed(w2_codes, w2_sf), pos_to_expert),
            topk_weights,
            pos_to_token_topk,
            token_topk_to_pos,
            num_per_channels=_BLOCK,
            **ctx.options,
        )
        given = accumulators(ctx.owners)
        made = SimpleNamespace(grad_w13=None, grad_w2=None)
        if wants_w2:
            of_out = tessera.per_channel_cast_fused(gradient, pos_to_token=pos_to_token)
            made.grad_w2 = _weight_gradient(of_out, tessera.per_channel_cast(grads.out), ends, given.get("grad_w2"))
        if wants_w13:
            of_x = tessera.per_channel_cast_fused(x, pos_to_token=pos_to_token)
            of_hidden = tessera.per_channel_cast(grads.grad_x)
            made.grad_w13 = _weight_gradient(of_hidden, of_x, ends, given.get("grad_w13"))
        grad_x = None
        if wants_x:
            of_rows = _product((grads.grad_x_fp8, grads.grad_x_fp8_sf), _transposed(w13_codes, w13_sf), pos_to_expert)
            grad_x = tessera.reduce_fused(of_rows, token_topk_to_pos)
        return (
            grad_x,
            *parameter_gradients(ctx.owners, made, w13=w13, w2=w2),
            grads.grad_weight if wants_weights else None,
            *(None, None, None, None),
        )


Codes = tuple[Tensor, Tensor]  # e4m3, and the scales


def _quantised(weight: Tensor) -> Codes:
    """[E, N, K] by blocks of 128 x 128."""
    experts, count, columns = weight.shape
    made = tessera.per_block_cast(weight.reshape(-1, columns), format="e4m3", block_size=(_BLOCK, _BLOCK))
    return made.out.view(weight.shape), made.out_sf.view(experts, -(-count // _BLOCK), -1)


def _transposed(codes: Tensor, scales: Tensor) -> Codes:
    return tessera.batched_transpose(codes), scales.transpose(1, 2).contiguous()


def _expanded(x: Tensor, token_topk_to_pos: Tensor, pos_to_expert: Tensor) -> Codes:
    """Tokens, quantised, at the rows of their experts."""
    cast = tessera.per_token_cast(x, format="e4m3", num_per_channels=_BLOCK)
    made = tessera.expand_to_fused_with_sf(cast.out, cast.out_sf, token_topk_to_pos, pos_to_expert, num_per_channels=_BLOCK)
    return made.out, made.out_sf


def _product(a: Codes, b: Codes, pos_to_expert: Tensor) -> Tensor:
    """bf16: each row times the weight of its expert; rows of none are 0."""
    out = torch.zeros(a[0].shape[0], b[0].shape[1], dtype=torch.bfloat16, device=a[0].device)
    tessera.gemm_fp8_grouped(*a, *b, out, m_indices=pos_to_expert)
    return out


def _weight_gradient(a: Any, b: Any, ends: Tensor, given: Tensor | None) -> Tensor:
    """f32 [E, M, N]: the products of the rows of each expert, added to `given`."""
    made: Tensor = tessera.gemm_fp8_k_grouped(a.out.T, a.out_sf, b.out.T, b.out_sf, ends, out=given)
    return made if given is None else given
