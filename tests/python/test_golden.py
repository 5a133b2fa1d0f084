"""The recorded cases through the functions of Python: equal to `tessera run` in every byte, dtype, shape and stride."""

import json
import os
import pathlib

import pytest

import safetensors_file
import tessera
from calls import run_program

RECORDED = pathlib.Path(__file__).parent.parent / "golden" / "recorded"
OPS = {op.name: op for op in tessera.ops()}


def cases():
    folders = [RECORDED]
    if os.environ.get("TESSERA_LONG_TESTS") == "1" and "TESSERA_GOLDEN_DIR" in os.environ:
        folders.append(pathlib.Path(os.environ["TESSERA_GOLDEN_DIR"]))
    for folder in folders:
        for listing in sorted(folder.glob("*.json")):
            for case in json.loads(listing.read_text())["cases"]:
                yield pytest.param(listing, case, id=case["id"])


def inputs_of(listing, case):
    stored = safetensors_file.read(listing.with_suffix(".safetensors"))
    strides = case.get("strides") or {}
    given = {name: stored[key] for name, key in case["inputs"].items() if key is not None}
    return {name: safetensors_file.placed(values, strides.get(name)) for name, values in given.items()}


def arguments_of(op, inputs):
    """Inputs by the names of arguments: those of a list together."""
    arguments = {}
    for tensor in op.arguments:
        items = [name for name in inputs if name.rsplit(".", 1)[0] == tensor.name and name != tensor.name]
        if tensor.list and items:
            arguments[tensor.name] = [inputs[f"{tensor.name}.{i}"] for i in range(len(items))]
        elif tensor.name in inputs:
            arguments[tensor.name] = inputs[tensor.name]
    return arguments


def results_of(op, result, inputs):
    """Results by the names of a file: those of a list one by one, in-place tensors too."""
    values = result if len(op.results) > 1 else (result,)
    named = {t.name: value for t, value in zip(op.results, values) if value is not None}
    named |= {t.name: inputs[t.name] for t in op.tensors if t.role == "inout" and t.name in inputs}
    flat = {}
    for name, value in named.items():
        flat |= {f"{name}.{i}": item for i, item in enumerate(value)} if isinstance(value, list) else {name: value}
    return flat


@pytest.mark.parametrize("listing, case", list(cases()))
def test_a_recorded_case_equals_the_program(listing, case, tmp_path):
    op = OPS[case["op"]]
    inputs = inputs_of(listing, case)
    params = {name: value for name, value in case["params"].items() if value is not None}
    assert run_program(op.name, inputs, params, tmp_path) == 0
    expected = safetensors_file.read(tmp_path / "out.safetensors")

    arguments = arguments_of(op, inputs)
    params = {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
    results = results_of(op, getattr(tessera, op.name)(**arguments, **params), inputs)

    assert results.keys() == expected.keys()
    for name, result in results.items():
        assert result.dtype == expected[name].dtype, name
        assert result.shape == expected[name].shape, name
        assert result.tobytes() == expected[name].tobytes(), name
        if result.size:
            assert result.strides == expected[name].strides, name
