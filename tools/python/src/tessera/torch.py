"""Registers every op as `torch.ops.tessera.<op>`, for torch.compile, torch.export and fake tensors.

    import tessera.torch  # or the first traced call of an op

Eager calls of torch tensors do not come here. `_overloads.py` has the rules of the overloads, `_fake.py` the
outputs of fake tensors. No overload records a gradient: tessera.functional does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera import _core
from tessera._autograd import check_gradients
from tessera._errors import UnsupportedError
from tessera._fake import fake_outputs
from tessera._kernels import kernel_of
from tessera._overloads import Overload, OverloadRules
from tessera._table import ops
from tessera._traced import traced_function

__all__ = ["traced"]

_untyped: Any = torch.library  # some of its functions have no types
_LIBRARY = _untyped.Library("tessera", "DEF")
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def traced(op: str, arguments: tuple[Any, ...]) -> Any:
    """The call of an op through its registered overloads; arguments as tessera._traceable passes them."""
    return _FUNCTIONS[op](*arguments)


def _fake(rules: OverloadRules, overload: Overload) -> Callable[..., Any]:
    op = rules.op
    tensors = {t.name for t in op.arguments}
    params = {p.name for p in op.params}
    by_position = [t.name for t in rules.required]

    def run(*args: Any, **kwargs: Any) -> Any:
        values = {**overload.constants, **kwargs, **dict(zip(by_position, args))}
        if torch.is_grad_enabled():
            check_gradients(op, values)
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
        kernel = kernel_of(rules, overload)
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(name, kernel, key)
        _LIBRARY.impl(name, _untyped.fallthrough_kernel, "Autograd")
        _untyped.register_fake(name, _fake(rules, overload), lib=_LIBRARY)
    _FUNCTIONS[rules.op.name] = traced_function(rules)


def _redirected(op: str, arguments: dict[str, Any]) -> Any:
    """A call of fake tensors, subclasses, or under a mode, from the compiled function of the op."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        expected, got = "tensors outside of torch.func transforms", "a tensor inside of vmap, grad or another"
        text = f"tessera: {op}: torch.func transforms are not supported\n  expected  {expected}\n  got       {got}"
        raise UnsupportedError(text, op, "", expected, got)
    from tessera import _traceable

    return getattr(_traceable, op)(**arguments)


for _op in ops():
    _register(OverloadRules(_op))
_core.set_redirect(_redirected)
