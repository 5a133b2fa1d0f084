"""torch tensors on a GPU: results, streams, devices, memory, CUDA graphs. Skipped where there is none."""

import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch finds no GPU", allow_module_level=True)

import tessera  # noqa: E402
from torch_examples import bits, calls, copy_of  # noqa: E402

LONG = 50_000_000  # cycles: tens of milliseconds, which no launch outlasts
OPTIONS = {"format": "e4m3", "num_per_channels": 128}


def rows(tokens=64, device="cuda"):
    return torch.randn(tokens, 7168, device=device).bfloat16()


def to(value, device):
    if isinstance(value, list):
        return [to(item, device) for item in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def on_cpu(result):
    if isinstance(result, tuple):
        return [on_cpu(item) for item in result]
    return to(result, "cpu")


@pytest.mark.parametrize("op", [op.name for op in tessera.ops()])
def test_every_op_gives_the_same_again_in_the_shapes_of_the_cpu(op):
    for tensors, params in calls(op):
        results = []
        for device in ("cpu", "cuda", "cuda"):
            given = {name: to(copy_of(value), device) for name, value in tensors.items()}
            result = getattr(tessera, op)(**given, **params)
            inout = [given.get(t.name) for t in next(o for o in tessera.ops() if o.name == op).arguments if t.role == "inout"]
            results.append([on_cpu(result), on_cpu(tuple(inout))])
        assert bits(results[1]) == bits(results[2]), "a GPU's bits repeat"
        assert str(shapes(results[0])) == str(shapes(results[1]))


def shapes(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape)
    return [shapes(item) for item in value] if isinstance(value, (list, tuple)) else None


def test_a_call_runs_in_the_current_stream_behind_what_is_there():
    x, later = rows(), rows()
    expected = tessera.per_token_cast(later, **OPTIONS)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        x.copy_(later)
        result = tessera.per_token_cast(x, **OPTIONS)
        assert torch.cuda.current_stream() == side
    assert not side.query(), "the call waited for nothing"
    side.synchronize()
    assert bits(result) == bits(expected)


@pytest.mark.parametrize("kind", ["torch.cuda.Stream", "int", "object with __cuda_stream__"])
def test_an_explicit_stream_is_taken(kind):
    x, later = rows(), rows()
    expected = tessera.per_token_cast(later, **OPTIONS)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()

    class Protocol:
        def __cuda_stream__(self):
            return (0, side.cuda_stream)

    stream = {"torch.cuda.Stream": side, "int": side.cuda_stream}.get(kind, Protocol())
    out = tessera.per_token_cast(x, **OPTIONS)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        x.copy_(later)
    tessera.per_token_cast(x, **OPTIONS, out=out, stream=stream)
    side.synchronize()
    assert bits(out) == bits(expected)


def test_a_fresh_thread_may_call():
    x = rows()
    expected = bits(tessera.per_token_cast(x, **OPTIONS))
    results = []
    threads = [threading.Thread(target=lambda: results.append(tessera.per_token_cast(x, **OPTIONS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bits(result) for result in results] == [expected] * 4


def test_a_call_goes_to_the_device_of_its_tensors():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    x = rows(device="cuda:0")
    expected = bits(tessera.per_token_cast(x, **OPTIONS))
    with torch.cuda.device(1):
        for _ in range(2):
            result = tessera.per_token_cast(x, **OPTIONS)
            assert torch.cuda.current_device() == 1
            assert result.out.device == x.device and bits(result) == expected
        with pytest.raises(tessera.Error):
            tessera.per_token_cast_with_precomputed_sf(x, result.out_sf.to("cuda:1"), **OPTIONS)
        assert torch.cuda.current_device() == 1
        there = tessera.per_token_cast(x.to("cuda:1"), **OPTIONS)
        assert there.out.device.index == 1 and bits(there) == expected
    assert torch.cuda.current_device() == 0


def test_outputs_obey_the_allocator_of_torch():
    x = rows()
    result = tessera.per_token_cast(x, **OPTIONS)
    padded = tessera.per_token_cast(x[:37], **OPTIONS, sf_layout="col_major_tma")
    assert padded.out_sf.stride() == (1, 40)
    for tensor in (*result, *padded):
        assert tensor.untyped_storage().resizable()
        tensor.record_stream(torch.cuda.Stream())
    del result, padded, tensor
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = tessera.per_token_cast(x, **OPTIONS)
    assert torch.cuda.memory_allocated() >= before + x.numel()
    del result
    assert torch.cuda.memory_allocated() == before


def test_calls_by_the_hundred_thousand_keep_nothing():
    x = rows(1)
    for _ in range(1000):
        tessera.per_token_cast(x, **OPTIONS)
    torch.cuda.synchronize()
    allocated, resident = torch.cuda.memory_allocated(), resident_kb()
    for _ in range(100_000):
        tessera.per_token_cast(x, **OPTIONS)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == allocated
    assert resident_kb() - resident < 2000


def resident_kb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def test_a_captured_call_is_replayed_on_changed_inputs():
    x = rows()
    cast = tessera.per_token_cast(x, **OPTIONS)  # compiled and loaded
    tessera.per_token_cast_back(cast.out, cast.out_sf, **BACK)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = tessera.per_token_cast(x, **OPTIONS)
        back = tessera.per_token_cast_back(result.out, result.out_sf, **BACK)
    for _ in range(3):
        x.copy_(rows())
        graph.replay()
        expected = tessera.per_token_cast(x, **OPTIONS)
        assert bits(result) == bits(expected)
        assert bits(back) == bits(tessera.per_token_cast_back(expected.out, expected.out_sf, **BACK))


BACK = {"num_per_channels": 128, "out_dtype": "bf16"}


def test_a_prepared_call_is_captured_without_a_call_before():
    x = torch.randn(5, 2304, device="cuda").bfloat16()
    tessera.prepare(lambda: tessera.per_token_cast(x, **OPTIONS))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = tessera.per_token_cast(x, **OPTIONS)
    graph.replay()
    assert bits(result) == bits(tessera.per_token_cast(x, **OPTIONS))


def test_an_unprepared_call_leaves_the_capture_valid():
    x, y = torch.randn(5, 2816, device="cuda").bfloat16(), torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y += 1
        with pytest.raises(tessera.CaptureError):
            tessera.per_token_cast(x, **OPTIONS)
        y += 1
    graph.replay()
    assert y.tolist() == [3.0] * 4


def test_compiled_graphs_replay_ops_as_cuda_graphs():
    pytest.importorskip("triton", reason="no triton, which torch.compile needs")
    code = """
import logging, torch, tessera
def step(x):
    cast = tessera.per_token_cast(x, format="e4m3", num_per_channels=128)
    return tessera.per_token_cast_back(cast.out, cast.out_sf, num_per_channels=128, out_dtype="bf16")
compiled = torch.compile(step, mode="reduce-overhead", fullgraph=True)
for i in range(6):
    x = torch.randn(64, 7168, device="cuda").bfloat16()
    torch.compiler.cudagraph_mark_step_begin()
    assert torch.equal(compiled(x), step(x))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "skipping cudagraphs" not in ran.stderr.lower()


def test_a_plan_counts_what_it_writes_as_changed():
    x, y = torch.randn(64, 64, device="cuda").bfloat16(), torch.empty(64, 64, device="cuda").bfloat16()
    again = tessera.plan(lambda: tessera.transpose(x, out=y), x, y)
    other, out = x + 1, torch.empty_like(y)
    before = other._version, out._version
    again(other, out)
    assert torch.equal(out, other.t()) and (other._version, out._version) == (before[0], before[1] + 1)
    with pytest.raises(tessera.ArgumentError, match="written in place and requires a gradient"):
        again(other, out.requires_grad_())


def test_values_that_break_a_promise_are_reported():
    indices = torch.tensor([[0, 99]], device="cuda")
    tessera.take_value_errors()
    tessera.group_count(indices, num_groups=4)
    assert any("group_idx" in text for text in tessera.take_value_errors())
    with tessera.checked(), pytest.raises(tessera.ArgumentError, match="group_idx"):
        tessera.group_count(indices, num_groups=4)
    assert tessera.take_value_errors() == []


def test_tune_measures_on_copies_and_keeps_the_result():
    x = torch.randn(1024, 2048, device="cuda").bfloat16()
    out = torch.zeros(2048, 1024, device="cuda", dtype=torch.bfloat16)
    report = tessera.tune(lambda: tessera.transpose(x, out=out), budget=2.0, store=False)
    assert report.differing == [] and len(report.entries) == 1
    entry = report.entries[0]
    assert entry["op"] == "transpose" and entry["us"] <= entry["standard_us"]
    assert len(entry["candidates"]) > 5 and entry["choice"].keys() == {"rows", "cols", "threads"}
    assert not out.any(), "nothing is launched on the caller's own tensors"
    fresh = tessera.tune(lambda: tessera.transpose(x * 2), budget=2.0, store=False)
    assert fresh.differing == [] and len(fresh.entries[0]["candidates"]) == len(entry["candidates"])
    tessera.transpose(x, out=out)
    assert torch.equal(out, x.T)
