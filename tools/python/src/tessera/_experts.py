"""The functions of tessera.functional for gates and the rows of experts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

import tessera
from tessera import _fp8_experts, _functions, _layer_functions, _moe_functions
from tessera._autograd import owners_of, records
from tessera._functions import SwigluKept

__all__ = [
    "GateResult",
    "SwigluCast",
    "SwigluKept",
    "expand_to_fused",
    "expert_linear",
    "fp8_grouped_mlp",
    "reduce_fused",
    "swiglu",
    "swiglu_and_per_token_cast",
    "topk_gate",
]

Tensor = torch.Tensor


class GateResult(NamedTuple):
    """The result of topk_gate.

    topk_idx      i64 [T, K + shared]
    topk_weights  f32 [T, K + shared]
    scores_sum    f32 [num_seqs, E]: normalised scores, summed over the tokens of a sequence that count
    """

    topk_idx: Tensor
    topk_weights: Tensor
    scores_sum: Tensor


class SwigluCast(NamedTuple):
    """The result of swiglu_and_per_token_cast.

    out         e4m3 [P, H]
    out_sf      scales of out
    activation  bf16 [P, H] without values, or None where nothing is recorded: whoever reads `out` returns the
                gradient of what it stands for to this tensor (autograd would round a gradient of `out` to e4m3)
    kept        SwigluKept: codes of the gradient of x and the activation, once the backward pass has run; None where
                nothing is recorded and in compiled graphs
    """

    out: Tensor
    out_sf: Tensor
    activation: Tensor | None
    kept: SwigluKept | None = None


def expert_linear(x: Tensor, weight: Tensor, psum: Tensor, *, alignment: int = 128) -> Tensor:
    """Multiplies the rows of each expert by its weight: x @ weight[expert].T.

      x       bf16 [P, K]
      weight  bf16 [E, N, K]
      psum    i32 [E]: where the rows of experts end, each beginning at a multiple of `alignment`
      result  bf16 [P, N]; rows of no expert are 0

    The ends are read on the host, so a GPU is waited for. Sums of the weight's gradient are f32.

    Errors:  those of the op gemm_bf16.
    Example: hidden = expert_linear(rows, w13, expert_end, alignment=16)
    """
    records("expert_linear", x, weight)  # refuses what no function takes
    ranges = _moe_functions.ranges_of(psum.tolist(), alignment, x.shape[0])
    recorded: Tensor = _moe_functions.ExpertLinear.apply(x, weight, ranges)
    return recorded


def fp8_grouped_mlp(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    topk_idx: Tensor,
    topk_weights: Tensor,
    *,
    num_rows: int = 0,
    round_sf: bool = False,
    swiglu_clamp_value: float | None = None,
) -> Tensor:
    """The weighted sum of each token's experts, with products of 8-bit floats forward and backward, of weights too.

      x             bf16 [T, H]         H % 256 = 0
      w13           bf16/f32 [E, 2I, H] gate half, then up half; I % 128 = 0
      w2            bf16/f32 [E, H, I]
      topk_idx      i64 [T, K]          -1: none
      topk_weights  f32 [T, K]
      num_rows      rows of all experts with their padding to multiples of 128; 0: as many as are needed, and a GPU is
                    waited for. Enough for any routing is moe_rows(T, K, num_experts=E, alignment=128)
      round_sf      scales of the activation and of its gradient are powers of two
      result        bf16 [T, H]

    Gradients of the weights are summed in f32. A parameter with a main_grad gets its own there.

    Errors:  those of the ops gemm_fp8_grouped, gemm_fp8_k_grouped and of the casts between them.
    Example: gate = topk_gate(router(x).float(), num_topk=6)
             y = fp8_grouped_mlp(x, w13, w2, gate.topk_idx, gate.topk_weights)
    """
    options: dict[str, Any] = {"round_sf": round_sf, "swiglu_clamp_value": swiglu_clamp_value}
    records("fp8_grouped_mlp", x, w13, w2, topk_weights)  # refuses what no function takes
    recorded: Tensor = _fp8_experts.Fp8GroupedMlp.apply(
        x, w13, w2, topk_weights, topk_idx, num_rows, options, owners_of(w13=w13, w2=w2)
    )
    return recorded


def swiglu(
    x: Tensor,
    *,
    topk_weights: Tensor | None = None,
    psum: Tensor | None = None,
    alignment: int = 128,
    routed_scaling_factor: float | None = None,
    swiglu_clamp_value: float | None = None,
    out_dtype: str | None = None,
) -> Tensor:
    """The gated activation silu(left) * right of the two halves of each row, times the row's weight.

      x             bf16 or f32 [P, 2H]
      topk_weights  f32 [P], or None
      psum          i32 [E], or None: where the rows of experts end, each beginning at a multiple of `alignment`; rows of
                    none are 0
      result        out_dtype [P, H], by default that of x

    Errors:  those of the ops swiglu_fwd and swiglu_bwd.
    Example: out = swiglu(x, topk_weights=row_weights, psum=psum)
    """
    options: dict[str, Any] = {
        "out_dtype": out_dtype or ("f32" if x.dtype == torch.float32 else "bf16"),
        "alignment": alignment,
        "routed_scaling_factor": routed_scaling_factor,
        "swiglu_clamp_value": swiglu_clamp_value,
    }
    if not records("swiglu", x, topk_weights):
        return tessera.swiglu_fwd(x, topk_weights=topk_weights, psum=psum, **options)
    recorded: Tensor = _layer_functions.Swiglu.apply(x, topk_weights, psum, options)
    return recorded


def topk_gate(
    logits: Tensor,
    *,
    num_topk: int,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    num_seqs: int = 1,
    num_shared_experts: int = 0,
    routed_scaling_factor: float = 1.0,
) -> GateResult:
    """Chooses the experts of each token by the root of the softplus of its logits, and sums the scores for an auxiliary loss.

      logits   f32 [T, E]
      bias     f32 [E], or None: is added for the choice alone
      mask     bool [T], or None: False for a token that does not count
      result   GateResult; gradients flow from topk_weights and from scores_sum to logits

    Errors:  those of the ops moe_topk_gate_fwd, moe_topk_gate_bwd and gate_scores_sum.
    Example: topk_idx, topk_weights, scores_sum = topk_gate(logits, num_topk=6)
             loss = loss + 1e-4 * (frequency * scores_sum).sum()
    """
    options: dict[str, Any] = {
        "num_topk": num_topk,
        "use_shared_as_routed": num_shared_experts > 0,
        "num_shared_experts": num_shared_experts,
        "routed_scaling_factor": routed_scaling_factor,
    }
    records("topk_gate", logits)  # refuses what no function takes
    return GateResult(*_layer_functions.TopkGate.apply(logits, bias, mask, num_seqs, options))


def swiglu_and_per_token_cast(
    x: Tensor,
    *,
    topk_weights: Tensor | None = None,
    pos_to_token_topk: Tensor | None = None,
    token_topk_to_pos: Tensor | None = None,
    pos_to_expert: Tensor | None = None,
    num_per_channels: int = 128,
    sf_layout: str = "row_major",
    round_sf: bool = False,
    swiglu_clamp_value: float | None = None,
    sf_clamp_min: float | None = None,
) -> SwigluCast:
    """Gated activation of an expert's rows, as 8-bit floats with one scale per group of columns.

      x                  bf16/f32 [P, 2H]    gate, then up
      topk_weights       f32 [T, K]          a factor per row, with the two positions below; or None
      pos_to_token_topk  i32 [P]             slot of each row, negative: padding
      token_topk_to_pos  i32 [T, K]          row of each slot, -1: none
      pos_to_expert      i32 [P]             negative: padding, a row of zeros
      result             SwigluCast

    The backward pass reads x as e4m3 with groups of 128 columns; the gradients are those of that x. Both
    columns of positions come from get_fused_mapping. It quantises the gradient of x too, and leaves the codes in `kept`.

    Errors:  those of the ops swiglu_forward_and_per_token_cast and swiglu_backward_and_per_token_cast.
    Example: cast = swiglu_and_per_token_cast(x)
             y = my_fp8_linear(cast.out, cast.out_sf, cast.activation, weight)
    """
    options: dict[str, Any] = {
        "num_per_channels": num_per_channels,
        "sf_layout": sf_layout,
        "round_sf": round_sf,
        "swiglu_clamp_value": swiglu_clamp_value,
        "sf_clamp_min": sf_clamp_min,
    }
    if not records("swiglu_and_per_token_cast", x, topk_weights):
        made = tessera.swiglu_forward_and_per_token_cast(
            x, pos_to_token_topk=pos_to_token_topk, topk_weights=topk_weights, pos_to_expert=pos_to_expert, **options
        )
        return SwigluCast(made.out, made.out_sf, None)
    kept = None if torch.compiler.is_compiling() else SwigluKept()
    recorded = _functions.SwigluAndPerTokenCast.apply(
        x, topk_weights, pos_to_token_topk, token_topk_to_pos, pos_to_expert, options, kept
    )
    return SwigluCast(*recorded, kept)


def expand_to_fused(x: Tensor, token_topk_to_pos: Tensor, pos_to_expert: Tensor) -> Tensor:
    """Copies the rows of tokens to the positions of their experts; the gradient of x is the sum over the positions.

      x                  bf16/f32 [T, H]
      token_topk_to_pos  i32 [T, K]   row of each slot, -1: none; each row has at most one slot
      pos_to_expert      i32 [P]      negative: padding, a row of zeros
      result             as x [P, H]

    The gradients of a token's rows are added in f32 in the order of its slots and rounded once.

    Errors:  those of the op expand_to_fused; gradients need H % 256 = 0.
    Example: rows = expand_to_fused(x, token_topk_to_pos, pos_to_expert)
             y = reduce_fused(experts(rows), token_topk_to_pos, topk_weights=topk_weights)
    """
    if not records("expand_to_fused", x):
        return tessera.expand_to_fused(x, token_topk_to_pos, pos_to_expert)
    recorded: Tensor = _moe_functions.ExpandToFused.apply(x, token_topk_to_pos, pos_to_expert)
    return recorded


def reduce_fused(
    x: Tensor, token_topk_to_pos: Tensor, *, topk_weights: Tensor | None = None, x_sf: Tensor | None = None
) -> Tensor:
    """Adds the rows of each token's positions, weighted; the gradient of x is that of each row's token, times its weight.

      x                  bf16/f32 [P, H]   H % 256 = 0
      token_topk_to_pos  i32 [T, K]        row of each slot, -1: none; each row has at most one slot
      topk_weights       f32 [T, K], or None
      x_sf               f32 [P], or None  a factor per row
      result             as x [T, H]

    Rows that no slot names are padding: they may hold anything, and their gradients are 0.

    Errors:  those of the op reduce_fused.
    Example: y = reduce_fused(rows, token_topk_to_pos, topk_weights=topk_weights)
    """
    if not records("reduce_fused", x, topk_weights, x_sf):
        return tessera.reduce_fused(x, token_topk_to_pos, topk_weights=topk_weights, x_sf=x_sf)
    recorded: Tensor = _moe_functions.ReduceFused.apply(x, token_topk_to_pos, topk_weights, x_sf)
    return recorded
