"""What calls return: fields, names, dtypes, strides, the caller's own tensors."""

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
