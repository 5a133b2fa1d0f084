"""Gradients of tessera.functional against f64 references; what is saved; main_grad; second derivatives."""

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import torch_reference as reference  # noqa: E402
from torch_cases import cases, close, name_of, tensors_of  # noqa: E402

CASES = cases()
IDS = [f"{name_of(case)}-{i}" for i, case in enumerate(CASES)]
every_case = pytest.mark.parametrize("case", CASES, ids=IDS)


def weights_of(results):
    random = torch.Generator().manual_seed(11)
    return [torch.randn(r.shape, generator=random).to(r.dtype) for r in results]


def gradients(run, inputs, wanted, dtype=None):
    """Gradients of a weighted sum of all results, in the precision of the inputs or in `dtype`."""
    leaves = {n: (t if dtype is None else t.to(dtype)).detach().clone() for n, t in inputs.items()}
    for name in wanted:
        leaves[name].requires_grad_()
    results = run(leaves)
    factors = weights_of([r if dtype is None else r.to(torch.float32) for r in results])
    pairs = [(r, w) for r, w in zip(results, factors) if r.requires_grad]
    torch.autograd.backward([r for r, _ in pairs], [w.to(r.dtype) for r, w in pairs])
    return {name: leaves[name].grad for name in wanted}


def expected_gradients(case, wanted):
    """In f64, from the weights rounded as the function's results are."""
    leaves = {n: t.double().clone() for n, t in case.inputs.items()}
    for name in wanted:
        leaves[name].requires_grad_()
    results = case.expected(leaves)
    factors = weights_of(case.run(case.inputs))
    pairs = [(r, w) for r, w in zip(results, factors) if r.requires_grad]
    torch.autograd.backward([r for r, _ in pairs], [w.double() for r, w in pairs])
    return {name: leaves[name].grad for name in wanted}


@every_case
def test_values_equal_the_definition(case):
    exact = case.expected({name: t.double() for name, t in case.inputs.items()})
    for got, expected in zip(case.run(case.inputs), exact):
        close(got, expected, max(case.tolerance, 1e-5))


@every_case
def test_gradients_of_each_input_alone_and_of_all(case):
    names = list(case.inputs)
    for wanted in [*([name] for name in names), names]:
        got = gradients(case.run, case.inputs, wanted)
        for name, expected in expected_gradients(case, wanted).items():
            assert got[name].dtype == case.inputs[name].dtype
            close(got[name], expected, max(case.tolerance, 2e-5))


def test_the_references_have_the_derivatives_that_finite_differences_say():
    random = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64).requires_grad_()

    check = torch.autograd.gradcheck
    gate = [normal(2, 4, 8), normal(2, 4, 8), normal(2, 8), normal(4, 8), normal(4, 8)]
    assert check(lambda *a: reference.engram_gate(*a, eps=1e-6), gate)
    pre = [normal(2, 4, 2), normal(24, 8), normal(3), normal(24), normal(8)]
    assert check(lambda r, f, s, b, w: reference.mhc_pre(r, f, s, b, norm_weight=w, post_mult_value=2.0), pre)
    head = [normal(2, 4, 2), normal(5, 8), normal(1), normal(4), normal(8)]
    assert check(lambda r, f, s, b, w: reference.mhc_head(r, f, s, b, norm_weight=w), head)
    assert check(reference.post, [normal(2, 3), normal(2, 4, 3), normal(2, 4), normal(2, 4, 4)])
    assert check(lambda x: reference.expand_to_mhc(x), [normal(2, 3)])
    assert check(lambda x, w: reference.swiglu(x, weight=w), [normal(3, 8), normal(3)])


@every_case
def test_training_and_inference_have_the_same_bits(case):
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    training = case.run(leaves)
    assert all(t.requires_grad for t in training)
    with torch.no_grad():
        switched_off = case.run(leaves)
    for inference in (switched_off, case.run(case.inputs)):
        for a, b in zip(training, inference):
            assert not b.requires_grad and torch.equal(a, b)


@every_case
def test_nothing_is_saved_without_gradients(case):
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    saved = []

    def count(run):
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t), lambda t: t):
            run()
        return len(saved)

    def inference():
        with torch.no_grad():
            case.run(leaves)

    assert count(inference) == 0
    assert count(lambda: case.run(case.inputs)) == 0
    if case.name != "expand_to_mhc":
        assert count(lambda: case.run(leaves)) > 0


@every_case
def test_leading_dimensions_are_free(case):
    tokens = {
        name: t.unsqueeze(0).clone() if t.shape[:1] == (3,) and name not in ("scale", "base") else t
        for name, t in case.inputs.items()
    }
    options = {name: v.unsqueeze(0) if name == "image_token_mask" else v for name, v in case.options.items()}
    wide = dataclasses.replace(case, options=options)
    got, flat = gradients(wide.run, tokens, list(tokens)), gradients(case.run, case.inputs, list(tokens))
    for name in tokens:
        assert torch.equal(got[name].reshape(flat[name].shape), flat[name])


@every_case
def test_gradients_may_have_other_strides(case):
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    results = case.run(leaves)
    factors = weights_of(results)
    plain = torch.autograd.grad(results, leaves.values(), factors, retain_graph=True)
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    strided = [torch.stack([w, w], -1)[..., 0] for w in factors]
    assert not strided[0].is_contiguous()
    for a, b in zip(plain, torch.autograd.grad(case.run(leaves), leaves.values(), strided)):
        assert torch.equal(a, b)


@every_case
def test_the_second_derivative_is_an_error_that_names_the_op(case):
    leaves = {name: t.clone().requires_grad_() for name, t in case.inputs.items()}
    results = case.run(leaves)
    grads = torch.autograd.grad([r.float().sum() for r in results], leaves.values(), create_graph=True)
    of_torch = case.name == "scaled_dot_product_attention"  # calls attention, whose gradients these are
    name = "attention" if of_torch else case.name
    with pytest.raises(tessera.UnsupportedError, match=f"tessera: {name}: the second derivative"):
        sum(g.float().square().sum() for g in grads).backward()


def test_an_input_changed_before_the_backward_pass_is_an_error():
    x = torch.randn(3, 4, 4, requires_grad=True)
    changed = x * 1.0
    out = F.sinkhorn(changed)
    changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


PARAMETERS = ("weight_hidden", "weight_embed", "fn", "norm_weight", "scale", "base")


@every_case
def test_main_grad_is_added_to_in_place(case):
    names = [name for name in case.inputs if name in PARAMETERS]
    if not names:
        return
    leaves = {name: torch.nn.Parameter(t.clone()) for name, t in case.inputs.items()}
    buffers = {name: torch.zeros(leaves[name].shape) for name in names}
    for name in names:
        leaves[name].main_grad = buffers[name]
    factors = weights_of(case.run(leaves))
    for _ in range(2):
        torch.autograd.backward(case.run(leaves), factors)
    plain = gradients(case.run, case.inputs, names)
    for name in names:
        assert leaves[name].grad is None and leaves[name].grad_added_to_main_grad is True
        assert leaves[name].main_grad is buffers[name]
        close(buffers[name], 2 * plain[name].double(), 1e-2 if leaves[name].dtype == torch.bfloat16 else 1e-5)
    for name in set(leaves) - set(names):
        assert leaves[name].grad is not None


def test_a_frozen_parameter_with_main_grad_gets_nothing():
    case = next(c for c in CASES if c.name == "mhc_head")
    leaves = {name: torch.nn.Parameter(t.clone()) for name, t in case.inputs.items()}
    leaves["fn"].requires_grad_(False)
    leaves["fn"].main_grad = torch.zeros(leaves["fn"].shape)
    case.run(leaves)[0].sum().backward()
    assert not leaves["fn"].main_grad.any() and not hasattr(leaves["fn"], "grad_added_to_main_grad")


def test_results_go_to_a_given_tensor():
    out = torch.empty(3, 4, 64, dtype=torch.bfloat16)
    x = torch.randn(3, 64).bfloat16().requires_grad_()
    made = F.expand_to_mhc(x, out=out)
    assert made is out and torch.equal(out, x.detach().unsqueeze(1).expand(3, 4, 64))
    made.sum().backward()
    assert (x.grad == 4).all()


def swiglu_inputs(weighted):
    random = torch.Generator().manual_seed(5)
    x = torch.randn(4, 256, generator=random).bfloat16()
    if not weighted:
        return x, {}
    return x, {
        "topk_weights": torch.rand(3, 2, generator=random) + 0.5,
        "pos_to_token_topk": torch.tensor([0, 2, 5, -1], dtype=torch.int32),
        "token_topk_to_pos": torch.tensor([[0, -1], [1, -1], [-1, 2]], dtype=torch.int32),
        "pos_to_expert": torch.tensor([0, 0, 1, -1], dtype=torch.int32),
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("clamp", [None, 1.0])
def test_gradients_of_swiglu_are_those_of_the_saved_codes(weighted, clamp):
    x, options = swiglu_inputs(weighted)
    x.requires_grad_()
    if weighted:
        options["topk_weights"].requires_grad_()
    cast = F.swiglu_and_per_token_cast(x, swiglu_clamp_value=clamp, **options)
    assert cast.activation.dtype == torch.bfloat16 and not cast.out.requires_grad
    with torch.no_grad():
        inference = F.swiglu_and_per_token_cast(x, swiglu_clamp_value=clamp, **options)
    assert inference.activation is None and torch.equal(inference.out.view(torch.uint8), cast.out.view(torch.uint8))
    grad = torch.randn(cast.activation.shape, generator=torch.Generator().manual_seed(6)).bfloat16()
    cast.activation.backward(grad)

    codes = tessera.per_token_cast(x.detach(), format="e4m3", num_per_channels=128)
    exact = (codes.out.double().unflatten(-1, (-1, 128)) * codes.out_sf.double().unsqueeze(-1)).flatten(-2)
    exact.requires_grad_()
    rows = 3 if weighted else 4  # the last one is padding
    weights = torch.ones(4, dtype=torch.float64)
    if weighted:
        table = options["topk_weights"].detach().double().requires_grad_()
        weights = torch.cat([table.flatten()[options["pos_to_token_topk"][:rows].long()], torch.zeros(1)])
    reference.swiglu(exact, weight=weights, clamp=clamp).backward(grad.double())
    close(x.grad, exact.grad, 1e-2)
    if weighted:
        close(options["topk_weights"].grad, table.grad, 1e-3)
        assert not x.grad[3].any()
    kept = cast.kept
    assert inference.kept is None
    codes = (kept.grad_x_fp8.double().unflatten(-1, (-1, 128)) * kept.grad_x_fp8_sf.double().unsqueeze(-1)).flatten(-2)
    assert (codes - x.grad.double()).abs().max() <= 2**-4 * x.grad.double().abs().max()
    assert kept.out.shape == grad.shape and not kept.out.requires_grad
    left, right = exact.detach().chunk(2, -1)
    if clamp is not None:
        left, right = left.clamp(max=clamp), right.clamp(-clamp, clamp)
    close(kept.out[:rows], (torch.nn.functional.silu(left) * right)[:rows] * weights[:rows].detach().unsqueeze(-1), 1e-2)


def moe_rows():
    return torch.tensor([[0, 2], [-1, 3]], dtype=torch.int32), torch.tensor([0, -1, 1, 1, -1], dtype=torch.int32)


def test_padding_rows_of_experts_reach_no_gradient():
    """Rows that no slot names hold NaN, here as after an expert that ran on padding."""
    positions, _ = moe_rows()
    x = torch.ones(5, 256)
    x[1], x[4] = float("nan"), float("nan")
    x.requires_grad_()
    weights = torch.tensor([[0.5, 2.0], [float("nan"), 3.0]], requires_grad=True)  # the slot without a row
    scales = torch.tensor([1.0, float("nan"), 2.0, 1.0, float("inf")], requires_grad=True)
    F.reduce_fused(x, positions, topk_weights=weights, x_sf=scales).backward(torch.ones(2, 256))
    assert torch.equal(x.grad[:, 0], torch.tensor([0.5, 0.0, 4.0, 3.0, 0.0]))
    assert torch.equal(weights.grad, torch.tensor([[256.0, 512.0], [0.0, 256.0]]))
    assert torch.equal(scales.grad, torch.tensor([128.0, 0.0, 512.0, 768.0, 0.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_expanding_and_reducing_are_each_the_gradient_of_the_other(dtype):
    positions, experts = moe_rows()
    random = torch.Generator().manual_seed(1)
    x = torch.randn(2, 256, generator=random).to(dtype).requires_grad_()
    grad = torch.randn(5, 256, generator=random).to(dtype)
    F.expand_to_fused(x, positions, experts).backward(grad)
    assert torch.equal(x.grad, tessera.reduce_fused(grad, positions))
    rows = grad.clone().requires_grad_()
    F.reduce_fused(rows, positions).backward(x.detach())
    assert torch.equal(rows.grad, tessera.expand_to_fused(x.detach(), positions, experts))


@pytest.mark.parametrize("tokens, count", [(0, 0), (0, 4), (3, 0), (3, 2)])
def test_no_tokens_and_no_rows_have_gradients(tokens, count):
    positions = torch.full((tokens, 2), -1, dtype=torch.int32)
    experts = torch.full((count,), -1, dtype=torch.int32)
    x = torch.randn(tokens, 256).requires_grad_()
    weights = torch.ones(tokens, 2, requires_grad=True)
    rows = F.expand_to_fused(x, positions, experts)
    F.reduce_fused(rows, positions, topk_weights=weights).sum().backward()
    assert not x.grad.any() and not weights.grad.any() and x.grad.shape == x.shape


def test_a_layer_of_experts_learns():
    """Tokens to experts and back, as a user writes it: the gradients are those of the dense sum."""
    random = torch.Generator().manual_seed(2)
    x = torch.randn(6, 256, generator=random)
    scores = torch.rand(6, 4, generator=random)
    weights, ids = scores.topk(2)
    mapping = tessera.get_fused_mapping(ids, num_experts=4, num_expanded_tokens=0, alignment=4)
    experts = torch.randn(4, 256, 256, generator=random) / 16

    def run(x, weights, experts):
        rows = F.expand_to_fused(x, mapping.token_topk_to_pos, mapping.pos_to_expert)
        made = torch.einsum("ph,phg->pg", rows, experts[mapping.pos_to_expert.clamp(min=0).long()])
        return F.reduce_fused(made, mapping.token_topk_to_pos, topk_weights=weights)

    def dense(x, weights, experts):
        return torch.einsum("tk,th,tkhg->tg", weights, x, experts[ids])

    grad = torch.randn(6, 256, generator=random)
    found = []
    for function in (run, dense):
        leaves = [t.detach().clone().requires_grad_() for t in (x, weights, experts)]
        function(*leaves).backward(grad)
        found.append([leaf.grad for leaf in leaves])
    for got, expected in zip(*found):
        close(got, expected, 1e-5)


@pytest.mark.parametrize(
    "change, argument, expected, got",
    [
        ({"attn_mask": torch.zeros(3, 3)}, "attn_mask", "None; tessera.functional.attention has causal", "a tensor"),
        ({"dropout_p": 0.5}, "dropout_p", "0", "0.5"),
        ({"query": torch.zeros(4, 3, 64, dtype=torch.bfloat16)}, "query", "tensors [batch, heads, rows, width]", "3 and 4"),
        ({"query": torch.zeros(1, 2, 5, 64, dtype=torch.bfloat16), "is_causal": True}, "is_causal", "as many rows", "5 and 3"),
        ({"query": torch.zeros(1, 4, 3, 64, dtype=torch.bfloat16)}, "enable_gqa", "True where heads of 'query' share", "False"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_form_of_torch_refuses_by_name_what_the_ops_have_not(change, argument, expected, got):
    given = {name: torch.zeros(1, 2, 3, 64, dtype=torch.bfloat16) for name in ("query", "key", "value")}
    with pytest.raises(tessera.UnsupportedError) as error:
        F.scaled_dot_product_attention(**{**given, **change})
    text = str(error.value)
    assert text.startswith(f"tessera: scaled_dot_product_attention: argument '{argument}' is not supported\n  expected  {expected}")
    assert f"\n  got       {got}" in text
