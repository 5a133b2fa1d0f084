"""Options, counters and warm-up of the process."""

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Optional

from tessera import _core
from tessera._errors import ArgumentError
from tessera._types import Stream

_num_sms: Optional[int] = None


def _log(level: str, message: str) -> None:
    import logging  # when there is something to say

    getattr(logging.getLogger("tessera"), "warning" if level == "warn" else level)(message)


def _nvrtc_folders() -> list[str]:
    """Where the wheels of NVRTC lie, beside this package and on the path."""
    places = dict.fromkeys([os.path.dirname(os.path.dirname(__file__)), *(place for place in sys.path if place)])
    wheels = (os.path.join(place, "nvidia", name, "lib") for place in places for name in ("cu13", "cuda_nvrtc"))
    return [folder for folder in wheels if os.path.isdir(folder)]


_core.begin(_log, _nvrtc_folders())
atexit.register(_core.python_ends)


def configure(**options: Any) -> None:
    """Sets options of the library, over what the environment says: before the first call that needs them.

    Their names: cache_roots, cuda_homes and nvrtc_folders (lists of str), cache ("rw", "ro",
    "off"), trust ("user", "group"), jit ("on", "warn", "error", "off"), tune ("off", "cached", "on"), log ("error", "warn", "info", "debug"),
    cache_key_file, record, nvrtc, arch, dump_dir, pass_dump_dir, override_dir, tune_dir (str), pdl, line_info, check_spills,
    tune_may_change_bits (bool), traps (bool or
    None), cache_max_bytes, cache_max_entries, peer_patience_ms, jobs (int), on_compile and on_load (functions of a dict
    with op, spec, target, key, reason, ended, failed, ms; a call of an op in them may wait for itself).

    Raises ArgumentError once the library is in use or for a wrong value, ArgumentTypeError for a wrong name or type; then no
    option is set.

    Example: tessera.configure(jobs=4, cache_roots=["/scratch/kernels"])
    """
    _core.configure(options)


def seal() -> None:
    """Says that warm-up is over: from now on the option `jit` decides what a compile means.

    Example: tessera.prepare(step); tessera.seal()
    """
    _core.seal()


def counters() -> dict[str, Any]:
    """The library's work so far: kernels found, compiled, loaded, waited for (runtime/counters.h).

    Example: tessera.counters()["compiles"]
    """
    return _core.counters()


def prepare(call: Callable[[], Any]) -> None:
    """Compiles and loads what a function's calls of ops need; launches nothing. Afterwards they may be captured.

    Raises what the calls raise.

    Example: tessera.prepare(lambda: tessera.group_count(ids, num_groups=8))
    """
    _core.prepare(call)


def prepare_all(calls: Iterable[Callable[[], Any]], jobs: int = 0) -> None:
    """The same for many functions, side by side in `jobs` threads (0: as many as TESSERA_JOBS or the machine says).

    All are tried; then the first error is raised.

    Example: tessera.prepare_all([lambda t=t: tessera.group_count(t, num_groups=8) for t in tensors])
    """
    _core.prepare_all(list(calls), jobs)


class TuneReport(NamedTuple):
    """The results of tune(): for every choice that the kernels leave open an entry (a dict with op, spec, bucket, device, choice, us,
    standard_us and candidates), the candidates that change a result, which is a bug of the kernel, and why an entry is not in
    the user's database."""

    entries: list[dict[str, Any]]
    differing: list[str]
    not_stored: list[str]


def tune(call: Callable[[], Any], *, budget: float = 60.0, store: bool = True) -> TuneReport:
    """Measures the tile sizes that a function's calls of ops leave open, on a GPU, and stores the fastest (`tessera tune`).

    Measures on copies: nothing is launched on the function's own tensors, and its results are undefined. The function is called
    once and a few times more per candidate, always in this thread, and must use tensors of the same sizes each time. `budget`
    is in seconds per choice. Later calls of this process use what was found, and with `store` later processes too.

    Raises what the calls raise, UnsupportedError on CPU tensors, DriverError if the copies do not fit the GPU.

    Example: tessera.tune(lambda: tessera.transpose(x), budget=20.0).entries[0]["choice"]
    """
    return TuneReport(*_core.tune(call, budget, store))


def plan(call: Callable[[], Any], *tensors: Any) -> Callable[..., None]:
    """A function's calls of ops, checked once, as an object that launches them on other tensors.

    `tensors` are all that the calls use, outputs given by `out` too, on a GPU. The result is called with tensors of the same
    dtypes, shapes, strides and device, in the same order, and `stream=`; alignment and overlaps are the caller's promise.
    Nothing is launched now.

    Raises ArgumentError for a call on CPU tensors, or on memory that is none of `tensors`.

    Example: again = tessera.plan(lambda: tessera.transpose(x, out=y), x, y); again(x2, y2)
    """
    return _core.plan(call, *tensors)


def set_num_sms(num_sms: Optional[int]) -> None:
    """Sets what get_num_sms says; None: the device's own number. Results do not depend on it.

    Example: tessera.set_num_sms(100)
    """
    global _num_sms
    if num_sms is not None and (isinstance(num_sms, bool) or not isinstance(num_sms, int) or num_sms < 1):
        raise ArgumentError(
            f"tessera: parameter 'num_sms' has a wrong value\n  expected  int >= 1 or None\n  got       {num_sms!r}",
            argument="num_sms",
            expected="int >= 1 or None",
            got=repr(num_sms),
            code="VALUE",
        )
    _num_sms = num_sms


def get_num_sms(device: Optional[int] = None) -> int:
    """The number of SMs that was set, else that of a CUDA device (None: torch's current one, or 0).

    Example: tessera.get_num_sms()
    """
    if _num_sms is not None:
        return _num_sms
    return _core.num_sms(_ordinal(device))


def moe_rows(num_tokens: int, num_topk: int, num_experts: int, alignment: int) -> int:
    """The most rows that moe_plan lays out for any ids: the length of its pos_to_pair without num_rows.

    Example: tessera.moe_rows(64, 6, 256, 8)  # 2176
    """
    return _core.moe_rows(num_tokens, num_topk, num_experts, alignment)


def _ordinal(device: Any) -> int:
    if device is None:
        torch = sys.modules.get("torch")
        return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
    index = getattr(device, "index", device)
    return int(index or 0) if not callable(index) else int(device)


def take_value_errors(device: Optional[int] = None, stream: Stream = None) -> list[str]:
    """The reports of kernels on a GPU about values that break a promise, such as an id out of range, since the last question.

    Waits for `stream` (None: torch's current one, or the legacy default stream). On CPU tensors such values are errors
    of the call.

    Example: for error in tessera.take_value_errors(): print(error)
    """
    return _core.take_value_errors(_ordinal(device), stream)


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Within it, every call on GPU tensors waits and raises what its kernels report of values: slow, for tests.

    Example: with tessera.checked(): tessera.group_count(ids, num_groups=8)
    """
    before = _core.check_values(True)
    try:
        yield
    finally:
        _core.check_values(before)


def doctor() -> str:
    """Versions, devices, compiler, cache folders: for a bug report. What `tessera doctor` prints.

    Example: print(tessera.doctor())
    """
    return _core.doctor()
