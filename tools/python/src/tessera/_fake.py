"""Shapes and dtypes of the outputs of a call, for fake tensors whose extents may be symbols.

The library computes outputs of concrete extents. This module calls it at the hints of the symbols and at a few
other values, and looks for expressions that give the library's numbers at all of them: first those of the op's
table, then constants and extents of the inputs. Where none does, the extents become constants, with guards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import torch

from tessera import _core
from tessera._errors import Error
from tessera._overloads import OverloadRules
from tessera._table import Op, TensorInfo

Extent = Any  # int or torch.SymInt
Point = dict[Any, int]  # values of the symbols
_UNBACKED = 4096  # the value of a symbol without hint: a multiple of every block size

WORDS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
}
if hasattr(torch, "float4_e2m1fn_x2"):
    WORDS[torch.float4_e2m1fn_x2] = "i8"
_DTYPES = {word: dtype for dtype, word in reversed(WORDS.items())}


def _moe_rows(scope: dict[str, Extent]) -> Extent:
    """moe_rows of kernels/moe_rows.h, which takes no symbols."""
    pairs, alignment = scope["T"] * scope["K"], scope["alignment"]
    bound = pairs + (alignment - 1) * torch.sym_min(pairs, scope["num_experts"])
    return scope["num_rows"] or bound // alignment * alignment


# Extents that the table leaves to a function of the library.
_FUNCTIONS: dict[tuple[str, str], Callable[[dict[str, Extent]], Extent]] = {("moe_plan", "P"): _moe_rows}


def fake_outputs(op: Op, given: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a call as new fake tensors by name, lists of them for lists.

    Errors:  those of the op.
    Example: fake_outputs(op, {"x": x}, {"format": "e4m3", "num_per_channels": 128})["out"]
    """
    call = _Call(op, given, params)
    made: dict[str, Any] = {}
    for index, info in enumerate(call.outputs):
        shape, strides, elements = call.place(index)
        options = {"dtype": _DTYPES[info.dtype], "device": call.device}
        tensor = torch.empty(shape if strides is None else elements, **options)
        tensor = tensor if strides is None else tensor.as_strided(shape, strides)
        stem, _, item = info.name.partition(".")
        made.setdefault(stem, []).append(tensor) if item else made.update({stem: tensor})
    for result in op.results:
        if result.list:
            made.setdefault(result.name, [])
    return made


class _Call:
    def __init__(self, op: Op, given: dict[str, Any], params: dict[str, Any]) -> None:
        self.op = op
        self.params = {p.name: p.default for p in op.params if p.default is not None} | params
        self.given = {name: value for name, value in given.items() if value is not None}
        self.tensors = [t for v in self.given.values() for t in (v if isinstance(v, (list, tuple)) else [v])]
        self.device = self.tensors[0].device
        self.symbols = _hints(extent for t in self.tensors for extent in (*t.shape, *t.stride()))
        self.outputs = self._ask(self.symbols)
        self.points = [(self.symbols, self.outputs)]
        # Symbols whose other values the library refuses.
        self.bound = {symbol for symbol in self.symbols if not self._probe([symbol])}
        for hint in {self.symbols[symbol] for symbol in self.bound}:  # of several tensors, perhaps one extent
            equal = [symbol for symbol in self.bound if self.symbols[symbol] == hint]
            if self._probe(equal):
                self.bound -= set(equal)
        self.scope: dict[str, Extent] = {n: v for n, v in self.params.items() if isinstance(v, int)}
        self.leading: dict[str, Sequence[Extent]] = {}
        self.matrices: list[tuple[Extent, Extent]] = []
        for tensor in op.arguments:
            value = self.given.get(tensor.name)
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if item is not None:
                    self._bind(tensor, _logical(tensor, item))
        self.data_dependent: dict[str, Extent] = {}
        self.moving = self._moving() if OverloadRules(op).may_wait else []

    # ---- the library's numbers

    def _ask(self, point: Point, scale: int = 1) -> list[Any]:
        """The outputs at values of the symbols; `scale` times the first extent of the first tensor."""

        def view(tensor: torch.Tensor) -> tuple[str, list[int], list[int]]:
            shape = [_value(extent, point) for extent in tensor.shape]
            if tensor is self.tensors[0] and scale != 1 and shape:
                shape[0] *= scale
            return WORDS.get(tensor.dtype, str(tensor.dtype)), shape, [_value(s, point) for s in tensor.stride()]

        tensors = {
            name: [view(item) for item in value] if isinstance(value, (list, tuple)) else view(value)
            for name, value in self.given.items()
        }
        return [info for info in _core.outputs(self.op.name, tensors, self.params) if not info.workspace]

    def _probe(self, symbols: list[Any]) -> bool:
        """Asks at other values of the symbols; False if the library refuses all of them."""
        is_taken = False
        hint = self.symbols[symbols[0]]
        for value in (2 * hint, hint + 1, hint // 2):
            point = {**self.symbols, **dict.fromkeys(symbols, value)}
            try:
                self.points.append((point, self._ask(point)))
                is_taken = True
            except Error:
                pass
        return is_taken

    def _moving(self) -> list[tuple[bool, ...]]:
        """For outputs cut to a size that the data decides: whether each extent's bound depends on the tensors."""
        moving = [(False,) * len(info.shape) for info in self.outputs]
        for scale in (2, 1000):
            try:
                others = self._ask(self.symbols, scale)
            except Error:
                continue
            for index, (one, other) in enumerate(zip(self.outputs, others)):
                moving[index] = tuple(m or a != b for m, a, b in zip(moving[index], one.shape, other.shape))
        return moving

    # ---- names of the table

    def _bind(self, tensor: TensorInfo, extents: Sequence[Extent]) -> None:
        if len(extents) == 2:
            self.matrices.append((extents[0], extents[1]))
        if not tensor.shape or len(extents) < len(tensor.shape) - 1:
            return
        cut = len(extents) - len(tensor.shape) + 1
        self.leading.setdefault(tensor.shape[0], extents[:cut])
        for name, extent in zip(tensor.shape, [math.prod(extents[:cut]), *extents[cut:]]):
            factor = re.fullmatch(r"(\d*)([A-Za-z_]\w*)(?:-(\d+))?", name)  # H, 2H, N-1
            if factor:
                extent = extent + int(factor[3] or 0)
                self.scope.setdefault(factor[2], extent // int(factor[1]) if factor[1] else extent)

    def _evaluate(self, text: str) -> list[Extent]:
        """The value of an expression of the table, if its names are known."""
        if (self.op.name, text) in _FUNCTIONS:
            return [_FUNCTIONS[self.op.name, text](self.scope)]
        code = _code(text)
        if code is None or not set(code.co_names) <= self.scope.keys():
            return []
        return [eval(code, {"__builtins__": {}}, self.scope)]  # noqa: S307 - the library's own table

    # ---- symbolic shapes

    def place(self, index: int) -> tuple[list[Extent], Optional[list[Extent]], Extent]:
        """Shape and strides of an output, None for row-major ones; elements of its storage with the padding."""
        info = self.outputs[index]
        tensor = next(t for t in self.op.results if t.name == info.name.partition(".")[0])
        shape = [self._extent(tensor, index, dim) for dim in range(len(info.shape))]
        if len(shape) == 2 and "_sf" not in tensor.name:
            self.matrices.insert(0, (shape[0], shape[1]))
        if all(_is_row_major(outputs[index]) for _, outputs in self.points):
            return shape, None, math.prod(shape)
        choices = [1, -(-shape[0] // 4) * 4, *shape]
        strides = [self._stride(index, dim, choices) for dim in range(len(info.strides))]
        ends = [stride * extent for stride, extent in zip(strides, shape)]
        return shape, strides, self._choose(lambda outputs: outputs[index].storage_elements, ends)

    def _stride(self, index: int, dim: int, choices: list[Extent]) -> Extent:
        return self._choose(lambda outputs: outputs[index].strides[dim], choices)

    def _extent(self, tensor: TensorInfo, index: int, dim: int) -> Extent:
        info = self.outputs[index]
        tail = min(len(tensor.shape), len(info.shape)) - 1  # the last extent may be absent
        position = dim - (len(info.shape) - tail) + 1  # in the table's shape; the first may stand for several
        text = tensor.shape[max(position, 0)] if tensor.shape else ""
        if self.moving and self.moving[index][dim] and text not in self.scope:
            return self._data_dependent(text)
        lead = self.leading.get(text, []) if position < 1 else []
        if not tensor.shape:
            choices = list(self._blocks(tensor.layout, dim))
        elif len(lead) == len(info.shape) - tail:
            choices = [lead[dim]]
        else:
            choices = self._evaluate(text)
        if dim == len(info.shape) - 1 and info.dtype in ("i8", "u8"):  # pairs of e2m1, 12 bits of e5m6
            choices += [c // 2 for c in choices] + [c * 3 // 2 for c in choices]
        extents = [extent for t in self.tensors for extent in t.shape]
        chosen = self._choose(lambda o: o[index].shape[dim], choices, extents)
        if text.isidentifier() and not lead:
            self.scope.setdefault(text, chosen)
        return chosen

    def _blocks(self, layout: str, dim: int) -> Iterable[Extent]:
        """Numbers of blocks of the matrices that a scale tensor may belong to."""
        block = re.match(r"SF\((.*?)\)", layout)
        if block is None:
            return
        words = block[1].split(",")
        sizes = self.params.get(words[0]) if len(words) == 1 else [v for w in words for v in self._evaluate(w)]
        if not isinstance(sizes, (list, tuple)) or len(sizes) != 2:
            return
        for matrix in self.matrices:
            count = -(-matrix[dim] // sizes[dim])
            yield count
            if dim == 1:
                yield -(-count // 4)  # four exponents per word

    def _data_dependent(self, text: str) -> Extent:
        if text not in self.data_dependent:
            self.data_dependent[text] = torch.library.get_ctx().new_dynamic_size()
        return self.data_dependent[text]

    def _choose(
        self, number: Callable[[list[Any]], int], choices: Iterable[Extent], guesses: Iterable[Extent] = ()
    ) -> Extent:
        """The expression that has the library's number at all points: of `choices`, which say what the number is, or of
        `guesses`, which have to hold for other values of all symbols."""
        wanted = [number(outputs) for _, outputs in self.points]

        def holds(choice: Extent) -> bool:
            return all(_value(choice, point) == value for (point, _), value in zip(self.points, wanted))

        for choice in choices:
            if holds(choice):
                return choice
        for guess in (wanted[0], *guesses):
            if holds(guess):
                self._pin(self.bound)
                return guess
        moved = [
            {symbol for symbol, value in point.items() if value != self.symbols[symbol]}
            for (point, _), value in zip(self.points, wanted)
            if value != wanted[0]
        ]
        self._pin(self.bound.union(*moved))
        return wanted[0]

    def _pin(self, symbols: set[Any]) -> None:
        """Makes constants of the extents that have these symbols."""
        for tensor in self.tensors:
            for extent in tensor.shape:
                if not isinstance(extent, int) and extent.node.expr.free_symbols & symbols:
                    int(extent)


def _hints(extents: Iterable[Extent]) -> Point:
    point: Point = {}
    for extent in extents:
        if isinstance(extent, int):
            continue
        env = extent.node.shape_env
        known = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
        for symbol in extent.node.expr.free_symbols:
            point[symbol] = int(known.get(symbol, _UNBACKED))
    return point


def _value(extent: Extent, point: Point) -> int:
    return extent if isinstance(extent, int) else int(extent.node.expr.xreplace(point))


def _logical(tensor: TensorInfo, value: torch.Tensor) -> list[Extent]:
    """The extents of the table: columns of packed formats are more than their bytes."""
    shape: list[Extent] = list(value.shape)
    if shape and WORDS.get(value.dtype) == "i8" and "e2m1" in tensor.dtypes:
        shape[-1] = shape[-1] * 2
    if shape and "e5m6" in tensor.dtypes:
        shape[-1] = shape[-1] // 3 * 2
    return shape


def _is_row_major(info: Any) -> bool:
    strides = tuple(math.prod(info.shape[dim + 1 :]) for dim in range(len(info.shape)))
    elements = math.prod(info.shape)
    return elements == 0 or bool(info.strides == strides and info.storage_elements == elements)


_CODES: dict[str, Any] = {}


def _code(text: str) -> Any:
    """An expression of the table as code: 2H, n*H, ceil(P / 128). None for one that is none."""
    if text not in _CODES:
        python = re.sub(r"ceil\(([^()]*?)/([^()/]*?)\)", r"-(-(\1) @ (\2))", text)
        python = python.replace("/", "//").replace("@", "//")
        python = re.sub(r"(\d)([A-Za-z_])", r"\1*\2", python)
        try:
            _CODES[text] = compile(python, "<table of ops>", "eval")
        except SyntaxError:
            _CODES[text] = None
    return _CODES[text]
