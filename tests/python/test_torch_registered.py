"""torch.ops.tessera: every op and overload, fakes, torch.compile, export. No line per op."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch._dynamo.source import ConstantSource  # noqa: E402
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext  # noqa: E402

import tessera  # noqa: E402
import tessera.torch  # noqa: E402
from tessera import _core  # noqa: E402
from tessera._fake import WORDS  # noqa: E402
from tessera._overloads import OverloadRules  # noqa: E402
from torch_examples import bits, calls, copy_of  # noqa: E402

RULES = {op.name: OverloadRules(op) for op in tessera.ops()}
OVERLOADS = [(name, overload) for name, rules in RULES.items() for overload in rules.overloads()]
every_op = pytest.mark.parametrize("op", RULES)
every_overload = pytest.mark.parametrize(
    "op, overload", OVERLOADS, ids=[f"{op}.{o.name}" if o.name else op for op, o in OVERLOADS]
)


def registered(op, overload):
    return getattr(getattr(torch.ops.tessera, op), overload.name or "default")


def public_call(op, tensors, params, **more):
    return getattr(tessera, op)(**{k: copy_of(v) for k, v in tensors.items()}, **params, **more)


def size_of(call):
    """The number of elements of a call's tensors."""
    return sum(x.numel() for v in call[0].values() for x in (v if isinstance(v, list) else [v]))


def small_call(op):
    """The example with the fewest elements."""
    return min(calls(op), key=size_of)


def by_name(op, result):
    """The results of the public function."""
    fields = [t.name for t in RULES[op].op.results]
    if not fields:
        return {}
    return dict(zip(fields, result if isinstance(result, tuple) else (result,)))


def arguments_of(op, overload, tensors, params):
    """Positional and named arguments of an overload, or None where the example lacks what it needs."""
    rules = RULES[op]
    if any(name not in tensors for name in overload.needs):
        return None
    positional = tuple(copy_of(tensors[t.name]) for t in rules.required)
    omitted = set() if overload.written else set(rules.comes_with.values()) - set(overload.needs)
    named = {t.name: copy_of(tensors[t.name]) for t in rules.optional if t.name in tensors and t.name not in omitted}
    if (omitted & set(tensors) or any(overload.constants.values())) and not is_call(op, tensors, omitted, {**params, **overload.constants}):
        return None
    named |= {name: value for name, value in params.items() if name not in overload.constants}
    if overload.written:
        given = {name: value for name, value in tensors.items() if name not in {t.name for t in rules.accumulators}}
        results = by_name(op, public_call(op, given, params))
        if RULES[op].may_wait and has_unknown_size(op, given, params, results):
            return None  # given outputs have the size of the bound
        for name in overload.written:
            if results[name] is not None:
                named[name] = copy_of(tensors.get(name, results[name]))
                if name in {t.name for t in rules.accumulators} and name not in tensors:
                    named[name].zero_()
    return positional, named


def is_call(op, tensors, omitted, params):
    """False where a parameter of the example needs what is omitted, or contradicts what the overload asks for."""
    try:
        public_call(op, {name: value for name, value in tensors.items() if name not in omitted}, params)
    except tessera.ArgumentError:
        return False
    return True


def has_unknown_size(op, tensors, params, results):
    described = {name: (WORDS[t.dtype], tuple(t.shape)) for name, t in tensors.items()}
    return any(tuple(results[o.name].shape) != o.shape for o in _core.outputs(op, described, params) if not o.workspace)


def small_arguments(op, overload):
    """The arguments of the smallest example that has what the overload needs."""
    for tensors, params in sorted(calls(op), key=size_of):
        arguments = arguments_of(op, overload, tensors, {**params, **overload.constants})
        if arguments is not None:
            return arguments
    raise AssertionError("no example for this overload")


@every_overload
def test_opcheck(op, overload):
    arguments = small_arguments(op, overload)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    flat = flat_tensors([*arguments[0], *arguments[1].values()])
    if any(x.dtype == torch.float8_e4m3fn for x in flat):
        # torch cannot compare 8-bit floats: the next test looks at their bytes.
        checks.remove("test_schema")
    torch.library.opcheck(registered(op, overload), *arguments, test_utils=checks)


@every_overload
def test_only_marked_arguments_change_and_count_as_changed(op, overload):
    positional, named = small_arguments(op, overload)
    function = registered(op, overload)
    given = {**dict(zip((a.name for a in function._schema.arguments), positional)), **named}
    before = {name: bits(value) for name, value in given.items()}
    versions = {name: [t._version for t in flat_tensors([value])] for name, value in given.items()}
    result = function(*positional, **named)
    marked = {a.name for a in function._schema.arguments if a.alias_info is not None}
    for name, value in given.items():
        assert name in marked or bits(value) == before[name], name
        for tensor, version in zip(flat_tensors([value]), versions[name]):
            assert (tensor._version > version) == (name in marked), name
    addresses = {x.untyped_storage().data_ptr() for x in flat_tensors(list(given.values()))}
    results = flat_tensors(list(result) if isinstance(result, tuple) else [result])
    assert not addresses & {x.untyped_storage().data_ptr() for x in results if x.numel()}


def flat_tensors(values):
    flat = [x for v in values for x in (v if isinstance(v, list) else [v])]
    return [x for x in flat if isinstance(x, torch.Tensor)]


@every_overload
def test_overloads_give_the_bits_of_the_public_function(op, overload):
    is_tried = False
    for tensors, params in calls(op):
        params = {**params, **overload.constants}
        arguments = arguments_of(op, overload, tensors, params)
        if arguments is None:
            continue
        is_tried = True
        omitted = set() if overload.written else set(RULES[op].comes_with.values()) - set(overload.needs)
        given = {name: value for name, value in tensors.items() if name not in omitted}
        if not set(overload.written) & {t.name for t in RULES[op].accumulators}:
            given = {n: v for n, v in given.items() if n not in {t.name for t in RULES[op].accumulators}}
        expected = by_name(op, public_call(op, given, params))
        positional, named = arguments
        result = registered(op, overload)(*positional, **named)
        returned = result if isinstance(result, tuple) else (result,)
        for name, value in zip(overload.returned, returned):
            assert bits(value) == bits(expected[name]), name
        for name in overload.written:
            if name in named:
                assert bits(named[name]) == bits(expected[name]), name
    assert is_tried


@every_op
def test_fake_tensors_have_the_metadata_of_real_results(op):
    for tensors, params in calls(op):
        real = by_name(op, public_call(op, tensors, params))
        waits = RULES[op].may_wait
        with FakeTensorMode(shape_env=ShapeEnv() if waits else None) as mode:
            fakes = {
                name: [mode.from_tensor(x) for x in value] if isinstance(value, list) else mode.from_tensor(value)
                for name, value in tensors.items()
            }
            made = by_name(op, getattr(tessera, op)(**fakes, **params))
        for name, expected in real.items():
            pairs = zip(made[name], expected) if isinstance(expected, list) else [(made[name], expected)]
            for fake, value in pairs:
                if value is None:
                    assert fake is None
                    continue
                assert fake.dtype == value.dtype and fake.device == value.device
                if waits and fake.dim() == 1 and isinstance(fake.shape[0], torch.SymInt):
                    continue  # the data decides
                assert fake.shape == value.shape
                assert value.numel() == 0 or fake.stride() == value.stride()
                assert value.numel() == 0 or storage_of(fake) == storage_of(value)


def hint_of(extent):
    return extent.node.hint if isinstance(extent, torch.SymInt) else extent


def storage_of(tensor):
    """Bytes of a tensor's memory, with the padding behind it."""
    return tensor.untyped_storage().nbytes()


@every_op
def test_symbolic_extents_go_through(op):
    """No number of tokens becomes a constant, and the expressions of the results have the values of real ones."""
    for tensors, params in calls(op):
        real = by_name(op, public_call(op, tensors, params))
        env = ShapeEnv()
        with FakeTensorMode(shape_env=env) as mode:

            def fake_of(value, name, mode=mode):
                sizes = [DimDynamic.DUCK] * value.dim()
                context = StatelessSymbolicContext(dynamic_sizes=sizes)
                return mode.from_tensor(value, symbolic_context=context, source=ConstantSource(name))

            fakes = {
                name: [fake_of(x, f"{name}_{i}") for i, x in enumerate(value)]
                if isinstance(value, list)
                else fake_of(value, name)
                for name, value in tensors.items()
            }
            tokens = fakes[RULES[op].required[0].name].shape[0]
            others = [extent for fake in flat_tensors(list(fakes.values())) for extent in fake.shape[1:]]
            made = by_name(op, getattr(tessera, op)(**fakes, **params))
        is_symbol = not isinstance(tokens, int) and bool(tokens.node.expr.free_symbols)
        # Extents that are equal by chance are one symbol.
        assert is_symbol or hint_of(tokens) in (0, 1, *map(hint_of, others)), "the first extent became a constant"
        for name, expected in real.items():
            pairs = zip(made[name], expected) if isinstance(expected, list) else [(made[name], expected)]
            for fake, value in pairs:
                if value is None:
                    continue
                found = [*fake.shape, *fake.stride(), storage_of(fake)]
                for got, extent in zip(found, [*value.shape, *value.stride(), storage_of(value)]):
                    unknown = isinstance(got, torch.SymInt) and not got.node.has_hint()
                    assert unknown or value.numel() == 0 or hint_of(got) == extent, (name, got)
                    assert not unknown or RULES[op].may_wait


def test_results_never_require_gradients():
    x = torch.randn(3, 4, 64).bfloat16().requires_grad_()
    fn = torch.randn(24, 256, requires_grad=True)
    assert not torch.ops.tessera.norm_fn_fwd(x, fn).requires_grad
    assert not torch.ops.tessera.norm_fn_fwd.saving(x, fn)[1].requires_grad


# ---- torch.compile


def compiled(function):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(function, fullgraph=True, dynamic=True, backend=counter), counter


def num_graphs(counter):
    """Graphs that call an op: torch begins anew, with an empty graph, when a float becomes a constant."""
    return sum(any("tessera" in str(node.target) for node in graph.graph.nodes) for graph in counter.graphs)


@every_op
def test_compiled_calls_have_the_bits_of_eager_ones(op):
    tensors, params = small_call(op)
    run, _ = compiled(lambda given: getattr(tessera, op)(**given, **params))
    inputs = {name: copy_of(value) for name, value in tensors.items()}
    others = {name: copy_of(value) for name, value in tensors.items()}
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        result = run(inputs)
    expected = getattr(tessera, op)(**others, **params)
    for a, b in zip(by_name(op, result).values(), by_name(op, expected).values()):
        assert bits(a) == bits(b)
    for name in inputs:  # what is changed in place
        assert bits(inputs[name]) == bits(others[name])


def mixed_calls(residual, fn, scale, base, x, topk_idx, hash_ids, tables):
    """One call each of ops whose tokens may be any number."""
    pre = tessera.mhc_pre_fwd(residual, fn, scale, base)
    post = tessera.post_fwd(x, residual, pre.post_mix, pre.comb_mix)
    cast = tessera.per_token_cast(x, format="e4m3", num_per_channels=64, sf_layout="col_major_tma")
    packed = tessera.per_token_cast(
        x, format="e2m1", num_per_channels=32, sf_layout="packed_ue8m0", round_sf=True
    )
    e5m6 = tessera.per_token_cast_to_e5m6(x)
    back = tessera.cast_back_e5m6(e5m6.out, e5m6.out_sf)
    counts = tessera.group_count(topk_idx, num_groups=9)
    mapping = tessera.get_fused_mapping(topk_idx, num_experts=9, alignment=16, num_expanded_tokens=512)
    rows = tessera.expand_to_fused(x, mapping.token_topk_to_pos, mapping.pos_to_expert)
    columns = tessera.per_channel_cast_fused(x, pos_to_token=mapping.pos_to_token)
    grads = tessera.pre_apply_mix_bwd(x, residual, pre.pre_mix, grad_x=post)
    hashed = tessera.engram_hash(hash_ids, *tables)
    return [*pre, post, *cast, *packed, *e5m6, back, counts, *mapping, rows, *columns, *grads, hashed]


def test_one_graph_serves_every_number_of_tokens():
    run, counter = compiled(mixed_calls)
    random = torch.Generator().manual_seed(1)
    fn, scale, base = torch.randn(24, 256), torch.ones(3), torch.zeros(24)
    sizes = torch.arange(16, dtype=torch.int32).reshape(2, 2, 4) + 100
    tables = (torch.arange(6).reshape(2, 3), sizes, tessera.engram_make_offsets(sizes))
    for tokens in (5, 37):
        residual = torch.randn(tokens, 4, 64, generator=random).bfloat16()
        x = torch.randn(tokens, 64, generator=random).bfloat16()
        ids = torch.randint(0, 9, (tokens, 2), generator=random)
        words = torch.randint(0, 100, (tokens, 3), generator=random, dtype=torch.int32)
        arguments = (residual, fn, scale, base, x, ids, words, tables)
        assert bits(run(*arguments)) == bits(mixed_calls(*arguments))
    assert num_graphs(counter) == 1


def test_a_size_that_data_decides_stays_unknown_in_the_graph():
    def f(topk_idx):
        mapping = tessera.get_fused_mapping(topk_idx, num_experts=9, alignment=16)
        return mapping.pos_to_expert + 1, mapping.pos_to_token, mapping.num_tokens_per_expert

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run, counter = compiled(f)
        for tokens in (5, 37):
            ids = torch.randint(0, 9, (tokens, 2), generator=torch.Generator().manual_seed(tokens))
            assert bits(run(ids)) == bits(f(ids))
        assert num_graphs(counter) == 1


def test_given_outputs_and_accumulators_are_written_by_a_compiled_call():
    def f(x, out, out_sf, residual, mix, grad_x):
        result = tessera.per_token_cast(
            x, format="e4m3", num_per_channels=64, out={"out": out, "out_sf": out_sf}
        )
        grads = tessera.pre_apply_mix_bwd(x, residual, mix, grad_x=grad_x)
        return result.out_sf * 2, grads.grad_mix, grads.grad_x

    run, _ = compiled(f)
    x, residual, mix = torch.randn(5, 64).bfloat16(), torch.randn(5, 4, 64).bfloat16(), torch.randn(5, 4)
    results = []
    for call in (f, run):
        out, out_sf = torch.zeros(5, 64, dtype=torch.float8_e4m3fn), torch.zeros(5, 1)
        grad_x = torch.ones(5, 4, 64).bfloat16()
        returned = call(x, out, out_sf, residual, mix, grad_x)
        results.append(bits([*returned, out, out_sf, grad_x]))
    assert results[0] == results[1]


def test_partial_outputs_are_refused_by_a_traced_call():
    with FakeTensorMode() as mode:
        x, out = mode.from_tensor(torch.randn(5, 64)), torch.empty(5, 64, dtype=torch.float8_e4m3fn)
        with pytest.raises(tessera.UnsupportedError, match="per_token_cast: argument 'out' lacks 'out_sf'"):
            tessera.per_token_cast(x, format="e4m3", num_per_channels=64, out={"out": out})


def test_a_dtype_of_torch_stands_for_its_word_while_tracing():
    x = torch.randn(5, 64)
    step = torch.compile(lambda x: tessera.per_token_cast(x, format=torch.float8_e4m3fn, num_per_channels=64), fullgraph=True)
    made, eager = step(x), tessera.per_token_cast(x, format="e4m3", num_per_channels=64)
    assert made.out.dtype == torch.float8_e4m3fn
    assert torch.equal(made.out.view(torch.uint8), eager.out.view(torch.uint8)) and torch.equal(made.out_sf, eager.out_sf)


def test_argument_errors_come_while_tracing():
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(5, 64))
        with pytest.raises(tessera.ArgumentError) as caught:
            tessera.per_token_cast(x, format="e4m3", num_per_channels=48)
    with pytest.raises(tessera.ArgumentError) as eager:
        tessera.per_token_cast(torch.randn(5, 64), format="e4m3", num_per_channels=48)
    assert str(caught.value) == str(eager.value)


def test_export_keeps_the_values():
    class Model(torch.nn.Module):
        def forward(self, x):
            codes = tessera.per_token_cast(x, format="e4m3", num_per_channels=64)
            return tessera.per_token_cast_back(codes.out, codes.out_sf, num_per_channels=64, out_dtype="f32")

    x = torch.randn(5, 128)
    tokens = torch.export.Dim("tokens", min=2)
    program = torch.export.export(Model(), (x,), dynamic_shapes={"x": {0: tokens}})
    for rows in (5, 37):
        x = torch.randn(rows, 128)
        assert bits(program.module()(x)) == bits(Model()(x))


def test_transforms_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="tessera: sinkhorn_fwd: torch.func transforms"):
        torch.func.vmap(tessera.sinkhorn_fwd)(torch.randn(2, 3, 4, 4))


def test_a_subclass_is_computed_as_its_tensor():
    class Tagged(torch.Tensor):
        pass

    x = torch.randn(3, 4, 4)
    assert torch.equal(tessera.sinkhorn_fwd(x.as_subclass(Tagged)).as_subclass(torch.Tensor), tessera.sinkhorn_fwd(x))


def test_a_process_that_registered_the_ops_ends_quietly():
    ran = subprocess.run([sys.executable, "-c", "import tessera.torch"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stderr == ""
