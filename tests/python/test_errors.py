"""Refused calls: the class of the error, its text, which is that of C++, and its parts."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import safetensors_file
import tessera
from calls import OPS, Call, run_program


@pytest.mark.parametrize("name", ["input", "output"])
def test_a_masked_array_is_refused(name):
    x = np.ones((4, 8), np.float32)
    masked = np.ma.masked_array(np.zeros((4, 8) if name == "input" else (8, 4), np.float32), mask=True)
    call = {"x": masked} if name == "input" else {"x": x, "out": masked}
    with pytest.raises(tessera.ArgumentTypeError, match="is a masked array\n.*x.filled"):
        tessera.transpose(**call)
    assert (masked.data == 0).all()


def test_classes_of_tensors_do_not_stay_for_ever():
    classes = []
    for number in range(300):
        made = type(f"Array{number}", (np.ndarray,), {})
        tessera.transpose(np.ones((4, 8), np.float32).view(made))
        classes.append(weakref.ref(made))
        del made
    gc.collect()
    assert sum(made() is not None for made in classes) <= 64


def wrong_calls():
    """A call of every op with one thing wrong, by rule: (op, what is wrong, class, the call's change)."""
    for name, op in OPS.items():
        for tensor in op.arguments:
            if tensor.list or tensor.optional or tensor.accumulate:
                continue
            yield name, f"no {tensor.name}", tessera.ArgumentTypeError, {tensor.name: None}
            yield name, f"{tensor.name} of another dtype", tessera.ArgumentTypeError, {tensor.name: "dtype"}
            yield name, f"{tensor.name} of another rank", tessera.ArgumentError, {tensor.name: "rank"}
        for param in op.params:
            if param.required:
                yield name, f"no {param.name}", tessera.ArgumentTypeError, {param.name: None}
            if param.type == "enum":
                yield name, f"{param.name} of no such word", tessera.ArgumentError, {param.name: "no_such_word"}
            if param.type in ("int", "tuple"):
                yield name, f"{param.name} a float", tessera.ArgumentTypeError, {param.name: 2.5}
            if param.type == "int":
                yield name, f"{param.name} a bool", tessera.ArgumentTypeError, {param.name: True}
            if param.type == "bool":
                yield name, f"{param.name} an int", tessera.ArgumentTypeError, {param.name: 1}


def changed(call, name, change):
    """The call's tensors with one changed as `change` says."""
    tensors = dict(call.tensors)
    if change is None:
        del tensors[name]
    elif change == "dtype":
        before = tensors[name]
        strides = [stride // before.itemsize for stride in before.strides]
        tensors[name] = safetensors_file.placed(np.zeros(before.shape, np.uint64), strides)
    else:
        tensors[name] = np.zeros((2, 2, 2, 2, 2), tensors[name].dtype)
    return tensors


@pytest.mark.parametrize("name, what, error, change", [pytest.param(*row, id=f"{row[0]}: {row[1]}") for row in wrong_calls()])
def test_a_wrong_call_says_what_the_program_says(name, what, error, change, tmp_path, capfd):
    call, (argument, value) = Call(name), next(iter(change.items()))
    tensors, params = dict(call.tensors), dict(call.params)
    if argument in {p.name for p in OPS[name].params}:
        params.pop(argument, None)
        if value is not None:
            params[argument] = value
    else:
        tensors = changed(call, argument, value)
    with pytest.raises(tessera.Error) as raised:
        getattr(tessera, name)(**tensors, **params)
        if what.endswith("another rank"):
            call.tensors = tensors
            assert run_program(name, call.flat(), params, tmp_path) == 0
            pytest.skip("a tensor that may have several dimensions of tokens")
    assert type(raised.value) is error, str(raised.value)
    assert raised.value.op == name and raised.value.argument and raised.value.expected
    assert str(raised.value).startswith(f"tessera: {name}: ")
    codes = {"no": "NAME", "dtype": "DTYPE", "rank": "SHAPE", "word": "VALUE", "float": "TYPE", "bool": "TYPE", "int": "TYPE"}
    assert raised.value.code == codes["no" if what.startswith("no ") else what.split()[-1]]
    if isinstance(value, (bool, int, float)) and argument in params:
        return  # the program reads words: it has no values of a wrong type
    call.tensors = tensors
    assert run_program(name, call.flat(), params, tmp_path) != 0
    assert capfd.readouterr().err == f"{raised.value}\n"


def x(dtype=np.float32, shape=(4, 128)):
    return np.ones(shape, dtype)


def cast(tensor, **options):
    return tessera.per_token_cast(tensor, **{"format": "e4m3", "num_per_channels": 128, **options})


def message(error, call):
    with pytest.raises(error) as raised:
        call()
    assert type(raised.value) is error
    return str(raised.value)


def test_an_unknown_name_suggests_the_nearest():
    assert message(tessera.ArgumentTypeError, lambda: cast(x(), num_per_channel=128)) == (
        "tessera: per_token_cast: unknown argument 'num_per_channel'\n"
        "  expected  x, x_sf, format, num_per_channels, x_block_size, x_sf_layout, sf_layout, round_sf, out, stream\n"
        "  got       num_per_channel=128 (int)\n"
        "  hint      did you mean 'num_per_channels'?"
    )


def test_a_name_given_twice_is_a_type_error():
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        tessera.per_token_cast(x(), x=x(), format="e4m3", num_per_channels=128)


def test_classes_are_also_pythons_own():
    assert issubclass(tessera.ArgumentError, ValueError) and issubclass(tessera.ArgumentTypeError, TypeError)
    assert issubclass(tessera.UnsupportedError, NotImplementedError)
    for name in ("CaptureError", "CompileError", "DriverError", "InternalError", "LoadError", "TrapError"):
        assert issubclass(getattr(tessera, name), (tessera.Error,)) and issubclass(getattr(tessera, name), RuntimeError)
    with pytest.raises(TypeError) as raised:
        cast(x(np.int32))
    assert raised.value.code == "DTYPE" and raised.value.argument == "x" and raised.value.got == "i32[4, 128] on cpu"


def test_an_error_survives_pickling():
    import pickle

    with pytest.raises(tessera.Error) as raised:
        cast(x(), format="e4m4")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is tessera.ArgumentError and str(again) == str(raised.value)
    assert again.hint == raised.value.hint == "did you mean 'e4m3'?"


@pytest.mark.parametrize("value", [3, "x", None.__class__, [1.0, 2.0], object()])
def test_what_is_no_tensor_is_named(value):
    text = message(tessera.ArgumentTypeError, lambda: cast(value))
    assert text.startswith("tessera: per_token_cast: argument 'x' is no tensor\n  expected  a tensor of torch, numpy")


def test_numpy_arrays_that_no_view_describes():
    swapped = x().astype(x().dtype.newbyteorder())
    assert "argument 'x' has an element type that is not known" in message(tessera.ArgumentTypeError, lambda: cast(swapped))
    objects = np.array([[object()]])
    assert "got       object" in message(tessera.ArgumentTypeError, lambda: cast(objects))
    doubles = message(tessera.ArgumentTypeError, lambda: cast(x(np.float64)))
    assert "got       f64[" in doubles
    fp4 = np.ones((4, 128), ml_dtypes.float4_e2m1fn)  # a byte for each: not what e2m1 means here
    assert "got       float4_e2m1fn" in message(tessera.ArgumentTypeError, lambda: cast(fp4))
    assert "has a negative stride" in message(tessera.ArgumentError, lambda: cast(x()[::-1]))
    fields = np.zeros(4 * 128, [("a", np.float32), ("b", np.int8)])["a"].reshape(4, 128)
    assert "has a stride between elements" in message(tessera.ArgumentError, lambda: cast(fields))
    assert "has the wrong rank" in message(tessera.ArgumentError, lambda: cast(np.ones((), np.float32)))
    deep = np.ones((1,) * 9, np.float32)
    assert "has a rank that is not supported" in message(tessera.ArgumentError, lambda: cast(deep))


def test_read_only_arrays_are_inputs_only():
    constant = x()
    constant.flags.writeable = False
    codes = cast(constant).out
    codes.flags.writeable = False
    assert "argument 'out' is written, but its memory is constant" in message(tessera.ArgumentError, lambda: cast(x(), out={"out": codes}))
    groups = np.zeros((2, 2), np.int64)
    groups.flags.writeable = False
    text = message(tessera.ArgumentError, lambda: tessera.inplace_unique_group_indices(groups, num_groups=4))
    assert "argument 'group_indices' is written, but its memory is constant" in text


def test_given_outputs_are_checked_as_in_cpp(tmp_path, capfd):
    out = np.empty((4, 64), ml_dtypes.float8_e4m3fn)
    assert "argument 'out' has the wrong shape" in message(tessera.ArgumentError, lambda: cast(x(), out={"out": out}))
    out = np.empty((4, 128), np.float32)
    assert "argument 'out' has the wrong dtype" in message(tessera.ArgumentTypeError, lambda: cast(x(), out={"out": out}))
    with pytest.raises(tessera.ArgumentError) as raised:
        cast(x(), out={"out": np.empty((4, 64), ml_dtypes.float8_e4m3fn)})
    assert raised.value.code == "SHAPE" and raised.value.hint == "dsl/ERRORS.md, SHAPE"
    scales = np.empty((4, 2), np.float32)[:, :1]
    assert "argument 'out_sf' has the wrong strides" in message(
        tessera.ArgumentError, lambda: cast(x(), out={"out_sf": scales})
    )
    memory = np.ones((4, 128), np.uint8).view(ml_dtypes.float8_e4m3fn)
    shared = memory.reshape(-1).view(np.float32)[:4].reshape(4, 1)
    assert "shares memory with" in message(
        tessera.ArgumentError, lambda: cast(x(), out={"out": memory, "out_sf": shared})
    )


def test_out_says_what_it_takes():
    assert "'out' names 'outs', which is no output" in message(
        tessera.ArgumentTypeError, lambda: cast(x(), out={"outs": x()})
    )
    assert "argument 'out' has the wrong type" in message(tessera.ArgumentTypeError, lambda: cast(x(), out=x()))
    assert "which is an argument" in message(
        tessera.ArgumentTypeError,
        lambda: Call("pre_apply_mix_bwd")(out={"grad_x": x()}),
    )
    assert "'out' names 'dot', which this call does not write" in message(
        tessera.ArgumentTypeError, lambda: Call("engram_gate_fwd")(save_for_backward=False, out={"dot": x()})
    )


def test_numbers_of_numpy_are_integers():
    assert cast(x(), num_per_channels=np.int64(128)).out.shape == (4, 128)
    assert message(tessera.ArgumentTypeError, lambda: cast(x(), num_per_channels=np.float64(128)))
    assert message(tessera.ArgumentTypeError, lambda: cast(x(), num_per_channels=object()))
    assert message(tessera.ArgumentTypeError, lambda: cast(x(), num_per_channels=2**70))


def test_values_that_callers_promise_are_checked():
    text = message(tessera.ArgumentError, lambda: tessera.group_count(np.array([[9]], np.int64), num_groups=4))
    assert "argument 'group_idx' has a value out of range" in text


def test_all_tensors_are_of_one_library():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    codes, scales = cast(x())
    text = message(
        tessera.ArgumentTypeError,
        lambda: tessera.per_token_cast_back(codes, torch.from_numpy(scales), num_per_channels=128),
    )
    assert "argument 'x_sf' is of another library\n  expected  numpy, as 'x' is\n  got       torch" in text


def test_a_stream_is_an_address_or_an_object_that_has_one():
    assert "argument 'stream' is no stream" in message(tessera.ArgumentTypeError, lambda: cast(x(), stream="s"))

    class Stream:
        def __cuda_stream__(self):
            return 0, 0

    cast(x(), stream=Stream())  # of CPU tensors: ignored
    cast(x(), stream=0)
