"""Registers every op as `torch.ops.tessera.<op>`, for torch.compile, torch.export and fake tensors.

    import tessera.torch  # or the first traced call of an op

Eager calls of torch tensors do not come here. `_overloads.py` has the rules of the overloads, `_fake.py` the
outputs of fake tensors. No overload records a gradient: tessera.functional does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera import _core, _ops
from tessera._errors import ArgumentError, UnsupportedError
from tessera._fake import fake_outputs
from tessera._overloads import Overload, OverloadRules
from tessera._table import ops
from tessera._traced import traced_function

__all__ = ["traced"]

_LIBRARY = torch.library.Library("tessera", "DEF")
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def traced(op: str, arguments: tuple[Any, ...]) -> Any:
    """The call of an op through its registered overloads; arguments as tessera._ops passes them."""
    return _FUNCTIONS[op](*arguments)


# ---- kernels and fakes


def _kernel(rules: OverloadRules, overload: Overload) -> Callable[..., Any]:
    """What an overload does with tensors: the compiled function of the op."""
    op = rules.op
    function = getattr(_ops, f"_{op.name}")
    names = [t.name for t in op.arguments] + [p.name for p in op.params]
    by_position = [t.name for t in rules.required]
    plain_outputs = {t.name for t in rules.outputs if t.layout == "row_major"}
    # What torch allocates for a graph has other strides than scales by column, and no padding: copied.
    scale_outputs = {t.name for t in rules.outputs} - plain_outputs
    fields = [t.name for t in op.results]

    def run(*args: Any, **kwargs: Any) -> Any:
        values = {**overload.constants, **kwargs}
        for name, value in zip(by_position, args):
            values[name] = value
        for name, value in values.items():
            values[name] = _plain(value)
        given = {name: values[name] for name in overload.written if values.get(name) is not None}
        out = {name: value for name, value in given.items() if name in plain_outputs}
        result = function(*[values.get(name, ...) for name in names], out or None, None, None)
        for name, value in given.items():
            if name in scale_outputs:
                _copy(op.name, name, result if len(fields) == 1 else result[fields.index(name)], value)
            torch.autograd.graph.increment_version(value)
        results = (result,) if len(fields) == 1 and not isinstance(result, tuple) else result
        returned = tuple(results[fields.index(name)] for name in overload.returned)
        return returned[0] if len(returned) == 1 else returned if returned else None

    return run


def _copy(op: str, name: str, made: torch.Tensor, value: torch.Tensor) -> None:
    if value.shape != made.shape or value.dtype != made.dtype:
        expected, got = (f"{t.dtype} {list(t.shape)}" for t in (made, value))
        text = f"tessera: {op}: argument '{name}' has the wrong shape\n  expected  {expected}\n  got       {got}"
        raise ArgumentError(text, op, name, expected, got)
    value.copy_(made)


def _plain(value: Any) -> Any:
    """The tensor under a subclass whose own dispatch has been done."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor) and type(value) not in (torch.Tensor, torch.nn.Parameter):
        return value.as_subclass(torch.Tensor)
    return value


def _fake(rules: OverloadRules, overload: Overload) -> Callable[..., Any]:
    op = rules.op
    tensors = {t.name for t in op.arguments}
    params = {p.name for p in op.params}
    by_position = [t.name for t in rules.required]

    def run(*args: Any, **kwargs: Any) -> Any:
        values = {**overload.constants, **kwargs, **dict(zip(by_position, args))}
        made = fake_outputs(
            op,
            {name: value for name, value in values.items() if name in tensors},
            {name: value for name, value in values.items() if name in params},
        )
        returned = tuple(made[name] for name in overload.returned)
        return returned[0] if len(returned) == 1 else returned if returned else None

    return run


def _register(rules: OverloadRules) -> None:
    tags = [torch.Tag.pt2_compliant_tag]
    if hasattr(torch.Tag, "needs_exact_strides"):
        tags.append(torch.Tag.needs_exact_strides)
    if rules.may_wait:
        tags.append(torch.Tag.dynamic_output_shape)
        if hasattr(torch.Tag, "cudagraph_unsafe"):
            tags.append(torch.Tag.cudagraph_unsafe)
    for overload in rules.overloads():
        _LIBRARY.define(overload.schema, tags=tags)
        name = overload.qualified_name
        kernel = _kernel(rules, overload)
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(name, kernel, key)
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(name, _fake(rules, overload), lib=_LIBRARY)
    _FUNCTIONS[rules.op.name] = traced_function(rules)


def _redirected(op: str, arguments: tuple[Any, ...]) -> Any:
    """A call of fake tensors, subclasses, or under a mode, from the compiled function of the op."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        expected, got = "tensors outside of torch.func transforms", "a tensor inside of vmap, grad or another"
        text = f"tessera: {op}: torch.func transforms are not supported\n  expected  {expected}\n  got       {got}"
        raise UnsupportedError(text, op, "", expected, got)
    return traced(op, arguments)


for _op in ops():
    _register(OverloadRules(_op))
_core.set_redirect(_redirected)
