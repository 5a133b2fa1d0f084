"""A layer of experts for inference, over the ops moe_gate and moe_forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import tessera
from tessera._modules import FixedDtypeModule, like, none, refuse_shape

__all__ = ["MoE"]

Tensor = torch.Tensor

_BLOCK = 128  # rows and columns of a weight that share a scale
_Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]


def _buffers(name: str, experts: int, rows: int, columns: int, weights: str, activation: str) -> _Shapes:
    """The tensors of a matrix of each expert."""
    if weights == "e4m3":
        blocks = (experts, -(-rows // _BLOCK), -(-columns // _BLOCK))
        return {name: (torch.float8_e4m3fn, (experts, rows, columns)), f"{name}_sf": (torch.float32, blocks)}
    depth = 64 if activation == "bf16" else 128
    tiles, blocks_across = -(-rows // 64), -(-columns // 128)
    scales = (experts, rows) if activation == "bf16" else (experts, rows, blocks_across)
    return {
        name: (torch.uint8, (experts, tiles, -(-columns // depth), 32 * depth)),
        f"{name}_shift": (torch.uint8, (experts, tiles, blocks_across, 64, 4)),
        f"{name}_sf": (torch.float32, scales),
    }


class MoE(FixedDtypeModule):
    """A layer of experts for inference: gate, experts and their weighted sum, on top of a shared expert if given.

      gate    bf16 [E, H]       the router
      bias    f32 [E]           is added to scores for the choice alone; only with bias=True
      table   i32 [ids, K]      the experts of each token id; only with num_ids, where ids choose and not scores
      w13     e4m3 [E, 2I, H]   gate half, then up half; w13_sf f32 [E, 2I/128, H/128]
      w2      e4m3 [E, H, I]    w2_sf f32 [E, H/128, I/128]
      shared  a module that maps [.., H] to [.., H], or None

    with E = num_experts, H = hidden, I = inner and K = num_topk. With weights="mxfp4" w13 and w2 are uint8, each with
    its _shift and _sf, in the order of the op mxfp4_prepack; activation="bf16" then multiplies bf16 rows and not e4m3.

    All but `shared` are buffers, zeros at first, which keep their dtypes; quantize_ sets the experts from wider weights,
    pack_ from MXFP4 codes and exponents. `options` are those of the op moe_forward: activation, num_per_channels, round_sf,
    swiglu_clamp_value, weights_at. No gradient is recorded. Nothing waits for the device, and each token's bits
    depend on no other token.

    Errors:  those of the ops moe_gate and moe_forward, of sizes and options when the module is made.
    Example: layer = MoE(4096, 2048, 256, 6, bias=True, routed_scaling_factor=1.5, swiglu_clamp_value=10.0)
             layer.load_state_dict(state)
             out = layer(x)
    """

    gate: Tensor
    bias: Tensor | None
    table: Tensor | None
    w13: Tensor
    w13_sf: Tensor
    w2: Tensor
    w2_sf: Tensor

    def __init__(
        self,
        hidden: int,
        inner: int,
        num_experts: int,
        num_topk: int,
        *,
        bias: bool = False,
        num_ids: int | None = None,
        routed_scaling_factor: float = 1.0,
        weights: str = "e4m3",
        shared: nn.Module | None = None,
        device: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.hidden, self.inner, self.num_experts, self.num_topk = hidden, inner, num_experts, num_topk
        self.routed_scaling_factor, self.weights, self.options = routed_scaling_factor, weights, options
        if weights not in ("e4m3", "mxfp4"):
            text = f"tessera: MoE: parameter 'weights' has a wrong value\n  expected  e4m3, mxfp4\n  got       {weights}"
            raise tessera.ArgumentError(text, "MoE", "weights", "e4m3, mxfp4", weights, "", "VALUE")
        self._check(bias, num_ids)

        def zeros(name: str, dtype: torch.dtype, *shape: int) -> None:
            self.register_buffer(name, torch.zeros(*shape, dtype=dtype, device=device))

        zeros("gate", torch.bfloat16, num_experts, hidden)
        for name, is_there, dtype, shape in (
            ("bias", bias, torch.float32, (num_experts,)),
            ("table", num_ids is not None, torch.int32, (num_ids, num_topk)),
        ):
            self.register_buffer(name, None)
            if is_there:
                zeros(name, dtype, *shape)
        for name, (dtype, shape) in self._expert_buffers(num_experts).items():
            zeros(name, dtype, *shape)
        self.shared = shared

    @torch.no_grad()
    def quantize_(self, w13: Tensor, w2: Tensor) -> MoE:
        """Sets the experts from bf16 or f32 weights: e4m3 with a scale for each 128 x 128 elements, MXFP4 with one for each
        32 of a row, the least power of two that keeps the largest below 6.

        w13 [E, 2I, H], gate half, then up half; w2 [E, H, I]; result the module
        """
        for name, weight in (("w13", w13), ("w2", w2)):
            shape = self._matrix(name)
            if weight.shape != shape:
                refuse_shape("MoE", name, str(list(shape)), weight)
        if self.weights == "mxfp4":
            return self.pack_(*self._to_mxfp4(w13), *self._to_mxfp4(w2))
        for name, weight in (("w13", w13), ("w2", w2)):
            kept, scales = getattr(self, name), getattr(self, f"{name}_sf")
            made = tessera.per_block_cast(weight.reshape(-1, weight.shape[-1]), format="e4m3", block_size=(_BLOCK, _BLOCK))
            kept.copy_(made.out.view(kept.shape))
            scales.copy_(made.out_sf.view(scales.shape))
        return self

    @torch.no_grad()
    def pack_(self, w13: Tensor, w13_sf: Tensor, w2: Tensor, w2_sf: Tensor) -> MoE:
        """Sets the experts of weights="mxfp4" from MXFP4 weights, by mxfp4_prepack.

        w13     int8 [E, 2I, H/2]     two e2m1 codes in a byte, the first low; gate half, then up half
        w13_sf  uint8 [E, 2I, H/32]   exponents (UE8M0)
        w2, w2_sf  the same of [E, H, I]; result the module
        """
        if self.weights != "mxfp4":
            raise tessera.ArgumentError("tessera: MoE: pack_ needs weights='mxfp4'", "MoE", "weights", "mxfp4", self.weights, "", "VALUE")
        for name, codes, exponents in (("w13", w13, w13_sf), ("w2", w2, w2_sf)):
            experts, rows, columns = self._matrix(name)
            if codes.shape != (experts, rows, columns // 2):
                refuse_shape("MoE", name, str([experts, rows, columns // 2]), codes)
            made = tessera.mxfp4_prepack(codes, exponents, operand=self._activation())
            getattr(self, name).copy_(made.out)
            getattr(self, f"{name}_shift").copy_(made.out_shift)
            getattr(self, f"{name}_sf").copy_(made.out_sf)
        return self

    def _to_mxfp4(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        experts, rows, columns = weight.shape
        flat = weight.reshape(-1, columns)
        made = tessera.per_token_cast(flat, format="e2m1", num_per_channels=32, round_sf=True)
        exponents = (made.out_sf.contiguous().view(torch.int32) >> 23).to(torch.uint8)
        return made.out.view(experts, rows, columns // 2), exponents.view(experts, rows, columns // 32)

    @torch.no_grad()
    def forward(self, x: Tensor, *, token_ids: Tensor | None = None, num_tokens: Tensor | None = None) -> Tensor:
        """x bf16 [T.., H]; result the same.

        token_ids   i32 or i64 [T..], with num_ids
        num_tokens  i32 [1], or None: tokens from here on are padding, whose results are 0
        """
        if x.shape[-1:] != (self.hidden,):
            refuse_shape("MoE", "x", f"[T.., {self.hidden}]", x)
        rows = x.reshape(-1, self.hidden)
        ids = None if token_ids is None else token_ids.reshape(-1)
        base = None if self.shared is None else self.shared(x).reshape(-1, self.hidden)
        chosen = self._choose(rows, ids, num_tokens, self.gate, self.bias, self.table)
        out = tessera.moe_forward(
            rows,
            chosen.topk_idx,
            chosen.topk_weights,
            self.w13,
            self.w13_sf,
            self.w2,
            self.w2_sf,
            **self._shifts(),
            base=base,
            num_tokens=num_tokens,
            **self.options,
        )
        return out.view(x.shape)

    def extra_repr(self) -> str:
        words = [f"hidden={self.hidden}, inner={self.inner}, num_experts={self.num_experts}, num_topk={self.num_topk}"]
        words.append(f"bias={self.bias is not None}")
        if self.table is not None:
            words.append(f"num_ids={self.table.shape[0]}")
        words.append(f"routed_scaling_factor={self.routed_scaling_factor}")
        if self.weights != "e4m3":
            words.append(f"weights={self.weights}")
        return ", ".join(words + [f"{name}={value}" for name, value in self.options.items()])

    def _activation(self) -> str:
        return str(self.options.get("activation", "e4m3"))

    def _matrix(self, name: str) -> tuple[int, int, int]:
        rows, columns = (2 * self.inner, self.hidden) if name == "w13" else (self.hidden, self.inner)
        return self.num_experts, rows, columns

    def _expert_buffers(self, experts: int) -> _Shapes:
        shapes: _Shapes = {}
        for name in ("w13", "w2"):
            _, rows, columns = self._matrix(name)
            shapes.update(_buffers(name, experts, rows, columns, self.weights, self._activation()))
        return shapes

    def _shifts(self) -> dict[str, Tensor]:
        names = ("w13_shift", "w2_shift") if self.weights == "mxfp4" else ()
        return {name: getattr(self, name) for name in names}

    def _choose(
        self,
        rows: Tensor,
        ids: Tensor | None,
        num_tokens: Tensor | None,
        gate: Tensor,
        bias: Tensor | None,
        table: Tensor | None,
    ) -> Any:
        factor: dict[str, Any] = {"num_tokens": num_tokens, "routed_scaling_factor": self.routed_scaling_factor}
        if table is None and ids is None:
            return tessera.moe_gate(rows, gate, bias=bias, num_topk=self.num_topk, **factor)
        return tessera.moe_gate(rows, gate, bias=bias, token_ids=ids, table=table, routing="hash", scale="routed", **factor)

    def _check(self, bias: bool, num_ids: int | None) -> None:
        """Calls both ops on no tokens, with the weights of one expert."""
        hidden, topk = self.hidden, self.num_topk
        with torch.no_grad():
            self._choose(
                none(hidden),
                None if num_ids is None else like(0, dtype=torch.int32),
                None,
                like(self.num_experts, hidden, dtype=torch.bfloat16),
                like(self.num_experts) if bias else None,
                None if num_ids is None else like(num_ids, topk, dtype=torch.int32),
            )
            buffers = {name: like(*shape, dtype=dtype) for name, (dtype, shape) in self._expert_buffers(1).items()}
            ids, weights = like(0, topk, dtype=torch.int32), like(0, topk)
            tessera.moe_forward(x=none(hidden), topk_idx=ids, topk_weights=weights, **buffers, **self.options)
