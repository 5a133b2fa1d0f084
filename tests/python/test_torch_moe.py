"""tessera.nn.MoE: the ops that it calls, the same layer in f64, padding, hashed routing, conversions, refusals."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera  # noqa: E402
import tessera.nn as tnn  # noqa: E402

HIDDEN, INNER, EXPERTS, TOPK, TOKENS, IDS = 256, 128, 8, 3, 9, 20
OPTIONS = {"routed_scaling_factor": 1.5, "swiglu_clamp_value": 10.0}


def normal(*shape, seed, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def made(**options):
    """A layer with weights, and these weights in f32."""
    layer = tnn.MoE(HIDDEN, INNER, EXPERTS, TOPK, **{**OPTIONS, **options})
    w13 = normal(EXPERTS, 2 * INNER, HIDDEN, seed=1, scale=HIDDEN**-0.5)
    w2 = normal(EXPERTS, HIDDEN, INNER, seed=2, scale=INNER**-0.5)
    layer.gate.copy_(normal(EXPERTS, HIDDEN, seed=3, scale=2 * HIDDEN**-0.5))
    if layer.bias is not None:
        layer.bias.copy_(normal(EXPERTS, seed=4))
    if layer.table is not None:
        layer.table.copy_((torch.arange(IDS * TOPK) * 5 % EXPERTS).view(IDS, TOPK))
    return layer.quantize_(w13, w2), w13, w2


def mxfp4_values(weight):
    """The weights that quantize_ keeps: e2m1 codes times a power of two for each 32 of a row."""
    flat = weight.reshape(-1, weight.shape[-1])
    made = tessera.per_token_cast(flat, format="e2m1", num_per_channels=32, round_sf=True)
    back = tessera.cast_back(made.out, made.out_sf, x_block_size=(1, 32), out_dtype="f32")
    return back.view(weight.shape)


def x_of(*shape):
    return normal(*shape, HIDDEN, seed=5).bfloat16()


def ids_of(tokens):
    return torch.arange(tokens) * 7 % IDS


def exact(layer, x, chosen):
    """The layer in f64 from its quantised weights."""
    wide = lambda w, sf: w.double() * sf.double().repeat_interleave(128, 1).repeat_interleave(128, 2)  # noqa: E731
    w13, w2 = wide(layer.w13, layer.w13_sf), wide(layer.w2, layer.w2_sf)
    ids, weights = chosen.topk_idx.long(), chosen.topk_weights.double()
    hidden = torch.einsum("th,tknh->tkn", x.double(), w13[ids])
    gate, up = hidden[..., :INNER].clamp(max=10), hidden[..., INNER:].clamp(-10, 10)
    act = torch.nn.functional.silu(gate) * up
    return (torch.einsum("tki,tkhi->tkh", act, w2[ids]) * weights.unsqueeze(-1)).sum(1)


def calc_diff(a, b):
    a, b = a.double(), b.double()
    return (1 - 2 * (a * b).sum() / (a * a + b * b).sum()).item()


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_is_its_ops_and_near_the_same_in_f64(bias):
    layer, _, _ = made(bias=bias)
    x = x_of(TOKENS)
    logits = tessera.router_logits(x, layer.gate)
    chosen = tessera.moe_topk_gate_fwd(logits, bias=layer.bias, num_topk=TOPK, routed_scaling_factor=1.5)
    weights = (layer.w13, layer.w13_sf, layer.w2, layer.w2_sf)
    out = layer(x)
    assert torch.equal(
        out, tessera.moe_forward(x, chosen.topk_idx, chosen.topk_weights, *weights, swiglu_clamp_value=10.0)
    )
    # Activations of e4m3 with a scale for 128 columns: 2^-4 of rounding each, averaged over sums of 128 and 256.
    assert calc_diff(out, exact(layer, x, chosen)) <= 5e-3


def test_quantised_weights_are_near_the_given_ones():
    layer, w13, w2 = made()
    for weight, kept, scales in ((w13, layer.w13, layer.w13_sf), (w2, layer.w2, layer.w2_sf)):
        wide = kept.float() * scales.repeat_interleave(128, 1).repeat_interleave(128, 2)
        # e4m3 has 3 bits of mantissa; the least ones are multiples of 2^-9, where 448 is the largest of a block.
        assert ((wide - weight).abs() <= 2**-4 * weight.abs() + 2**-10 / 448 * weight.abs().max()).all()


@pytest.mark.parametrize("activation", ["e4m3", "bf16"])
def test_a_layer_of_mxfp4_weights_is_its_ops_and_near_the_same_in_f64(activation):
    layer, w13, w2 = made(weights="mxfp4", activation=activation)
    x = x_of(TOKENS)
    chosen = tessera.moe_gate(x, layer.gate, num_topk=TOPK, routed_scaling_factor=1.5)
    out = layer(x)
    names = ("w13", "w13_sf", "w2", "w2_sf", "w13_shift", "w2_shift")
    weights = {name: getattr(layer, name) for name in names}
    options = {"activation": activation, "swiglu_clamp_value": 10.0}
    assert torch.equal(out, tessera.moe_forward(x, chosen.topk_idx, chosen.topk_weights, **weights, **options))
    ids, factors = chosen.topk_idx.long(), chosen.topk_weights.double()
    hidden = torch.einsum("th,tknh->tkn", x.double(), mxfp4_values(w13).double()[ids])
    act = torch.nn.functional.silu(hidden[..., :INNER].clamp(max=10)) * hidden[..., INNER:].clamp(-10, 10)
    want = (torch.einsum("tki,tkhi->tkh", act, mxfp4_values(w2).double()[ids]) * factors.unsqueeze(-1)).sum(1)
    assert calc_diff(out, want) <= (5e-3 if activation == "e4m3" else 1e-4)
    shapes = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    assert shapes["w13"] == ((8, 4, 2, 4096) if activation == "e4m3" else (8, 4, 4, 2048))
    assert shapes["w2_sf"] == ((8, 256, 1) if activation == "e4m3" else (8, 256))
    other = tnn.MoE(HIDDEN, INNER, EXPERTS, TOPK, weights="mxfp4", activation=activation, **OPTIONS)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.to(torch.float16)(x), out)


def test_a_shared_expert_is_the_base_and_rows_have_any_leading_dimensions():
    shared = torch.nn.Linear(HIDDEN, HIDDEN, bias=False, dtype=torch.bfloat16)
    layer, _, _ = made(shared=shared)
    x = x_of(2, 5)
    out = layer(x)
    assert out.shape == x.shape and out.dtype == torch.bfloat16 and not out.requires_grad
    rows = x.view(10, HIDDEN)
    chosen = tessera.moe_gate(rows, layer.gate, num_topk=TOPK, routed_scaling_factor=1.5)
    weights = (layer.w13, layer.w13_sf, layer.w2, layer.w2_sf)
    with torch.no_grad():
        base = shared(x).view(10, HIDDEN)
    want = tessera.moe_forward(rows, chosen.topk_idx, chosen.topk_weights, *weights, base=base, swiglu_clamp_value=10.0)
    assert torch.equal(out.view(10, HIDDEN), want)


@pytest.mark.parametrize("hashed", [False, True])
def test_padding_is_never_seen_and_tokens_do_not_depend_on_each_other(hashed):
    layer, _, _ = made(num_ids=IDS) if hashed else made()
    x = x_of(TOKENS)
    ids = {"token_ids": ids_of(TOKENS)} if hashed else {}
    whole = layer(x, **ids)
    padded = x.clone()
    padded[4:] = float("nan")
    out = layer(padded, num_tokens=torch.tensor([4], dtype=torch.int32), **ids)
    assert torch.equal(out[:4], whole[:4]) and (out[4:] == 0).all()
    some = torch.tensor([7, 0, 3])
    parts = layer(x[some], **{name: value[some] for name, value in ids.items()})
    assert torch.equal(parts, whole[some])
    assert layer(x[:0], **{name: value[:0] for name, value in ids.items()}).shape == (0, HIDDEN)


def test_ids_choose_the_experts_of_a_hashed_layer():
    layer, _, _ = made(num_ids=IDS)
    x, ids = x_of(TOKENS), ids_of(TOKENS)
    chosen = tessera.hash_gate(
        ids, layer.table, tessera.router_logits(x, layer.gate), routed_scaling_factor=1.5, scale="routed"
    )
    assert torch.equal(chosen.topk_idx, layer.table[ids])
    weights = (layer.w13, layer.w13_sf, layer.w2, layer.w2_sf)
    want = tessera.moe_forward(x, chosen.topk_idx, chosen.topk_weights, *weights, swiglu_clamp_value=10.0)
    assert torch.equal(layer(x, token_ids=ids), want)
    assert calc_diff(want, exact(layer, x, chosen)) <= 5e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_conversions_and_copies_keep_the_dtypes_of_the_experts(dtype):
    layer, _, _ = made(bias=True, shared=torch.nn.Linear(HIDDEN, HIDDEN))
    before = copy.deepcopy(layer.state_dict())
    for name, value in copy.deepcopy(layer).to(dtype).state_dict().items():
        if name.startswith("shared."):
            assert value.dtype == dtype
        else:
            assert value.dtype == before[name].dtype and torch.equal(value.float(), before[name].float())
    other = tnn.MoE(HIDDEN, INNER, EXPERTS, TOPK, bias=True, shared=torch.nn.Linear(HIDDEN, HIDDEN), **OPTIONS)
    other.load_state_dict(before)
    x = x_of(TOKENS)
    assert torch.equal(other.bfloat16()(x), layer.bfloat16()(x))


def test_state_dicts_have_the_names_and_shapes_of_the_ops():
    layer, _, _ = made(bias=True)
    assert {name: (tuple(value.shape), value.dtype) for name, value in layer.state_dict().items()} == {
        "gate": ((8, 256), torch.bfloat16),
        "bias": ((8,), torch.float32),
        "w13": ((8, 256, 256), torch.float8_e4m3fn),
        "w13_sf": ((8, 2, 2), torch.float32),
        "w2": ((8, 256, 128), torch.float8_e4m3fn),
        "w2_sf": ((8, 2, 1), torch.float32),
    }
    assert not list(layer.parameters())
    assert repr(layer) == (
        "MoE(hidden=256, inner=128, num_experts=8, num_topk=3, bias=True, routed_scaling_factor=1.5, swiglu_clamp_value=10.0)"
    )


@pytest.mark.parametrize(
    "make, op, word",
    [
        (lambda: tnn.MoE(200, 128, 8, 3), "moe_forward", "w2"),
        (lambda: tnn.MoE(256, 100, 8, 3), "moe_forward", "w2"),
        (lambda: tnn.MoE(256, 128, 8, 9), "moe_gate", "num_topk"),
        (lambda: tnn.MoE(256, 128, 513, 3), "moe_gate", "w"),
        (lambda: tnn.MoE(256, 128, 8, 3, bias=True, num_ids=IDS), "moe_gate", "bias"),
        (lambda: tnn.MoE(256, 128, 8, 3, weights_at="end"), "moe_forward", "weights_at"),
        (lambda: tnn.MoE(256, 128, 8, 3, weights="bf16"), "MoE", "weights"),
        (lambda: tnn.MoE(256, 128, 8, 3, activation="bf16"), "moe_forward", "activation"),
        (lambda: tnn.MoE(256, 72, 8, 3, weights="mxfp4"), "moe_forward", "w2"),
        (lambda: made()[0].pack_(*[torch.zeros(1)] * 4), "MoE", "weights"),
        (lambda: made()[0].quantize_(torch.zeros(8, 256, 128), torch.zeros(8, 256, 128)), "MoE", "w13"),
        (lambda: made()[0](torch.zeros(3, 128, dtype=torch.bfloat16)), "MoE", "x"),
        (lambda: made(num_ids=IDS)[0](x_of(3)), "moe_gate", "token_ids"),
        (lambda: made()[0](x_of(3), token_ids=ids_of(3)), "moe_gate", "table"),
    ],
)
def test_sizes_options_and_inputs_are_refused_by_name(make, op, word):
    with pytest.raises((tessera.ArgumentError, tessera.UnsupportedError)) as caught:
        make()
    assert (caught.value.op, caught.value.argument) == (op, word)


def test_a_compiled_layer_gives_the_same_bits():
    layer, _, _ = made()
    x = x_of(TOKENS)
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))
