"""The torch overloads of every op, by rule from the table of ops.

  tessera::OP             the outputs that are always there, and new accumulators
  tessera::OP.saving      the outputs that `save_for_backward` asks for too
  tessera::OP.FLAG        the outputs that a boolean parameter FLAG asks for too, as save_NAME or output_final_state
  tessera::OP.WORD        the outputs that a parameter of the words none and WORD asks for by WORD too
  tessera::OP.NAME        the outputs and accumulators that come with the optional input NAME too
  tessera::OP.acc         adds to given accumulators, returns the other outputs
  tessera::OP.out         writes given outputs and accumulators, returns nothing

No result aliases an argument, and none is optional.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tessera import _ops
from tessera._table import Op, Param, TensorInfo


@dataclass(frozen=True)
class Overload:
    """One overload of an op.

    op         name of the op
    name       of the overload, empty for the default one
    schema     its text for torch.library
    constants  parameters with a value of their own, which the schema lacks
    needs      optional inputs that are required here
    returned   names of the tensors that it returns
    written    names of the outputs and accumulators that are arguments
    """

    op: str
    name: str
    schema: str
    constants: dict[str, Any]
    needs: tuple[str, ...]
    returned: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def qualified_name(self) -> str:
        return f"tessera::{self.op}" + (f".{self.name}" if self.name else "")


class OverloadRules:
    """The overloads of one op, and when each is called."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.required = [t for t in op.arguments if not t.optional and not t.accumulate]
        self.optional = [t for t in op.arguments if t.optional and not t.accumulate]
        self.accumulators = [t for t in op.arguments if t.accumulate]
        self.outputs = [t for t in op.results if not t.accumulate]
        inputs = {t.name for t in self.optional}
        optional = [t for t in op.results if t.optional]
        rules = {t.presence for t in optional}
        self.flags = [p.name for p in op.params if p.type == "bool" and (p.name.startswith("save_") or p.name in rules)]
        # Parameters that are none or one word, as format = e4m3, are flags with a value of their own.
        self.words = {p.name: word for p in op.params for word in _only_word(p) if f"{p.name} = {word}" in rules}
        self.flags += self.words
        self.comes_with = {t.name: t.presence for t in optional if t.presence in inputs}
        flag_of = {name: name for name in self.flags} | {f"{name} = {word}": name for name, word in self.words.items()}
        self.asked_by = {t.name: flag_of[t.presence] for t in optional if t.presence in flag_of}
        for tensor in self.outputs:
            if tensor.optional and tensor.name not in self.comes_with | self.asked_by:
                raise NotImplementedError(f"tessera: {op.name}: no input or flag asks for the optional output '{tensor.name}'")

    @property
    def may_wait(self) -> bool:
        """True if the data may decide how long outputs are: then the result has one field more, on the host."""
        result = getattr(_ops, f"{self.op.name}_result", None)
        return result is not None and len(result._fields) > len(self.op.results)

    def overloads(self) -> list[Overload]:
        """All overloads of the op, the default one first."""
        made = []
        inputs = sorted(set(self.comes_with.values()))
        for choice in itertools.product([False, True], repeat=len(self.flags) + len(inputs)):
            given = {name for name, is_given in zip(inputs, choice[len(self.flags) :]) if is_given}
            made.append(self._functional(dict(zip(self.flags, choice)), given))
        if self.accumulators:
            made.append(self._mutating("acc", self.accumulators, self.outputs))
        has_own = any(t.name == "out" for t in self.required + self.optional)  # an argument: the op takes no outputs
        if self.outputs and not has_own:
            made.append(self._mutating("out", self.outputs + self.accumulators, []))
        return made

    def _functional(self, asked: dict[str, bool], given: set[str]) -> Overload:
        inputs = set(self.comes_with.values())
        returned = [
            name
            for name in (t.name for t in self.op.results)
            if asked.get(self.asked_by.get(name, ""), True) and (name not in self.comes_with or self.comes_with[name] in given)
        ]
        words = ["saving" if flag == "save_for_backward" else self.words.get(flag, flag) for flag, is_set in asked.items() if is_set]
        words += sorted(given)
        required = [t for t in self.optional if t.name in given]
        optional = [t for t in self.optional if t.name not in inputs]
        constants = {f: is_set if f not in self.words else self.words[f] if is_set else None for f, is_set in asked.items()}
        return self._overload("_".join(words), required, optional, [], returned, constants)

    def _mutating(self, name: str, written: list[TensorInfo], returned: list[TensorInfo]) -> Overload:
        names = [t.name for t in returned if t.name not in self.asked_by]
        return self._overload(name, [], self.optional, written, names, {})

    def _overload(
        self,
        name: str,
        required: list[TensorInfo],
        optional: list[TensorInfo],
        written: list[TensorInfo],
        returned: list[str],
        constants: dict[str, Any],
    ) -> Overload:
        alias = (f"(a{i}!)" for i in itertools.count())
        conditional = {**self.asked_by, **self.comes_with}
        words = [_tensor_word(t, alias) for t in self.required] + ["*"]
        words += [_tensor_word(t, alias) for t in required]
        words += [_tensor_word(t, alias, "?") for t in optional]
        words += [_param_word(p) for p in self.op.params if p.name not in constants]
        if len(constants) > 1:  # torch aborts at exit if two overloads differ in their results alone
            words += [f'str {f}="{v}"' if f in self.words else f"bool {f}=True" for f, v in constants.items() if v]
        for tensor in written:
            kind = "[]" if tensor.list else ""
            maybe = "?" if tensor.name in conditional else ""
            words.append(f"Tensor{next(alias)}{kind}{maybe} {tensor.name}" + ("=None" if maybe else ""))
        if words[-1] == "*":
            words.pop()
        results = ["Tensor[]" if self.op.tensor(n).list else "Tensor" for n in returned]
        result = results[0] if len(results) == 1 else f"({', '.join(results)})"
        full_name = self.op.name + (f".{name}" if name else "")
        return Overload(
            self.op.name,
            name,
            f"{full_name}({', '.join(words)}) -> {result}",
            constants,
            tuple(t.name for t in required),
            tuple(returned),
            tuple(t.name for t in written),
        )


def _tensor_word(tensor: TensorInfo, alias: Iterator[str], maybe: str = "") -> str:
    mark = next(alias) if tensor.role == "inout" else ""
    kind = "[]" if tensor.list else ""
    return f"Tensor{mark}{kind}{maybe} {tensor.name}" + ("=None" if maybe else "")


def _only_word(param: Param) -> list[str]:
    """The word of a parameter that is none, its default, or that word."""
    if param.type != "enum" or param.required or param.default is not None:
        return []
    words = [word for word in param.allowed if word != "none"]
    return words if len(words) == 1 else []


_TYPES = {"int": "int", "float": "float", "bool": "bool", "enum": "str", "tuple": "int[]"}


def _param_word(param: Param) -> str:
    kind = _TYPES[param.type]
    if param.required:
        return f"{kind} {param.name}"
    if param.default is None:
        return f"{kind}? {param.name}=None"
    default = f'"{param.default}"' if kind == "str" else str(param.default)
    return f"{kind} {param.name}={default}"
