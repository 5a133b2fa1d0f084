"""Calls that torch traces, which go to its registered ops."""

import sys

_modules = sys.modules


def is_tracing():
    """True while torch.compile or torch.export traces. The first torch tensor puts torch's own question in its place."""
    return "torch" in _modules and _modules["torch"].compiler.is_compiling()


def traced(op, arguments):
    """The call of an op, in the order of its arguments, as a call of the op that torch knows."""
    import tessera.torch

    return tessera.torch.traced(op, arguments)
