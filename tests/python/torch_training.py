"""Training runs that the CPU and the GPU tests share: a layer of Engram and one of mHC beside an f64 reference."""

import torch

import tessera.functional as F
import tessera.nn as tnn
import torch_reference as reference

STREAMS, STEPS = 4, 10
# Sizes of a step: large for the few weights that are near 1, so that each kind of gradient shows in the loss.
RATES = {"fn": 2e-4, "weight": 2e-4, "scale": 0.05, "base": 0.05, "weight_hidden": 0.05, "weight_embed": 0.05}


class Layer(torch.nn.Module):
    """Engram's gate, then a sub-layer with hyper-connections, then the head. Weights are f32; bf16 where ops read bf16."""

    def __init__(self, hidden):
        super().__init__()
        torch.manual_seed(1)
        self.gate = tnn.EngramGate(STREAMS, hidden)
        self.block = tnn.MhcBlock(torch.nn.Linear(hidden, hidden, bias=False, dtype=torch.bfloat16), STREAMS, hidden)
        self.head = tnn.MhcHead(STREAMS, hidden)
        with torch.no_grad():
            for module in (self.block.pre, self.head):
                module.scale.fill_(1.0)

    def forward(self, embedding, k, v):
        residual = self.gate(F.expand_to_mhc(embedding, mhc_mult=STREAMS), k, v)
        return self.head(self.block(residual))


def reference_forward(weights, embedding, k, v):
    residual = reference.engram_gate(
        reference.expand_to_mhc(embedding, mhc_mult=STREAMS),
        k,
        v,
        weights["gate.weight_hidden"],
        weights["gate.weight_embed"],
        eps=1e-6,
    )
    pre = {name: weights[f"block.pre.{name}"] for name in ("fn", "scale", "base")}
    layer_input, post_mix, comb_mix = reference.mhc_pre(residual, **pre)
    out = layer_input @ weights["block.sublayer.weight"].T
    residual = reference.post(out, residual, post_mix, comb_mix)
    return reference.mhc_head(residual, weights["head.fn"], weights["head.scale"], weights["head.base"])


def batch(tokens, hidden, device):
    random = torch.Generator().manual_seed(2)
    half = lambda *shape: torch.randn(*shape, generator=random).bfloat16().to(device)  # noqa: E731
    return (half(tokens, hidden), half(tokens, STREAMS, hidden), half(tokens, hidden)), half(tokens, hidden)


class Adam:
    """Steps of about the same size for every weight, so that no gradient is without effect."""

    def __init__(self, masters):
        self.masters = masters
        self.means = {name: torch.zeros_like(m) for name, m in masters.items()}
        self.squares = {name: torch.zeros_like(m) for name, m in masters.items()}
        self.count = 0

    def step(self, gradients):
        self.count += 1
        for name, master in self.masters.items():
            gradient = gradients[name].to(master.dtype)
            mean, square = self.means[name], self.squares[name]
            mean.mul_(0.9).add_(gradient, alpha=0.1)
            square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            size = (square / (1 - 0.99**self.count)).sqrt() + 1e-12
            master -= RATES[name.rpartition(".")[2]] * (mean / (1 - 0.9**self.count)) / size


def train(layer, inputs, target):
    """Losses of ten steps, with f32 weights beside the bf16 ones; the gradients of all but `sublayer` are main_grads."""
    optimizer = Adam({name: p.detach().float().clone() for name, p in layer.named_parameters()})
    losses = []
    for _ in range(STEPS):
        for parameter in layer.parameters():
            parameter.grad = None
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
        loss = (layer(*inputs).float() - target.float()).square().mean()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            named = dict(layer.named_parameters())
            optimizer.step({name: p.main_grad if p.grad is None else p.grad for name, p in named.items()})
            for name, parameter in named.items():
                parameter.copy_(optimizer.masters[name])
    return losses


def train_reference(layer, inputs, target):
    """The same in f64, with the same weights rounded to bf16."""
    kinds = {name: p.dtype for name, p in layer.named_parameters()}
    optimizer = Adam({name: p.detach().double() for name, p in layer.named_parameters()})
    exact = [t.double() for t in inputs]
    losses = []
    for _ in range(STEPS):
        weights = {name: m.to(kinds[name]).double().requires_grad_() for name, m in optimizer.masters.items()}
        loss = (reference_forward(weights, *exact) - target.double()).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step({name: weight.grad for name, weight in weights.items()})
    return losses


def compare_loss_curves(tokens, hidden, device):
    layer = Layer(hidden).to(device)
    inputs, target = batch(tokens, hidden, device)
    expected = train_reference(layer, inputs, target)
    got = train(layer, inputs, target)
    assert got[-1] < 0.5 * got[0], "the loss does not fall"
    for step, (a, b) in enumerate(zip(got, expected)):
        assert abs(a - b) <= 5e-3 * b, (step, got, expected)
    return got, expected


def engram_bytes(tokens, hidden):
    """The tensors that the gate saves beside its inputs, as the specification says."""
    return 64 * tokens + 16 * hidden


def mhc_bytes(tokens, hidden):
    """The same of a sub-layer between mhc_pre and mhc_post; its input and output are bf16."""
    mixes = STREAMS * (STREAMS + 2)
    small = mixes + 1 + mixes + STREAMS + STREAMS + 2 * STREAMS * STREAMS
    return 4 * tokens * small + 2 * 2 * tokens * hidden


def saved_bytes(run, *inputs):
    """Bytes of the distinct tensors that a forward pass saves, without its inputs and parameters."""
    found = {}
    known = {t.untyped_storage().data_ptr() for t in inputs}

    def pack(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = run()
    return sum(size for address, size in found.items() if address not in known), result
