"""A layer of experts that trains beside the same in f64: what the CPU and the GPU tests share."""

import torch

import tessera
import tessera.functional as F
import tessera.nn as tnn
import torch_reference as reference

TOKENS, HIDDEN, INNER, EXPERTS, TOPK, ALIGNMENT, STEPS = 24, 256, 32, 4, 2, 16, 10
FP8_INNER = 128
BALANCE, RATE = 1e-2, 0.005


def make_parameters(seed, *shapes):
    random = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(*shape, generator=random) * shape[-1] ** -0.5) for shape in shapes]


class Layer(torch.nn.Module):
    """Masters in f32, products in bf16."""

    def __init__(self, seed):
        super().__init__()
        shapes = (EXPERTS, HIDDEN), (EXPERTS, 2 * INNER, HIDDEN), (EXPERTS, HIDDEN, INNER)
        self.router, self.w13, self.w2 = make_parameters(seed, *shapes)

    def forward(self, x):
        gate = F.topk_gate(x.float() @ self.router.T, num_topk=TOPK)
        plan = tessera.get_fused_mapping(gate.topk_idx, num_experts=EXPERTS, alignment=ALIGNMENT)
        rows = F.expand_to_fused(x, plan.token_topk_to_pos, plan.pos_to_expert)
        ends = plan.expert_end
        hidden = F.expert_linear(rows, self.w13.bfloat16(), ends, alignment=ALIGNMENT)
        out = F.expert_linear(F.swiglu(hidden), self.w2.bfloat16(), ends, alignment=ALIGNMENT)
        return F.reduce_fused(out, plan.token_topk_to_pos, topk_weights=gate.topk_weights), gate


class Fp8Layer(torch.nn.Module):
    """The same with products of e4m3, by the modules of tessera.nn."""

    def __init__(self, seed, static_rows=False):
        super().__init__()
        self.gate = tnn.TopkGate(HIDDEN, EXPERTS, TOPK)
        self.experts = tnn.Fp8Experts(HIDDEN, FP8_INNER, EXPERTS, static_rows=static_rows)
        shapes = (EXPERTS, HIDDEN), (EXPERTS, 2 * FP8_INNER, HIDDEN), (EXPERTS, HIDDEN, FP8_INNER)
        self.gate.weight, self.experts.w13, self.experts.w2 = make_parameters(seed, *shapes)

    router = property(lambda self: self.gate.weight)
    w13 = property(lambda self: self.experts.w13)
    w2 = property(lambda self: self.experts.w2)

    def forward(self, x):
        gate = self.gate(x)
        return self.experts(x, gate.topk_idx, gate.topk_weights), gate


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
LAYERS = {"bf16": (Layer, 0.06, 0.04, 1e-3, 0.01), "fp8": (Fp8Layer, 0.4, 0.2, 1e-2, 0.02)}


def train_beside_f64(kind, device):
    """Ten steps; returns the losses of the layer and of the one in f64."""
    make, of_router, of_experts, of_loss, of_weight = LAYERS[kind]
    random = torch.Generator().manual_seed(3)
    layer = make(5).to(device)
    parameters = (layer.router, layer.w13, layer.w2)
    exact = [p.detach().double().requires_grad_() for p in parameters]
    ours = torch.optim.SGD(layer.parameters(), lr=RATE)
    theirs = torch.optim.SGD(exact, lr=RATE)
    x = torch.randn(TOKENS, HIDDEN, generator=random).bfloat16().to(device)
    target = torch.randn(TOKENS, HIDDEN, generator=random).to(device)
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
        losses.append((loss.item(), trained.item()))
    got, expected = zip(*losses)
    assert got[-1] < 0.9 * got[0], losses
    for parameter, other in zip(parameters, exact):
        assert (parameter - other).abs().max() <= of_weight * other.abs().max()
    return got, expected
