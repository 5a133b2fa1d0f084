"""Writes the functions of all ops, from their table, into the package: `write_ops.py PACKAGE_FOLDER`.

The folder holds the compiled module; `_ops.py`, `_traceable.py`, their types `_ops.pyi` and those of the module, `_core.pyi`,
are written beside it. No op is named here.
"""

import json
import keyword
import pathlib
import re
import struct
import sys
import textwrap

TYPES = {"int": "int", "float": "float", "bool": "bool", "tuple": "Sequence[int]"}
NUMPY = {"bool": "bool", "f16": "float16", "f32": "float32"} | {
    f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)
}
DTYPE_WORDS = {"bf16", "e4m3", "e5m2", *NUMPY}  # as dtypes of libraries too
ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


class Op:
    """An op of the table, and how its function is called."""

    def __init__(self, row: dict, texts: dict):
        self.name, self.purpose, self.params = row["name"], row["purpose"], row["params"]
        self.texts = texts
        taken = [t for t in row["tensors"] if t["role"] != "out"]
        self.always = [t for t in taken if not t["optional"] and not t["accumulate"]]
        self.optional = [t for t in taken if t["optional"] and not t["accumulate"]]
        self.accumulators = [t for t in taken if t["accumulate"]]
        self.takes_out = all(t["name"] != "out" for t in taken)  # beside a tensor of that name
        self.results = [t for t in row["tensors"] if t["role"] == "out" or t["accumulate"]]
        self.tensors = self.always + self.optional + self.accumulators
        words = [t["name"] for t in self.tensors] + [p["name"] for p in self.params]
        if bad := [word for word in words if keyword.iskeyword(word)]:
            raise SystemExit(f"{self.name}: {bad} are no names of arguments")

    @property
    def fields(self) -> list[str]:
        """The names of the results; of a call that may wait for data, the last once more, of the host."""
        names = [t["name"] for t in self.results]
        return names + [names[-1] + "_host"] if self.texts["may_wait"] else names

    @property
    def result(self) -> str:
        """The class of the results, if there are several."""
        return f"{self.name}_result" if len(self.fields) > 1 else ""


# ---- _ops.py

HEADER = '''"""Written by write_ops.py from the table of ops: a function for each."""

import collections

from tessera import _core
'''

FUNCTION = '''
{name} = _core.function("{name}", {result}, """{name}({shown})
--

{doc}
""")
'''

RESULT = '''
{result} = collections.namedtuple("{result}", {fields}, module="tessera")
'''

FOOTER = '''

__all__ = {names}
'''


def signature_of(op: Op, missing: str) -> str:
    """The arguments; those that have to be given have the default `missing`."""
    words = [t["name"] + missing for t in op.always] + ["*"]
    words += [f"{t['name']}=None" for t in op.optional + op.accumulators]
    words += [p["name"] + (f"={p['default']!r}" if "default" in p else missing) for p in op.params]
    return ", ".join(words + ["out=None"] * op.takes_out + ["stream=None"])


def result_text(op: Op) -> str:
    if not op.results:
        return "Returns None; the tensors that it changes are those given."
    names = [t["name"] + (" (None if not asked for)" if t["role"] == "out" and t["optional"] else "") for t in op.results]
    if not op.result:
        return f"Returns {names[0]}."
    if op.texts["may_wait"]:
        names.append(f"{op.fields[-1]} (a list if the call waited for its data, else None)")
    return f"Returns {op.result}: {', '.join(names)}."


def literal_of(value) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def array_of(dtype: str, shape: tuple, strides: tuple, values: list | None) -> str:
    """An expression that makes an input of an example."""
    kind = f"ml_dtypes.{ML_DTYPES[dtype]}" if dtype in ML_DTYPES else f"numpy.{NUMPY[dtype]}"
    if values is not None and any(values):
        if dtype == "f32":  # whose values are given by their bits
            values = [struct.unpack("f", struct.pack("I", value & 0xFFFFFFFF))[0] for value in values]
        if len(set(values)) == 1:
            return f"numpy.full({shape}, {values[0]}, {kind})"
        return f"numpy.array({values}, {kind})" + (f".reshape({shape})" if len(shape) > 1 else "")
    if strides and len(shape) == 2 and strides[0] == 1 and shape[1] > 1:
        return f"numpy.ones(({shape[1]}, {strides[1]}), {kind}).T[:{shape[0]}]"
    zeros = values is not None or NUMPY.get(dtype, "float").startswith(("int", "uint", "bool"))
    return f"numpy.{'zeros' if zeros else 'ones'}({shape}, {kind})"


def example_of(op: Op) -> str:
    """A call in numpy's words that runs."""
    example = op.texts["example"]
    lists = {t["name"] for t in op.tensors if t["list"]}
    lines, given = [], {}
    for name, dtype, shape, strides, values in example["inputs"]:
        made = array_of(dtype, shape, strides, values)
        stem = name.split(".")[0]
        if stem in lists:
            given.setdefault(stem, []).append(made)
        else:
            given[stem] = made
    for name, made in given.items():
        lines.append(f"{name} = {made}" if isinstance(made, str) else f"{name} = [{', '.join(made)}]")
    order = [t["name"] for t in op.tensors if t["name"] in given]
    always = {t["name"] for t in op.always}
    words = [name if name in always else f"{name}={name}" for name in order]
    for param in op.params:
        value = example["params"].get(param["name"])
        if value is not None and value != param.get("default"):
            words.append(f"{param['name']}={literal_of(value)}")
    call = f"tessera.{op.name}({', '.join(words)})"
    uses_ml_dtypes = any("ml_dtypes." in line for line in lines)
    lines.insert(0, "import ml_dtypes, numpy, tessera" if uses_ml_dtypes else "import numpy, tessera")
    lines.append(f"result = {call}" if op.results else call)
    return "\n".join(f">>> {line}" for line in lines)


def doc_of(op: Op) -> str:
    purpose = op.purpose[0].upper() + op.purpose[1:]
    listing = op.texts["listing"].splitlines()[1:]  # after the line with name and purpose
    listing = [line.replace("  -p     ", "  param  ", 1) for line in listing]
    rules = textwrap.dedent(op.texts["signature"]).strip()
    parts = [
        f"{purpose}.",
        "\n".join(listing),
        result_text(op),
        "Signature, with all that is checked (kernels/signature/signature.h):\n\n" + textwrap.indent(rules, "  "),
        "Example:\n\n" + textwrap.indent(example_of(op), "  "),
    ]
    text = "\n\n".join(part for part in parts if part)
    return text.replace("\\", "\\\\")


def write_functions(ops: list[Op]) -> str:
    text = HEADER
    for op in ops:
        if op.result:
            text += RESULT.format(result=op.result, fields=tuple(op.fields)) + "\n"
        text += FUNCTION.format(
            name=op.name,
            shown=signature_of(op, ""),
            doc=doc_of(op),
            result=op.result or None,
        )
    return text + FOOTER.format(names=[op.name for op in ops] + [op.result for op in ops if op.result])


# ---- _traceable.py

TRACEABLE_HEADER = '''# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Written by write_ops.py from the table of ops: what torch.compile traces in place of each function."""


def traced(op, arguments):
    import tessera.torch

    return tessera.torch.traced(op, arguments)
'''

TRACEABLE = '''

def {name}({taken}):
    return traced("{name}", ({arguments}, unknown))
'''


def write_traceable(ops: list[Op]) -> str:
    text = TRACEABLE_HEADER
    for op in ops:
        names = [t["name"] for t in op.tensors] + [p["name"] for p in op.params]
        names += ["out"] * op.takes_out + ["stream"]
        taken = signature_of(op, "=...") + ", **unknown"
        text += TRACEABLE.format(name=op.name, taken=taken, arguments=", ".join(names))
    return text + FOOTER.format(names=[op.name for op in ops])


# ---- _ops.pyi

STUB_HEADER = '''# mypy: disable-error-code="overload-cannot-match"
# Where torch is not installed, its tensors are of any type, and the other overloads are not needed.
"""Written by write_ops.py from the table of ops: the types of their functions."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union, overload

import numpy
import torch

from tessera._types import Dtype, Stream, Tensor

_T = TypeVar("_T", bound=Tensor)
'''

KINDS = {"torch.Tensor": "torch.Tensor", "numpy.ndarray[Any, Any]": "numpy.ndarray[Any, Any]", "_T": "_T"}


def type_of_param(param: dict) -> str:
    allowed = param["allowed"] if isinstance(param["allowed"], list) else []
    if param["type"] == "enum":
        words = ", ".join(repr(word) for word in allowed if word != "none")
        kind = f"Literal[{words}]"
        if DTYPE_WORDS.intersection(allowed):
            kind = f"Union[{kind}, Dtype]"
    elif param["type"] == "int" and allowed and all(isinstance(value, int) or value == "none" for value in allowed):
        kind = f"Literal[{', '.join(str(value) for value in allowed if value != 'none')}]"
    else:
        kind = TYPES[param["type"]]
    takes_none = "none" in allowed or ("default" in param and param["default"] is None)
    return f"Optional[{kind}]" if takes_none else kind


def type_of_tensor(tensor: dict, kind: str) -> str:
    return f"Sequence[{kind}]" if tensor["list"] else kind


def type_of_field(op: Op, tensor: dict, kind: str) -> str:
    made = f"list[{kind}]" if tensor["list"] else kind
    return f"Optional[{made}]" if tensor["role"] == "out" and tensor["optional"] else made


def stub_of(op: Op, kind: str) -> str:
    words = [f"{t['name']}: {type_of_tensor(t, kind)}" for t in op.always]
    words.append("*")
    words += [f"{t['name']}: Optional[{type_of_tensor(t, kind)}] = ..." for t in op.optional + op.accumulators]
    words += [f"{p['name']}: {type_of_param(p)}" + (" = ..." if "default" in p else "") for p in op.params]
    given = f"Mapping[str, Union[{kind}, Sequence[{kind}]]]"
    out = f"Union[{kind}, {given}]" if len(op.results) == 1 else f"Union[{given}, {op.result}[{kind}]]" if op.result else "None"
    words += [f"out: Optional[{out}] = ..."] * op.takes_out + ["stream: Stream = ..."]
    result = f"{op.result}[{kind}]" if op.result else type_of_field(op, op.results[0], kind) if op.results else "None"
    return f"def {op.name}({', '.join(words)}) -> {result}: ...\n"


def write_stubs(ops: list[Op]) -> str:
    names = [op.name for op in ops] + [op.result for op in ops if op.result]
    text = STUB_HEADER + f"__all__ = {names}\n"
    for op in ops:
        if op.result:
            text += f"\nclass {op.result}(NamedTuple, Generic[_T]):\n"
            for tensor in op.results:
                text += f"    {tensor['name']}: {type_of_field(op, tensor, '_T')}\n"
            if op.texts["may_wait"]:
                text += f"    {op.fields[-1]}: Optional[list[int]]\n"
        text += "".join(f"\n@overload\n{stub_of(op, kind)}" for kind in KINDS)
    return text


def write_core_stubs(text: str) -> str:
    """The types of the compiled module, with the arguments of generic ones that nanobind does not know."""
    text = re.sub(r"\bdict\b(?!\[)", "dict[str, Any]", text)
    text = re.sub(r"\btuple\b(?!\[)", "tuple[Any, ...]", text)
    text = re.sub(r"\blist\b(?!\[)", "list[Any]", text).replace("**kwargs", "**kwargs: Any")
    text = re.sub(r"\*tensors\b", "*tensors: Any", text).replace("stream: object | None = None", "stream: Any = None")
    return "from typing import Any\n" + text.replace(": object", ": Any").replace("-> object", "-> Any")


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    import _core  # the compiled module alone: the package needs what is written here

    ops = [Op(row, _core.op_texts(row["name"])) for row in json.loads(_core.table_json())["ops"]]
    (folder / "_ops.py").write_text(write_functions(ops))
    (folder / "_traceable.py").write_text(write_traceable(ops))
    (folder / "_ops.pyi").write_text(write_stubs(ops))
    from nanobind.stubgen import StubGen

    stubs = StubGen(_core)
    stubs.put(_core)
    (folder / "_core.pyi").write_text(write_core_stubs(stubs.get()))


main()
