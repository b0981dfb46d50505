"""Features as entries of a tar: text, npy and bytes, under names from which they are read again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from tar2tf_cli.api.values import KEY, Features, KeySplit
from tar2tf_cli.errors import SampleError
from tar2tf_cli.features.entries import as_entries, selected_key
from tar2tf_cli.features.feature_map import FeatureMap
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list
from tar2tf_cli.shards.tar import MemberEncoder


def features(**values: Any) -> Features:
    return FeatureMap({}).features({KEY: "k", **values})


def entries(key: str = "k", rule: KeySplit = "first", **values: Any) -> dict[str, Any]:
    found = as_entries(features(**values), key, rule)
    assert found.pop(KEY) == key.encode()
    return found


def test_bytes_and_text_stay_what_they_are() -> None:
    assert entries(jpg=b"\xff\xd8", txt="größe", empty=b"") == {
        "jpg": b"\xff\xd8",
        "txt": "größe".encode(),
        "empty": b"",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, b"7"),
        (-(2**63), b"-9223372036854775808"),
        (True, b"1"),
        (0.5, b"0.5"),
        (0.1, b"0.1"),
        (1e30, b"1e+30"),
        (float("nan"), b"nan"),
        (np.uint8(255), b"255"),
        (np.float32(1 / 3), b"0.33333334"),
        (np.float16(0.1), b"0.099975586"),
    ],
)
def test_a_number_is_text_that_gives_it_again(value: Any, text: bytes) -> None:
    assert entries(cls=value) == {"cls": text}
    number = np.float32(text) if isinstance(value, (float, np.floating)) else int(text)
    np.testing.assert_equal(np.float32(number), np.float32(value))


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32"]


@pytest.mark.parametrize("dtype", [*DTYPES, "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 0), (1, 1), (4, 5, 1)])
def test_an_array_is_an_npy_file_of_its_shape_and_type(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    for given in (array, np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">"))):
        ((name, data),) = entries(boxes=given).items()
        found = np.load(io.BytesIO(data), allow_pickle=False)
        assert name == "boxes.npy"
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)


def test_an_array_whose_entry_is_named_npy_keeps_its_name() -> None:
    assert list(entries(npy=np.zeros(2), **{"left.npy": np.zeros(2)})) == ["npy", "left.npy"]


def test_a_number_whose_entry_is_named_npy_is_an_npy_file() -> None:
    for name in ("npy", "left.npy"):
        for value in (7, 0.5, np.float16(0.5), np.uint64(2**64 - 1)):
            found = np.load(io.BytesIO(entries(**{name: value})[name]), allow_pickle=False)
            assert (found.shape, found) == ((), value)
    assert entries(anpy=7) == {"anpy": b"7"}


def test_a_list_of_numbers_is_an_array() -> None:
    assert np.load(io.BytesIO(entries(ids=[3, 4])["ids.npy"])).tolist() == [3, 4]


def test_the_shape_of_an_array_is_in_its_npy_file_and_any_other_shape_is_an_entry() -> None:
    assert list(entries(image=np.zeros((2, 3)))) == ["image.npy"]
    with pytest.raises(SampleError, match="the feature 'a/shape' cannot be named"):
        entries(**{"a/shape": 3})


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("k", "image/encoded", "the feature 'image/encoded' cannot be named in a tar: readers would not find it"),
        ("k", "Label", "the feature 'Label' cannot be named in a tar: readers would read 'label' as its name"),
        ("k", "", "the feature '' cannot be named in a tar: readers would not find it"),
        ("k", "a\0b", "the feature 'a\\x00b' cannot be named in a tar"),
        ("img.001", "jpg", "has a dot in the key 'img.001', so readers of the tar would read it as the sample 'img'"),
        ("folder/", "jpg", "has the key 'folder/', which cannot be the name of a member of a tar"),
        ("._a", "jpg", "has the key '._a', which cannot be the name"),
        ("__meta__", "jpg", "has the key '__meta__', which cannot be the name"),
        ("a\0b", "jpg", "has the key 'a\\x00b', which cannot be the name"),
        ("", "jpg", "has the key '', which cannot be the name"),
    ],
)
def test_what_cannot_be_named_in_a_tar_is_an_error_that_says_which(key: str, name: str, message: str) -> None:
    with pytest.raises(SampleError) as caught:
        entries(key, **{name: b""})
    assert message in str(caught.value)
    assert caught.value.hint


def test_names_are_split_at_the_last_dot_where_the_key_rule_says_so() -> None:
    assert entries("img.001", "last", JPG=b"", jpg=b"x") == {"JPG": b"", "jpg": b"x"}
    with pytest.raises(SampleError, match=r"the feature 'seg.png' cannot be named .* read 'png' as its name"):
        entries("a", "last", **{"seg.png": b""})


def test_several_byte_strings_and_two_entries_of_one_name_are_errors() -> None:
    with pytest.raises(SampleError, match="'frames' holds 2 byte strings, but a member of a tar holds one"):
        as_entries({"frames": bytes_list([b"a", b"b"])}, "k", "first")
    with pytest.raises(SampleError, match=r"two entries that a tar would name 'a\.npy'"):
        as_entries({"a": int64_list([1, 2]), "a.npy": b""}, "k", "first")


def test_a_sample_without_entries_is_faulty() -> None:
    with pytest.raises(SampleError, match="has no entries, so a tar cannot hold it"):
        MemberEncoder().encode(as_entries({}, "k", "first"))


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b" a/b\n", "a/b"),
        ("a", "a"),
        (7, "7"),
        (np.int64(-7), "-7"),
        (int64_list([7]), "7"),
        (int64_list([7], ()), "7"),
        (bytes_list([b" x "]), "x"),
    ],
    ids=repr,
)
def test_a_key_among_features_is_one_text_or_whole_number(value: Any, key: str) -> None:
    assert selected_key({KEY: value, "x": 1}) == key
    assert selected_key({"x": value}) is None


def test_the_key_that_a_sample_has_already_keeps_its_spaces() -> None:
    assert selected_key({KEY: b" x "}, " x ") == " x "
    assert selected_key({KEY: b" x "}, "x") == "x"


@pytest.mark.parametrize("value", [int64_list([7, 8]), int64_list([]), bytes_list([b"a", b"b"]), float_list([0.5])])
def test_what_is_no_single_text_or_whole_number_cannot_be_the_key(value: Any) -> None:
    with pytest.raises(SampleError) as caught:
        selected_key({KEY: value})
    assert caught.value.sentence == ("the feature '__key__' is not one text or whole number, so it cannot be the key")
