"""The table of ops."""

import dataclasses
import functools
import json
from typing import Any, Optional

from tessera import _core


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor of an op: `role` is in, out or inout; extents are symbols, or expressions of them; `presence` is the rule
    by which an optional tensor is there, such as the name of another tensor or of a flag."""

    name: str
    role: str
    optional: bool
    accumulate: bool
    list: bool
    dtypes: tuple[str, ...]
    shape: tuple[str, ...]
    layout: str
    presence: str


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter of an op: `type` is int, float, bool, enum or tuple. `allowed` are values, the text of
    a range, or None."""

    name: str
    type: str
    required: bool
    default: Any
    allowed: Any


@dataclasses.dataclass(frozen=True)
class Op:
    """An op: what it is called, what it does, its tensors and parameters."""

    name: str
    family: str
    purpose: str
    tensors: tuple[TensorInfo, ...]
    params: tuple[Param, ...]

    def tensor(self, name: str) -> TensorInfo:
        """The tensor of that name."""
        return next(t for t in self.tensors if t.name == name)

    def param(self, name: str) -> Param:
        """The parameter of that name."""
        return next(p for p in self.params if p.name == name)

    @property
    def arguments(self) -> tuple[TensorInfo, ...]:
        """The tensors of a call in the order of its function: always there, optional, accumulators."""
        taken = [t for t in self.tensors if t.role != "out"]
        always = [t for t in taken if not t.optional and not t.accumulate]
        optional = [t for t in taken if t.optional and not t.accumulate]
        return (*always, *optional, *(t for t in taken if t.accumulate))

    @property
    def results(self) -> tuple[TensorInfo, ...]:
        """The tensors that a call returns."""
        return tuple(t for t in self.tensors if t.role == "out" or t.accumulate)


def _param(row: dict[str, Any]) -> Param:
    allowed = row["allowed"]
    return Param(
        row["name"],
        row["type"],
        "default" not in row,
        row.get("default"),
        tuple(allowed) if isinstance(allowed, list) else allowed,
    )


@functools.cache
def _all() -> tuple[Op, ...]:
    rows = json.loads(_core.table_json())["ops"]
    return tuple(
        Op(
            row["name"],
            row["family"],
            row["purpose"],
            tuple(TensorInfo(**{**t, "dtypes": tuple(t["dtypes"]), "shape": tuple(t["shape"])}) for t in row["tensors"]),
            tuple(_param(p) for p in row["params"]),
        )
        for row in rows
    )


def ops() -> tuple[Op, ...]:
    """All ops, in the order of the contract.

    Example: [op.name for op in tessera.ops() if op.family == "quant"]
    """
    return _all()
