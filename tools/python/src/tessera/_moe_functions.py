"""The autograd functions of the rows of experts: the gradient of expanding is reducing, and the other way round."""

from __future__ import annotations

from typing import Any

import torch

import tessera
from tessera._autograd import Function, differentiable_once, rows

Tensor = torch.Tensor


class ExpandToFused(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token_topk_to_pos: Tensor, pos_to_expert: Tensor) -> Tensor:
        ctx.save_for_backward(token_topk_to_pos)
        return tessera.expand_to_fused(x, token_topk_to_pos, pos_to_expert)

    @staticmethod
    @differentiable_once("expand_to_fused")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        (token_topk_to_pos,) = ctx.saved_tensors
        return tessera.reduce_fused(rows(grad_out), token_topk_to_pos), None, None


class ReduceFused(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, token_topk_to_pos: Tensor, topk_weights: Tensor | None, x_sf: Tensor | None
    ) -> Tensor:
        _, _, wants_weights, wants_sf = ctx.needs_input_grad
        ctx.save_for_backward(x if wants_weights or wants_sf else None, token_topk_to_pos, topk_weights, x_sf)
        ctx.count, ctx.dtype = x.shape[0], x.dtype
        return tessera.reduce_fused(x, token_topk_to_pos, topk_weights=topk_weights, x_sf=x_sf)

    @staticmethod
    @differentiable_once("reduce_fused")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, token_topk_to_pos, topk_weights, x_sf = ctx.saved_tensors
        wants_x, _, wants_weights, wants_sf = ctx.needs_input_grad
        slot = _slot_of_row(token_topk_to_pos, ctx.count)
        is_padding = slot == token_topk_to_pos.numel()
        # [P, H]: for each row the gradient of its token, 0 for padding
        expanded = tessera.expand_to_fused(rows(grad_out), token_topk_to_pos, -is_padding.to(torch.int32))
        weight = None if topk_weights is None else _take_or_0(topk_weights, slot)  # [P]
        grad_x = grad_weights = grad_sf = None
        if wants_x:
            grad_x = expanded
            if weight is not None or x_sf is not None:
                factor = _product(weight, None if x_sf is None else x_sf.masked_fill(is_padding, 0))
                grad_x = (expanded.float() * factor.unsqueeze(-1)).to(ctx.dtype)
        if wants_weights or wants_sf:
            # Rows of padding are selected away: they may hold anything.
            dot = torch.linalg.vecdot(expanded.float(), x.float()).masked_fill(is_padding, 0)  # [P]
            if wants_weights:
                grad_weights = _take_or_0(_product(dot, x_sf), _or_last(token_topk_to_pos, ctx.count))
            if wants_sf:
                grad_sf = _product(dot, weight)
        return grad_x, None, grad_weights, grad_sf


class ExpertLinear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranges: list[tuple[int, int]]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.ranges = ranges
        out = x.new_zeros(x.shape[0], weight.shape[1])
        for expert, (first, end) in enumerate(ranges):
            if first < end:
                out[first:end] = tessera.gemm_bf16(x[first:end], weight[expert])
        return out

    @staticmethod
    @differentiable_once("expert_linear")
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, _ = ctx.needs_input_grad
        gradient = rows(grad_out)
        grad_x = torch.zeros_like(x) if wants_x else None
        grad_weight = torch.zeros_like(weight) if wants_weight else None
        for expert, (first, end) in enumerate(ctx.ranges):
            if first >= end:
                continue
            of_rows = gradient[first:end]
            if grad_x is not None:
                grad_x[first:end] = tessera.gemm_bf16(of_rows, weight[expert].T)
            if grad_weight is not None:
                made = tessera.gemm_bf16(of_rows.T, x[first:end].T, out_dtype="f32")
                grad_weight[expert] = made.to(weight.dtype)
        return grad_x, grad_weight, None


def ranges_of(ends: list[int], alignment: int, count: int) -> list[tuple[int, int]]:
    """The rows of each expert, cut to `count` rows: they end at `ends` and begin at multiples of `alignment`."""
    found, start = [], 0
    for end in ends:
        first = -(-start // alignment) * alignment
        found.append((first, min(end, count)))
        start = end
    return found


def _or_last(positions: Tensor, last: int) -> Tensor:
    """The positions as indices, with `last` for none."""
    return torch.where(positions < 0, last, positions).long()


def _slot_of_row(token_topk_to_pos: Tensor, count: int) -> Tensor:
    """i64 [count]: the flat index of the slot that each row belongs to, T * K for padding."""
    slots = token_topk_to_pos.numel()
    numbers = torch.arange(slots, device=token_topk_to_pos.device)
    found = torch.full((count + 1,), slots, dtype=torch.int64, device=token_topk_to_pos.device)
    return found.scatter(0, _or_last(token_topk_to_pos, count).flatten(), numbers)[:count]


def _take_or_0(values: Tensor, indices: Tensor) -> Tensor:
    """The flat elements at the indices; 0 at the number of elements."""
    padded: Tensor = torch.nn.functional.pad(values.flatten(), (0, 1))[indices]
    return padded


def _product(a: Tensor | None, b: Tensor | None) -> Tensor:
    if a is None or b is None:
        made = b if a is None else a
        assert made is not None
        return made
    return a * b
