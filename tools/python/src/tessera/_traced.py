"""Calls of ops through their registered overloads, written out per op so that torch can trace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera import _ops
from tessera._errors import ArgumentTypeError, Error, UnsupportedError
from tessera._fake import WORDS
from tessera._overloads import Overload, OverloadRules
from tessera._table import TensorInfo

_ACCUMULATOR_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def traced_function(rules: OverloadRules) -> Callable[..., Any]:
    """A function of all arguments of an op, in the order of the compiled one, that calls an overload."""
    return _Writer(rules).function()


class _Writer:
    """Writes the function of one op."""

    def __init__(self, rules: OverloadRules) -> None:
        self.rules, self.op = rules, rules.op
        self.packet = getattr(torch.ops.tessera, self.op.name)
        self.scope: dict[str, Any] = {
            "refuse": _refuse,
            "refuse_missing": _refuse_missing,
            "refuse_outputs": _refuse_outputs,
            "refuse_partial": _refuse_partial,
            "given_outputs": _given_outputs,
            "word_of": _word_of,
            "zeros": torch.zeros,
            "Result": getattr(_ops, f"{self.op.name}_result", None),
            "fields": tuple(t.name for t in self.op.results),
        }

    def function(self) -> Callable[..., Any]:
        op, rules = self.op, self.rules
        taken = [t.name for t in op.arguments]
        out = "None" if "out" in taken else "out"  # an argument of that name is a tensor
        names = taken + [p.name for p in op.params] + ["out"] * (out == "out") + ["stream", "unknown"]
        lines = [f"refuse({op.name!r}, stream, unknown)"]
        for name in [t.name for t in rules.required] + [p.name for p in op.params if p.required]:
            lines += [f"if {name} is ...:", f"    refuse_missing({op.name!r}, {name!r})"]
        lines += [f"{p.name} = word_of({p.name})" for p in op.params if p.type == "enum"]
        overloads = rules.overloads()
        given = [f"{t.name} is not None" for t in rules.accumulators]
        lines.append(f"if {out} is None" + "".join(f" and not {g}" for g in given) + ":")
        for overload in reversed([o for o in overloads if not o.written]):
            conditions = [name for name, value in overload.constants.items() if value]
            conditions += [f"{name} is not None" for name in overload.needs]
            lines.append(f"    if {' and '.join(conditions) or 'True'}:")
            lines += ["        " + line for line in self.call(overload)]
        for overload in [o for o in overloads if o.written]:
            if overload.name == "acc" and rules.outputs:
                lines.append(f"if {out} is None:")
                lines += ["    " + line for line in self.zeros() + self.call(overload)]
                continue
            if rules.outputs:
                lines.append(f"given = given_outputs(fields, {out})")
                for tensor in rules.outputs:
                    lines += self.given_output(tensor)
            else:
                lines.append(f"refuse_outputs({op.name!r}, {out})")
            lines += self.zeros() + self.call(overload)
        text = f"def {op.name}({', '.join(names)}):\n    " + "\n    ".join(lines)
        exec(compile(text, f"<tessera::{op.name}>", "exec"), self.scope)  # noqa: S102
        function: Callable[..., Any] = self.scope[op.name]
        return function

    def call(self, overload: Overload) -> list[str]:
        """The call of an overload, and the op's result from its results and the given tensors."""
        alias = f"overload_{overload.name or 'default'}"
        self.scope[alias] = getattr(self.packet, overload.name or "default")
        op, rules = self.op, self.rules
        omitted = set(rules.comes_with.values()) - set(overload.needs) if not overload.written else set()
        arguments = [t.name for t in rules.required]
        arguments += [f"{t.name}={t.name}" for t in rules.optional if t.name not in omitted]
        arguments += [f"{p.name}={p.name}" for p in op.params if p.name not in overload.constants]
        arguments += [f"{name}={name}" for name in overload.written]
        call = f"{alias}({', '.join(arguments)})"
        returned = [f"made_{name}" for name in overload.returned]
        lines = [f"{', '.join(returned)} = {call}" if returned else call]
        there = {**dict(zip(overload.returned, returned)), **{name: name for name in overload.written}}
        values = [there.get(t.name, "None") for t in op.results]
        if self.rules.may_wait:
            values.append("None")
        result = f"Result({', '.join(values)})" if len(values) > 1 else (values or ["None"])[0]
        return [*lines, f"return {result}"]

    def zeros(self) -> list[str]:
        """New accumulators, where some were given."""
        lines = []
        for tensor in self.rules.accumulators:
            like = tensor.name.removeprefix("grad_")
            dtype = f"dtype_{tensor.name}"
            self.scope[dtype] = _ACCUMULATOR_DTYPES[tensor.dtypes[0]]
            condition = f"{tensor.name} is None"
            if tensor.name in self.rules.comes_with:
                condition += f" and {like} is not None"
            lines.append(f"if {condition}:")
            if like in {t.name for t in self.op.arguments}:
                lines.append(f"    {tensor.name} = zeros({like}.shape, dtype={dtype}, device={like}.device)")
            else:
                lines.append(f"    refuse_missing({self.op.name!r}, {tensor.name!r})")
        return lines

    def given_output(self, tensor: TensorInfo) -> list[str]:
        name, condition = tensor.name, self.rules.asked_by.get(tensor.name, "True")
        return [
            f"{name} = given.get({name!r}) if {condition} else None",
            f"if {name} is None and {condition}:",
            f"    refuse_partial({self.op.name!r}, {name!r})",
        ]


def _word_of(value: Any) -> Any:
    """The word of a dtype, as in `format=torch.float8_e4m3fn`; all else as it is."""
    return WORDS.get(value, value) if isinstance(value, torch.dtype) else value


def _refuse(op: str, stream: Any, unknown: Any) -> None:
    if unknown:
        name = next(iter(unknown))
        text = f"tessera: {op}: there is no argument '{name}'\n  expected  an argument of the op\n  got       {name}"
        raise ArgumentTypeError(text, op, name, "an argument of the op", name, "", "NAME")
    if stream is not None:
        raise _refusal(UnsupportedError, op, "stream", "is not supported here", "None: torch's stream", "a stream")


def _refuse_missing(op: str, name: str) -> None:
    raise _refusal(ArgumentTypeError, op, name, "is missing", "a value", "none")


def _refuse_outputs(op: str, out: Any) -> None:
    if out is not None:
        raise _refusal(ArgumentTypeError, op, "out", "has the wrong type", "nothing: the op has no outputs", "out=")


def _given_outputs(fields: tuple[str, ...], out: Any) -> dict[str, Any]:
    if isinstance(out, dict):
        return out
    return {fields[0]: out} if len(fields) == 1 else dict(zip(fields, out))


def _refuse_partial(op: str, name: str) -> None:
    raise _refusal(UnsupportedError, op, "out", f"lacks '{name}'", "all outputs, while torch traces", "some outputs")


def _refusal(kind: type[Error], op: str, argument: str, what: str, expected: str, got: str) -> Error:
    text = f"tessera: {op}: argument '{argument}' {what}\n  expected  {expected}\n  got       {got}"
    return kind(text, op, argument, expected, got)
