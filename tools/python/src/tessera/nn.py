"""Modules over tessera.functional. Parameters have the names and shapes of the functions' arguments.

The parameters of the mHC modules and of TopkGate are f32 and stay f32: `.to(torch.bfloat16)`, `.half()` and `.double()` move
them, and convert the rest of the model. So do the tensors of MoE, whose weights are e4m3 or MXFP4. The weights of EngramGate
are bf16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import tessera
from tessera import functional
from tessera._expert_modules import Fp8Experts, TopkGate
from tessera._modules import FixedDtypeModule, like, none, refuse_shape
from tessera._moe_layer import MoE
from tessera.functional import MhcContext

__all__ = [
    "EngramGate",
    "EngramHash",
    "Fp8Experts",
    "MhcBlock",
    "MhcExpand",
    "MhcHead",
    "MhcPost",
    "MhcPre",
    "MoE",
    "RmsNorm",
    "TopkGate",
]

Tensor = torch.Tensor


def __dir__() -> list[str]:
    return sorted(__all__)


class EngramGate(nn.Module):
    """engram_gate with its weights.

      weight_hidden, weight_embed  bf16 [hc, hidden], ones at first

    Errors:  those of functional.engram_gate, of sizes and options when the module is made.
    Example: gate = EngramGate(4, 2048)
             out = gate(hidden_states, k, v)
    """

    def __init__(
        self, hc: int, hidden: int, *, eps: float = 1e-6, clamp_value: float = 1e-6, device: Any = None
    ) -> None:
        super().__init__()
        streams, weights = none(hc, hidden), like(hc, hidden, dtype=torch.bfloat16)
        with torch.no_grad():
            functional.engram_gate(streams, streams, none(hidden), weights, weights, eps=eps, clamp_value=clamp_value)
        self.hc, self.hidden, self.eps, self.clamp_value = hc, hidden, eps, clamp_value
        self.weight_hidden = nn.Parameter(torch.empty(hc, hidden, dtype=torch.bfloat16, device=device))
        self.weight_embed = nn.Parameter(torch.empty(hc, hidden, dtype=torch.bfloat16, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets both weights to ones."""
        nn.init.ones_(self.weight_hidden)
        nn.init.ones_(self.weight_embed)

    def forward(
        self, hidden_states: Tensor, k: Tensor, v: Tensor, image_token_mask: Tensor | None = None
    ) -> Tensor:
        """hidden_states, k bf16 [T.., hc, hidden]; v bf16 [T.., hidden]; image_token_mask bool [T..]; result like hidden_states."""
        _check_rows("EngramGate", "hidden_states", hidden_states, self.hc, self.hidden)
        return functional.engram_gate(
            hidden_states,
            k,
            v,
            self.weight_hidden,
            self.weight_embed,
            image_token_mask=image_token_mask,
            eps=self.eps,
            clamp_value=self.clamp_value,
        )

    def extra_repr(self) -> str:
        return f"hc={self.hc}, hidden={self.hidden}, eps={self.eps}, clamp_value={self.clamp_value}"


class EngramHash(nn.Module):
    """Rows of the hashed embedding tables for the last token ids. Buffers only, no gradient.

      multipliers  i64 [L, N]         of L layers and N columns of ids
      vocab_sizes  i32 [L, N-1, J]    rows of the J tables of each order
      offsets      i32 [L, (N-1)*J]   first rows of the tables, made from vocab_sizes

    Errors:  those of the ops engram_make_offsets and engram_hash.
    Example: rows = EngramHash(multipliers, vocab_sizes)(ngram_token_ids)
    """

    multipliers: Tensor
    vocab_sizes: Tensor
    offsets: Tensor

    def __init__(self, multipliers: Tensor, vocab_sizes: Tensor) -> None:
        super().__init__()
        self.register_buffer("multipliers", multipliers)
        self.register_buffer("vocab_sizes", vocab_sizes)
        self.register_buffer("offsets", tessera.engram_make_offsets(vocab_sizes))

    def forward(self, ngram_token_ids: Tensor, image_token_mask: Tensor | None = None) -> Tensor:
        """ngram_token_ids i32 [T, N]; image_token_mask bool [T]; result i32 [L, T, (N-1)*J], -1 for tokens of an image."""
        return tessera.engram_hash(
            ngram_token_ids, self.multipliers, self.vocab_sizes, self.offsets, image_token_mask=image_token_mask
        )

    def extra_repr(self) -> str:
        layers, orders, tables = self.vocab_sizes.shape
        return f"layers={layers}, orders={orders}, tables={tables}"


class RmsNorm(nn.Module):
    """rms_norm with its weight.

      weight  dtype [hidden], ones at first

    Errors:  those of functional.rms_norm, of sizes when the module is made.
    Example: norm = RmsNorm(7168, dtype=torch.bfloat16)
             out, residual = norm(x, residual)
    """

    def __init__(self, hidden: int, *, norm_eps: float = 1e-6, dtype: Any = None, device: Any = None) -> None:
        super().__init__()
        with torch.no_grad():
            functional.rms_norm(like(0, hidden), norm_eps=norm_eps)
        self.hidden, self.norm_eps = hidden, norm_eps
        self.weight = nn.Parameter(torch.empty(hidden, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to ones."""
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        """x [T.., hidden] of the weight's dtype; result like x, and with `residual` also the sum of both."""
        return functional.rms_norm(x, self.weight, residual=residual, norm_eps=self.norm_eps)

    def extra_repr(self) -> str:
        return f"hidden={self.hidden}, norm_eps={self.norm_eps}"


class MhcExpand(nn.Module):
    """Copies the embedding into n residual streams.

    Example: residual = MhcExpand(4)(embedding)
    """

    def __init__(self, n: int = 4) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Tensor) -> Tensor:
        """x bf16 [T.., H]; result bf16 [T.., n, H]."""
        return functional.expand_to_mhc(x, mhc_mult=self.n)

    def extra_repr(self) -> str:
        return f"n={self.n}"


class MhcPre(FixedDtypeModule):
    """mhc_pre with its parameters.

      fn           f32 [n (n + 2), n * hidden]   normal, so that mixes begin with variance 1
      scale        f32 [3]                       0.01 at first
      base         f32 [n (n + 2)]               zeros at first
      norm_weight  f32 [n * hidden]              ones at first; only with norm_weight=True

    `options` are those of the function: norm_eps, pre_eps, sinkhorn_eps, post_mult_value, sinkhorn_repeat, n_splits.

    Errors:  those of functional.mhc_pre, of sizes and options when the module is made.
    Example: layer_input, context = MhcPre(4, 1280)(residual)
    """

    def __init__(
        self, n: int, hidden: int, norm_weight: bool = False, *, device: Any = None, **options: Any
    ) -> None:
        super().__init__()
        mixes, width = n * (n + 2), n * hidden
        weight = like(width) if norm_weight else None
        with torch.no_grad():
            functional.mhc_pre(
                none(n, hidden), like(mixes, width), like(3), like(mixes), norm_weight=weight, **options
            )
        self.n, self.hidden, self.options = n, hidden, options
        self.fn = _parameter(mixes, width, device=device)
        self.scale = _parameter(3, device=device)
        self.base = _parameter(mixes, device=device)
        self.norm_weight = _parameter(width, device=device) if norm_weight else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the parameters to the values of the class's table."""
        _reset_projection(self.fn, self.scale, self.base, self.norm_weight)

    def forward(self, residual: Tensor) -> tuple[Tensor, MhcContext]:
        """residual bf16 [T.., n, hidden]; results layer_input bf16 [T.., hidden] and the context of MhcPost."""
        _check_rows("MhcPre", "residual", residual, self.n, self.hidden)
        return functional.mhc_pre(
            residual, self.fn, self.scale, self.base, norm_weight=self.norm_weight, **self.options
        )

    def extra_repr(self) -> str:
        return _describe(self.n, self.hidden, self.norm_weight, self.options)


class MhcPost(nn.Module):
    """mhc_post, without parameters.

    Example: residual = MhcPost()(layer(layer_input), residual, context)
    """

    def forward(self, x: Tensor, residual: Tensor, context: MhcContext) -> Tensor:
        """x bf16 [T.., H]; residual bf16 [T.., n, H]; context of MhcPre; result like residual."""
        return functional.mhc_post(x, residual, context)


class MhcHead(FixedDtypeModule):
    """mhc_head with its parameters.

      fn           f32 [n, n * hidden]
      scale        f32 [1]
      base         f32 [n]
      norm_weight  f32 [n * hidden]   only with norm_weight=True

    They begin as those of MhcPre. `options` are those of the function: norm_eps, pre_eps, n_splits.

    Errors:  those of functional.mhc_head, of sizes and options when the module is made.
    Example: logits = lm_head(MhcHead(4, 1280)(residual))
    """

    def __init__(
        self, n: int, hidden: int, norm_weight: bool = False, *, device: Any = None, **options: Any
    ) -> None:
        super().__init__()
        weight = like(n * hidden) if norm_weight else None
        with torch.no_grad():
            functional.mhc_head(none(n, hidden), like(n, n * hidden), like(1), like(n), norm_weight=weight, **options)
        self.n, self.hidden, self.options = n, hidden, options
        self.fn = _parameter(n, n * hidden, device=device)
        self.scale = _parameter(1, device=device)
        self.base = _parameter(n, device=device)
        self.norm_weight = _parameter(n * hidden, device=device) if norm_weight else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the parameters to the first values of MhcPre."""
        _reset_projection(self.fn, self.scale, self.base, self.norm_weight)

    def forward(self, residual: Tensor) -> Tensor:
        """residual bf16 [T.., n, hidden]; result bf16 [T.., hidden]."""
        _check_rows("MhcHead", "residual", residual, self.n, self.hidden)
        return functional.mhc_head(
            residual, self.fn, self.scale, self.base, norm_weight=self.norm_weight, **self.options
        )

    def extra_repr(self) -> str:
        return _describe(self.n, self.hidden, self.norm_weight, self.options)


class MhcBlock(nn.Module):
    """A sub-layer with its hyper-connections: MhcPre, the sub-layer, MhcPost.

    Example: block = MhcBlock(nn.Linear(1280, 1280, dtype=torch.bfloat16), 4, 1280)
             residual = block(residual)
    """

    def __init__(
        self, sublayer: nn.Module, n: int, hidden: int, norm_weight: bool = False, *, device: Any = None, **options: Any
    ) -> None:
        super().__init__()
        self.pre = MhcPre(n, hidden, norm_weight, device=device, **options)
        self.sublayer = sublayer
        self.post = MhcPost()

    def forward(self, residual: Tensor) -> Tensor:
        """residual bf16 [T.., n, hidden]; result the same. The sub-layer maps [T.., hidden] to [T.., hidden]."""
        layer_input, context = self.pre(residual)
        made: Tensor = self.post(self.sublayer(layer_input), residual, context)
        return made


def _check_rows(module: str, argument: str, rows: Tensor, n: int, hidden: int) -> None:
    """Errors: ArgumentError if `rows` are not those of the module, whose op would blame a parameter."""
    if tuple(rows.shape[-2:]) != (n, hidden):
        refuse_shape(module, argument, f"[T.., {n}, {hidden}], as {module}({n}, {hidden}) was made", rows)


def _parameter(*shape: int, device: Any) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=torch.float32, device=device))


def _reset_projection(fn: Tensor, scale: Tensor, base: Tensor, norm_weight: Tensor | None) -> None:
    nn.init.normal_(fn, std=fn.shape[1] ** -0.5)
    nn.init.constant_(scale, 0.01)
    nn.init.zeros_(base)
    if norm_weight is not None:
        nn.init.ones_(norm_weight)


def _describe(n: int, hidden: int, norm_weight: Tensor | None, options: dict[str, Any]) -> str:
    words = [f"n={n}", f"hidden={hidden}", f"norm_weight={norm_weight is not None}"]
    return ", ".join(words + [f"{name}={value}" for name, value in options.items()])
