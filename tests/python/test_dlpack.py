"""Tensors of other libraries, here one that holds numpy arrays and speaks DLPack alone."""

import ctypes
import sys
import types

import numpy as np
import pytest

import tessera

other = types.ModuleType("other_library")


class Tensor:
    """Lends an array; `versioned` as exporters of today do, else as those before version 1."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned, self.streams = array, versioned, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if not self.versioned and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(options.get("stream"))
        return self.array.__dlpack__(**({"max_version": options["max_version"]} if self.versioned else {}))


Tensor.__module__ = "other_library.tensors"
other.from_dlpack = lambda lender: Tensor(np.from_dlpack(lender))
sys.modules["other_library"] = other


def ids():
    return np.array([[0, 1], [2, 1]], np.int64)


@pytest.mark.parametrize("versioned", [True, False])
def test_results_are_taken_over_by_the_library(versioned):
    given = Tensor(ids(), versioned)
    result = tessera.group_count(given, num_groups=4)
    assert type(result) is Tensor and result.array.tolist() == [1, 2, 1, 0] and given.streams == [None]


def test_several_outputs_with_strides():
    x = np.ones((5, 256), np.float32)
    expected = tessera.per_token_cast_with_sf_only(x, format="e4m3", num_per_channels=128, sf_layout="col_major_tma")
    scales = tessera.per_token_cast_with_sf_only(Tensor(x), format="e4m3", num_per_channels=128, sf_layout="col_major_tma")
    assert scales.array.strides == expected.strides and scales.array.tobytes() == expected.tobytes()


def test_given_outputs_and_in_place_tensors_are_written():
    out = Tensor(np.zeros(4, np.int32))
    assert tessera.group_count(Tensor(ids()), num_groups=4, out=out) is out and out.array.tolist() == [1, 2, 1, 0]
    groups = np.array([[3, 3]], np.int64)
    assert tessera.inplace_unique_group_indices(Tensor(groups), num_groups=4) is None
    assert groups.tolist() == [[3, -1]]


def test_what_is_lent_read_only_is_not_written():
    constant = ids()
    constant.flags.writeable = False
    assert tessera.group_count(Tensor(constant), num_groups=4).array.tolist() == [1, 2, 1, 0]
    with pytest.raises(tessera.ArgumentError, match="is written, but its memory is constant"):
        tessera.inplace_unique_group_indices(Tensor(constant), num_groups=4)


def test_what_has_no_view_names_op_and_argument():
    with pytest.raises(tessera.ArgumentTypeError, match="tessera: group_count: argument 'group_idx' has an element type"):
        tessera.group_count(Tensor(np.zeros((2, 2), np.complex64)), num_groups=4)


def test_all_tensors_are_of_one_library():
    with pytest.raises(tessera.ArgumentTypeError, match="'out' is of another library\n.*other_library, as 'group_idx' is\n.*numpy"):
        tessera.group_count(Tensor(ids()), num_groups=4, out=np.zeros(4, np.int32))


class FromTheFuture(Tensor):
    """Lends by a version of DLPack that does not exist yet, whose structs may look different."""

    def __dlpack__(self, **options):
        capsule = super().__dlpack__(**options)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_uint32.from_address(pointer(capsule, b"dltensor_versioned")).value = 2
        return capsule


FromTheFuture.__module__ = "other_library.tensors"


def test_an_unknown_version_of_dlpack_is_refused():
    given = ids()
    count = sys.getrefcount(given)
    with pytest.raises(tessera.ArgumentTypeError, match="'group_idx' comes by an unknown version of DLPack\n.*version 1\n.*2.0"):
        tessera.group_count(FromTheFuture(given), num_groups=4)
    assert sys.getrefcount(given) == count, "it was given back"


def test_jax():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    jax.config.update("jax_platforms", "cpu")
    x = jax.numpy.ones((4, 128), jax.numpy.float32)
    out, out_sf = tessera.per_token_cast(x, format="e4m3", num_per_channels=128)
    assert isinstance(out, jax.Array) and out.dtype == jax.numpy.float8_e4m3fn and out_sf.shape == (4, 1)
    assert (out.astype(jax.numpy.float32) == 448).all()
    with pytest.raises(tessera.ArgumentError, match="is written, but its memory is constant"):
        tessera.per_token_cast(x, format="e4m3", num_per_channels=128, out={"out_sf": out_sf})
