"""Kernels of Tessera on the tensors of torch, numpy and others: one function per op.

    import numpy, tessera

    x = numpy.ones((4, 128), numpy.float32)
    out, out_sf = tessera.per_token_cast(x, format="e4m3", num_per_channels=128)

`tessera.ops()` lists the ops. CPU tensors run on the executor and need no GPU. Results never require gradients; the
functions of `tessera.functional` do.
"""

from typing import TYPE_CHECKING, Any

from tessera import _core, _install, _ops, _tracing
from tessera._errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    CompileError,
    DriverError,
    Error,
    InternalError,
    LoadError,
    TrapError,
    UnsupportedError,
)
from tessera._ops import *  # noqa: F403 - the functions of all ops, and the classes of their results
from tessera._process import (
    TuneReport,
    checked,
    configure,
    counters,
    doctor,
    get_num_sms,
    moe_rows,
    plan,
    prepare,
    prepare_all,
    seal,
    set_num_sms,
    take_value_errors,
    tune,
)
from tessera._types import Stream, Tensor

if TYPE_CHECKING:
    from tessera._table import Op, Param, TensorInfo, ops

version: str = _core.version
__version__: str = version

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CaptureError",
    "CompileError",
    "DriverError",
    "Error",
    "InternalError",
    "LoadError",
    "Op",
    "Param",
    "Stream",
    "Tensor",
    "TensorInfo",
    "TrapError",
    "TuneReport",
    "UnsupportedError",
    "checked",
    "configure",
    "counters",
    "doctor",
    "get_num_sms",
    "moe_rows",
    "ops",
    "plan",
    "prepare",
    "prepare_all",
    "seal",
    "set_num_sms",
    "take_value_errors",
    "tune",
    "version",
]
__all__ += _ops.__all__

_install.warn_of_another_project()
_tracing.watch()


def __dir__() -> list[str]:
    """The public names: those of __all__, and the parts for torch."""
    return sorted([*__all__, "__version__", *_PARTS])


_PARTS = ("functional", "nn", "torch")  # imported when they are asked for


def __getattr__(name: str) -> Any:
    """The table and the parts for torch, imported when they are asked for."""
    import importlib

    if name in ("Op", "Param", "TensorInfo", "ops"):
        return getattr(importlib.import_module("tessera._table"), name)
    if name in _PARTS:
        return importlib.import_module(f"tessera.{name}")
    raise AttributeError(f"module 'tessera' has no attribute '{name}'")
