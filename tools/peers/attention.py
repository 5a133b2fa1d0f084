#!/usr/bin/env python3
"""Times attention peers beside Tessera on one GPU and writes a record that `tessera bench --peer` reads.

    python3 tools/peers/attention.py attention_fwd --tessera build/tools/tessera --out peers.jsonl
    tessera bench attention_fwd --peer peers.jsonl

Peers are what this Python can import: torch's scaled_dot_product_attention by cuDNN and by its own flash kernels, and
FlashAttention-3 (module flash_attn_interface). A peer that is not there, or that refuses a case, is named on stderr and left out.
beside.py says how times are taken.
"""

import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
except ImportError as error:
    print(f"SKIPPED: no torch: {error}")
    sys.exit()
try:
    import flash_attn_interface as fa3
except ImportError as error:
    print(f"no FlashAttention-3: {error}", file=sys.stderr)
    fa3 = None
from beside import main  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}


def normal(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=torch.float32 if dtype.itemsize == 1 else dtype).to(dtype)


def by_backend(backend, call):
    def run():
        with sdpa_kernel(backend):
            return call()

    return run


def forward_peers(case, needs_grad=False):
    """Name and call of each peer. With needs_grad, the call computes gradients of a forward pass that has run."""
    dtype, h, g, causal = DTYPES[case["q"]], case["h"], case["g"], case.get("causal", False)
    q = normal(case["B"], case["Sq"], h, case["dk"], dtype=dtype).requires_grad_(needs_grad)
    k = normal(case["B"], case["Sk"], g, case["dk"], dtype=dtype).requires_grad_(needs_grad)
    v = normal(case["B"], case["Sk"], g, case["dv"], dtype=dtype).requires_grad_(needs_grad)
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]

    def of_torch():
        return sdpa(*heads_first, is_causal=causal, enable_gqa=h != g)

    calls = [("cuDNN", by_backend(SDPBackend.CUDNN_ATTENTION, of_torch)),
             ("torch flash", by_backend(SDPBackend.FLASH_ATTENTION, of_torch))]
    if fa3:
        calls.append(("FlashAttention-3", lambda: fa3.flash_attn_func(q, k, v, causal=causal)))
    if not needs_grad:
        return calls

    def gradients(call):
        out = []

        def run():
            if not out:
                result = call()
                out.append(result[0] if isinstance(result, tuple) else result)
                out.append(torch.randn_like(out[0]))
            return torch.autograd.grad(out[0], (q, k, v), out[1], retain_graph=True)

        return run

    return [(name, gradients(call)) for name, call in calls]


def varlen_peers(case):
    """Requests of equal length: the lengths of our cases are drawn, and their sum is what counts."""
    if not fa3:
        return []
    dtype, requests = DTYPES[case["q"]], case["B"]
    q = normal(case["Tq"], case["h"], case["dk"], dtype=dtype)
    k = normal(case["Tk"], case["g"], case["dk"], dtype=dtype)
    v = normal(case["Tk"], case["g"], case["dv"], dtype=dtype)
    cu = [torch.arange(requests + 1, device="cuda", dtype=torch.int32) * (n // requests) for n in (case["Tq"], case["Tk"])]
    longest = [n // requests for n in (case["Tq"], case["Tk"])]
    return [("FlashAttention-3, requests of one length", lambda: fa3.flash_attn_varlen_func(
        q, k, v, *cu, *longest, causal=case.get("causal", False)))]


def decode_peers(case):
    if not fa3 or case["k_cache"] == "e4m3":
        return []
    dtype, b, pages, table = DTYPES[case["q"]], case["B"], case["P"], case["Q"]
    q = normal(b, case["n"], case["h"], case["dk"], dtype=dtype)
    k, v = (normal(pages, case["ps"], case["g"], case[of], dtype=dtype) for of in ("dk", "dv"))
    of_requests = torch.randperm(pages, device="cuda", dtype=torch.int32)[: b * table].reshape(b, table)
    lengths = torch.full((b,), table * case["ps"], device="cuda", dtype=torch.int32)
    window = (case["window_left"], 0) if case.get("window_left", -1) >= 0 else (-1, -1)
    return [("FlashAttention-3", lambda: fa3.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=lengths, page_table=of_requests, causal=True, window_size=window))]


PEERS = {
    "attention_fwd": forward_peers,
    "attention_varlen_fwd": varlen_peers,
    "attention_bwd": lambda case: forward_peers(case, needs_grad=True),
    "attention_decode": decode_peers,
}


def versions():
    return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}{', FlashAttention-3' if fa3 else ''}"


if __name__ == "__main__":
    main("tools/peers/attention.py", __doc__, PEERS, versions)
