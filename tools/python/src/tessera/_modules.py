"""The shared parts of the modules of tessera.nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tessera

Tensor = torch.Tensor


class FixedDtypeModule(nn.Module):
    """A module whose own floating-point tensors keep their dtypes when the model is converted."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def convert(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            is_converted = tensor.is_floating_point() and made.dtype != tensor.dtype
            return tensor.to(made.device) if is_converted else made

        for child in self.children() if recurse else ():
            apply_to: Any = child._apply  # without types in torch
            apply_to(fn)
        apply: Any = super()._apply
        return apply(convert, False)


# A module that is made calls its function once on no tokens at all: the op itself then refuses wrong sizes and options.
def none(*shape: int) -> Tensor:
    return like(0, *shape, dtype=torch.bfloat16)


def like(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Stands for a parameter of that shape; on the CPU, whatever device is the default."""
    return torch.empty(*shape, dtype=dtype, device="cpu")


def refuse_shape(module: str, argument: str, expected: str, got: Tensor) -> None:
    """Errors: ArgumentError, always."""
    shape = str(list(got.shape))
    text = f"tessera: {module}: argument '{argument}' has the wrong shape\n  expected  {expected}\n  got       {shape}"
    raise tessera.ArgumentError(text, module, argument, expected, shape, "", "SHAPE")
