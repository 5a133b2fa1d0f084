"""A layer of experts that trains: gate, expand, grouped products, activation, reduce, against the same in f64."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import torch_reference as reference  # noqa: E402

TOKENS, HIDDEN, INNER, EXPERTS, TOPK, ALIGNMENT, STEPS = 24, 256, 32, 4, 2, 16, 10
FP8_INNER = 128
BALANCE, RATE = 1e-2, 0.005


class Layer(torch.nn.Module):
    """Masters in f32, products in bf16."""

    def __init__(self, seed):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        make = lambda *shape: torch.nn.Parameter(torch.randn(*shape, generator=random) * shape[-1] ** -0.5)  # noqa: E731
        self.router, self.w13 = make(EXPERTS, HIDDEN), make(EXPERTS, 2 * INNER, HIDDEN)
        self.w2 = make(EXPERTS, HIDDEN, INNER)

    def forward(self, x):
        gate = F.topk_gate(x.float() @ self.router.T, num_topk=TOPK)
        plan = tessera.get_fused_mapping(gate.topk_idx, num_experts=EXPERTS, alignment=ALIGNMENT)
        rows = F.expand_to_fused(x, plan.token_topk_to_pos, plan.pos_to_expert)
        ends = plan.expert_end
        hidden = F.expert_linear(rows, self.w13.bfloat16(), ends, alignment=ALIGNMENT)
        out = F.expert_linear(F.swiglu(hidden), self.w2.bfloat16(), ends, alignment=ALIGNMENT)
        return F.reduce_fused(out, plan.token_topk_to_pos, topk_weights=gate.topk_weights), gate


class Fp8Layer(torch.nn.Module):
    """The same with products of e4m3."""

    def __init__(self, seed):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        make = lambda *shape: torch.nn.Parameter(torch.randn(*shape, generator=random) * shape[-1] ** -0.5)  # noqa: E731
        self.router, self.w13 = make(EXPERTS, HIDDEN), make(EXPERTS, 2 * FP8_INNER, HIDDEN)
        self.w2 = make(EXPERTS, HIDDEN, FP8_INNER)

    def forward(self, x, num_rows=0):
        gate = F.topk_gate(x.float() @ self.router.T, num_topk=TOPK)
        return F.fp8_grouped_mlp(x, self.w13, self.w2, gate.topk_idx, gate.topk_weights, num_rows=num_rows), gate


def exact_layer(parameters, x, chosen):
    """The same in the precision of x, with the experts of the layer: a tie would be another function."""
    router, w13, w2 = parameters
    scores = torch.nn.functional.softplus(x @ router.T).sqrt()
    weights = scores.gather(-1, chosen)
    weights = weights / weights.sum(-1, keepdim=True)
    hidden = torch.einsum("th,tknh->tkn", x, w13[chosen])
    out = torch.einsum("tki,tkhi->tkh", reference.swiglu(hidden), w2[chosen])
    return (out * weights.unsqueeze(-1)).sum(1), (scores / scores.sum(-1, keepdim=True)).sum(0)


def loss_of(out, sums, target, frequency):
    return (out.to(target.dtype) - target).square().sum(-1).mean() + BALANCE * (frequency * sums).mean()


# Differences of gradients from those in f64, relative to their norms: several roundings to bf16, 2^-9 each; with e4m3 every operand
# adds about 2.6 % in the mean. The gradient of the router is a difference of products beside large ones, and shrinks.
@pytest.mark.parametrize(
    "made, of_router, of_experts, of_loss, of_weight",
    [(Layer, 0.06, 0.04, 1e-3, 0.01), (Fp8Layer, 0.4, 0.2, 1e-2, 0.02)],
    ids=["bf16", "fp8"],
)
def test_a_layer_of_experts_trains_ten_steps_as_in_f64(made, of_router, of_experts, of_loss, of_weight):
    random = torch.Generator().manual_seed(3)
    layer = made(5)
    parameters = (layer.router, layer.w13, layer.w2)
    exact = [p.detach().double().requires_grad_() for p in parameters]
    ours = torch.optim.SGD(layer.parameters(), lr=RATE)
    theirs = torch.optim.SGD(exact, lr=RATE)
    x = torch.randn(TOKENS, HIDDEN, generator=random).bfloat16()
    target = torch.randn(TOKENS, HIDDEN, generator=random)
    losses = []
    for _ in range(STEPS):
        out, gate = layer(x)
        chosen = gate.topk_idx
        frequency = torch.bincount(chosen.flatten(), minlength=EXPERTS) * (EXPERTS / (TOKENS * TOPK))

        def exact_loss(of):
            return loss_of(*exact_layer(of, x.double(), chosen), target.double(), frequency)  # noqa: B023

        loss = loss_of(out, gate.scores_sum, target, frequency)
        ours.zero_grad()
        loss.backward()
        same = [p.detach().double().requires_grad_() for p in parameters]
        for parameter, gradient in zip(parameters, torch.autograd.grad(exact_loss(same), same)):
            bound = of_router if parameter is layer.router else of_experts
            assert (parameter.grad - gradient).norm() <= bound * gradient.norm()
        trained = exact_loss(exact)
        theirs.zero_grad()
        trained.backward()
        ours.step()
        theirs.step()
        assert abs(loss.item() - trained.item()) <= of_loss * trained.item()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses
    for parameter, other in zip(parameters, exact):
        assert (parameter - other).abs().max() <= of_weight * other.abs().max()


def test_fp8_experts_have_the_gradients_of_f64_and_leave_padding_alone():
    """All gradients, x's among them; an expert without tokens, a token without experts, slots without an expert."""
    random = torch.Generator().manual_seed(8)
    normal = lambda *shape: torch.randn(*shape, generator=random)  # noqa: E731
    x = normal(9, HIDDEN).bfloat16().requires_grad_()
    w13 = (normal(EXPERTS, 2 * FP8_INNER, HIDDEN) / 16).requires_grad_()
    w2 = (normal(EXPERTS, HIDDEN, FP8_INNER) / 11).bfloat16().requires_grad_()
    topk_idx = torch.tensor([[0, 1], [1, 0], [-1, -1], [3, -1], [0, 3], [3, 1], [1, -1], [0, 3], [3, 0]])
    weights = torch.rand(9, TOPK, generator=random).requires_grad_()
    gradient = normal(9, HIDDEN).bfloat16()
    y = F.fp8_grouped_mlp(x, w13, w2, topk_idx, weights)
    y.backward(gradient)
    inputs = [t.detach().double().requires_grad_() for t in (x, w13, w2, weights)]
    exact_x, exact_w13, exact_w2, exact_weights = inputs
    chosen = topk_idx.clamp(min=0)
    hidden = torch.einsum("th,tknh->tkn", exact_x, exact_w13[chosen])
    rows = torch.einsum("tki,tkhi->tkh", reference.swiglu(hidden), exact_w2[chosen])
    exact = (rows * (exact_weights * (topk_idx >= 0)).unsqueeze(-1)).sum(1)
    exact.backward(gradient.double())

    def difference(got, want):  # of the norms
        return ((got.double() - want).norm() / want.norm()).item()

    # An operand of 3 bits of mantissa has an error of about 2.6 % in the mean; up to eight of them are behind a result.
    assert difference(y, exact.detach()) < 0.1
    for got, want in zip((x, w13, w2, weights), inputs):
        assert got.grad.dtype == got.dtype and difference(got.grad, want.grad) < 0.1
    assert y[2].abs().max() == 0 and x.grad[2].abs().max() == 0 and weights.grad[topk_idx < 0].abs().max() == 0
    assert w13.grad[2].abs().max() == 0 and w2.grad[2].abs().max() == 0
    with torch.no_grad():  # a fixed number of rows, more than are needed, changes no bit
        assert torch.equal(y, F.fp8_grouped_mlp(x, w13, w2, topk_idx, weights, num_rows=tessera.moe_rows(9, TOPK, EXPERTS, 128)))


def test_fp8_experts_add_to_the_main_grads_of_their_weights():
    random = torch.Generator().manual_seed(9)
    x = torch.randn(5, HIDDEN, generator=random).bfloat16()
    topk_idx = torch.tensor([[0, 1], [1, 3], [2, 0], [3, 2], [0, 3]])
    weights = torch.rand(5, TOPK, generator=random)
    layer = Fp8Layer(2)
    F.fp8_grouped_mlp(x, layer.w13, layer.w2, topk_idx, weights).float().sum().backward()
    expected = [layer.w13.grad.clone(), layer.w2.grad.clone()]
    for parameter in (layer.w13, layer.w2):
        parameter.grad, parameter.main_grad = None, torch.full_like(parameter, 2.0)
    F.fp8_grouped_mlp(x, layer.w13, layer.w2, topk_idx, weights).float().sum().backward()
    for parameter, gradient in zip((layer.w13, layer.w2), expected):
        assert parameter.grad is None and parameter.grad_added_to_main_grad
        assert (parameter.main_grad - 2 - gradient).abs().max() <= 1e-5 * max(1, gradient.abs().max())


def test_expert_linear_leaves_padding_at_zero_and_has_its_gradients():
    random = torch.Generator().manual_seed(4)
    x = torch.randn(48, HIDDEN, generator=random).bfloat16().requires_grad_()
    weight = torch.randn(3, 32, HIDDEN, generator=random).bfloat16().requires_grad_()
    ends = torch.tensor([5, 16, 30], dtype=torch.int32)  # the second expert begins and ends at row 16
    out = F.expert_linear(x, weight, ends, alignment=16)
    rows = [(0, 5), (16, 16), (16, 30)]
    expected = torch.zeros(48, 32, dtype=torch.float64)
    for expert, (first, end) in enumerate(rows):
        expected[first:end] = x[first:end].double() @ weight[expert].double().T
    assert (out.double() - expected).abs().max() <= 2**-8 * expected.abs().max()
    assert out[5:16].abs().max() == 0 and out[30:].abs().max() == 0
    gradient = torch.randn(48, 32, generator=random).bfloat16()
    out.backward(gradient)
    for expert, (first, end) in enumerate(rows):
        expected_w = gradient[first:end].double().T @ x[first:end].detach().double()
        assert (weight.grad[expert].double() - expected_w).abs().max() <= 2**-8 * max(1, expected_w.abs().max())
        expected_x = gradient[first:end].double() @ weight[expert].detach().double()
        if first < end:
            assert (x.grad[first:end].double() - expected_x).abs().max() <= 2**-8 * expected_x.abs().max()
    assert x.grad[5:16].abs().max() == 0 and x.grad[30:].abs().max() == 0
