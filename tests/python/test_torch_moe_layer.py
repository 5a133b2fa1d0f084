"""A layer of experts that trains: gate, expand, grouped products, activation, reduce, against the same in f64."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import torch_reference as reference  # noqa: E402

TOKENS, HIDDEN, INNER, EXPERTS, TOPK, ALIGNMENT, STEPS = 24, 256, 32, 4, 2, 16, 10
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


def test_a_layer_of_experts_trains_ten_steps_as_in_f64():
    random = torch.Generator().manual_seed(3)
    layer = Layer(5)
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
            # Several roundings to bf16, 2^-9 each, and differences of products beside large ones.
            assert (parameter.grad - gradient).abs().max() <= 0.06 * gradient.abs().max()
        trained = exact_loss(exact)
        theirs.zero_grad()
        trained.backward()
        ours.step()
        theirs.step()
        assert abs(loss.item() - trained.item()) <= 1e-2 * trained.item()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses
    for parameter, other in zip(parameters, exact):
        assert (parameter - other).abs().max() <= 0.03 * other.abs().max()


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
