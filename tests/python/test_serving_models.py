"""Ops of serving and training beside models in numpy, 10 000 rows each: sums in the order of norm_row.h, gates, casts by random bits."""

import numpy
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import tessera  # noqa: E402

ROWS = 10_000
F32, BF16, E4M3 = numpy.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def random(seed):
    return numpy.random.default_rng(seed)


def fma(a, b, c):
    """f32 from f64: the product is exact, and a sum of two f64 rounds to f32 twice in less than one case of 2^29."""
    return (a.astype(float) * b.astype(float) + c.astype(float)).astype(F32)


def sum_of_products(a, b):
    """Sums of the rows [T, n] of 512 lanes of four columns each, as norm_row.h has them."""
    rows, columns = a.shape
    lanes = numpy.zeros((rows, 512), F32)
    for first in range(0, columns, 2048):
        for i in range(4):
            x, y = (m[:, first + i : first + 2048 : 4] for m in (a, b))
            lanes[:, : x.shape[1]] = fma(x, y, lanes[:, : x.shape[1]])
    groups = lanes.reshape(rows, 16, 32)
    for distance in (1, 2, 4, 8, 16):
        groups = groups + groups[:, :, numpy.arange(32) ^ distance]
    total = groups[:, 0, 0]
    for group in range(1, 16):
        total = total + groups[:, group, 0]
    return total


def softplus_root(x):
    x = x.astype(float)
    return numpy.sqrt(numpy.logaddexp(0, x)).astype(F32)


def relative(got, want):
    return numpy.abs(got.astype(float) - want.astype(float)).max() / max(numpy.abs(want.astype(float)).max(), 1e-30)


@pytest.mark.parametrize("columns", [144, 2064])
def test_norm_fwd_has_the_bits_of_the_model(columns):
    rng, rows = random(1), ROWS if columns < 1000 else 500  # long rows are slow on the executor
    x, residual = (rng.standard_normal((rows, columns)).astype(BF16) for _ in range(2))
    weight = rng.standard_normal(columns).astype(BF16)
    made = tessera.norm_fwd(x, weight=weight, residual=residual, norm_eps=1e-5, out_scale=0.75, save_rstd=True)
    n = (x.astype(F32) + residual.astype(F32)).astype(BF16)
    wide = n.astype(F32)
    r = F32(1) / numpy.sqrt(sum_of_products(wide, wide) / F32(columns) + F32(1e-5))
    out = ((wide * r[:, None]) * (weight.astype(F32) * F32(0.75))).astype(BF16)
    assert (made.residual_out.view(numpy.uint16) == n.view(numpy.uint16)).all()
    assert (made.rstd.view(numpy.uint32) != r.view(numpy.uint32)).mean() < 1e-3  # where f64 rounds twice
    assert (made.out.view(numpy.uint16) != out.view(numpy.uint16)).mean() < 1e-3 and relative(made.out, out) < 1e-2


def test_norm_bwd_has_the_gradients_of_the_model():
    rng, columns = random(2), 64
    x, grad = (rng.standard_normal((ROWS, columns)).astype(F32) for _ in range(2))
    weight = rng.standard_normal(columns).astype(F32)
    rstd = tessera.norm_fwd(x, weight=weight, norm_eps=1e-6, save_rstd=True).rstd
    made = tessera.norm_bwd(grad, x, rstd, weight=weight, out_scale=1.3)
    wide, g, w, r = x.astype(float), grad * 1.3, weight.astype(float), rstd[:, None].astype(float)
    normed, q = wide * r, g * w
    mean = (normed * q).sum(1, keepdims=True) / columns
    assert relative(made.grad_x, (q - normed * mean) * r) < 2e-6
    assert relative(made.grad_weight, (normed * g).sum(0)) < 2e-6


def test_the_gate_has_the_choices_and_weights_of_the_model():
    rng, experts, topk = random(3), 32, 4
    logits = (rng.integers(-40, 40, (ROWS, experts)) / 8).astype(F32)  # many ties
    bias = (rng.integers(-2, 3, experts) / 4).astype(F32)
    made = tessera.moe_topk_gate_fwd(logits, bias=bias, num_topk=topk, routed_scaling_factor=1.5, save_scores=True)
    u = made.scores
    assert (numpy.abs(u - softplus_root(logits)) <= 3e-7 * numpy.maximum(u, 1e-6)).all()
    chosen = numpy.argsort(-(u + bias), axis=1, kind="stable")[:, :topk]
    assert (made.topk_idx == chosen).all(), "the largest, ties to the smaller index"
    lanes = numpy.zeros((ROWS, 32), F32)
    lanes[:, :topk] = numpy.take_along_axis(u, chosen, 1)
    total = lanes
    for distance in (16, 8, 4, 2, 1):
        total = total + total[:, numpy.arange(32) ^ distance]
    weights = lanes[:, :topk] / (total[:, :1] + F32(1e-20)) * F32(1.5)
    assert (made.topk_weights.view(numpy.uint32) == weights.view(numpy.uint32)).all()


def test_the_gate_has_the_gradients_of_the_model():
    rng, experts, topk, seqs, factor = random(4), 32, 4, 4, 1.5
    logits = (rng.standard_normal((ROWS, experts)) * 2).astype(F32)
    forward = tessera.moe_topk_gate_fwd(logits, num_topk=topk, routed_scaling_factor=factor, save_scores=True)
    g, h = rng.standard_normal((ROWS, topk)).astype(F32), rng.standard_normal((seqs, experts)).astype(F32)
    mask = rng.random(ROWS) < 0.8
    ids = numpy.where(mask[:, None], forward.topk_idx, -1)
    made = tessera.moe_topk_gate_bwd(
        forward.scores, ids, forward.topk_weights, g, mask=mask, grad_scores_sum=h, routed_scaling_factor=factor
    )
    u = numpy.sqrt(numpy.logaddexp(0, logits.astype(float)))
    picked = numpy.take_along_axis(u, forward.topk_idx, 1)
    total = picked.sum(1, keepdims=True)
    r = (factor * g - (g * factor * picked / total).sum(1, keepdims=True)) / total
    grads = numpy.zeros_like(u)
    numpy.put_along_axis(grads, forward.topk_idx, r, 1)
    all_of = u.sum(1, keepdims=True)
    of_row = h.astype(float).repeat(ROWS // seqs, 0)
    grads += (of_row - (of_row * u).sum(1, keepdims=True) / all_of) / all_of
    want = -numpy.expm1(-u * u) / (2 * u) * grads * mask[:, None]
    assert relative(made, want) < 2e-6
    sums = tessera.gate_scores_sum(forward.scores, mask, num_seqs=seqs)
    assert relative(sums, (u / all_of * mask[:, None]).reshape(seqs, -1, experts).sum(1)) < 2e-6


def test_hash_gate_has_the_weights_of_the_model():
    rng, ids, experts, topk = random(5), 1000, 32, 4
    table = numpy.stack([rng.permutation(experts)[:topk] for _ in range(ids)]).astype(numpy.int32)
    tokens, logits = rng.integers(0, ids, ROWS), rng.standard_normal((ROWS, experts)).astype(F32)
    made = tessera.hash_gate(tokens, table, logits, routed_scaling_factor=1.5, scale="routed")
    u = softplus_root(numpy.take_along_axis(logits, table[tokens], 1)).astype(float)
    assert (made.topk_idx == table[tokens]).all()
    assert relative(made.topk_weights, u / u.sum(1, keepdims=True) * 1.5) < 1e-6


def random_words(x, seed):
    """The hash of four neighbours: the words of bits that elements 0, 1 and 2, 3 share."""
    words = x.view(numpy.uint32).reshape(-1, 4).astype(numpy.uint64)
    wrap = numpy.uint64(0xFFFFFFFF)
    h = numpy.arange(len(words), dtype=numpy.uint64) + numpy.uint64(seed)
    for i, factor in enumerate((0x5671D42B, 0x9995E499, 0xACE1B8A5, 0xE153538D)):
        h = (h + words[:, i] * numpy.uint64(factor)) & wrap
    h ^= h >> numpy.uint64(23)
    h = h * numpy.uint64(0x7FEB352D) & wrap
    h ^= h >> numpy.uint64(16)
    streams = []
    for factor in (0x846CA68B, 0xD35A2D97):
        s = h * numpy.uint64(factor) & wrap
        streams.append(s ^ (s >> numpy.uint64(11)))
    return streams


def numbers_of_any_size(seed):
    rng = random(seed)
    x = (rng.standard_normal(4 * ROWS) * 2.0 ** rng.integers(-60, 20, 4 * ROWS)).astype(F32)
    x[:12] = [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 448, -448, 464, 2**-6, 2**-9, -(2**-41), 1e-44]
    return x


def test_casts_to_e4m3_by_random_bits_have_the_codes_of_the_model():
    x = numbers_of_any_size(6)
    made = tessera.cast(x, out_dtype="e4m3", stochastic=True, seed=7).view(numpy.uint8)
    low, _ = random_words(x, 7)
    for i, value in enumerate(x):
        shift = 8 * (i % 4)
        word = int(low[i // 4])
        bits = (word << shift | word >> (32 - shift)) & 0xFFFFFFFF if shift else word
        magnitude = numpy.minimum(numpy.abs(value), F32(448))
        u = int(numpy.array([magnitude]).view(numpy.uint32)[0])
        exponent, significand = max(u >> 23, 1), u & 0x7FFFFF | (0x800000 if u >> 23 else 0)
        dropped = 20 + max(0, 121 - exponent)
        code = 0 if dropped > 55 else (significand + ((bits << dropped) >> 32)) >> dropped
        want = 0x7F if numpy.isnan(value) else code + 8 * (max(exponent, 121) - 121) | (0x80 if numpy.signbit(value) else 0)
        assert made[i] == want, (i, value)


def test_casts_to_bf16_by_random_bits_have_the_bits_of_the_model():
    x = numbers_of_any_size(8)
    made = tessera.cast(x, out_dtype="bf16", stochastic=True, seed=9).view(numpy.uint16)
    low, high = random_words(x, 9)
    halves = numpy.stack([low & 0xFFFF, low >> 16, high & 0xFFFF, high >> 16], 1).reshape(-1)
    u = x.view(numpy.uint32).astype(numpy.uint64)
    magnitude = u & 0x7FFFFFFF
    kept = numpy.minimum((magnitude + halves) & 0xFFFF0000, 0x7F7F0000)
    want = numpy.where(magnitude >= 0x7F800000, u, kept | (u & 0x80000000)) >> 16
    is_nan = numpy.isnan(x)
    assert (made[~is_nan] == want[~is_nan]).all() and (made[is_nan] == 0x7FFF).all()


@pytest.mark.parametrize("round_sf", [False, True])
def test_a_cast_and_back_has_the_bits_of_the_model(round_sf):
    rng = random(10)
    x = (rng.standard_normal((ROWS, 64)) * 10.0 ** rng.integers(-7, 4, (ROWS, 1))).astype(BF16)
    made = x.copy()
    tessera.per_token_cast_and_cast_back(made, format="e4m3", num_per_channels=64, round_sf=round_sf)
    wide = x.astype(F32)
    largest = numpy.maximum(numpy.abs(wide).max(1, keepdims=True), F32(1e-4))
    scale, inverse = largest / F32(448), F32(448) / largest
    if round_sf:
        byte = ((scale.view(numpy.uint32) - 1) >> 23) + 1
        scale, inverse = (byte << 23).view(F32), ((254 - byte) << 23).view(F32)
    codes = numpy.clip(wide * inverse, -448, 448).astype(E4M3)
    want = (codes.astype(F32) * scale).astype(BF16)
    assert (made.view(numpy.uint16) == want.view(numpy.uint16)).all()
