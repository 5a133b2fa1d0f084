"""A small call of every op, from the examples of the table."""

import ml_dtypes
import numpy as np

import safetensors_file
import tessera
from tessera import _core

WORDS = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "bool": np.bool_}
WORDS |= {"f32": np.float32, "f16": np.float16}
WORDS |= {f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)}
OPS = {op.name: op for op in tessera.ops()}
# Flags without which an op leaves elements as they are in memory: nothing to compare.
FILLING = {"clean", "fill_padding"}


def array_of(dtype, shape, strides, values, seed=1):
    """An input: the values that the example gives (those of f32 by their bits), else random ones."""
    kind = np.dtype(WORDS[dtype])
    if values is not None and dtype == "f32":
        made = np.array(values, np.uint32).view(np.float32).reshape(shape)
    elif values is not None:
        made = np.array(values).astype(kind).reshape(shape)
    elif kind == np.bool_ or kind.kind in "iu":
        made = np.random.default_rng(seed).integers(0, 2, shape).astype(kind)
    else:
        made = np.random.default_rng(seed).standard_normal(shape, np.float32).astype(kind)
    return safetensors_file.placed(made, list(strides) or None)


class Call:
    """Tensors by the names of arguments (those of a list together), and parameters."""

    def __init__(self, op, example=None):
        self.op = OPS[op]
        example = example or _core.op_texts(op)["example"]
        self.params = {name: value for name, value in example["params"].items() if value is not None}
        self.tensors = {}
        lists = {t.name for t in self.op.tensors if t.list}
        for number, (name, dtype, shape, strides, values) in enumerate(example["inputs"]):
            made = array_of(dtype, shape, strides, values, number)
            stem = name.split(".")[0]
            if stem in lists:
                self.tensors.setdefault(stem, []).append(made)
            else:
                self.tensors[stem] = made

    def __call__(self, **changed):
        return getattr(tessera, self.op.name)(**{**self.tensors, **self.params, **changed})

    def flat(self):
        """The tensors by the names of a file."""
        named = {}
        for name, value in self.tensors.items():
            named |= {f"{name}.{i}": v for i, v in enumerate(value)} if isinstance(value, list) else {name: value}
        return named


def run_program(op, tensors, params, folder):
    """The same by `tessera run`: its exit code. The result is in out.safetensors."""
    safetensors_file.write(folder / "in.safetensors", tensors)
    words = ["tessera", "run", op, "--device", "cpu"]
    words += ["--in", str(folder / "in.safetensors"), "--out", str(folder / "out.safetensors")]
    for name, value in params.items():
        words += ["-p", f"{name}={text_of(value)}"]
    return _core.run_program(words)


def text_of(value):
    """A value as the program takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
