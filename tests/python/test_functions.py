"""Every op has a function, whose signature, types and documentation follow from the table."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import tessera
from calls import OPS, WORDS, Call
from tessera import _core
from tessera._overloads import OverloadRules


def expected_parameters(op):
    """The rule: tensors that are always there; keyword only: optional ones, accumulators, parameters, stream and,
    unless a tensor is named so, out."""
    kinds = inspect.Parameter
    taken = [t for t in op.tensors if t.role != "out"]
    always = [t.name for t in taken if not t.optional and not t.accumulate]
    rows = [(name, kinds.POSITIONAL_OR_KEYWORD, kinds.empty) for name in always]
    rows += [(t.name, kinds.KEYWORD_ONLY, None) for t in taken if t.optional and not t.accumulate]
    rows += [(t.name, kinds.KEYWORD_ONLY, None) for t in taken if t.accumulate]
    rows += [(p.name, kinds.KEYWORD_ONLY, kinds.empty if p.required else p.default) for p in op.params]
    if all(t.name != "out" for t in taken):
        rows.append(("out", kinds.KEYWORD_ONLY, None))
    return rows + [("stream", kinds.KEYWORD_ONLY, None)]


@pytest.mark.parametrize("name", OPS)
def test_a_signature_follows_from_the_table(name):
    function = getattr(tessera, name)
    seen = [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
    assert seen == expected_parameters(OPS[name])
    assert function.__module__ == "tessera" and function.__qualname__ == name
    assert pickle.loads(pickle.dumps(function)) is function and copy.deepcopy(function) is function


@pytest.mark.parametrize("name", OPS)
def test_the_example_of_an_op_runs(name):
    lines = [line.strip()[4:] for line in getattr(tessera, name).__doc__.splitlines() if line.strip().startswith(">>> ")]
    assert any(f"tessera.{name}(" in line for line in lines)
    names = {}
    exec("\n".join(lines), names)
    if OPS[name].results:
        assert names["result"] is not None


@pytest.mark.parametrize("name", OPS)
def test_results_are_the_outputs_and_accumulators(name):
    op, result = OPS[name], Call(name)()
    fields = [t.name for t in op.results]
    if name == "get_fused_mapping":
        fields.append("num_tokens_per_expert_host")
    if not fields:
        assert result is None
        return
    if len(fields) > 1:
        assert type(result) is getattr(tessera, f"{name}_result") and list(result._fields) == fields
        assert pickle.loads(pickle.dumps(type(result))) is type(result)
    named = result._asdict() if len(fields) > 1 else {fields[0]: result}
    for tensor in op.results:
        value = named[tensor.name]
        if value is None:
            assert tensor.optional
        elif tensor.list:
            assert all(type(item) is np.ndarray for item in value)
        else:
            assert type(value) is np.ndarray


@pytest.mark.parametrize("name", OPS)
def test_torch_can_ask_for_every_result(name):
    # Without torch: an op that the rules cannot name makes `import tessera.torch` fail for all of them.
    op = next(op for op in tessera.ops() if op.name == name)
    overloads = OverloadRules(op).overloads()
    assert len({o.name for o in overloads}) == len(overloads)
    assert {t.name for t in op.results} == {r for o in overloads for r in (*o.returned, *o.written)}


def test_outputs_that_were_not_asked_for_are_none():
    call = Call("engram_gate_fwd")
    assert [value is None for value in call(save_for_backward=False)] == [False, True, True, True, True]
    assert not any(value is None for value in call(save_for_backward=True))


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if any(t.accumulate for t in op.tensors)])
def test_accumulators_are_added_to_in_place_and_returned(name):
    op, call = OPS[name], Call(name)
    names = [t.name for t in op.results if t.accumulate]
    for tensor in names:
        call.tensors.pop(tensor, None)
    fresh = call()
    fresh = {t.name: value for t, value in zip(op.results, fresh if len(op.results) > 1 else (fresh,))}
    given = {tensor: np.zeros_like(fresh[tensor]) for tensor in names if fresh[tensor] is not None}
    again = call(**given)
    again = {t.name: value for t, value in zip(op.results, again if len(op.results) > 1 else (again,))}
    for tensor, accumulator in given.items():
        assert again[tensor] is accumulator
        assert accumulator.tobytes() == fresh[tensor].tobytes(), "a new accumulator starts at +0"
    if all(accumulator.dtype == np.float32 for accumulator in given.values()):
        call(**given)
        for tensor, accumulator in given.items():
            np.testing.assert_allclose(accumulator, 2 * fresh[tensor], rtol=1e-5)


@pytest.mark.parametrize("name", OPS)
def test_outputs_are_known_without_tensors(name):
    call = Call(name)
    words = {np.dtype(dtype): word for word, dtype in WORDS.items()}

    def described(array):
        return words[array.dtype], array.shape, tuple(s // array.itemsize for s in array.strides)

    tensors = {n: [described(v) for v in a] if isinstance(a, list) else described(a) for n, a in call.tensors.items()}
    infos = {info.name: info for info in _core.outputs(name, tensors, call.params)}
    result = call()
    values = result if len(OPS[name].results) > 1 else (result,)
    for tensor, value in zip(OPS[name].results, values):
        items = {f"{tensor.name}.{i}": v for i, v in enumerate(value)} if tensor.list else {tensor.name: value}
        for key, item in items.items():
            if item is None:
                assert key not in infos
                continue
            assert infos[key].dtype == words[item.dtype] and not infos[key].workspace
            if name != "get_fused_mapping":  # whose length data decide
                assert infos[key].shape == item.shape
                assert infos[key].strides == tuple(s // item.itemsize for s in item.strides)


def test_the_table_is_there():
    op = OPS["per_token_cast"]
    assert op.family == "quant" and op.tensor("x").dtypes == ("bf16", "f32", "e4m3", "e2m1")
    assert op.param("num_per_channels").required and op.param("sf_layout").default == "row_major"
    assert len(OPS) == len(tessera.ops()) > 60
