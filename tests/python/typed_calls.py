"""Calls that type checkers accept, and with a mark, one that they refuse. test_types.py checks it; nothing runs it."""

from typing import Any, Optional

import numpy
from numpy.typing import NDArray

import tessera

Array = numpy.ndarray[Any, Any]


def casts(x: NDArray[numpy.float32]) -> Array:
    result = tessera.per_token_cast(x, format="e4m3", num_per_channels=128, sf_layout="col_major_tma")
    codes: Array = result.out
    scales: Array = result.out_sf
    again = tessera.per_token_cast(x, format="e4m3", num_per_channels=128, out=result)
    half = tessera.per_token_cast(x, format="e2m1", num_per_channels=32, out={"out": codes}, stream=0)
    tessera.per_token_cast(x, format="e5m6", num_per_channels=128)  # wrong: no such word
    tessera.per_token_cast(x, format="e4m3", num_per_channels="128")  # wrong: a str for an int
    tessera.per_token_cast(x, format="e4m3", num_per_channel=128)  # wrong: no such name
    tessera.per_token_cast(x, num_per_channels=128)  # wrong: format is missing
    tessera.per_channel_cast(x, num_per_tokens=64)  # wrong: 128 alone
    tessera.per_token_cast(3, format="e4m3", num_per_channels=128)  # wrong where torch is installed: no tensor
    back: Array = tessera.per_token_cast_back(codes, scales, num_per_channels=128, out_dtype="f32")
    back = tessera.per_token_cast_back(codes, scales, num_per_channels=128, out_dtype=numpy.float32)
    back = tessera.per_token_cast_back(codes, scales, num_per_channels=128, out_dtype=numpy.dtype(numpy.float32))
    back = tessera.per_token_cast_back(codes, scales, num_per_channels=128, out_dtype=32)  # wrong: an int for a dtype
    return back if again.out is half.out else scales


def routes(ids: NDArray[numpy.int64]) -> Optional[list[int]]:
    nothing: None = tessera.inplace_unique_group_indices(ids, num_groups=4)
    mapping = tessera.get_fused_mapping(ids, num_experts=8, alignment=16)
    counts: str = mapping.num_tokens_per_expert_host  # wrong: a list or None
    assert nothing is None and counts
    return mapping.num_tokens_per_expert_host


def the_rest() -> None:
    tessera.configure(jobs=4)
    for op in tessera.ops():
        name: str = op.name
        print(name, op.tensors[0].shape, op.params[0].default)
    tessera.set_num_sms("all")  # wrong: an int or None
    try:
        with tessera.checked():
            tessera.prepare(lambda: None)
    except tessera.ArgumentError as error:
        print(error.op, error.argument.upper(), error.hint)
    print(tessera.doctor() + tessera.version, tessera.counters()["compiles"])
