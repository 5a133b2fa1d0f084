"""What the functions of tessera.functional share: when they record, and how their gradients leave."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tessera import _errors

Tensor = torch.Tensor
is_grad_enabled = torch.is_grad_enabled


def records(*tensors: Tensor | None) -> bool:
    """True if autograd records a function of these tensors."""
    if is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


class Function(torch.autograd.Function):
    """A function whose apply is the compiled one at once. That of older torch is Python code, which asks for torch.func
    transforms first; the op inside refuses them itself."""

    apply = torch._C._FunctionBase.__dict__["apply"]


def rows(gradient: Tensor) -> Tensor:
    """The gradient as the backward ops read it, row-major."""
    return gradient.contiguous()


Owners = dict[str, Tensor | None]


def owners_of(**parameters: Tensor | None) -> Owners | None:
    """The parameters of a call whose gradients may have a main_grad to go to; None while torch compiles.

    Errors:  RuntimeError while torch compiles, if a parameter has a main_grad: a graph cannot add to it. Without
             fullgraph=True torch then runs the call eagerly.
    """
    if not torch.compiler.is_compiling():
        return parameters
    for name, parameter in parameters.items():
        if parameter is not None and parameter.requires_grad and hasattr(parameter, "main_grad"):
            raise RuntimeError(f"tessera: parameter '{name}' has a main_grad, which a compiled graph cannot add to")
    return None


def accumulators(owners: Owners | None) -> dict[str, Any]:
    """`grad_NAME` of the parameters with a main_grad: an f32 buffer of their shape, which the op adds to."""
    found: dict[str, Any] = {}
    for name, parameter in (owners or {}).items():
        buffer = getattr(parameter, "main_grad", None)
        if buffer is not None and parameter is not None and parameter.requires_grad:
            found["grad_" + name] = buffer
    return found


def parameter_gradients(owners: Owners | None, grads: Any, **parameters: Tensor | None) -> list[Tensor | None]:
    """What autograd gets for parameters, each the field `grad_NAME` of an op's result: None if the op added to its
    main_grad, else the gradient in the parameter's dtype.

    Example: parameter_gradients(ctx.owners, grads, scale=scale, base=base)
    """
    found = []
    for name, parameter in parameters.items():
        gradient: Tensor | None = getattr(grads, "grad_" + name)
        owner: Any = None if owners is None else owners[name]
        if gradient is not None and owner is not None and owner.requires_grad:
            if getattr(owner, "main_grad", None) is not None:
                owner.grad_added_to_main_grad = True
                gradient = None
        found.append(gradient if gradient is None or parameter is None else gradient.to(parameter.dtype))
    return found


class _NoSecondDerivative(Function):
    """Passes gradients on; its own backward pass is the error."""

    @staticmethod
    def forward(ctx: Any, op: str, *gradients: Tensor) -> tuple[Tensor, ...]:
        ctx.op = op
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> Any:
        text = (
            f"tessera: {ctx.op}: the second derivative is not supported\n"
            "  expected  one backward pass\n  got       a backward pass of its gradients"
        )
        raise _errors.UnsupportedError(text, ctx.op, "", "one backward pass", "a backward pass of its gradients", "", "")


def differentiable_once(op: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the backward pass of op: it records nothing, and a backward pass of its gradients raises.

    Errors:  UnsupportedError when somebody differentiates the gradients.
    Example: @staticmethod
             @differentiable_once("sinkhorn")
             def backward(ctx, grad_out): ...
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def run(ctx: Any, *gradients: Tensor | None) -> Any:
            if torch.compiler.is_compiling():
                return backward(ctx, *gradients)
            with torch.no_grad():
                results = backward(ctx, *gradients)
            if not torch.is_grad_enabled():  # create_graph=False
                return results
            is_single = not isinstance(results, tuple)
            results = (results,) if is_single else results
            there = [i for i, result in enumerate(results) if result is not None]
            marked = list(results)
            # The gradients depend on saved tensors too: all are marked, whatever the incoming ones depend on.
            inputs = [results[i].detach().requires_grad_() for i in there]
            for i, result in zip(there, _NoSecondDerivative.apply(op, *inputs)):
                marked[i] = result
            return marked[0] if is_single else tuple(marked)

        return run

    return decorate
