"""Training on the CPU: loss curves beside an f64 reference, and what is saved for the backward pass."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tessera.functional as F  # noqa: E402
from torch_training import (  # noqa: E402
    STREAMS,
    Layer,
    batch,
    compare_loss_curves,
    engram_bytes,
    mhc_bytes,
    saved_bytes,
)


def test_ten_steps_have_the_loss_curve_of_the_reference():
    compare_loss_curves(tokens=6, hidden=512, device="cpu")


def test_the_gate_saves_what_the_specification_says():
    layer, (inputs, _) = Layer(512), batch(6, 512, "cpu")
    residual = F.expand_to_mhc(inputs[0]).requires_grad_()
    saved, _ = saved_bytes(lambda: layer.gate(residual, *inputs[1:]), residual, *inputs, *layer.parameters())
    assert saved == engram_bytes(6, 512)


def test_a_sublayer_saves_what_the_specification_says():
    layer, (inputs, _) = Layer(512), batch(6, 512, "cpu")
    residual = F.expand_to_mhc(inputs[0]).requires_grad_()
    assert residual.shape[1] == STREAMS
    saved, _ = saved_bytes(lambda: layer.block(residual), residual, *layer.parameters())
    assert saved == mhc_bytes(6, 512)
