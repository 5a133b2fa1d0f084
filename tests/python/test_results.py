"""Results of calls: fields, names, dtypes, strides, the caller's own tensors."""

import weakref

import ml_dtypes
import numpy as np
import pytest

import tessera


def rows(tokens=5, hidden=256):
    return np.random.default_rng(1).standard_normal((tokens, hidden), np.float32)


def test_several_outputs_come_as_a_named_tuple():
    result = tessera.per_token_cast(rows(), format="e4m3", num_per_channels=128)
    assert type(result).__name__ == "per_token_cast_result"
    assert result._fields == ("out", "out_sf")
    assert result.out.dtype == ml_dtypes.float8_e4m3fn and result.out.shape == (5, 256)
    assert result.out_sf.dtype == np.float32 and result.out_sf.shape == (5, 2)


def test_one_output_comes_as_itself():
    codes, scales = tessera.per_token_cast(rows(), format="e4m3", num_per_channels=128)
    back = tessera.per_token_cast_back(codes, scales, num_per_channels=128, out_dtype="f32")
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, rows(), atol=0.25)


class OfTorch:
    """The text of str() for a dtype of torch."""

    def __str__(self):
        return "torch.float8_e4m3fn"


def test_dtypes_stand_for_their_words():
    wanted = tessera.per_token_cast(rows(), format="e4m3", num_per_channels=128)
    for dtype in (ml_dtypes.float8_e4m3fn, np.dtype(ml_dtypes.float8_e4m3fn), OfTorch()):
        made = tessera.per_token_cast(rows(), format=dtype, num_per_channels=128)
        assert made.out.tobytes() == wanted.out.tobytes() and made.out_sf.tobytes() == wanted.out_sf.tobytes()
    with pytest.raises(tessera.ArgumentError) as caught:  # a dtype, but none of the words
        tessera.per_token_cast(rows(), format=np.float32, num_per_channels=128)
    assert caught.value.argument == "format" and "e4m3" in caught.value.expected and caught.value.got == "f32"
    with pytest.raises(tessera.ArgumentTypeError) as caught:  # no dtype
        tessera.per_token_cast(rows(), format=np.ndarray, num_per_channels=128)
    assert caught.value.argument == "format" and "e4m3" in caught.value.expected


def test_dir_lists_what_is_public():
    public = dir(tessera)
    assert {"per_token_cast", "per_token_cast_result", "ArgumentError", "functional", "nn", "ops", "version"} <= set(public)
    assert all(hasattr(tessera, name) for name in tessera.__all__)
    assert not {"Any", "TYPE_CHECKING", "_core"} & set(public)


@pytest.mark.parametrize("tokens", [0, 1, 3, 4, 37])
@pytest.mark.parametrize("layout", ["row_major", "col_major_tma", "packed_ue8m0"])
def test_scales_have_the_strides_and_storage_of_their_layout(tokens, layout):
    for columns in (1, 5):
        result = tessera.per_token_cast(
            rows(tokens, 128 * columns), format="e4m3", num_per_channels=128, sf_layout=layout, round_sf=True
        )
        scales = result.out_sf
        width = -(-columns // 4) if layout == "packed_ue8m0" else columns
        assert scales.shape == (tokens, width)
        if tokens == 0:
            continue
        padded = -(-tokens // 4) * 4
        expected = (width, 1) if layout == "row_major" else (1, padded)
        assert tuple(s // 4 for s in scales.strides) == expected
        if layout != "row_major":
            storage = scales.base
            assert storage.size == padded * width
            padding = storage.reshape(width, padded)[:, tokens:]
            assert (padding.view(np.uint32) == 0).all()


def test_padding_of_a_given_tensor_is_written():
    storage = np.full(40, np.nan, np.float32)
    scales = np.ndarray((7, 5), np.float32, storage, 0, (4, 32))
    tessera.per_token_cast(
        rows(7, 640), format="e4m3", num_per_channels=128, sf_layout="col_major_tma", out={"out_sf": scales}
    )
    assert (storage.reshape(5, 8)[:, 7].view(np.uint32) == 0).all()


@pytest.mark.parametrize("layout", ["col_major_tma", "packed_ue8m0"])
@pytest.mark.parametrize("before, behind", [(0, 5), (8, 0), (8, 8)])
def test_the_neighbours_of_a_given_view_are_not_overwritten(layout, before, behind):
    options = {"format": "e4m3", "num_per_channels": 128, "sf_layout": layout, "round_sf": True}
    expected = tessera.per_token_cast(rows(7, 640), **options)
    dtype, shape, strides = expected.out_sf.dtype, expected.out_sf.shape, expected.out_sf.strides
    storage = np.full(before + 8 * shape[1] + behind, 77, dtype)
    view = np.ndarray(shape, dtype, storage, 4 * before, strides)
    with pytest.raises(tessera.ArgumentError, match="'out_sf' is a part of larger memory, which its padding would overwrite") as caught:
        tessera.per_token_cast(rows(7, 640), **options, out={"out_sf": view})
    assert caught.value.code == "STRIDES" and (storage == 77).all()
    full = rows(8, 640)  # a multiple of 4 rows has no padding
    storage = np.full(before + 8 * shape[1] + behind, 77, dtype)
    view = np.ndarray((8, shape[1]), dtype, storage, 4 * before, strides)
    given = tessera.per_token_cast(full, **options, out={"out_sf": view}).out_sf
    assert given.tobytes() == tessera.per_token_cast(full, **options).out_sf.tobytes()
    assert (storage[:before] == 77).all() and (storage[before + 8 * shape[1] :] == 77).all()


class Spy(np.ndarray):
    """Runs a function when its strides are read, as a call does."""

    run = None

    @property
    def strides(self):
        if self.run is not None:
            self.run()
        return np.asarray(self).strides


def test_an_output_lives_although_it_is_taken_out_of_its_container_during_the_call():
    x = np.ones((4, 8), np.float32).view(Spy)
    given = {"out": np.zeros((8, 4), np.float32)}
    lives = weakref.ref(given["out"])

    def check():
        given.clear()
        assert lives() is not None

    x.run = check
    result = tessera.transpose(x, out=given)
    assert result is lives() and (result == 1).all()


class Unnamed:
    """A key of `out` that is no name, and empties the container when it is read."""

    def __init__(self, container):
        self.container = container

    def __str__(self):
        self.container.clear()
        return "unnamed"


def test_a_wrong_name_lives_although_it_is_taken_out_of_its_container():
    given = {}
    given[Unnamed(given)] = np.zeros((8, 4), np.float32)
    with pytest.raises(tessera.ArgumentTypeError, match="'out' names 'unnamed'"):
        tessera.transpose(np.ones((4, 8), np.float32), out=given)


class Growing:
    """An integer that is another one each time that it is asked."""

    value = 2

    def __index__(self):
        self.value += 1
        return self.value


def test_a_parameter_that_changes_is_read_once():
    ids = np.zeros((3, 2), np.int64)
    assert tessera.group_count(ids, num_groups=Growing()).shape == (3,)
    for groups in (3, 4, 5):
        assert tessera.group_count(ids, num_groups=groups).shape == (groups,)


def test_given_outputs_are_returned():
    codes = np.empty((5, 256), ml_dtypes.float8_e4m3fn)
    result = tessera.per_token_cast(rows(), format="e4m3", num_per_channels=128, out={"out": codes})
    assert result.out is codes
    again = tessera.per_token_cast(rows(), format="e4m3", num_per_channels=128, out=result)
    assert again.out is codes and again.out_sf is result.out_sf


def test_in_place_ops_return_nothing():
    groups = np.array([[3, 3, 1], [2, 0, 2]], np.int64)
    assert tessera.inplace_unique_group_indices(groups, num_groups=4) is None
    assert groups.tolist() == [[3, -1, 1], [2, 0, -1]]


def test_a_waiting_call_brings_its_counts():
    topk = np.array([[0, 1], [1, 2], [-1, 0]], np.int64)
    result = tessera.get_fused_mapping(topk, num_experts=3, alignment=4)
    assert result.num_tokens_per_expert_host == result.num_tokens_per_expert.tolist() == [4, 4, 4]
    assert result.pos_to_expert.shape == (12,)
    sized = tessera.get_fused_mapping(topk, num_experts=3, alignment=4, num_expanded_tokens=16)
    assert sized.num_tokens_per_expert_host is None and sized.pos_to_expert.shape == (16,)


def test_a_given_output_without_room_for_its_padding_is_refused():
    x = np.ones((37, 640), np.float32)
    options = {"format": "e4m3", "num_per_channels": 128, "sf_layout": "col_major_tma"}
    good = tessera.per_token_cast(x, **options)
    assert good.out_sf.strides == (4, 160)
    memory = np.zeros(5 * 40 - 3, np.float32)
    tight = np.ndarray((37, 5), np.float32, memory, 0, (4, 160))
    with pytest.raises(tessera.ArgumentError, match="'out_sf' has no room for its padding\\n.*200 elements.*\\n.*197 elements"):
        tessera.per_token_cast(x, **options, out={"out_sf": tight})
    again = tessera.per_token_cast(x, **options, out=good)
    assert again.out_sf is good.out_sf
