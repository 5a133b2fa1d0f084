"""Every function of tessera.functional where autograd is used in other ways: the gradient is torch's, or the call is refused."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.autograd import forward_ad  # noqa: E402

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
from torch_cases import Case, cases, close, name_of  # noqa: E402


def swiglu_case():
    """As a case of torch_cases; the result that has a gradient is `activation`."""
    class Swiglu(Case):
        def run(self, inputs):
            cast = F.swiglu_and_per_token_cast(**inputs, **self.options)
            return (cast.out.float(),) if cast.activation is None else (cast.activation,)

    random = torch.Generator().manual_seed(5)
    positions = {
        "pos_to_token_topk": torch.tensor([0, 2, 5, -1], dtype=torch.int32),
        "token_topk_to_pos": torch.tensor([[0, -1], [1, -1], [-1, 2]], dtype=torch.int32),
        "pos_to_expert": torch.tensor([0, 0, 1, -1], dtype=torch.int32),
    }
    inputs = {
        "x": torch.randn(4, 256, generator=random).bfloat16(),
        "topk_weights": torch.rand(3, 2, generator=random) + 0.5,
    }
    return Swiglu("swiglu_and_per_token_cast", inputs, positions)


CASES = [*cases(), swiglu_case()]
every_case = pytest.mark.parametrize("case", CASES, ids=[f"{name_of(case)}-{i}" for i, case in enumerate(CASES)])
with_out = pytest.mark.parametrize("case", [c for c in CASES if c.name in ("expand_to_mhc", "pre_apply_mix", "post")], ids=lambda c: c.name)


def leaves_of(case, wanted=None):
    return {n: t.clone().requires_grad_(wanted is None or n in wanted) for n, t in case.inputs.items()}


def random_like(results):
    random = torch.Generator().manual_seed(11)
    return [torch.randn(r.shape, generator=random).to(r.dtype) for r in results]


def gradients(case, leaves, factors=None):
    results = case.run(leaves)
    torch.autograd.backward(results, factors or random_like(results))
    return {name: leaf.grad for name, leaf in leaves.items()}


def assert_same(got, expected):
    for name, value in expected.items():
        assert (got[name] is None) == (value is None) and (value is None or torch.equal(got[name], value)), name


# ---- in part, again


@every_case
def test_a_second_backward_pass_adds_the_same_again(case):
    leaves = leaves_of(case)
    results = case.run(leaves)
    for _ in range(2):
        torch.autograd.backward(results, random_like(results), retain_graph=True)
    assert_same({n: leaf.grad for n, leaf in leaves.items()}, {n: 2 * g for n, g in gradients(case, leaves_of(case)).items()})


@every_case
def test_the_gradient_of_one_input_is_that_of_all(case):
    leaves = leaves_of(case)
    results, expected = case.run(leaves), gradients(case, leaves_of(case))
    for name, leaf in leaves.items():
        (got,) = torch.autograd.grad(results, leaf, random_like(results), retain_graph=True)
        assert torch.equal(got, expected[name])
        alone = gradients(case, leaves_of(case, [name]))
        assert torch.equal(alone.pop(name), expected[name]) and not any(g is not None for g in alone.values())


@every_case
def test_main_grad_is_left_alone_by_gradients_of_other_tensors(case):
    parameters = [n for n in case.inputs if n in ("weight_hidden", "weight_embed", "fn", "norm_weight", "scale", "base")]
    for name in parameters:
        leaves = leaves_of(case)
        leaves[name].main_grad = torch.zeros(leaves[name].shape)
        results, factors = case.run(leaves), random_like(case.run(leaves))
        others = [leaf for n, leaf in leaves.items() if n != name]
        torch.autograd.grad(results, others, factors, retain_graph=True)
        torch.autograd.backward(results, factors, inputs=others, retain_graph=True)
        asked = torch.autograd.grad(results, leaves[name], factors, retain_graph=True)[0]
        assert not leaves[name].main_grad.any() and leaves[name].grad is None
        torch.autograd.backward(results, factors)
        close(leaves[name].main_grad, asked, 1e-2)


# ---- what the gradients of the results may be


@every_case
def test_a_result_that_gets_no_gradient_counts_as_zeros(case):
    leaves = leaves_of(case)
    count = len(case.run(leaves))
    for index in range(count):
        leaves, zeros = leaves_of(case), leaves_of(case)
        (result,) = case.run(leaves)[index : index + 1]
        result.backward(random_like([result])[0])
        results = case.run(zeros)
        factors = [torch.zeros_like(r) for r in results]
        factors[index] = random_like([result])[0]
        assert_same({n: leaf.grad for n, leaf in leaves.items()}, gradients(case, zeros, factors))


@every_case
def test_expanded_and_strided_gradients_count_as_their_values(case):
    ones = [torch.ones_like(r) for r in case.run(leaves_of(case))]
    expected = gradients(case, leaves_of(case), ones)
    expanded = [torch.ones((), dtype=f.dtype).expand(f.shape) for f in ones]
    assert_same(gradients(case, leaves_of(case), expanded), expected)
    transposed = [torch.ones(f.shape[::-1], dtype=f.dtype).permute(*reversed(range(f.dim()))) for f in ones]
    assert_same(gradients(case, leaves_of(case), transposed), expected)
    offset = [torch.ones(f.numel() + 1, dtype=f.dtype)[1:].view(f.shape) for f in ones]
    assert_same(gradients(case, leaves_of(case), offset), expected)


# ---- inputs and results that are views, or change


@every_case
def test_inputs_may_be_views_of_larger_leaves(case):
    bases = {n: torch.stack([t, t]).requires_grad_() for n, t in case.inputs.items()}
    results = case.run({n: base[1] for n, base in bases.items()})
    torch.autograd.backward(results, random_like(results))
    for name, expected in gradients(case, leaves_of(case)).items():
        assert torch.equal(bases[name].grad[1], expected) and not bases[name].grad[0].any()


@every_case
def test_a_base_that_changes_before_the_backward_pass_is_an_error(case):
    by_results = case.name == "rms_norm" and case.inputs.keys() == {"x", "residual"}  # by their sum alone
    alone = case.name in ("expand_to_mhc", "expand_to_fused", "rotary", "topk_gate")
    if alone or by_results or case.inputs.keys() == {"x"} and case.name == "reduce_fused":
        pytest.skip("its gradient needs no input")
    plain, is_refused = gradients(case, leaves_of(case)), []
    for name in case.inputs:
        leaves = leaves_of(case)
        base = torch.stack([leaves[name], leaves[name]])
        results = case.run({**leaves, name: base[1]})
        with torch.no_grad():
            base.add_(1)
        try:
            torch.autograd.backward(results, random_like(results))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            is_refused.append(name)
        else:
            assert_same({n: leaf.grad for n, leaf in leaves.items()}, plain)
    assert is_refused


@every_case
def test_a_result_that_changes_is_an_error_or_makes_no_difference(case):
    expected = gradients(case, leaves_of(case))
    for index in range(len(case.run(leaves_of(case)))):
        leaves = leaves_of(case)
        results = case.run(leaves)
        factors = random_like(results)
        with torch.no_grad():
            results[index].detach().zero_() if results[index].stride()[-1:] != (0,) else None
        try:
            torch.autograd.backward(results, factors)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            assert_same({n: leaf.grad for n, leaf in leaves.items()}, expected)


# ---- other ways of differentiation


@every_case
def test_forward_mode_is_refused_by_name(case):
    for name in case.inputs:
        for tensors in (case.inputs, leaves_of(case)):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(tensors[name], torch.ones_like(tensors[name]))
                with pytest.raises(tessera.UnsupportedError, match=f"tessera: {case.name}: forward-mode differentiation"):
                    case.run({**tensors, name: dual})
                with torch.no_grad(), pytest.raises(tessera.UnsupportedError, match="forward-mode"):
                    case.run({**tensors, name: dual})
    with forward_ad.dual_level():
        case.run(case.inputs)


@every_case
@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "vmap", "jacrev", "functionalize"])
def test_transforms_of_torch_func_are_refused_by_name(case, transform):
    name, value = next(iter(case.inputs.items()))
    run = lambda t: sum(r.float().sum() for r in case.run({**case.inputs, name: t}))  # noqa: E731
    calls = {
        "grad": lambda: torch.func.grad(run)(value),
        "vjp": lambda: torch.func.vjp(run, value),
        "jvp": lambda: torch.func.jvp(run, (value,), (torch.ones_like(value),)),
        "vmap": lambda: torch.func.vmap(run)(torch.stack([value, value])),
        "jacrev": lambda: torch.func.jacrev(run)(value),
        "functionalize": lambda: torch.func.functionalize(run)(value),
    }
    with pytest.raises(NotImplementedError, match="tessera: .*(torch.func transforms|forward-mode)"):
        calls[transform]()


@every_case
def test_inference_mode_computes_and_its_tensors_are_not_saved(case):
    with torch.inference_mode():
        results = case.run(case.inputs)
        made = {n: t.clone() for n, t in case.inputs.items()}
    assert all(r.is_inference() for r in results)
    for a, b in zip(case.run(made), case.run(case.inputs)):
        assert torch.equal(a, b) and not a.requires_grad
    for name in case.inputs:
        leaves = leaves_of(case, [name])
        mixed = {n: leaves[n] if n == name else made[n] for n in made}
        try:
            results = case.run(mixed)
        except RuntimeError as error:
            assert "Inference tensors cannot be saved for backward" in str(error)
        else:  # nothing of them is saved
            torch.autograd.backward(results, random_like(results))
            assert_same({name: leaves[name].grad}, {name: gradients(case, leaves_of(case, [name]))[name]})


# ---- out=


def out_of(case):
    return torch.zeros_like(case.run(case.inputs)[0])


def run_into(case, leaves, out):
    return getattr(F, case.name)(**leaves, **case.options, out=out)


@with_out
def test_out_gets_the_gradients_of_a_new_tensor(case):
    out, leaves = out_of(case), leaves_of(case)
    made = run_into(case, leaves, out)
    assert made is out and out._version > 0
    made.backward(random_like([made])[0])
    assert_same({n: leaf.grad for n, leaf in leaves.items()}, gradients(case, leaves_of(case)))


@with_out
@pytest.mark.parametrize("has_graph", [False, True])
def test_out_may_be_a_view_of_a_buffer(case, has_graph):
    out = out_of(case)
    before = torch.ones(2, *out.shape, dtype=out.dtype, requires_grad=has_graph)
    base = before * 1.0
    leaves = leaves_of(case)
    run_into(case, leaves, base[1])
    factor = random_like([out])[0]
    (base * torch.stack([factor, factor])).sum().backward()
    assert_same({n: leaf.grad for n, leaf in leaves.items()}, gradients(case, leaves_of(case)))
    if has_graph:
        assert torch.equal(before.grad[0], factor) and not before.grad[1].any()


@with_out
def test_two_calls_write_two_views_of_a_buffer(case):
    base = torch.stack([out_of(case), out_of(case)])
    leaves = leaves_of(case)
    for row in range(2):
        run_into(case, leaves, base[row])
    factor = random_like([base[0]])[0]
    base.backward(torch.stack([factor, factor]))
    assert_same({n: leaf.grad for n, leaf in leaves.items()}, {n: 2 * g for n, g in gradients(case, leaves_of(case)).items()})


@with_out
def test_an_out_without_gradients_overwrites_one_that_has_a_graph(case):
    before = torch.ones_like(out_of(case)).requires_grad_()
    out = before * 1.0
    run_into(case, case.inputs, out)
    out.sum().backward()
    assert not before.grad.any()


@with_out
@pytest.mark.parametrize("kind", ["leaf", "view of a leaf"])
def test_an_out_that_is_a_leaf_is_refused_before_it_is_written(case, kind):
    for leaves in (case.inputs, leaves_of(case)):
        leaf = torch.stack([out_of(case), out_of(case)]).requires_grad_()
        out = leaf[0] if kind == "view of a leaf" else out_of(case).requires_grad_()
        with pytest.raises(tessera.ArgumentError, match=f"argument 'out' is written in place .*\n.*\n.*a {kind} that requires grad"):
            run_into(case, leaves, out)
        assert not out.any()
        with torch.no_grad():
            assert run_into(case, leaves, out) is out and out.any()


def test_an_out_with_a_handle_may_be_a_view():
    leaf = torch.ones(2, 4, 64, dtype=torch.bfloat16, requires_grad=True)
    buffer, handle = torch.zeros(2, 2, 64, dtype=torch.bfloat16), F.ResidualGrad()
    F.pre_apply_mix(leaf, torch.ones(2, 4), out=buffer[0], residual_grad=handle)
    F.pre_apply_mix(leaf, torch.ones(2, 4), out=buffer[1], residual_grad=handle)
    buffer.sum().backward()
    assert (leaf.grad == 2).all()
