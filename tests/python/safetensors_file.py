"""Reads and writes safetensors files, with the strides that Tessera keeps in their metadata."""

import json
import pathlib

import ml_dtypes
import numpy as np

DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "BOOL": np.bool_,
} | {f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)}
WORDS = {np.dtype(dtype): word for word, dtype in DTYPES.items()}


def placed(values: np.ndarray, strides: list[int] | None) -> np.ndarray:
    """The values in memory with these strides, in elements; without strides row-major."""
    if strides is None:
        return np.array(values, order="C")
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(values.shape, strides))
    storage = np.zeros(max(span, 0) if values.size else 0, values.dtype)
    view = np.ndarray(values.shape, values.dtype, storage, 0, [s * values.itemsize for s in strides])
    view[...] = values
    return view


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name, in memory as its metadata says."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, row in header.items():
        begin, end = row["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], DTYPES[row["dtype"]]).reshape(row["shape"])
        strides = metadata.get(f"strides.{name}")
        tensors[name] = placed(values, [int(s) for s in strides.split(",")] if strides else None)
    return tensors


def write(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes logical values, and the strides of what is not row-major."""
    header: dict = {"__metadata__": {}}
    data = b""
    for name, tensor in tensors.items():
        content = np.array(tensor, order="C").tobytes()
        header[name] = {
            "dtype": WORDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        if tensor.size and not tensor.flags.c_contiguous:
            header["__metadata__"][f"strides.{name}"] = ",".join(str(s // tensor.itemsize) for s in tensor.strides)
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
