#!/usr/bin/env python3
"""Times torch's own beside Tessera's memory-bound ops on one GPU and writes a record that `tessera bench --peer` reads.

    python3 tools/peers/memory_bound.py norm_fwd --tessera build/tools/tessera --out peers.jsonl
    tessera bench norm_fwd --peer peers.jsonl

Each op has a function of torch that computes the same from tensors like those of the case. It is timed as it stands ("torch"), and
after torch.compile ("torch.compile") where a case has 1024 rows or more. Where torch's function does less, its comment says what is
left out. A case that a peer refuses is named on stderr and left out. beside.py says how times are taken.
"""

import functools
import sys

try:
    import torch
    import torch._functorch.config
    import torch.nn.functional as F
except ImportError as error:
    print(f"SKIPPED: no torch: {error}")
    sys.exit()
from beside import main  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
COMPILED_ROWS = 1024
E4M3_MAX = 448.0
torch._functorch.config.donated_buffer = False  # graphs are kept, and run again and again


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def peers_of(function, rows, *tensors):
    """torch's function as it is and compiled, on those tensors."""
    calls = [("torch", functools.partial(function, *tensors))]
    if rows >= COMPILED_ROWS:
        torch._dynamo.reset()
        calls.append(("torch.compile", functools.partial(torch.compile(function, dynamic=False), *tensors)))
    return calls


def gradients_of(function, rows, inputs, grads):
    """The same of the gradients of `inputs`: the forward pass has run, and its graph is kept."""
    for tensor in inputs:
        tensor.requires_grad_()
    calls = []
    for name, call in peers_of(function, rows, *inputs):
        made = []

        def run(call=call, made=made):
            if not made:
                out = call()
                made.append(out if isinstance(out, tuple) else (out,))
            return torch.autograd.grad(made[0], inputs, grads, retain_graph=True)

        calls.append((name, run))
    return calls


# ---- norms


def norm(x, weight, residual=None, eps=1e-6):
    if residual is None:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    added = x + residual
    return F.rms_norm(added, x.shape[-1:], weight, eps), added


def of_norm(case):
    dtype, tokens, hidden = DTYPES[case["x"]], case["T"], case["H"]
    tensors = [normal(tokens, hidden, dtype=dtype), normal(hidden, dtype=dtype)]
    return tensors + ([normal(tokens, hidden, dtype=dtype)] if "residual" in case else [])


def norm_fwd(case):
    return peers_of(norm, case["T"], *of_norm(case))


def to_e4m3(x, group, round_sf):
    """Codes, and a scale per group of columns: as bytes of exponents with round_sf."""
    wide = x.float().view(x.shape[0], -1, group)
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-4) / E4M3_MAX
    if round_sf:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    codes = (wide / scale).to(torch.float8_e4m3fn).view(x.shape)
    scale = scale.squeeze(-1)
    return codes, (scale.view(torch.int32) >> 23).to(torch.uint8) if round_sf else scale


def norm_fwd_and_per_token_cast(case):
    group, round_sf, saves = case.get("num_per_channels", 32), case.get("round_sf", False), case.get("save_bf16", False)

    def run(x, weight, residual=None):
        made = norm(x, weight, residual)
        out, added = made if residual is not None else (made, None)
        return (*to_e4m3(out, group, round_sf), added, out if saves else None)

    return peers_of(run, case["T"], *of_norm(case))


def norm_bwd(case):
    dtype, tokens, hidden = DTYPES[case["grad_out"]], case["T"], case["H"]
    x, weight = normal(tokens, hidden, dtype=dtype), normal(hidden, dtype=dtype)
    grads = [normal(tokens, hidden, dtype=dtype)]
    if "grad_residual_out" not in case:
        return gradients_of(norm, tokens, [x, weight], grads)
    # The rows that were added have the gradient of x, which is not stored twice.
    grads.append(normal(tokens, hidden, dtype=dtype))
    return gradients_of(lambda x, weight: (norm(x, weight), x.clone()), tokens, [x, weight], grads)


# ---- activations


def swiglu(x, weights=None, clamp=None):
    gate, up = x.chunk(2, dim=-1)
    if clamp is not None:
        gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
    out = F.silu(gate) * up
    return out if weights is None else (out * weights.unsqueeze(-1)).to(x.dtype)


def of_swiglu(case):
    """All rows are computed, those of no expert too."""
    tensors = [normal(case["P"], 2 * case["H"], dtype=DTYPES[case["x"]])]
    if "topk_weights" in case:
        tensors.append(torch.rand(case["P"], device="cuda"))
    return functools.partial(swiglu, clamp=case.get("swiglu_clamp_value")), tensors


def swiglu_fwd(case):
    function, tensors = of_swiglu(case)
    return peers_of(function, case["P"], *tensors)


def swiglu_bwd(case):
    function, tensors = of_swiglu(case)
    return gradients_of(function, case["P"], tensors, [normal(case["P"], case["H"], dtype=DTYPES[case["grad_out"]])])


# ---- rotation


def apply_rotary(case):
    """In place, as ours; the rows of the table are gathered by positions."""
    tokens, heads, channels = case["T"], case["h"], case["R"]
    apart = int(str(case["query.strides"]).split(",")[1]) if "query.strides" in case else channels
    query = normal(tokens, heads, apart)[..., :channels]
    table, positions = normal(case["angles"], channels, dtype=torch.float32), torch.arange(tokens, device="cuda") % case["angles"]
    interleaved = case.get("interleaved", False)

    def run(query, table, positions):
        cos, sin = table[positions].unsqueeze(1).chunk(2, dim=-1)
        if interleaved:
            a, b = query.float().unflatten(-1, (-1, 2)).unbind(-1)
            turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
        else:
            a, b = query.float().chunk(2, dim=-1)
            turned = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
        query.copy_(turned)

    return peers_of(run, tokens, query, table, positions)


# ---- casts


def cast(case):
    if case.get("stochastic"):
        return []  # torch rounds to nearest alone
    out = DTYPES[case["out_dtype"]]
    return peers_of(lambda x: x.to(out), case["T"], normal(case["T"], dtype=DTYPES[case["x"]]))


def per_token_cast_and_cast_back(case):
    if case["format"] != "e4m3":
        return []  # torch has no arithmetic on e2m1

    def run(x):
        codes, scale = to_e4m3(x, case["num_per_channels"], False)
        wide = codes.float().view(*scale.shape, -1) * scale.unsqueeze(-1)
        x.copy_(wide.view(x.shape))

    return peers_of(run, case["T"], normal(case["T"], case["H"], dtype=DTYPES[case["x"]]))


def batched_transpose_weight_sf(case):
    block = case["block_size"]

    def packed(exponents):  # [.., R, C] to words of four neighbours, a column of words for each row of the weight
        a, b, c, d = F.pad(exponents, (0, -exponents.shape[-1] % 4)).unflatten(-1, (-1, 4)).unbind(-1)
        words = a | b << 8 | c << 16 | d << 24
        return words.transpose(-1, -2).repeat_interleave(block, dim=-1).contiguous()

    def run(sf):
        exponents = sf.view(torch.int32) >> 23
        return packed(exponents), packed(exponents.transpose(-1, -2))

    sf = torch.exp2(torch.randint(-6, 6, (case["T"], case["R"], case["C"]), device="cuda").float())
    return peers_of(run, case["T"] * case["R"], sf)


# ---- gates


def moe_topk_gate_fwd(case):
    topk, saves = case["num_topk"], case.get("save_scores", False)

    def run(logits, bias):
        scores = F.softplus(logits).sqrt()
        chosen = (scores + bias).topk(topk, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        return (chosen, weights, scores) if saves else (chosen, weights)

    return peers_of(run, case["T"], normal(case["T"], case["E"], dtype=torch.float32), normal(case["E"], dtype=torch.float32))


def moe_topk_gate_bwd(case):
    tokens, experts, topk = case["T"], case["E"], case["K"]
    chosen = torch.rand(tokens, experts, device="cuda").topk(topk).indices
    grads = [normal(tokens, topk, dtype=torch.float32)]
    sums = case["Q"] if "grad_scores_sum" in case else 0

    def run(logits):
        scores = F.softplus(logits).sqrt()
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        if not sums:
            return weights
        return weights, (scores / scores.sum(-1, keepdim=True)).view(sums, -1, experts).sum(1)

    if sums:
        grads.append(normal(sums, experts, dtype=torch.float32))
    return gradients_of(run, tokens, [normal(tokens, experts, dtype=torch.float32)], grads)


def gate_scores_sum(case):
    tokens, experts, sequences = case["T"], case["E"], case["num_seqs"]

    def run(scores, mask):
        shares = scores / scores.sum(-1, keepdim=True) * mask.unsqueeze(-1)
        return shares.view(sequences, -1, experts).sum(1)

    return peers_of(run, tokens, torch.rand(tokens, experts, device="cuda"), torch.ones(tokens, device="cuda", dtype=torch.bool))


# ---- Engram


def engram_embed(case):
    """The gather alone: rows are given, not hashed from token ids."""
    entries = (case["N"] - 1) * case["J"]
    table = torch.empty(case["V"], case["D"], device="cuda", dtype=DTYPES[case["table"]]).normal_()
    rows = torch.randint(0, case["V"], (case["T"], entries), device="cuda")
    return peers_of(lambda rows, table: F.embedding(rows, table).flatten(1), case["T"], rows, table)


def engram_sinkhorn_momentum(case):
    beta = float(case["beta1"])

    def run(grad, momentum):
        wide = grad.float()
        following = momentum.float() * beta + wide * (1 - beta)
        momentum.copy_(following)
        return following * beta + wide * (1 - beta)

    count = case["n"]
    return peers_of(run, count, normal(count, dtype=DTYPES[case["grad"]]), normal(count, dtype=DTYPES[case["momentum"]]))


def of_sinkhorn(case):
    rows, columns = case["R"], case["D"]
    shapes = (rows, columns), (rows, 1), (columns,)
    return [torch.rand(*shape, device="cuda") + 0.5 for shape in shapes]


def engram_sinkhorn_step(case):
    eps = float(case["eps"])

    def run(matrix, row_scale, col_scale):
        x = row_scale * matrix * col_scale
        norms = x.square().sum(-1, keepdim=True).sqrt()
        factor = 1 / (norms + eps)
        row_scale.mul_(factor)
        return norms, (x * factor).square().sum(0)

    return peers_of(run, case["R"], *of_sinkhorn(case))


def engram_sinkhorn_finalize(case):
    eps, alpha = float(case["eps"]), float(case["alpha"])

    def run(matrix, row_scale, col_scale):
        x = row_scale * matrix * col_scale
        return x * (alpha / (x.square().sum(-1, keepdim=True).sqrt() + eps))

    return peers_of(run, case["R"], *of_sinkhorn(case))


# ---- pages


def gather_pages(case):
    rows, count, size = case["R"], case["k"], case["page_size"]
    table = torch.randperm(rows * case["Q"], device="cuda").to(torch.int32).view(rows, -1)
    indices = torch.randint(0, case["Q"] * size, (rows, count), device="cuda", dtype=torch.int32)

    def run(indices, table):
        pages = table.gather(1, (indices // size).clamp(min=0).long())
        return torch.where((indices >= 0) & (pages >= 0), pages * size + indices % size, -1)

    return peers_of(run, rows * count, indices, table)


PEERS = {
    one.__name__: one
    for one in (
        norm_fwd,
        norm_fwd_and_per_token_cast,
        norm_bwd,
        swiglu_fwd,
        swiglu_bwd,
        apply_rotary,
        cast,
        per_token_cast_and_cast_back,
        batched_transpose_weight_sf,
        moe_topk_gate_fwd,
        moe_topk_gate_bwd,
        gate_scores_sum,
        engram_embed,
        engram_sinkhorn_momentum,
        engram_sinkhorn_step,
        engram_sinkhorn_finalize,
        gather_pages,
    )
}


def versions():
    return f"torch {torch.__version__} as it stands and by torch.compile"


if __name__ == "__main__":
    main("tools/peers/memory_bound.py", __doc__, PEERS, versions)
