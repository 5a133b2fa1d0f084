"""Host time of eager calls on a GPU, above what the driver alone takes to launch the same kernels.

    python tests/python/overhead.py [--calls 10000] [--batches 20] [--json FILE]

Batches of bare launches and of calls take turns; the stream is drained often enough that no launch waits for room in its
queue. Prints medians over the batches, in nanoseconds. Limits: with all outputs given 1200 above bare; with allocated
outputs 1200 + their number x torch.empty, and 3000 for one output. Exit code 1 if one is passed. Without a GPU (and with
--cpu) it times the parts that need none: no limits then.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch

import tessera
from tessera import _core

OPTIONS = {"format": "e4m3", "num_per_channels": 128}
DRAINED = 200  # launches between two drains: less than a stream's queue holds


def timed(call, calls, drain):
    """Nanoseconds per call of a batch; the drains are not counted."""
    spent = 0
    for _ in range(calls // DRAINED):
        drain()
        begin = time.perf_counter_ns()
        for _ in range(DRAINED):
            call()
        spent += time.perf_counter_ns() - begin
    return spent / (calls // DRAINED * DRAINED)


def loop_ns(calls):
    """The cost of the loop and an empty call: taken off the others."""
    return timed(lambda: None, calls, lambda: None)


def measure(name, device, calls, batches):
    x = torch.randn(1, 7168, device=device).bfloat16()
    function = getattr(tessera, name)
    result = function(x, **OPTIONS)
    outputs = result if isinstance(result, tuple) else (result,)
    op = next(op for op in tessera.ops() if op.name == name)
    out = {t.name: tensor for t, tensor in zip(op.results, outputs)}
    out = out if len(out) > 1 else outputs[0]
    drain = torch.cuda.synchronize if device == "cuda" else lambda: None
    empty = [(tuple(t.shape), t.dtype, t.device) for t in outputs]

    def call_given():
        function(x, format="e4m3", num_per_channels=128, out=out)

    def call_allocating():
        function(x, format="e4m3", num_per_channels=128)

    def allocate():
        for shape, dtype, place in empty:
            torch.empty(shape, dtype=dtype, device=place)

    ways = {"allocate": allocate}
    if device == "cuda":
        ways |= {"given": call_given, "allocating": call_allocating}
        plan = tessera.plan(call_given, x, *outputs)
    samples = {way: [] for way in ("bare", *ways)}
    for _ in range(batches):
        if device == "cuda":
            bare = []
            for _ in range(calls // DRAINED):
                drain()
                bare.append(plan.time_bare(DRAINED))
            samples["bare"].append(statistics.mean(bare))
        for way, call in ways.items():
            samples[way].append(timed(call, calls, drain))
    times = {way: statistics.median(values) for way, values in samples.items() if values}
    empty_loop = loop_ns(calls)
    for way in ways:
        times[way] -= empty_loop
    stages = {}
    for way, given in (("given", out), ("allocating", None)):
        named = OPTIONS if given is None else {**OPTIONS, "out": given}
        rounds = []
        for _ in range(50):
            drain()
            rounds.append(_core.time_stages(name, (x,), named, DRAINED if device == "cuda" else 3))
        before = 0.0
        for stage in rounds[0] if device == "cuda" else ("read", "borrowed", "known", "allocated"):
            until = statistics.median(r[stage] for r in rounds)
            stages[f"{way}: {stage}"] = until - before
            before = until
    return {"op": name, "outputs": len(outputs), **times, "parts": stages}


def report(row):
    """The lines of an op, and what of it passes a limit."""
    lines, passed = [f"{row['op']} (T = 1, H = 7168), ns"], []
    if "bare" in row:
        limits = {"given": 1200.0, "allocating": 1200.0 + row["allocate"]}
        if row["outputs"] == 1:
            limits["allocating"] = min(limits["allocating"], 3000.0)
        lines.append(f"  bare launches             {row['bare']:8.0f}")
        for way, limit in limits.items():
            above = row[way] - row["bare"]
            lines.append(f"  outputs {way:<12}      {row[way]:8.0f}  above bare {above:6.0f}  limit {limit:6.0f}")
            if above > limit:
                passed.append(f"{row['op']}, outputs {way}: {above:.0f} ns above bare, limit {limit:.0f}")
    lines.append(f"  torch.empty of {row['outputs']} outputs  {row['allocate']:8.0f}")
    lines += [f"    {part:<24}{ns:8.0f}" for part, ns in row["parts"].items()]
    return lines, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--json")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'no GPU'}")
    rows, passed = [], []
    for name in ("per_token_cast_with_sf_only", "per_token_cast"):
        rows.append(measure(name, device, options.calls, options.batches))
        lines, over = report(rows[-1])
        print("\n".join(lines))
        passed += over
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    print("\n".join(f"over the limit: {line}" for line in passed))
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
