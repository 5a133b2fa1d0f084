"""Times calls of peers beside the cases of `tessera bench OP`, and writes the record that `tessera bench --peer` reads.

A script gives the peers of each op: a function from the fields of a case to (name, call) pairs. Ours runs before and after the
peers of an op; the record has the mean. Times are of the kernels alone, from CUPTI through torch.profiler: a call's kernels are
added, without the gaps between them. The L2 cache is flushed before each call.
"""

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile

FLUSHED_BYTES = 256 << 20
MARK = "spin_kernel"  # of torch.cuda._sleep: the call's kernels follow it


def gpu_us(call, sample_ms=45.0, least=10, most=200):
    """Median time of a call's kernels in us."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")

    def run(times):
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(times):
                flushed.zero_()
                torch.cuda._sleep(100)
                call()
            flushed.zero_()
            torch.cuda.synchronize()
        return kernel_times(profiled)

    call()
    first = sorted(run(5))[2]
    times = sorted(run(int(min(most, max(least, sample_ms * 1e3 / max(first, 1.0))))))
    return times[len(times) // 2]


def kernel_times(profiled):
    """us of each call: its kernels come after the mark, and the flush of the next call is the last of them."""
    events = [e for e in profiled.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.start_ns())
    calls = []
    for event in events:
        if MARK in event.name():
            calls.append([])
        elif calls:
            calls[-1].append(event.duration_ns() / 1e3)
    times = [sum(kernels[:-1]) for kernels in calls]
    if not times or min(times) <= 0:
        raise RuntimeError("the profiler saw no kernels")
    return times


def parsed(label):
    """The fields of a case: flags as bool, whole numbers as int, the rest as text."""
    case = {}
    for word in label.split():
        name, text = word.split("=", 1)
        case[name] = text == "true" if text in ("true", "false") else int(text) if text.lstrip("-").isdigit() else text
    return case


def ours(tessera, op):
    """Times of our cases by their labels."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ours.json")
        subprocess.run([tessera, "bench", op, "--json", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return {one["case"]: one["time_us"] for one in json.load(file)["cases"]}


def records_of(op, peers_of, tessera):
    before, peers = ours(tessera, op), {}
    for label in before:
        try:
            calls = peers_of(parsed(label))
        except Exception as error:  # memory that the GPU lacks, for one
            print(f"{op} {label}: no peers: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            continue
        for name, call in calls:
            try:
                peers[label, name] = gpu_us(call)
            except Exception as error:  # whatever a peer raises for a case that it does not take
                print(f"{op} {label}: not {name}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
        del calls
        torch.cuda.empty_cache()
    after = ours(tessera, op)
    return [
        {"op": op, "case": label, "time_us": round((before[label] + after[label]) / 2, 3), "peer": name, "peer_us": round(us, 3)}
        for (label, name), us in peers.items()
    ]


def main(script, about, peers, versions):
    """The program of a script: `peers` has the function of each op, `versions` says what is timed."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="*", default=list(peers), metavar="OP", help=f"of {', '.join(peers)} (default: all)")
    parser.add_argument("--tessera", default="build/tools/tessera", help="the program")
    parser.add_argument("--out", default="-", help="the record (default: standard output)")
    options = parser.parse_args()
    unknown = [op for op in options.op if op not in peers]
    if unknown:
        parser.error(f"argument 'op' has a wrong value: expected {', '.join(peers)}, got {unknown[0]}")
    if not torch.cuda.is_available():
        print("SKIPPED: torch sees no CUDA device")
        return
    run = {
        "card": torch.cuda.get_device_name(),
        "date": datetime.date.today().isoformat(),
        "command": f"{script} {' '.join(options.op)}",
        "peers": f"{versions()}; in one run on one card, ours before and after, the L2 cache flushed before each call",
    }
    with contextlib.ExitStack() as stack:
        file = sys.stdout if options.out == "-" else stack.enter_context(open(options.out, "w", encoding="utf-8"))
        print(json.dumps({"run": run}), file=file)
        for op in options.op:
            for line in records_of(op, peers[op], options.tessera):
                print(json.dumps(line), file=file, flush=True)
