"""The gradient of one residual, handed from one backward pass of its readers to the next.

A residual is read by `mhc_pre` (or `norm_fn` and `pre_apply_mix`) and by `post`. Autograd alone would add their gradients
[T.., n, H] one by one. With a ResidualGrad each reader but `post` returns the residual as one more result, and the next
reader reads that result instead:

    residual -> mhc_pre -> residual' -> post

In the backward pass `post` hands its gradient to `mhc_pre`, whose kernel adds its own. The graph alone carries the sum, so
partial, repeated, failed and nested backward passes need no bookkeeping.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


class ResidualGrad:
    """Lets the backward passes of one residual's readers add to one gradient.

    Give the same object to all readers of a residual: `norm_fn`, `pre_apply_mix`, then `post`. `mhc_pre` makes one and
    `mhc_post` uses it. A reader of another residual, or of the same one after it was changed, is left to autograd. The
    gradient is the same as without, but for its rounding: bf16 after each reader.

    Example: handle = ResidualGrad()
             u = pre_apply_mix(residual, pre_mix, residual_grad=handle)
             out = post(layer(u), residual, post_mix, comb_mix, residual_grad=handle)
    """

    def __init__(self) -> None:
        self._residual: Tensor | None = None
        self._version = 0
        self._last: Tensor | None = None  # the residual as the last reader returned it

    def read(self, residual: Tensor) -> Tensor:
        """The tensor that the next reader reads: the residual as the last reader returned it."""
        if self._last is None or self._residual is not residual or self._version != residual._version:
            self._residual, self._version, self._last = residual, residual._version, residual
        return self._last

    def pass_on(self, residual: Tensor) -> None:
        """Sets what the next reader reads."""
        self._last = residual


def sum_of(later: Tensor | None) -> Tensor | None:
    """The tensor that a backward op adds its gradient to: the gradient of the later readers, copied because hooks may keep it."""
    return None if later is None else later.clone(memory_format=torch.contiguous_format)
