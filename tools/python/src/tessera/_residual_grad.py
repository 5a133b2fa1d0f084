"""The gradient of one mHC residual, summed in place by the backward passes of its users."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing import reductions

from tessera import _errors

_storage_reference: Any = reductions.StorageWeakRef  # without types in torch


class ResidualGrad:
    """Sums the gradient of one residual in one buffer, in place.

    A residual is read by `mhc_pre` (or `norm_fn` and `pre_apply_mix`) and by `post`. Without a handle each
    of them returns a gradient [T.., n, H] and autograd adds the gradients. With the same handle given to
    all of them, the first backward pass makes the buffer, the others add to it, and the last one returns it.

      dtype   torch.bfloat16: the buffer is rounded after each pass; torch.float32: rounded once, at the end

    Use one handle per residual and step. `mhc_pre` makes one and `mhc_post` uses it.

    Errors:  ArgumentError if the handle is complete, or has another residual; in the backward pass also if
             the producer of the residual asks for the gradient while a user has not run.
    Example: handle = ResidualGrad()
             u = pre_apply_mix(residual, pre_mix, residual_grad=handle)
             out = post(layer(u), residual, post_mix, comb_mix, residual_grad=handle)
    """

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        self._hook: Any = None
        if dtype not in (torch.bfloat16, torch.float32):
            raise _refusal(
                "ResidualGrad", "dtype", "has the wrong value", "torch.bfloat16 or torch.float32", str(dtype)
            )
        self.dtype = dtype
        self.is_complete = False
        self._sum: torch.Tensor | None = None
        # A user lives as long as its node of the graph: users of a recomputed forward pass, or of an output that
        # was dropped, go with theirs.
        self._users: weakref.WeakSet[ResidualUser] = weakref.WeakSet()
        self._storage: Any = None  # a weak reference
        self._place: tuple[Any, ...] | None = None
        self._node: Any = None  # of the residual's producer; that of a leaf lives only as long as it is held

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else f"{len(self._users)} users to run"
        return f"ResidualGrad(dtype={self.dtype}, {state})"

    def __deepcopy__(self, memo: dict[int, Any]) -> ResidualGrad:
        return ResidualGrad(self.dtype)

    def register(self, op: str, residual: torch.Tensor) -> ResidualUser:
        """The user that op's backward pass is; the forward pass calls this, and its node keeps the result."""
        if self.is_complete:
            raise _refusal(
                op,
                "residual_grad",
                "is complete",
                "a handle of this step: one ResidualGrad per residual and forward pass",
                "a handle whose gradient was handed to autograd",
            )
        self._bind(op, residual)
        user = ResidualUser(self, op)
        self._users.add(user)
        return user

    def _bind(self, op: str, residual: torch.Tensor) -> None:
        place = (residual.storage_offset(), residual.shape, residual.stride())
        storage = _storage_reference(residual.untyped_storage())
        if self._storage is not None and not self._storage.expired():
            if self._storage.cdata != storage.cdata or self._place != place:
                raise _refusal(
                    op,
                    "residual_grad",
                    "belongs to another residual",
                    "one ResidualGrad per residual",
                    "a second residual",
                )
            return
        # New, or the residual was freed and computed again, by a checkpoint.
        self._storage, self._place = storage, place
        if self._hook is None:
            self._node = torch.autograd.graph.get_gradient_edge(residual).node
            self._hook = self._node.register_prehook(_watch(self))

    def _close(self) -> None:
        self.is_complete = True
        self._sum = None
        if self._hook is not None:
            self._hook.remove()
            self._hook = self._node = None

    def __del__(self) -> None:
        if self._hook is not None:
            self._hook.remove()


class ResidualUser:
    """One backward pass that adds to a ResidualGrad."""

    def __init__(self, handle: ResidualGrad, op: str) -> None:
        self.handle = handle
        self.op = op

    def accumulator(self) -> torch.Tensor | None:
        """The buffer to add to in place; None: the op makes a new gradient."""
        handle = self.handle
        if handle.is_complete or self not in handle._users:
            raise _refusal(
                self.op,
                "residual_grad",
                "is complete",
                "one backward pass per ResidualGrad",
                "a second backward pass of this node",
            )
        return handle._sum if handle.dtype == torch.bfloat16 else None

    def finish(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """Takes the gradient, which may be the accumulator. The last user returns the sum for autograd."""
        handle = self.handle
        handle._users.discard(self)
        if handle._sum is None:
            handle._sum = gradient.to(handle.dtype)
        elif handle._sum is not gradient:
            handle._sum.add_(gradient)
        if len(handle._users) > 0:
            return None
        total = handle._sum
        handle._close()
        return total.to(gradient.dtype)


def _watch(handle: ResidualGrad) -> Callable[[Any], None]:
    """A hook of the residual's producer that refuses to go on while a user has not run."""
    reference = weakref.ref(handle)

    def check(_gradients: Any) -> None:
        watched = reference()
        if watched is None or watched.is_complete:
            return
        late = sorted({user.op for user in watched._users})
        if late:
            raise _refusal(
                late[0],
                "residual_grad",
                "is not complete when the producer of the residual needs it",
                "every user of the handle runs in this backward pass",
                f"no backward pass of {', '.join(late)}",
            )

    return check


def _refusal(op: str, argument: str, what: str, expected: str, got: str) -> Exception:
    text = f"tessera: {op}: argument '{argument}' {what}\n  expected  {expected}\n  got       {got}"
    return _errors.ArgumentError(text, op, argument, expected, got, "", "")
