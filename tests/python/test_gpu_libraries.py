"""GPU arrays of other libraries than torch: cupy and jax. Skipped without a GPU that torch finds."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch finds no GPU", allow_module_level=True)

import tessera  # noqa: E402

OPTIONS = {"format": "e4m3", "num_per_channels": 128}
LONG = "extern \"C\" __global__ void wait(long long n) { long long t = clock64(); while (clock64() - t < n) {} }"


def expected_of(x):
    """Codes and scales of torch's tensor, as bytes and numbers on the host."""
    result = tessera.per_token_cast(x, **OPTIONS)
    return result.out.view(torch.uint8).cpu().tolist(), result.out_sf.cpu().tolist()


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    x = torch.randn(64, 512, device="cuda")
    _, scales = expected_of(x)
    given = cupy.asarray(x)
    scale_only = tessera.per_token_cast_with_sf_only(given, **OPTIONS)
    assert isinstance(scale_only, cupy.ndarray) and cupy.asnumpy(scale_only).tolist() == scales
    written = cupy.empty((512, 64), cupy.float32)
    assert tessera.transpose(given, out=written) is written
    assert cupy.asnumpy(written).tolist() == x.T.cpu().tolist()


def test_a_call_waits_for_what_another_stream_of_cupy_makes():
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    slow = cupy.RawKernel(LONG, "wait")
    later = cupy.random.random((64, 512), dtype=cupy.float32)
    expected = cupy.asnumpy(tessera.transpose(later)).tolist()
    x = cupy.zeros_like(later)
    cupy.cuda.Device().synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.Stream(non_blocking=True) as side:
        slow((1,), (1,), (cupy.int64(50_000_000),))  # tens of milliseconds
        x[...] = later
        result = tessera.transpose(x, stream=other)
        assert not side.done, "the call waited for nothing"
    other.synchronize()
    assert cupy.asnumpy(result).tolist() == expected


def test_jax_arrays():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("jax finds no GPU")
    x = torch.randn(64, 512, device="cuda")
    codes, scales = expected_of(x)
    given = jax.dlpack.from_dlpack(x)
    out, out_sf = tessera.per_token_cast(given, **OPTIONS)
    assert isinstance(out, jax.Array) and out_sf.tolist() == scales
    assert jax.lax.bitcast_convert_type(out, jax.numpy.uint8).tolist() == codes
    with pytest.raises(tessera.ArgumentError, match="is written, but its memory is constant"):
        tessera.per_token_cast(given, **OPTIONS, out={"out_sf": out_sf})
