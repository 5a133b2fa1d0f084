"""The functions that torch's dispatcher calls for an overload: the compiled function of the op. Written out per overload, because a
compiled graph pays for every line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera import _ops
from tessera._errors import ArgumentError
from tessera._overloads import Overload, OverloadRules


def kernel_of(rules: OverloadRules, overload: Overload) -> Callable[..., Any]:
    """A function with the arguments of the overload's schema."""
    op = rules.op
    scope: dict[str, Any] = {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "plain": _plain,
        "copy": _copy,
        "function": getattr(_ops, op.name),
    }
    omitted = set() if overload.written else set(rules.comes_with.values()) - set(overload.needs)
    required = [t.name for t in rules.required]
    optional = [t.name for t in rules.optional if t.name not in omitted]
    params = [p.name for p in op.params if p.name not in overload.constants]
    defaults = {p.name: p.default for p in op.params if not p.required} | dict.fromkeys(optional + [*overload.written])
    named = [f"{n}={defaults[n]!r}" if n in defaults else n for n in optional + params + [*overload.written]]
    lines = []
    for name in required + optional + [*overload.written]:
        is_plain = f"type({name}) is Tensor or type({name}) is Parameter or {name} is None"
        lines.append(f"if not ({is_plain}): {name} = plain({name})")
    # The outputs that torch allocates for a graph have other strides than scales by column, and no padding: copied.
    plain = {t.name for t in rules.outputs if t.layout == "row_major"} & set(overload.written)
    scales = {t.name for t in rules.outputs} & set(overload.written) - plain
    values = {**{n: n for n in required + optional + params + [*overload.written]}}
    values |= {name: repr(value) for name, value in overload.constants.items()}
    given = [t.name for t in op.arguments if t.name in values] + [p.name for p in op.params]
    arguments = [values[n] if n in required else f"{n}={values[n]}" for n in given]
    out = "{" + ", ".join(f"{name!r}: {name}" for name in sorted(plain)) + "}" if plain else "None"
    arguments += [f"out={out}"] if out != "None" else []
    lines.append(f"result = function({', '.join(arguments)})")
    fields = [t.name for t in op.results]
    is_tuple = len(fields) > 1 or rules.may_wait
    field = {name: f"result[{fields.index(name)}]" if is_tuple else "result" for name in fields}
    lines += [f"copy({op.name!r}, {name!r}, {field[name]}, {name})" for name in sorted(scales)]
    returned = [field[name] for name in overload.returned]
    if list(overload.returned) == fields and is_tuple and not rules.may_wait:
        returned = ["tuple(result)"]
    lines.append(f"return {', '.join(returned)}" if returned else "return None")
    signature = ", ".join(required + (["*", *named] if named else []))
    text = f"def {op.name}({signature}):\n    " + "\n    ".join(lines)
    exec(compile(text, f"<{overload.qualified_name}>", "exec"), scope)  # noqa: S102
    kernel: Callable[..., Any] = scope[op.name]
    return kernel


def _plain(value: Any) -> Any:
    """The tensor under a subclass whose own dispatch has been done; the same of a list."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value
    return value.as_subclass(torch.Tensor)


def _copy(op: str, name: str, made: torch.Tensor | None, value: torch.Tensor | None) -> None:
    if made is None or value is None:  # nothing asked for it
        return
    if value.shape != made.shape or value.dtype != made.dtype:
        expected, got = (f"{t.dtype} {list(t.shape)}" for t in (made, value))
        text = f"tessera: {op}: argument '{name}' has the wrong shape\n  expected  {expected}\n  got       {got}"
        raise ArgumentError(text, op, name, expected, got, "", "SHAPE")
    value.copy_(made)
