"""The modules of a layer of experts that trains: its gate, and experts whose products are of 8-bit floats."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import tessera
from tessera import functional
from tessera._modules import FixedDtypeModule, like, none, refuse_shape
from tessera.functional import GateResult

__all__ = ["Fp8Experts", "TopkGate"]

Tensor = torch.Tensor

_ALIGNMENT = 128  # rows of an expert, in fp8_grouped_mlp


class TopkGate(FixedDtypeModule):
    """topk_gate with its router.

      weight  f32 [num_experts, hidden]   normal, so that logits of normal rows begin with variance 1
      bias    f32 [num_experts]           zeros at first; only with bias=True. A buffer that is added for the choice alone: who
                                          balances loads without a loss changes it between steps

    Logits are products in f32. `options` are those of the function: num_shared_experts, routed_scaling_factor.

    Errors:  those of functional.topk_gate, of sizes and options when the module is made.
    Example: gate = TopkGate(4096, 256, 6)
             chosen = gate(x, num_seqs=batch)
             loss = loss + 1e-4 * gate.balance_loss(chosen)
    """

    bias: Tensor | None

    def __init__(
        self, hidden: int, num_experts: int, num_topk: int, *, bias: bool = False, device: Any = None, **options: Any
    ) -> None:
        super().__init__()
        with torch.no_grad():
            functional.topk_gate(like(0, num_experts), num_topk=num_topk, **options)
        self.hidden, self.num_experts, self.num_topk, self.options = hidden, num_experts, num_topk, options
        self.weight = nn.Parameter(torch.empty(num_experts, hidden, dtype=torch.float32, device=device))
        self.register_buffer("bias", torch.zeros(num_experts, dtype=torch.float32, device=device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight and the bias to the values of the class's table."""
        nn.init.normal_(self.weight, std=self.hidden**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, *, mask: Tensor | None = None, num_seqs: int = 1) -> GateResult:
        """x bf16 or f32 [T.., hidden]; mask bool [T..], False for a token that does not count.

        The result has a row per token, whatever the leading dimensions; each of the num_seqs sequences has as many tokens.
        """
        if x.shape[-1:] != (self.hidden,):
            refuse_shape("TopkGate", "x", f"[T.., {self.hidden}]", x)
        logits = nn.functional.linear(x.reshape(-1, self.hidden).float(), self.weight)
        counts = None if mask is None else mask.reshape(-1)
        return functional.topk_gate(
            logits, num_topk=self.num_topk, bias=self.bias, mask=counts, num_seqs=num_seqs, **self.options
        )

    def balance_loss(self, chosen: GateResult) -> Tensor:
        """The auxiliary loss of each sequence, averaged: 1 where experts get as many tokens as others, more where not.

        It is the sum over experts of their share of the choices, times num_experts, times their mean normalised score. Only
        scores have a gradient. `chosen` is a result of forward.
        """
        sums, ids = chosen.scores_sum, chosen.topk_idx[:, : self.num_topk]
        ids = ids.reshape(sums.shape[0], -1)
        counts = torch.zeros_like(sums).scatter_add_(1, ids.clamp(min=0), (ids >= 0).float())
        choices = counts.sum(1, keepdim=True).clamp(min=1)
        shares, scores = counts / choices, sums / (choices / self.num_topk)
        loss: Tensor = (self.num_experts * shares * scores).sum(1).mean()
        return loss

    def extra_repr(self) -> str:
        words = [f"hidden={self.hidden}, num_experts={self.num_experts}, num_topk={self.num_topk}"]
        words.append(f"bias={self.bias is not None}")
        return ", ".join(words + [f"{name}={value}" for name, value in self.options.items()])


class Fp8Experts(nn.Module):
    """fp8_grouped_mlp with its weights.

      w13  dtype [num_experts, 2 * inner, hidden]   gate half, then up half
      w2   dtype [num_experts, hidden, inner]

    Both are f32 or bf16 and normal at first, so that results have about the variance of x; each call quantises them. With
    static_rows a call lays out as many rows as any routing needs, never waits for a GPU and can be captured; without, it
    waits for the number of rows. `options` are those of the function: round_sf, swiglu_clamp_value. For inference,
    MoE.quantize_ takes both weights.

    Errors:  those of functional.fp8_grouped_mlp, of sizes and options when the module is made.
    Example: gate, experts = TopkGate(4096, 256, 6), Fp8Experts(4096, 2048, 256)
             chosen = gate(x)
             y = experts(x, chosen.topk_idx, chosen.topk_weights)
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        num_experts: int,
        *,
        static_rows: bool = False,
        dtype: Any = None,
        device: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        with torch.no_grad():
            ids, weights = like(0, 1, dtype=torch.int64), like(0, 1)
            functional.fp8_grouped_mlp(
                none(hidden), like(1, 2 * inner, hidden), like(1, hidden, inner), ids, weights, **options
            )
        self.hidden, self.inner, self.num_experts = hidden, inner, num_experts
        self.static_rows, self.options = static_rows, options
        self.w13 = nn.Parameter(torch.empty(num_experts, 2 * inner, hidden, dtype=dtype, device=device))
        self.w2 = nn.Parameter(torch.empty(num_experts, hidden, inner, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weights to values of the class's table."""
        nn.init.normal_(self.w13, std=self.hidden**-0.5)
        nn.init.normal_(self.w2, std=self.inner**-0.5)

    def forward(self, x: Tensor, topk_idx: Tensor, topk_weights: Tensor) -> Tensor:
        """x bf16 [T.., hidden]; topk_idx i64 and topk_weights f32 [T.., K], or a row per token; result like x."""
        if x.shape[-1:] != (self.hidden,):
            refuse_shape("Fp8Experts", "x", f"[T.., {self.hidden}]", x)
        rows = x.reshape(-1, self.hidden)
        ids = topk_idx.reshape(-1, topk_idx.shape[-1])
        num_rows = 0
        if self.static_rows:
            num_rows = tessera.moe_rows(*ids.shape, num_experts=self.num_experts, alignment=_ALIGNMENT)
        weights = topk_weights.reshape(ids.shape)
        y = functional.fp8_grouped_mlp(rows, self.w13, self.w2, ids, weights, num_rows=num_rows, **self.options)
        return y.view(x.shape)

    def extra_repr(self) -> str:
        words = [f"hidden={self.hidden}, inner={self.inner}, num_experts={self.num_experts}, static_rows={self.static_rows}"]
        return ", ".join(words + [f"{name}={value}" for name, value in self.options.items()])
