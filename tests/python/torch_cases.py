"""Small calls of the differentiable functions, with the inputs that may require gradients."""

from dataclasses import dataclass, field

import torch

import tessera.functional as F

import torch_reference as reference

TOKENS, STREAMS, HIDDEN, MIXES = 3, 4, 64, 24


@dataclass
class Case:
    """`inputs` by argument name; `options` are the other arguments. `tolerance` is relative to the largest value."""

    name: str
    inputs: dict
    options: dict = field(default_factory=dict)
    tolerance: float = 1e-5

    def run(self, inputs):
        """The results of the function, mixes and all, as a tuple of tensors."""
        return tensors_of(getattr(F, self.name)(**inputs, **self.options))

    def expected(self, inputs):
        """The same by definition."""
        return tensors_of(getattr(reference, self.name)(**inputs, **self.options))


def tensors_of(result):
    """The tensors that may have gradients: ids have none."""
    if isinstance(result, torch.Tensor):
        return (result,)
    flat = []
    for item in result:
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            flat.append(item)
        elif isinstance(item, tuple):
            flat += [part for part in item if isinstance(part, torch.Tensor)]
    return tuple(flat)


def cases(device="cpu"):
    """One of each function, and the optional arguments."""
    random = torch.Generator().manual_seed(7)

    def normal(*shape, dtype=torch.float32, scale=1.0, mean=0.0):
        return (torch.randn(*shape, generator=random) * scale + mean).to(dtype).to(device)

    def half(*shape, **options):
        return normal(*shape, dtype=torch.bfloat16, **options)

    def residual():
        return half(TOKENS, STREAMS, HIDDEN)

    width = STREAMS * HIDDEN

    def pre():
        return {
            "residual": residual(),
            "fn": normal(MIXES, width, scale=0.1),
            "scale": normal(3, scale=0.2, mean=1.0),
            "base": normal(MIXES, scale=0.3),
        }

    def head(rows):
        return {
            "residual": residual(),
            "fn": normal(rows, width, scale=0.1),
            "scale": normal(1, scale=0.2, mean=1.0),
            "base": normal(STREAMS, scale=0.3),
        }

    def weight():
        return normal(width, scale=0.1, mean=1.0)

    engram = {
        "hidden_states": half(TOKENS, 4, 512),
        "k": half(TOKENS, 4, 512),
        "v": half(TOKENS, 512),
        "weight_hidden": half(4, 512, scale=0.3, mean=1.0),
        "weight_embed": half(4, 512, scale=0.3, mean=1.0),
    }
    heads = {"q": half(1, 5, 4, 64), "k": half(1, 9, 2, 64), "v": half(1, 9, 2, 64)}
    packed = {"q": half(7, 4, 64), "k": half(12, 2, 64), "v": half(12, 2, 64)}
    cu_q, cu_k = (torch.tensor(ends, dtype=torch.int32, device=device) for ends in ([0, 5, 7], [0, 9, 12]))
    torch_heads = {"query": half(1, 4, 6, 64), "key": half(1, 2, 6, 64), "value": half(1, 2, 6, 64)}
    post = {
        "x": half(TOKENS, HIDDEN),
        "residual": residual(),
        "post_mix": normal(TOKENS, STREAMS),
        "comb_mix": normal(TOKENS, STREAMS, STREAMS),
    }
    # 4 tokens of 2 slots, 9 rows: two slots have no row, the rows 1, 5 and 8 are padding
    positions = torch.tensor([[0, 3], [-1, 2], [7, 4], [6, -1]], dtype=torch.int32, device=device)
    experts = torch.tensor([0, -1, 0, 1, 1, -1, 2, 2, -1], dtype=torch.int32, device=device)
    ends = torch.tensor([3, 7], dtype=torch.int32, device=device)  # rows 0 .. 2 and 4 .. 6
    angles = normal(7, 64)
    places = torch.tensor([3, 0, 6, 2, 2], device=device)
    counted = torch.tensor([True, False, True, True, True, True], device=device)
    mixes = {"input_mixes": normal(TOKENS, MIXES), "scale": normal(3), "base": normal(MIXES)}
    return [
        Case("attention", heads, {"causal": True}, 2e-2),
        Case("attention_varlen", packed, {"cu_q": cu_q, "cu_k": cu_k, "causal": True}, 2e-2),
        Case("scaled_dot_product_attention", torch_heads, {"is_causal": True, "enable_gqa": True}, 2e-2),
        Case("engram_gate", engram, {"eps": 1e-6}, 1e-2),
        Case("engram_gate", engram, {"eps": 1e-6, "image_token_mask": ~counted[:TOKENS]}, 1e-2),
        Case("expand_to_mhc", {"x": half(TOKENS, HIDDEN)}, {}, 1e-2),
        Case("norm_fn", {"residual": residual(), "fn": normal(MIXES, width, scale=0.1)}, {}, 1e-2),
        Case(
            "norm_fn",
            {"residual": residual(), "fn": normal(MIXES, width, scale=0.1), "norm_weight": weight()},
            {"n_splits": 1},
            1e-2,
        ),
        Case("pre_split_mixes", mixes, {"post_mult_value": 2.0, "pre_eps": 1e-2}),
        Case("sinkhorn", {"x": normal(TOKENS, STREAMS, STREAMS)}),
        Case("pre_apply_mix", {"x": residual(), "mix": normal(TOKENS, STREAMS)}, {}, 1e-2),
        Case("post", post, {}, 1e-2),
        Case("head_compute_mix", {"input_mix": normal(TOKENS, STREAMS), "scale": normal(1), "base": normal(STREAMS)}),
        Case("mhc_pre", pre(), {"post_mult_value": 2.0}, 1e-2),
        Case("mhc_pre", {**pre(), "norm_weight": weight()}, {}, 1e-2),
        Case("mhc_head", head(STREAMS), {}, 1e-2),
        Case("expand_to_fused", {"x": half(4, 256)}, {"token_topk_to_pos": positions, "pos_to_expert": experts}, 1e-2),
        Case("reduce_fused", {"x": half(9, 256)}, {"token_topk_to_pos": positions}, 1e-2),
        Case(
            "reduce_fused",
            {"x": normal(9, 512), "topk_weights": normal(4, 2), "x_sf": normal(9)},
            {"token_topk_to_pos": positions},
        ),
        Case("mhc_head", {**head(MIXES), "norm_weight": weight()}, {}, 1e-2),
        Case("linear", {"x": half(2, 3, 64), "weight": half(24, 64, scale=0.1)}, {}, 2e-2),
        Case("linear", {"x": half(5, 64), "weight": half(24, 64), "bias": normal(24)}, {"out_dtype": "f32"}, 1e-2),
        Case("rms_norm", {"x": normal(5, 64), "weight": normal(64, mean=1.0)}, {"norm_eps": 1e-5, "out_scale": 0.5}),
        Case("rms_norm", {"x": half(5, 64), "weight": half(64, mean=1.0), "residual": half(5, 64)}, {}, 2e-2),
        Case("rms_norm", {"x": normal(2, 3, 64), "residual": normal(2, 3, 64)}),
        Case("swiglu", {"x": normal(5, 64)}),
        Case(
            "swiglu",
            {"x": normal(9, 64), "topk_weights": normal(9)},
            {"psum": ends, "alignment": 4, "routed_scaling_factor": 1.5, "swiglu_clamp_value": 1.0},
        ),
        Case("rotary", {"x": normal(5, 2, 64)}, {"cos_sin": angles, "positions": places}),
        Case(
            "rotary",
            {"x": normal(5, 2, 64)},
            {"cos_sin": angles, "positions": places, "interleaved": True, "conjugate": True, "cos_sin_layout": "pairs"},
        ),
        Case("topk_gate", {"logits": normal(6, 16)}, {"num_topk": 3, "routed_scaling_factor": 1.5}),
        Case(
            "topk_gate",
            {"logits": normal(6, 16)},
            {"num_topk": 3, "bias": normal(16), "mask": counted, "num_seqs": 2, "num_shared_experts": 1},
        ),
    ]


def name_of(case):
    words = [name for name in case.inputs if name in ("norm_weight", "topk_weights")]
    return "-".join([case.name, *words])


def close(got, expected, tolerance):
    """Asserts that the largest difference is small beside the largest value."""
    got, expected = got.double(), expected.double()
    assert got.shape == expected.shape
    difference = (got - expected).abs().max().item()
    assert difference <= tolerance * expected.abs().max().item() + 1e-12, difference
