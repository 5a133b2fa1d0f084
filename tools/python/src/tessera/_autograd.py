"""Shared by the functions of tessera.functional: when they record, and how their gradients leave."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import forward_ad

from tessera import _errors
from tessera._table import Op

Tensor = torch.Tensor
is_grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_compiling
in_transform = torch._C._are_functorch_transforms_active

_dual: Any = forward_ad  # without types in torch
_WARNED: set[str] = set()


def warn(op: str, argument: str) -> None:
    """Says once per op that it records no gradient, and what to do."""
    if op in _WARNED:
        return
    _WARNED.add(op)
    from tessera.functional import RECORDED

    silence = "call it under torch.no_grad(), or on a tensor that was detach()ed, if none is needed"
    advice = f"call tessera.functional.{RECORDED[op]}" if op in RECORDED else silence
    text = f"tessera.{op} records no gradient, and '{argument}' requires one: {advice}"
    warnings.warn(text, UserWarning, stacklevel=2)


def refuse_tangents(op: str, tensors: Iterable[Tensor | None]) -> None:
    """Errors: UnsupportedError if a tensor has a tangent, which no op of Tessera hands on."""
    for tensor in tensors:
        if tensor is not None and _dual.unpack_dual(tensor).tangent is not None:
            text = (
                f"tessera: {op}: forward-mode differentiation is not supported\n"
                "  expected  tensors without a tangent\n  got       a dual tensor"
            )
            raise _errors.UnsupportedError(text, op, "", "tensors without a tangent", "a dual tensor", "", "")


def records(op: str, *tensors: Tensor | None) -> bool:
    """True if autograd records a function of these tensors.

    Errors:  UnsupportedError if one has a tangent, or inside of a torch.func transform.
    """
    if in_transform() and not is_compiling():
        expected, got = "tensors outside of torch.func transforms", "a call inside of vmap, grad or another"
        text = f"tessera: {op}: torch.func transforms are not supported\n  expected  {expected}\n  got       {got}"
        raise _errors.UnsupportedError(text, op, "", expected, got, "", "")
    if _dual._current_level >= 0:
        refuse_tangents(op, tensors)
    if is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def check_gradients(op: Op, values: dict[str, Any]) -> None:
    """The checks of an eager call on the tensors of a traced one: the same warning and the same refusal.

    Errors:  ArgumentError if a tensor is written and requires a gradient.
    """
    for tensor in op.tensors:
        given = values.get(tensor.name)
        for item in given if isinstance(given, (list, tuple)) else [given]:
            if not isinstance(item, Tensor) or not item.requires_grad:
                continue
            if tensor.role == "in":
                warn(op.name, tensor.name)
            else:
                refuse_write(op.name, tensor.name, item)


def refuse_write(op: str, argument: str, tensor: Tensor) -> None:
    """Errors: ArgumentError, always, in torch's words for an in-place operation."""
    what = "is written in place and requires a gradient"
    expected = "a tensor that requires none: detach() it, or call under torch.no_grad()"
    got = "a tensor of a graph, which has no derivative of this operation"
    if tensor.is_leaf:
        got = "a leaf that requires grad, in an in-place operation"
    elif _is_view_of_leaf(tensor):
        got = "a view of a leaf that requires grad, in an in-place operation"
    text = f"tessera: {op}: argument '{argument}' {what}\n  expected  {expected}\n  got       {got}"
    raise _errors.ArgumentError(text, op, argument, expected, got, "", "")


def _is_view_of_leaf(tensor: Tensor) -> bool:
    return tensor._base is not None and tensor._base.is_leaf


def check_out(op: str, out: Tensor | None) -> None:
    """Errors: ArgumentError for an `out` that is a leaf that requires a gradient, or a view of one, as in torch."""
    if out is not None and out.requires_grad and (out.is_leaf or _is_view_of_leaf(out)):
        refuse_write(op, "out", out)


class Function(torch.autograd.Function):
    """A function whose apply is the compiled one at once. That of older torch is Python code, which asks for torch.func
    transforms first; records() refuses them."""

    apply = torch._C._FunctionBase.__dict__["apply"]


def rows(gradient: Tensor | None, like: Tensor | None = None) -> Tensor:
    """The gradient as the backward ops read it, row-major; zeros for one that is undefined, like a tensor of its kind."""
    if gradient is None:
        assert like is not None
        return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
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
    """`grad_NAME` of the parameters with a main_grad that this backward pass is to fill, as it would fill their `grad`: an f32
    buffer of their shape, which the op adds to."""
    found: dict[str, Any] = {}
    for name, parameter in (owners or {}).items():
        buffer = getattr(parameter, "main_grad", None)
        if buffer is not None and parameter is not None and parameter.requires_grad and _is_filled(parameter):
            found["grad_" + name] = buffer
    return found


def _is_filled(parameter: Tensor) -> bool:
    """True if the backward pass that runs adds to the parameter's grad. torch.autograd.grad and backward(inputs=...) name the
    tensors that get a gradient."""
    try:
        return bool(torch._C._will_engine_execute_node(torch.autograd.graph.get_gradient_edge(parameter).node))
    except RuntimeError:  # torch.autograd.grad of the parameter: its gradient is returned
        return False


def parameter_gradients(owners: Owners | None, grads: Any, **parameters: Tensor | None) -> list[Tensor | None]:
    """The gradients that autograd gets for parameters, each the field `grad_NAME` of an op's result: None if the op added to its
    main_grad, else the gradient in the parameter's dtype.

    Example: parameter_gradients(ctx.owners, grads, scale=scale, base=base)
    """
    found = []
    for name, parameter in parameters.items():
        gradient: Tensor | None = getattr(grads, "grad_" + name)
        owner: Any = None if owners is None else owners[name]
        if gradient is not None and gradient is getattr(owner, "main_grad", None):
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
