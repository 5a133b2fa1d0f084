"""Kernels of Tessera on the tensors of torch, numpy and others: one function per op.

    import numpy, tessera

    x = numpy.ones((4, 128), numpy.float32)
    out, out_sf = tessera.per_token_cast(x, format="e4m3", num_per_channels=128)

`tessera.ops()` lists the ops. CPU tensors run on the executor and need no GPU.
"""

from tessera import _core, _ops
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
from tessera._ops import *  # noqa: F403 - the functions of all ops
from tessera._table import Op, Param, Tensor, ops

version = __version__ = _core.version
