"""tessera.nn: state dicts, conversions, copies, compiling, data parallel training."""

import copy
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import tessera.nn as tnn  # noqa: E402
from tessera import engram_hash, engram_make_offsets  # noqa: E402

N, HIDDEN, TOKENS = 4, 64, 3


def linear():
    torch.manual_seed(3)
    return torch.nn.Linear(HIDDEN, HIDDEN, dtype=torch.bfloat16)


def hash_module():
    multipliers = torch.arange(6, dtype=torch.int64).reshape(2, 3) + 7
    vocab_sizes = torch.arange(16, dtype=torch.int32).reshape(2, 2, 4) + 100
    return tnn.EngramHash(multipliers, vocab_sizes)


def half(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).bfloat16()


MODULES = {
    "EngramGate": (lambda: tnn.EngramGate(4, 512), lambda: (half(TOKENS, 4, 512), half(TOKENS, 4, 512), half(TOKENS, 512))),
    "EngramHash": (hash_module, lambda: (torch.arange(15, dtype=torch.int32).reshape(5, 3),)),
    "MhcExpand": (lambda: tnn.MhcExpand(N), lambda: (half(TOKENS, HIDDEN),)),
    "MhcPre": (lambda: tnn.MhcPre(N, HIDDEN, True), lambda: (half(TOKENS, N, HIDDEN),)),
    "MhcHead": (lambda: tnn.MhcHead(N, HIDDEN), lambda: (half(TOKENS, N, HIDDEN),)),
    "MhcBlock": (lambda: tnn.MhcBlock(linear(), N, HIDDEN), lambda: (half(TOKENS, N, HIDDEN),)),
}
every_module = pytest.mark.parametrize("name", MODULES)


def made(name):
    torch.manual_seed(1)
    make, inputs = MODULES[name]
    return make(), inputs()


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else [result[0], result[1].post_mix, result[1].comb_mix]


def test_state_dicts_have_the_names_and_shapes_of_the_functions():
    shapes = {
        "EngramGate": {"weight_hidden": (4, 512), "weight_embed": (4, 512)},
        "EngramHash": {"multipliers": (2, 3), "vocab_sizes": (2, 2, 4), "offsets": (2, 8)},
        "MhcExpand": {},
        "MhcPre": {"fn": (24, 256), "scale": (3,), "base": (24,), "norm_weight": (256,)},
        "MhcHead": {"fn": (4, 256), "scale": (1,), "base": (4,)},
        "MhcBlock": {
            "pre.fn": (24, 256),
            "pre.scale": (3,),
            "pre.base": (24,),
            "sublayer.weight": (64, 64),
            "sublayer.bias": (64,),
        },
    }
    for name, expected in shapes.items():
        assert {n: tuple(t.shape) for n, t in made(name)[0].state_dict().items()} == expected


def test_modules_call_their_functions():
    gate, inputs = made("EngramGate")
    assert torch.equal(gate(*inputs), F.engram_gate(*inputs, gate.weight_hidden, gate.weight_embed, eps=gate.eps))
    block, (residual,) = made("MhcBlock")
    pre = block.pre
    layer_input, context = F.mhc_pre(residual, pre.fn, pre.scale, pre.base)
    assert torch.equal(block(residual), F.mhc_post(block.sublayer(layer_input), residual, context))
    hashes, (ids,) = made("EngramHash")
    assert torch.equal(hashes.offsets, engram_make_offsets(hashes.vocab_sizes))
    expected = engram_hash(ids, hashes.multipliers, hashes.vocab_sizes, hashes.offsets)
    assert torch.equal(hashes(ids), expected)


def test_options_reach_the_function():
    pre = tnn.MhcPre(N, HIDDEN, post_mult_value=2.0, sinkhorn_repeat=3)
    residual = half(TOKENS, N, HIDDEN)
    _, expected = F.mhc_pre(residual, pre.fn, pre.scale, pre.base, post_mult_value=2.0, sinkhorn_repeat=3)
    _, got = pre(residual)
    assert torch.equal(got.post_mix, expected.post_mix) and torch.equal(got.comb_mix, expected.comb_mix)
    assert "post_mult_value=2.0" in repr(pre) and "hidden=64" in repr(pre)


def test_sizes_and_options_are_refused_when_a_module_is_made():
    for make, error, text in (
        (lambda: tnn.EngramGate(4, 256), tessera.Error, "hidden_states"),
        (lambda: tnn.MhcPre(9, 256), tessera.Error, "so many "),
        (lambda: tnn.MhcBlock(linear(), N, 65), tessera.Error, "wrong number of columns"),
        (lambda: tnn.MhcPre(N, HIDDEN, sinkhorn_repeat=99), tessera.ArgumentError, "sinkhorn_repeat"),
        (lambda: tnn.MhcHead(N, HIDDEN, no_such_option=1), TypeError, "no_such_option"),
    ):
        with pytest.raises(error) as caught:
            make()
        assert text in str(caught.value)


def test_rows_of_another_shape_are_blamed_themselves():
    for name, argument, module in (
        ("MhcPre", "residual", "MhcPre"),
        ("MhcHead", "residual", "MhcHead"),
        ("MhcBlock", "residual", "MhcPre"),
        ("EngramGate", "hidden_states", "EngramGate"),
    ):
        made_module, (rows, *rest) = made(name)
        with pytest.raises(tessera.ArgumentError) as caught:
            made_module(rows[:, :3], *rest)
        error = caught.value
        assert (error.op, error.argument, error.code) == (module, argument, "SHAPE")
        assert str(error).startswith(f"tessera: {module}: argument '{argument}' has the wrong shape\n  expected  [T.., 4, ")
        assert error.got == str([TOKENS, 3, rows.shape[-1]])


@pytest.mark.parametrize("convert", ["bfloat16", "half", "double"])
def test_f32_parameters_stay_f32(convert):
    model = torch.nn.Sequential(tnn.MhcBlock(linear().float(), N, HIDDEN), tnn.MhcHead(N, HIDDEN))
    before = copy.deepcopy(model.state_dict())
    dtype = getattr(torch, {"bfloat16": "bfloat16", "half": "float16", "double": "float64"}[convert])
    for converted in (copy.deepcopy(model).to(dtype), getattr(copy.deepcopy(model), convert)()):
        for name, value in converted.state_dict().items():
            if ".sublayer." in name:
                assert value.dtype == dtype
            else:
                assert value.dtype == torch.float32 and torch.equal(value, before[name])
    assert model.to(torch.bfloat16).float()[0].pre.fn.dtype == torch.float32


def test_f32_parameters_keep_their_gradients_and_move():
    pre, inputs = made("MhcPre")
    pre(*inputs)[0].sum().backward()
    grad = pre.fn.grad.clone()
    pre.to(torch.bfloat16)
    assert pre.fn.grad.dtype == torch.float32 and torch.equal(pre.fn.grad, grad)
    meta = tnn.MhcPre(N, HIDDEN, device="meta")
    assert meta.fn.is_meta
    assert pre.to("meta", torch.bfloat16).fn.is_meta and pre.fn.dtype == torch.float32
    empty = meta.to_empty(device="cpu")
    empty.reset_parameters()
    assert empty.fn.dtype == torch.float32 and (empty.scale == 0.01).all()


@every_module
def test_copies_and_pickles_give_the_same_values(name):
    module, inputs = made(name)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        for a, b in zip(tensors(module(*inputs)), tensors(other(*inputs))):
            assert torch.equal(a, b)
    fresh, _ = made(name)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    fresh.load_state_dict(module.state_dict())
    for a, b in zip(tensors(module(*inputs)), tensors(fresh(*inputs))):
        assert torch.equal(a, b)


@every_module
def test_modules_train_compiled_as_they_do_eagerly(name):
    module, inputs = made(name)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    floats = [t for t in inputs if t.is_floating_point()]
    grads = []
    for run in (module, compiled):
        module.zero_grad()
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
        results = [r for r in tensors(run(*leaves)) if r.requires_grad]
        if floats:
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
        values = [t.grad for t in leaves if t.grad is not None]
        grads.append([r.detach() for r in results] + values + [p.grad.clone() for p in module.parameters()])
    assert len(grads[0]) == len(grads[1])
    for a, b in zip(*grads):
        if a.dtype == torch.bfloat16:  # a compiled residual has its gradients added by autograd
            assert (a.double() - b.double()).abs().max() <= 1e-2 * a.double().abs().max()
        else:
            assert torch.allclose(a, b, rtol=1e-2, atol=1e-4)


@every_module
def test_a_module_gives_the_same_gradients_after_a_backward_pass_in_part(name):
    """Gradients of one parameter at a time with the graph kept, as GradNorm does, then of all: as one backward pass."""
    module, inputs = made(name)
    inputs = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    wanted = [t for t in [*inputs, *module.parameters()] if t.requires_grad]
    if not wanted:
        return
    grads = []
    for in_part in (False, True):
        results = tensors(module(*inputs))
        loss = sum((r.float() * half(*r.shape).float()).sum() for r in results)
        for tensor in wanted * in_part:
            torch.autograd.grad(loss, tensor, retain_graph=True)
        loss.backward(inputs=wanted)
        grads.append([t.grad for t in wanted])
        for tensor in wanted:
            tensor.grad = None
    for a, b in zip(*grads):
        assert torch.equal(a, b)


PARALLEL = '''
import os, sys
import torch, torch.distributed as dist
import tessera.nn as tnn

def make():
    torch.manual_seed(1)
    linear = torch.nn.Linear(64, 64, dtype=torch.bfloat16)
    return torch.nn.Sequential(tnn.MhcExpand(4), tnn.MhcBlock(linear, 4, 64), tnn.MhcHead(4, 64))

def step(model, x, factor):
    loss = (model(x).float() * factor).sum()
    loss.backward()
    return loss.detach()

dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[3]), world_size=2)
rank = dist.get_rank()
inputs = torch.randn(2, 6, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
plain = make()
for x in inputs:
    step(plain, x, 0.5)  # both ranks average
model = make()
if sys.argv[1] == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
    named = list(model.module.named_parameters())
    full = lambda t: t
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    for module in (model[1].pre, model[1].sublayer, model[2]):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    named = list(model.named_parameters())
    full = lambda t: t.full_tensor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step(model, inputs[rank], 1.0)
for (name, parameter), expected in zip(named, plain.parameters()):
    got = full(parameter.grad).double()
    difference = (got - expected.grad.double()).abs().max()
    assert difference <= 2e-2 * expected.grad.double().abs().max(), (name, difference)
before = [full(p).detach().clone() for _, p in named]
optimizer.step()
assert all(not torch.equal(full(p), b) for (_, p), b in zip(named, before))
print("done")
dist.destroy_process_group()
'''


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_one_step(kind, tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("torch lacks torch.distributed")
    script = tmp_path / "train.py"
    script.write_text(PARALLEL)
    command = [sys.executable, str(script), kind, str(tmp_path / "store")]
    running = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in running]
    assert all(process.returncode == 0 for process in running), "\n".join(outputs)
    assert all(output.endswith("done\n") for output in outputs)


def test_a_compiled_call_leaves_main_grad_to_eager_code():
    pre, (residual,) = made("MhcPre")
    pre.fn.main_grad = torch.zeros_like(pre.fn)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="has a main_grad"):
        torch.compile(pre, fullgraph=True, backend="aot_eager")(residual)
    torch._dynamo.reset()
    torch.compile(pre, backend="aot_eager")(residual)[0].sum().backward()
    assert pre.fn.main_grad.any() and pre.fn.grad is None
