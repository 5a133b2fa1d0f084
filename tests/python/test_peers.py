"""The scripts that time peers."""

import pathlib
import subprocess
import sys

PEERS = pathlib.Path(__file__).parents[2] / "tools" / "peers"


def run(*arguments):
    return subprocess.run([sys.executable, str(PEERS / "attention.py"), *arguments], capture_output=True, text=True, timeout=300)


def test_without_a_gpu_peers_are_skipped_with_a_reason():
    done = run("no_such_op")
    if "no torch" in done.stdout:
        assert done.returncode == 0 and done.stdout.startswith("SKIPPED: no torch: ")
        return
    assert done.returncode == 2
    expected = "expected attention_fwd, attention_varlen_fwd, attention_bwd, attention_decode, got no_such_op"
    assert f"argument 'op' has a wrong value: {expected}" in done.stderr
