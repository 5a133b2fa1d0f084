"""torch's CPU tensors: what is read, what is handed to torch's dispatcher, what comes back."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
from calls import FILLING, OPS, Call  # noqa: E402
from tessera import _core  # noqa: E402

# numpy's view of torch's types that it does not know
TYPES = {"float8_e4m3fn": torch.float8_e4m3fn, "bfloat16": torch.bfloat16, "float8_e5m2": torch.float8_e5m2}


def of_numpy(array):
    """The same memory layout as a torch tensor."""
    dtype = TYPES.get(array.dtype.name) or getattr(torch, array.dtype.name)
    made = torch.empty_strided(array.shape, [s // array.itemsize for s in array.strides], dtype=dtype)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[array.itemsize]
    raw = np.array(array, order="C").view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[array.itemsize])
    made.view(bits).copy_(torch.from_numpy(raw))
    return made


def bytes_of(tensor):
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(bits).numpy().tobytes() if tensor.numel() else b""


def x(tokens=4, hidden=128, **options):
    return torch.ones(tokens, hidden, **options)


def cast(tensor, **options):
    return tessera.per_token_cast(tensor, **{"format": "e4m3", "num_per_channels": 128, **options})


@pytest.mark.parametrize("name", OPS)
def test_an_op_gives_what_it_gives_for_numpy(name):
    ours = Call(name)
    ours.params |= dict.fromkeys(FILLING & ours.params.keys(), True)
    tensors = {n: [of_numpy(v) for v in a] if isinstance(a, list) else of_numpy(a) for n, a in ours.tensors.items()}
    theirs = getattr(tessera, name)(**tensors, **ours.params)
    result = ours()
    pairs = [(result, theirs)] if len(OPS[name].results) < 2 else list(zip(result, theirs))
    pairs += [(ours.tensors[t.name], tensors[t.name]) for t in OPS[name].tensors if t.name in tensors and t.role == "inout"]
    for array, tensor in pairs:
        items = zip(array, tensor) if isinstance(array, list) and isinstance(tensor, list) else [(array, tensor)]
        for a, t in items:
            if isinstance(a, (type(None), int)):
                assert a == t
                continue
            assert type(t) is torch.Tensor and not t.requires_grad
            assert str(t.dtype).removeprefix("torch.") == a.dtype.name and tuple(t.shape) == a.shape
            assert bytes_of(t) == np.array(a, order="C").tobytes()
            if a.size:
                assert t.stride() == tuple(s // a.itemsize for s in a.strides)


def test_a_dtype_of_torch_stands_for_its_word():
    tensor = torch.randn(4, 128, generator=torch.Generator().manual_seed(1))
    assert bytes_of(cast(tensor, format=torch.float8_e4m3fn).out) == bytes_of(cast(tensor).out)
    with pytest.raises(tessera.ArgumentError, match="parameter 'format' has a wrong value") as caught:
        cast(tensor, format=torch.bfloat16)
    assert caught.value.got == "bf16" and "e4m3" in caught.value.expected


def test_scales_have_the_strides_and_storage_of_their_layout():
    for tokens in (0, 1, 3, 4, 37):
        for columns in (1, 5):
            scales = cast(x(tokens, 128 * columns), sf_layout="col_major_tma").out_sf
            assert scales.shape == (tokens, columns)
            padded = -(-tokens // 4) * 4
            if tokens:
                assert scales.stride() == (1, padded)
            assert scales.untyped_storage().nbytes() == 4 * padded * columns
            assert scales.untyped_storage().resizable()


def test_parameters_views_and_what_requires_gradients_are_read():
    plain = cast(x())
    for tensor in (
        torch.nn.Parameter(x()),
        x(requires_grad=True),
        x(8, 128)[::2],
        x(4, 256)[:, :128],
        torch.ones(128, 4).t().contiguous(),
    ):
        assert bytes_of(cast(tensor).out) == bytes_of(plain.out)
    expanded = torch.ones(1, 128).expand(4, 128)
    with pytest.raises(tessera.ArgumentError, match="strides"):
        cast(expanded)
    with pytest.raises(tessera.ArgumentError, match="strides"):
        cast(torch.ones(128, 4).t())


def test_what_is_not_plain_memory_is_a_type_error():
    for tensor, text in (
        (torch._neg_view(x()), "has its negative bit set"),
        (torch.imag(torch.ones(4, 128, dtype=torch.complex64).conj()), "has its negative bit set"),
        (x().to_sparse(), "is a tensor without plain memory"),
        (x().to(torch.complex64).conj(), "has an element type that is not known|is a tensor without plain memory"),
        (torch.quantize_per_tensor(x(), 1.0, 0, torch.qint8), "has an element type|is a tensor without plain memory"),
    ):
        with pytest.raises(tessera.ArgumentTypeError, match=f"tessera: per_token_cast: argument 'x' ({text})"):
            cast(tensor)


@pytest.fixture
def redirected():
    """The words that go to torch's dispatcher: the names of ops and their arguments."""
    calls = []
    before = _core.set_redirect(lambda op, arguments: calls.append((op, arguments)) or "redirected")
    yield calls
    _core.set_redirect(before)


class Subclass(torch.Tensor):
    pass


def test_fakes_subclasses_modes_and_transforms_go_to_the_dispatcher(redirected):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with FakeTensorMode():
        assert cast(torch.empty(4, 128)) == "redirected"
    assert cast(x().as_subclass(Subclass)) == "redirected"
    assert cast(torch.empty(4, 128, device="meta")) == "redirected"
    plain = x()
    with Mode():
        assert cast(plain) == "redirected"
    seen = []
    torch.func.vmap(lambda row: seen.append(cast(row)) or row)(torch.ones(2, 4, 128))
    torch.func.grad(lambda row: seen.append(cast(row)) or row.sum())(x())
    assert seen == ["redirected", "redirected"]
    op, arguments = redirected[0]
    assert op == "per_token_cast" and set(arguments) == {"x", "format", "num_per_channels"} and arguments["format"] == "e4m3"


def test_accumulators_and_given_outputs_are_the_same_objects():
    codes = torch.empty(4, 128, dtype=torch.float8_e4m3fn)
    result = cast(x(), out={"out": codes})
    assert result.out is codes
    again = cast(2 * x(), out=result)
    assert again.out is codes and again.out_sf is result.out_sf and type(again) is tessera.per_token_cast_result


def test_the_attributes_of_tensors_serve_where_torch_lends_none():
    """As in torch before 2.10: in a process of its own, where the interface is hidden."""
    import subprocess
    import sys

    code = """
import torch, tessera
class Hidden(type(torch.Tensor)):
    pass
try:
    del torch.Tensor.__dlpack_c_exchange_api__
except AttributeError:
    raise SystemExit("SKIP")
x = torch.ones(4, 128)
result = tessera.per_token_cast(x, format="e4m3", num_per_channels=128, sf_layout="col_major_tma")
assert result.out.dtype == torch.float8_e4m3fn and result.out_sf.stride() == (1, 4)
assert (result.out.float() == 448).all()
try:
    tessera.per_token_cast(x.to(torch.complex64), format="e4m3", num_per_channels=128)
except TypeError as error:
    assert "torch.complex64" in str(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    if "SKIP" in ran.stderr:
        pytest.skip("this torch keeps the interface where it cannot be hidden")
    assert ran.returncode == 0, ran.stderr
