"""The example calls of every op with torch tensors, made from the library's own examples."""

import ctypes

import torch

import tessera
from calls import FILLING
from tessera import _core

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}

def tensor_of(word, shape, strides, values, device, seed):
    """A tensor of the values, or of random ones that no op refuses."""
    random = torch.Generator().manual_seed(seed)
    dtype = DTYPES[word]
    if values is not None:
        # Values are bits: those of floats too.
        ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        bits = torch.tensor(values, dtype=torch.int64).to(ints)
        made = (bits if dtype in (torch.int16, torch.int32, torch.int64) else bits.view(dtype)).reshape(shape)
    elif dtype.is_floating_point:
        # Positive: some are sums of squares, and opcheck takes no NaN for equal to itself.
        made = (torch.rand(shape, generator=random) + 0.1).to(dtype)
    elif dtype == torch.int8:
        made = torch.randint(-128, 128, shape, generator=random).to(dtype)
    elif dtype == torch.uint8:
        made = torch.randint(0, 8, shape, generator=random).to(dtype)  # no NaN among codes of 12 bits
    elif dtype == torch.bool:
        made = torch.randint(0, 2, shape, generator=random).bool()
    else:
        made = torch.randint(0, 8, shape, generator=random, dtype=dtype)
    made = made.to(device)
    if strides:
        return empty_like(torch.empty_strided(shape, strides, dtype=dtype, device=device)).copy_(made)
    return made


def calls(op, device="cpu"):
    """(tensors by name, parameters) of each example of an op; lists of tensors are lists."""
    for number, example in enumerate(_core.examples(op)):
        tensors = {}
        for index, (name, *described) in enumerate(example["inputs"]):
            tensor = tensor_of(*described, device, 100 * number + index)
            stem, _, item = name.partition(".")
            tensors.setdefault(stem, []).append(tensor) if item else tensors.update({stem: tensor})
        for tensor in next(o for o in tessera.ops() if o.name == op).arguments:
            if tensor.list:
                tensors.setdefault(tensor.name, [])
        params = {name: value for name, value in example["params"].items() if value is not None}
        yield tensors, {name: name in FILLING or value for name, value in params.items()}


def empty_like(tensor):
    """An empty tensor with the strides, and the padding of scales that are stored by column."""
    if tensor.is_contiguous():
        return torch.empty_like(tensor)
    elements = [size * stride for size, stride in zip(tensor.shape, tensor.stride())]
    storage = torch.empty(max([1, *elements]), dtype=tensor.dtype, device=tensor.device)
    return storage.as_strided(tensor.shape, tensor.stride())


def copy_of(value):
    """A copy with the same strides."""
    if isinstance(value, list):
        return [copy_of(item) for item in value]
    return empty_like(value).copy_(value) if isinstance(value, torch.Tensor) else value


def bits(value):
    """Tensors of a result as bytes, with shape and strides, for comparison."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.numel() else None
        dense = torch.empty(value.numel(), dtype=value.dtype).copy_(value.detach().flatten())
        return value.dtype, tuple(value.shape), strides, ctypes.string_at(dense.data_ptr(), dense.nbytes)
    return [bits(item) for item in value]
