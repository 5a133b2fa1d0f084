"""A layer of experts that trains: gate, expand, grouped products, activation, reduce, against the same in f64."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
import tessera.functional as F  # noqa: E402
import tessera.nn as tnn  # noqa: E402
import torch_reference as reference  # noqa: E402
from moe_training import (  # noqa: E402
    EXPERTS,
    FP8_INNER,
    HIDDEN,
    LAYERS,
    TOPK,
    Fp8Layer,
    exact_layer,
    train_beside_f64,
)

@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_of_experts_trains_ten_steps_as_in_f64(kind):
    train_beside_f64(kind, "cpu")


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


# ---- the modules


def test_the_modules_are_their_functions_with_rows_of_any_leading_dimensions():
    layer, x = Fp8Layer(1), torch.randn(2, 3, HIDDEN, generator=torch.Generator().manual_seed(2)).bfloat16()
    mask = torch.tensor([[True, True, False], [True, False, True]])
    rows = x.view(6, HIDDEN)
    chosen = layer.gate(x, mask=mask, num_seqs=2)
    logits = torch.nn.functional.linear(rows.float(), layer.router)
    for got, want in zip(chosen, F.topk_gate(logits, num_topk=TOPK, mask=mask.view(6), num_seqs=2)):
        assert torch.equal(got, want)
    ids, weights = chosen.topk_idx, chosen.topk_weights.detach()
    y = layer.experts(x, ids, weights)
    want = F.fp8_grouped_mlp(rows, layer.w13, layer.w2, ids, weights)
    assert y.shape == x.shape and torch.equal(y.view(6, HIDDEN), want)
    assert (y.view(6, HIDDEN)[~mask.view(6)] == 0).all()
    static = Fp8Layer(1, static_rows=True)
    got = static.experts(x, ids.view(2, 3, TOPK), weights.view(2, 3, TOPK))
    assert torch.equal(got, y)
    y.float().sum().backward()
    got.float().sum().backward()
    assert torch.equal(layer.w13.grad, static.w13.grad) and torch.equal(layer.w2.grad, static.w2.grad)


def test_a_bias_changes_the_choice_and_no_weight():
    gate = tnn.TopkGate(HIDDEN, EXPERTS, 1, bias=True, routed_scaling_factor=2.0)
    x = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(4)).bfloat16()
    gate.bias[2] = 100.0
    chosen = gate(x)
    assert (chosen.topk_idx == 2).all() and (chosen.topk_weights == 2.0).all()
    assert "bias" in gate.state_dict() and [name for name, _ in gate.named_parameters()] == ["weight"]


def test_the_balance_loss_is_that_of_f64_with_its_gradient():
    gate = tnn.TopkGate(HIDDEN, EXPERTS, TOPK)
    x = torch.randn(12, HIDDEN, generator=torch.Generator().manual_seed(6)).bfloat16()
    mask = torch.arange(12) % 5 != 4
    chosen = gate(x, mask=mask, num_seqs=2)
    loss = gate.balance_loss(chosen)
    loss.backward()
    router = gate.weight.detach().double().requires_grad_()
    scores = torch.nn.functional.softplus(x.double() @ router.T).sqrt()
    scores = scores / scores.sum(-1, keepdim=True)
    losses = []
    for rows in (slice(0, 6), slice(6, 12)):
        counts = torch.bincount(chosen.topk_idx[rows][mask[rows]].flatten(), minlength=EXPERTS).double()
        losses.append((EXPERTS * counts / counts.sum() * scores[rows][mask[rows]].mean(0)).sum())
    expected = sum(losses) / 2
    expected.backward()
    assert abs(loss.item() - expected.item()) <= 1e-6 * expected.item()
    assert (gate.weight.grad - router.grad).norm() <= 1e-4 * router.grad.norm()
    even = F.GateResult(torch.arange(EXPERTS).view(-1, 1), None, torch.ones(1, EXPERTS))
    assert tnn.TopkGate(HIDDEN, EXPERTS, 1).balance_loss(even).item() == 1.0


def test_trained_experts_are_those_of_the_inference_layer():
    layer = Fp8Layer(7)
    inference = tnn.MoE(HIDDEN, FP8_INNER, EXPERTS, TOPK).quantize_(layer.w13, layer.w2)
    inference.gate.copy_(layer.router.detach())
    x = torch.randn(9, HIDDEN, generator=torch.Generator().manual_seed(3)).bfloat16()
    out, gate = layer(x)
    same = tessera.moe_gate(x, inference.gate, num_topk=TOPK).topk_idx.long().sort(-1).values == gate.topk_idx.sort(-1).values
    assert same.all(), "a router in bf16 may choose others; these tokens are far from that"
    # Two chains of e4m3 products that round at other places: 2^-4 each, averaged over sums of 256 and 128.
    assert (out - inference(x)).float().norm() <= 0.05 * out.float().norm()


def test_the_modules_are_made_copied_and_converted_as_others():
    layer = Fp8Layer(7)
    assert {name: (tuple(t.shape), t.dtype) for name, t in layer.state_dict().items()} == {
        "gate.weight": ((4, 256), torch.float32),
        "experts.w13": ((4, 256, 256), torch.float32),
        "experts.w2": ((4, 256, 128), torch.float32),
    }
    converted = Fp8Layer(7).bfloat16()
    assert converted.router.dtype == torch.float32 and converted.w13.dtype == torch.bfloat16
    x = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(3)).bfloat16()
    converted(x)[0].float().sum().backward()
    assert converted.w13.grad.dtype == torch.bfloat16
    other = Fp8Layer(8)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x)[0], layer(x)[0])
    assert repr(layer.gate) == "TopkGate(hidden=256, num_experts=4, num_topk=2, bias=False)"
    assert repr(layer.experts) == "Fp8Experts(hidden=256, inner=128, num_experts=4, static_rows=False)"


@pytest.mark.parametrize(
    "make, op, word",
    [
        (lambda: tnn.TopkGate(256, 4, 5), "moe_topk_gate_fwd", "num_topk"),
        (lambda: tnn.TopkGate(256, 4, 2)(torch.zeros(3, 128)), "TopkGate", "x"),
        (lambda: tnn.Fp8Experts(200, 128, 4), "per_block_cast", "x"),
        (lambda: tnn.Fp8Experts(256, 100, 4), "per_block_cast", "x"),
        (lambda: tnn.Fp8Experts(256, 128, 4, swiglu_clamp_value=-1.0), "swiglu_forward_and_per_token_cast", "swiglu_clamp_value"),
        (lambda: Fp8Layer(1).experts(torch.zeros(3, 128).bfloat16(), torch.zeros(3, 2).long(), torch.zeros(3, 2)), "Fp8Experts", "x"),
    ],
)
def test_sizes_and_options_are_refused_by_name(make, op, word):
    with pytest.raises((tessera.ArgumentError, tessera.UnsupportedError)) as caught:
        make()
    assert (caught.value.op, caught.value.argument) == (op, word)
