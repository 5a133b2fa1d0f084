"""Random calls of every op: layouts, dtypes, shapes, parameters, `out`, threads. A call returns, bit for bit, what the call on
dense copies returns, or is refused by a named error. Only elements of outputs are written.

TESSERA_FUZZ_CALLS says how many calls there are (default: as many as 15 seconds allow), TESSERA_FUZZ_FIRST the seed of the first.
A failing call names its seed: TESSERA_FUZZ_CALLS=1 TESSERA_FUZZ_FIRST=SEED repeats it.
"""

import collections
import itertools
import os
import random
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import tessera
from calls import OPS, WORDS, array_of
from tessera import _core

try:
    import torch
except ImportError:
    torch = None

SECONDS = 15
MOST_ELEMENTS = 1 << 14  # of a case
BITS_BY_ORDER = {"gemm_fp8_k_grouped"}  # multiplies column-major matrices by another instruction than row-major ones
DEFINED = {"moe_gather_cast": {"fill_padding": True}}  # else rows of padding hold anything
TORCH = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "bool": "bool"}


class Placed:
    """An array placed in larger memory, whose other bytes must stay."""

    def __init__(self, rng, values, hostile=True, keeps_order=False):
        values = np.asarray(values)
        size, order = values.itemsize, sorted(range(values.ndim), key=lambda dim: -values.strides[dim])
        offset, stride, strides = 0, 1, [0] * values.ndim
        hostile = hostile and rng.random() < 0.5
        if hostile:
            if rng.random() < 0.3 and not keeps_order:
                rng.shuffle(order)
            offset = rng.choice([0, 0, 0, 1, 2, 4, 16]) * size
            offset += rng.choice([0] * 19 + [1])
            stride = rng.choice([1] * 9 + [2])
        for dim in reversed(order):
            strides[dim] = stride * size
            gap = rng.choice([0, 0, 0, 0, 1, 3, 4, 16]) if hostile else 0
            stride = stride * max(values.shape[dim], 1) + gap
        raw = np.empty(offset + stride * size + 256, np.uint8)
        first = -raw.ctypes.data % 64
        self.memory = raw[first:]
        self.memory[:] = 0xA5
        self.view = np.ndarray(values.shape, values.dtype, self.memory, offset, strides)
        own = np.zeros(self.memory.size, bool)
        np.ndarray((*values.shape, size), bool, own, offset, (*strides, 1))[...] = True
        self.others = ~own
        np.ndarray((*values.shape, size), np.uint8, self.memory, offset, (*strides, 1))[...] = bytes_of(values)
        self.before = self.memory.copy()
        self.is_torch = False

    @property
    def given(self):
        if not self.is_torch:
            return self.view
        name = TORCH.get(self.view.dtype.name, self.view.dtype.name)
        size, offset = self.view.itemsize, self.view.ctypes.data - self.memory.ctypes.data
        flat = torch.from_numpy(self.memory[: self.memory.size // size * size]).view(getattr(torch, name))
        return flat.as_strided(self.view.shape, [s // size for s in self.view.strides], offset // size)

    def given_copy(self):
        """The values before the call, dense, with the dimensions in the same order in memory."""
        offset = self.view.ctypes.data - self.memory.ctypes.data
        return np.ndarray(self.view.shape, self.view.dtype, self.before, offset, self.view.strides).copy(order="K")

    def fits_torch(self):
        offset = self.view.ctypes.data - self.memory.ctypes.data
        return offset % self.view.itemsize == 0 and hasattr(torch, TORCH.get(self.view.dtype.name, self.view.dtype.name))

    def check(self, is_written):
        same = self.memory == self.before
        assert same[self.others].all(), "bytes between or around the elements were written"
        assert is_written or same.all(), "an input was written"


def bytes_of(values):
    return np.frombuffer(np.array(values, order="C").tobytes(), np.uint8).reshape(*values.shape, values.itemsize)


def as_numpy(value):
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
        name = str(value.dtype).removeprefix("torch.")
        plain = value.contiguous().reshape(-1).view(torch.uint8) if value.numel() else torch.empty(0, dtype=torch.uint8)
        return np.frombuffer(plain.numpy().tobytes(), dtype.get(name, name if name != "bool" else np.bool_)).reshape(value.shape)
    return value


def flat(result):
    """The results of a call as a list of arrays, numbers and None."""
    if isinstance(result, (tuple, list)):
        return [item for part in result for item in flat(part)]
    return [as_numpy(result)]


def is_same(a, b):
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and (bytes_of(a) == bytes_of(b)).all()
    return type(a) is type(b) and a == b


class Case:
    """A call that may be wrong: the op, its tensors by argument (lists as lists), parameters."""

    def __init__(self, op, example):
        self.op, self.tensors = op, {}
        self.params = {name: value for name, value in example["params"].items() if value is not None}
        self.params |= DEFINED.get(op.name, {})
        lists = {t.name for t in op.tensors if t.list}
        for number, (name, dtype, shape, strides, values) in enumerate(example["inputs"]):
            made, stem = array_of(dtype, shape, strides, values, number), name.split(".")[0]
            if stem in lists:
                self.tensors.setdefault(stem, []).append(made)
            else:
                self.tensors[stem] = made

    def changed(self, rng):
        """The same with one thing wrong, perhaps."""
        made = Case.__new__(Case)
        made.op, made.tensors, made.params = self.op, dict(self.tensors), dict(self.params)
        names = [name for name, value in made.tensors.items() if isinstance(value, np.ndarray)]
        what = rng.choice(["nothing"] * 6 + ["dtype", "shape", "absent", "param"])
        if what == "param" and self.op.params:
            param = rng.choice(self.op.params)
            words = [word for word in param.allowed if word is not None] if isinstance(param.allowed, tuple) else []
            made.params[param.name] = rng.choice([-1, 0, 1, 2, 3, 7, 64, 128, 2.5, True, None, "x", (1, 128), *words])
        elif names and what != "nothing":
            name = rng.choice(names)
            value = made.tensors[name]
            if what == "absent":
                del made.tensors[name]
            elif what == "dtype":
                with np.errstate(all="ignore"):
                    made.tensors[name] = value.astype(WORDS[rng.choice(list(WORDS))])
            elif value.ndim:
                dim = rng.randrange(value.ndim)
                extent = rng.choice([0, 1, max(value.shape[dim] - 1, 0), value.shape[dim] + 1])
                shape = [extent if i == dim else e for i, e in enumerate(value.shape)]
                made.tensors[name] = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
        made.params |= DEFINED.get(self.op.name, {})
        return made, what

    def place(self, rng, hostile):
        """The tensors in memory of their own."""
        keeps = self.op.name in BITS_BY_ORDER
        return {
            name: [Placed(rng, v, hostile) for v in value] if isinstance(value, list) else Placed(rng, value, hostile, keeps)
            for name, value in self.tensors.items()
        }

    def in_order_of(self, placed):
        """The same on dense copies whose dimensions lie in the order of the placed tensors."""
        made = Case.__new__(Case)
        made.op, made.params = self.op, self.params
        made.tensors = {
            name: [p.given_copy() for p in value] if isinstance(value, list) else value.given_copy()
            for name, value in placed.items()
        }
        return made

    def call(self, placed, **more):
        given = {n: [p.given for p in v] if isinstance(v, list) else v.given for n, v in placed.items()}
        return getattr(tessera, self.op.name)(**given, **self.params, **more)

    def written(self):
        """The arguments that the op writes."""
        return {t.name for t in self.op.tensors if t.role == "inout" or t.accumulate}

    def after(self, placed):
        written = self.written()
        return [p.view.copy() for n, v in placed.items() if n in written for p in (v if isinstance(v, list) else [v])]

    def expected(self):
        """Results and arguments of the call on dense copies, or its error."""
        placed = self.place(random.Random(0), hostile=False)
        try:
            result = self.call(placed)
        except tessera.Error as error:
            return error, None
        return result, self.after(placed)


def given_outputs(rng, case, result):
    """A container for `out` with some of the outputs, and how they are placed. Rarely one is wrong."""
    fields = [t.name for t in case.op.tensors if t.role == "out" and not t.accumulate]
    values = dict(zip([t.name for t in case.op.results], result if isinstance(result, tuple) else (result,)))
    placed, out = {}, {}
    for name in fields:
        value = as_numpy(values.get(name))
        if not isinstance(value, np.ndarray) or rng.random() < 0.3:
            continue
        if rng.random() < 0.05:
            value = value.astype(rng.choice([np.float32, np.int32])) if rng.random() < 0.5 else value[..., None]
        placed[name] = Placed(rng, np.zeros(value.shape, value.dtype), rng.random() < 0.5)
    if not placed:
        return placed, None
    out = {name: p.given for name, p in placed.items()}
    return placed, next(iter(out.values())) if len(fields) == len(case.op.results) == 1 and rng.random() < 0.5 else out


class Fuzzer:
    def __init__(self):
        examples = [(op, e) for op in OPS.values() for e in _core.examples(op.name)]
        self.cases = [Case(op, e) for op, e in examples if all(np.prod(shape) <= MOST_ELEMENTS for _, _, shape, _, _ in e["inputs"])]
        self.known = {}
        self.tally = collections.Counter()

    def run(self, seed):
        rng = random.Random(seed)
        number = rng.randrange(len(self.cases))
        case, what = self.cases[number].changed(rng)
        if what == "nothing":
            if number not in self.known:
                self.known[number] = case.expected()
            result, arguments = self.known[number]
        else:
            result, arguments = case.expected()
        self.tally["calls on copies"] += 1
        placed = case.place(rng, hostile=True)
        more, outputs = {}, {}
        if not isinstance(result, tessera.Error) and rng.random() < 0.4:
            outputs, out = given_outputs(rng, case, result)
        parts = [p for v in placed.values() for p in (v if isinstance(v, list) else [v])]
        all_parts = [*parts, *outputs.values()]
        if torch is not None and rng.random() < 0.4 and all(p.fits_torch() for p in all_parts):
            for part in all_parts:
                part.is_torch = True
        if outputs:
            given = {name: p.given for name, p in outputs.items()}
            more["out"] = given if isinstance(out, dict) else next(iter(given.values()))
        written = case.written()
        threads = rng.choice([1] * 9 + [3]) if not outputs and not written & set(placed) else 1
        got = self.call(case, placed, more, threads)
        self.tally["calls"] += threads
        for name, value in placed.items():
            for part in value if isinstance(value, list) else [value]:
                part.check(name in written)
        for part in outputs.values():
            part.check(True)
        if isinstance(result, tessera.Error) and result.code == "STRIDES" and not all(isinstance(one, Exception) for one in got):
            # Row-major copies have no layout that the op takes; the call has.
            result, arguments = case.in_order_of(placed).expected()
            self.tally["calls on copies in order"] += 1
        for one in got:
            self.compare(case, one, result, arguments, placed)

    def call(self, case, placed, more, threads):
        got = []

        def work():
            try:
                got.append(case.call(placed, **more))
            except Exception as error:  # noqa: BLE001 - looked at by compare()
                got.append(error)

        if threads == 1:
            work()
            return got
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return got

    def compare(self, case, got, result, arguments, placed):
        if isinstance(got, Exception):
            assert isinstance(got, tessera.Error) and not isinstance(got, tessera.InternalError), repr(got)
            assert got.op == case.op.name and got.argument and (got.code or isinstance(got, tessera.UnsupportedError)), repr(got)
            self.tally["refused"] += 1
            return
        assert not isinstance(result, Exception), f"accepted, but not on dense copies: {result}"
        if case.params.get("clean") is False:  # columns that a row does not see hold anything
            self.tally["unspecified"] += 1
            return
        ours, theirs = flat(got), flat(result)
        assert len(ours) == len(theirs) and all(is_same(a, b) for a, b in zip(ours, theirs)), "another result"
        assert all(is_same(a, b) for a, b in zip(case.after(placed), arguments)), "another result in an argument"
        self.tally["equal"] += 1


@pytest.mark.filterwarnings("ignore")
def test_random_calls_are_right_or_refused_and_write_outputs_only():
    first = int(os.environ.get("TESSERA_FUZZ_FIRST", "1"))
    most = int(os.environ.get("TESSERA_FUZZ_CALLS", "0"))
    fuzzer, begin = Fuzzer(), time.monotonic()
    for seed in itertools.count(first):
        if seed - first >= most if most else time.monotonic() - begin > SECONDS:
            break
        try:
            fuzzer.run(seed)
        except BaseException:
            print(f"TESSERA_FUZZ_CALLS=1 TESSERA_FUZZ_FIRST={seed} repeats this call")
            raise
    print(dict(fuzzer.tally))
    assert most == 1 or fuzzer.tally["equal"] > fuzzer.tally["calls"] / 20, fuzzer.tally
