"""torch on a GPU: training, memory, CUDA graphs, compiled calls, host time of the differentiable functions.

    tests/python/run BUILD PYTHON tests/python/test_gpu_training.py -s
"""

import statistics
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import tessera.torch  # noqa: E402
from tessera._overloads import OverloadRules  # noqa: E402
from moe_training import LAYERS, Fp8Layer, train_beside_f64  # noqa: E402
from test_torch_registered import OVERLOADS, registered, small_arguments  # noqa: E402
from torch_cases import cases, close, name_of  # noqa: E402
from torch_examples import bits, calls, copy_of  # noqa: E402
from torch_training import (  # noqa: E402
    STREAMS,
    Layer,
    batch,
    compare_loss_curves,
    engram_bytes,
    mhc_bytes,
    saved_bytes,
)

CASES = cases("cuda")
IDS = [f"{name_of(case)}-{i}" for i, case in enumerate(CASES)]


def on_gpu(value):
    if isinstance(value, list):
        return [on_gpu(item) for item in value]
    return value.cuda() if isinstance(value, torch.Tensor) else value


# ---- training


def test_ten_steps_have_the_loss_curve_of_the_reference():
    got, expected = compare_loss_curves(tokens=4096, hidden=2048, device="cuda")
    print("\nloss  ", *(f"{x:.5f}" for x in got), "\nf64   ", *(f"{x:.5f}" for x in expected))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_of_experts_trains_ten_steps_as_in_f64(kind):
    got, expected = train_beside_f64(kind, "cuda")
    print("\nloss  ", *(f"{x:.5f}" for x in got), "\nf64   ", *(f"{x:.5f}" for x in expected))


def test_a_step_of_experts_with_static_rows_can_be_captured():
    layer = Fp8Layer(5, static_rows=True).cuda()
    random = torch.Generator().manual_seed(3)
    batches = [torch.randn(24, 256, generator=random).bfloat16().cuda() for _ in range(3)]
    x = batches[0].clone()

    def step():
        out, chosen = layer(x)
        loss = out.float().square().mean() + 1e-2 * layer.gate.balance_loss(chosen)
        return loss, torch.autograd.grad(loss, list(layer.parameters()))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        loss, grads = step()
        assert torch.equal(loss, captured[0])
        for a, b in zip(grads, captured[1]):
            assert torch.equal(a, b)


@pytest.mark.parametrize("part", ["gate", "block"])
def test_a_forward_pass_takes_the_memory_of_the_specification(part):
    """The allocator's bytes, less the result: what is saved, rounded up to 512 bytes per tensor, and nothing else."""
    tokens, hidden = 4096, 2048
    layer, (inputs, _) = Layer(hidden).cuda(), batch(tokens, hidden, "cuda")
    residual = F.expand_to_mhc(inputs[0]).requires_grad_()
    run = (lambda: layer.gate(residual, *inputs[1:])) if part == "gate" else (lambda: layer.block(residual))
    limit = engram_bytes(tokens, hidden) if part == "gate" else mhc_bytes(tokens, hidden)
    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = run()
    taken = torch.cuda.memory_allocated() - before - result.nbytes
    saved, _ = saved_bytes(run, residual, *inputs, *layer.parameters())
    print(f"\n{part}: {taken} bytes, {saved} of them saved, specification {limit}")
    assert saved <= limit
    # comb_mix, post_mix and the sub-layer's output are results of one op and saved by the next
    assert taken <= limit + 512 * 16


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_gradients_on_the_gpu(case):
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    exact = {name: t.double().requires_grad_() for name, t in case.inputs.items()}
    results, expected = case.run(leaves), case.expected(exact)
    random = torch.Generator(device="cuda").manual_seed(1)
    weights = [torch.randn(r.shape, generator=random, device="cuda").to(r.dtype) for r in results]
    torch.autograd.backward(results, weights)
    torch.autograd.backward(expected, [w.double() for w in weights])
    for name, leaf in leaves.items():
        close(leaf.grad, exact[name].grad, max(case.tolerance, 5e-5))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_training_and_inference_have_the_same_bits(case):
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    with torch.no_grad():
        inference = case.run(leaves)
    for a, b in zip(case.run(leaves), inference):
        assert torch.equal(a, b)


# ---- registered ops


@pytest.mark.parametrize("op, overload", OVERLOADS, ids=[f"{op}.{o.name}" if o.name else op for op, o in OVERLOADS])
def test_opcheck(op, overload):
    positional, named = small_arguments(op, overload)
    positional = tuple(on_gpu(value) for value in positional)
    named = {name: on_gpu(value) for name, value in named.items()}
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    flat = [x for v in [*positional, *named.values()] for x in (v if isinstance(v, list) else [v])]
    if all(x.dtype != torch.float8_e4m3fn for x in flat if isinstance(x, torch.Tensor)):
        checks.append("test_schema")
    torch.library.opcheck(registered(op, overload), positional, named, test_utils=checks)


@pytest.mark.parametrize("op", [op.name for op in tessera.ops()])
def test_captured_calls_give_the_bits_of_eager_ones(op):
    """An eager call, then a captured one, replayed with other contents."""
    if OverloadRules(next(o for o in tessera.ops() if o.name == op)).may_wait:
        pytest.skip("the call may wait for its data")
    tensors, params = next(iter(calls(op, "cuda")))
    inputs = {name: copy_of(value) for name, value in tensors.items()}
    function = getattr(tessera, op)
    function(**{name: copy_of(value) for name, value in tensors.items()}, **params)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = function(**inputs, **params)
    for value, given in zip(inputs.values(), tensors.values()):  # in-place tensors begin anew
        for a, b in zip(*([v] if isinstance(v, torch.Tensor) else v for v in (value, given))):
            a.copy_(b)
    graph.replay()
    torch.cuda.synchronize()
    assert bits(captured) == bits(function(**{name: copy_of(value) for name, value in tensors.items()}, **params))


def test_a_training_step_can_be_captured():
    layer, (inputs, target) = Layer(512).cuda(), batch(64, 512, "cuda")

    def step():
        loss = (layer(*inputs).float() - target.float()).square().mean()
        return loss, torch.autograd.grad(loss, list(layer.parameters()))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    other, _ = batch(64, 512, "cuda")
    for a, b in zip(inputs, other):
        a.copy_(b.flip(0))
    graph.replay()
    torch.cuda.synchronize()
    loss, grads = step()
    assert torch.equal(loss, captured[0])
    for a, b in zip(grads, captured[1]):
        assert torch.equal(a, b)


def test_an_unprepared_call_leaves_the_capture_valid():
    x = torch.randn(3, 7 * 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        with pytest.raises(tessera.CaptureError):
            tessera.per_token_cast(x, format="e4m3", num_per_channels=64, round_sf=True)
        z = y + 1
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, x * 2 + 1)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_layers_train_as_eager_ones(mode):
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    layer, (inputs, target) = Layer(512).cuda(), batch(64, 512, "cuda")
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for run in (compiled, compiled, compiled):
        layer.zero_grad()
        loss = (run(*inputs).float() - target.float()).square().mean()
        loss.backward()
    grads = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    expected = (layer(*inputs).float() - target.float()).square().mean()
    expected.backward()
    assert abs(loss.item() - expected.item()) <= 1e-3 * expected.item()
    for got, parameter in zip(grads, layer.parameters()):
        close(got, parameter.grad, 2e-2)
    assert counters["inductor"]["cudagraph_skips"] == 0


# ---- host time


def host_us(call, count=200, batches=20):
    """Median host time of a call; the stream is drained between batches."""
    call()
    times = []
    for _ in range(batches):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(count):
            call()
        times.append((time.perf_counter_ns() - begin) / count / 1000)
    return statistics.median(times)


def test_host_time_of_the_differentiable_functions():
    x = torch.randn(1, STREAMS, STREAMS, device="cuda")
    leaf = x.clone().requires_grad_()
    raw = host_us(lambda: tessera.sinkhorn_fwd(x))
    recorded = host_us(lambda: F.sinkhorn(leaf))
    inference = host_us(lambda: F.sinkhorn(x))
    print(f"\nsinkhorn: raw {raw:.2f} us, function {inference:.2f} us, function that records {recorded:.2f} us")
    assert recorded - raw <= 6.0


def test_host_time_of_registered_ops():
    x = torch.randn(1, STREAMS, STREAMS, device="cuda")
    raw = host_us(lambda: tessera.sinkhorn_fwd(x))
    through_dispatcher = host_us(lambda: torch.ops.tessera.sinkhorn_fwd(x))

    def ten(function, value):
        for _ in range(10):
            value = function(value)
        return value

    one = torch.compile(lambda v: ten(lambda w: w + 1, v), fullgraph=True)
    many = torch.compile(lambda v: ten(tessera.sinkhorn_fwd, v), fullgraph=True)
    with torch.no_grad():
        empty, compiled = host_us(lambda: one(x)), host_us(lambda: many(x))
    per_op = (compiled - empty) / 10
    print(f"\nsinkhorn: raw {raw:.2f} us, dispatcher {through_dispatcher:.2f} us, in a compiled graph {per_op:.2f} us")
    assert per_op - raw <= 8.0
