"""torch.compile cannot look into the functions of ops, which are built in: it is told what to trace instead as soon as
torch._dynamo, which does the tracing, has been imported."""

import sys
from typing import Any

_TRACER = "torch._dynamo"


def substitute() -> None:
    """Tells torch.compile to trace, for the function of each op, the one of `_traceable` with the same name."""
    import torch

    from tessera import _ops, _traceable

    for name in _traceable.__all__:
        put = torch.compiler.substitute_in_graph(getattr(_ops, name), skip_signature_check=True)
        put(getattr(_traceable, name))


class _Watch:
    """A finder that finds nothing itself: it has substitute() called after the import of the tracer, which comes with
    the first torch.compile. So `import tessera` need not import torch, and torch need not be imported first."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _TRACER:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_substitute(module: Any) -> None:
                execute(module)
                substitute()

            setattr(spec.loader, "exec_module", execute_and_substitute)
        return spec


def watch() -> None:
    """Called once, by the import of the package."""
    if _TRACER in sys.modules:
        substitute()
    else:
        sys.meta_path.insert(0, _Watch())
