"""The scripts that time peers."""

import pathlib
import subprocess
import sys

import pytest

PEERS = pathlib.Path(__file__).parents[2] / "tools" / "peers"
FIRST_OPS = {
    "attention.py": "attention_fwd, attention_varlen_fwd, attention_bwd, attention_decode, got no_such_op",
    "memory_bound.py": "norm_fwd, norm_fwd_and_per_token_cast, norm_bwd, swiglu_fwd, swiglu_bwd, ",
}


@pytest.mark.parametrize("script", FIRST_OPS)
def test_without_a_gpu_peers_are_skipped_with_a_reason(script):
    command = [sys.executable, "-B", str(PEERS / script), "no_such_op"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "no torch" in done.stdout:
        assert done.returncode == 0 and done.stdout.startswith("SKIPPED: no torch: ")
        return
    assert done.returncode == 2
    assert f"argument 'op' has a wrong value: expected {FIRST_OPS[script]}" in done.stderr
