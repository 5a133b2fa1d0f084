"""Ops that write in place, and the records of autograd: version counters, leaves, warnings, tangents."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.autograd import forward_ad  # noqa: E402

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import tessera.torch  # noqa: E402
from test_torch_registered import by_name, every_op, small_call  # noqa: E402
from torch_cases import cases  # noqa: E402
from torch_examples import bits, copy_of  # noqa: E402

OPS = {op.name: op for op in tessera.ops()}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


example = functools.cache(small_call)  # copied before it is changed


def items_of(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def call_with_outputs(op):
    """A small call that gives all outputs that it makes: tensors by name, those that it writes, and a function that calls."""
    tensors, params = example(op)
    tensors = {name: copy_of(value) for name, value in tensors.items()}
    made = by_name(op, getattr(tessera, op)(**{n: copy_of(v) for n, v in tensors.items()}, **params))
    roles = {t.name: t.role for t in OPS[op].tensors}
    out = {n: v for n, v in made.items() if v is not None and n not in tensors and roles[n] == "out"}
    written = {**out, **{n: v for n, v in tensors.items() if roles[n] == "inout"}}
    out = {n: v for n, v in out.items() if not isinstance(v, list) or v}
    if "out" in tensors:  # an argument of the op, which then takes no outputs
        written = {n: v for n, v in written.items() if n not in out}
        out = {}
    more = {"out": out} if out else {}
    return tensors, written, lambda: getattr(tessera, op)(**tensors, **params, **more)


@every_op
def test_every_tensor_that_a_call_writes_counts_as_changed(op):
    tensors, written, call = call_with_outputs(op)
    every = {**tensors, **written}
    before = {name: [t._version for t in items_of(value)] for name, value in every.items()}
    call()
    for name, value in every.items():
        for tensor, version in zip(items_of(value), before[name]):
            assert (tensor._version > version) == (name in written), name


@every_op
def test_a_tensor_that_requires_a_gradient_is_refused_before_it_is_written(op):
    tensors, written, call = call_with_outputs(op)
    floats = {n: v for n, v in written.items() if isinstance(v, torch.Tensor) and v.dtype in FLOATS and v.numel()}
    for name, tensor in floats.items():
        before = bits(tensor)
        tensor.requires_grad_()
        with pytest.raises(tessera.ArgumentError, match=f"argument '{name}' is written in place .*\n.*\n.*a leaf that requires grad"):
            call()
        assert bits(tensor.detach()) == before
        with torch.no_grad():
            call()
        tensor.requires_grad_(False)


PADDED = torch.tensor([1], dtype=torch.int32)


def ids():
    return torch.ones(3, 2, dtype=torch.int32)


FORMS = {"function": tessera.mask_padded_topk, "torch.ops": torch.ops.tessera.mask_padded_topk}
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
def test_weights_of_a_graph_and_views_of_leaves_are_refused(form):
    leaf = torch.rand(3, 2, requires_grad=True)
    for weights, kind in ((leaf, "a leaf"), (leaf[:], "a view of a leaf"), (leaf * 1, "a tensor of a graph")):
        with pytest.raises(tessera.ArgumentError, match=f"'topk_weights' is written in place .*\n.*\n.*{kind}"):
            FORMS[form](PADDED, ids(), topk_weights=weights)
    FORMS[form](PADDED, ids(), topk_weights=leaf.detach())
    assert leaf._version == 1 and not leaf[1:].any()


@every_form
@pytest.mark.parametrize("alias", [lambda t: t, lambda t: t[:], lambda t: t.detach(), lambda t: t.view(2, 3).view(3, 2)])
def test_a_saved_tensor_that_is_masked_is_an_error_of_the_backward_pass(form, alias):
    weights, factor = torch.ones(3, 2), torch.ones(3, 2, requires_grad=True)
    loss = (factor * weights).sum()
    FORMS[form](PADDED, ids(), topk_weights=alias(weights))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_saved_tensor_that_is_an_output_is_an_error_of_the_backward_pass():
    out, factor = torch.zeros(3, 4, 4), torch.ones(3, 4, 4, requires_grad=True)
    loss = (factor * out).sum()
    tessera.sinkhorn_fwd(torch.randn(3, 4, 4), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


OUT_CASES = [case for case in cases() if case.name in ("expand_to_mhc", "pre_apply_mix", "post")]


@pytest.mark.parametrize("case", OUT_CASES, ids=lambda case: case.name)
def test_an_out_of_a_function_that_a_graph_saved_is_an_error_of_its_backward_pass(case):
    for requires_grad in (False, True):
        leaves = {n: t.clone().requires_grad_(requires_grad) for n, t in case.inputs.items()}
        out = torch.zeros_like(case.run(case.inputs)[0])
        factor = torch.ones_like(out).requires_grad_()
        loss = (factor * out).sum()
        getattr(F, case.name)(**leaves, **case.options, out=out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_tensors_of_inference_mode_may_be_written_outside():
    with torch.inference_mode():
        out = torch.zeros(3, 4, 4)
    assert tessera.sinkhorn_fwd(torch.randn(3, 4, 4), out=out) is out and out.any()


def test_a_compiled_call_refuses_to_write_a_tensor_of_a_graph():
    torch._dynamo.reset()

    def f(leaf):
        weights = leaf * 1
        tessera.mask_padded_topk(PADDED, ids(), topk_weights=weights)
        return weights.sum()

    with pytest.raises(Exception, match="'topk_weights' is written in place and requires a gradient"):
        torch.compile(f, fullgraph=True, backend="aot_eager")(torch.rand(3, 2, requires_grad=True))


@every_op
def test_a_dual_tensor_is_refused_by_name(op):
    tensors, params = example(op)
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor) or value.dtype not in FLOATS:
            continue
        with forward_ad.dual_level():
            dual = {**tensors, name: forward_ad.make_dual(value, torch.ones_like(value))}
            with pytest.raises(tessera.UnsupportedError, match=f"tessera: {op}: forward-mode differentiation is not supported"):
                getattr(tessera, op)(**dual, **params)


def test_every_op_warns_that_it_records_no_gradient():
    """In a process of its own, because ops warn once; three go through torch's dispatcher, as subclasses do."""
    code = """
import sys, warnings
sys.path.insert(0, %r)
import torch, tessera, tessera.functional
from torch_examples import calls
from tessera.functional import RECORDED
warnings.simplefilter("error")  # the call stops before it runs
ops = {op.name: op for op in tessera.ops()}
assert all(hasattr(tessera.functional, name) and op in ops for op, name in RECORDED.items())
class Tagged(torch.Tensor):
    pass
count = 0
for op in ops:
    tensors, params = next(calls(op))
    floats = [t.name for t in ops[op].tensors if t.role == "in" and getattr(tensors.get(t.name), "is_floating_point", bool)()]
    floats = [name for name in floats if tensors[name].dtype != torch.float8_e4m3fn]
    if not floats:
        continue
    name = floats[0]
    if op in ("gemm_bf16", "post_fwd", "reduce_fused"):
        tensors[name] = tensors[name].as_subclass(Tagged)
    tensors[name].requires_grad_()
    try:
        getattr(tessera, op)(**tensors, **params)
        raise SystemExit("no warning from " + op)
    except UserWarning as warning:
        text = str(warning)
    assert text.startswith(f"tessera.{op} records no gradient, and '{name}' requires one: "), text
    wanted = f"call tessera.functional.{RECORDED[op]}" if op in RECORDED else "call it under torch.no_grad(), or on a tensor"
    assert wanted in text, text
    count += 1
assert count > 40, count
""" % str(Path(__file__).parent)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


def test_an_op_warns_once_where_it_is_called():
    code = """
import torch, tessera, warnings
x = torch.randn(2, 128)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    call = lambda: tessera.per_token_cast(x, format="e4m3", num_per_channels=128)
    call()
    x.requires_grad_()
    with torch.no_grad():
        call()
    assert not told, told
    call()  # like the first: launched again
    call()
(one,) = told
assert one.filename == "<string>" and one.category is UserWarning, one
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


def test_the_differentiable_functions_warn_of_nothing():
    code = """
import sys, warnings
sys.path.insert(0, %r)
warnings.simplefilter("error")
import torch
from torch_cases import cases
for case in cases():
    leaves = {n: t.clone().requires_grad_() for n, t in case.inputs.items()}
    sum(r.float().sum() for r in case.run(leaves)).backward()
    case.run(case.inputs)
    with torch.no_grad():
        case.run(leaves)
""" % str(Path(__file__).parent)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
