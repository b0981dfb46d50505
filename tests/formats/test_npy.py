"""The npy format: whatever NumPy writes is read to the same array, and nothing else is, by name."""

from __future__ import annotations

import contextlib
import io
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from make_bytes import npy
from tar2tf_cli.formats.npy import PickledError, read_array, read_arrays, read_header, to_npy


def described(header: str, data: bytes = b"") -> bytes:
    """An npy file of version 1 with this header."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="<i2").reshape(3, 4),
        np.arange(12, dtype=">i8").reshape(3, 4),
        np.asfortranarray(np.arange(24, dtype=">f4").reshape(2, 3, 4)),
        np.arange(6, dtype="f2").reshape(2, 3)[:, ::2],
        np.array(5, ">u4"),
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array([1 + 2j, -1j]),
        np.array([np.nan, -np.inf, 5e-324]),
        np.array(["æ", "longer"]),
        np.array([b"x", b"yy"]),
        np.array([(1, [2, 3])], [("a", ">i4"), ("b", "f4", (2,))]),
        np.array(["2020-02-29"], "M8[D]"),
    ],
    ids=lambda array: f"{array.dtype.str} {array.shape}",
)
def test_any_dtype_and_order_is_read_to_the_array_that_numpy_reads(array: Any, version: tuple[int, int]) -> None:
    data = npy(array, version)
    expected, found = np.load(io.BytesIO(data)), read_array(data)
    assert (found.dtype, found.shape) == (expected.dtype.newbyteorder("="), expected.shape)
    assert found.tobytes() == expected.astype(found.dtype).tobytes()
    assert found.flags.c_contiguous
    assert found.flags.writeable


@given(arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0)))
def test_arrays_come_back(array: Any) -> None:
    found = read_array(npy(array))
    assert (found.dtype, found.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert found.tobytes() == array.astype(found.dtype).tobytes()


def test_a_header_that_python_2_wrote_is_read() -> None:
    found = read_array(described("{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 1L), }", bytes(8)))
    assert found.shape == (2, 1)


SHAPE = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not an npy file"),
        (b"\x93NUMPY", "not an npy file"),
        (b"\x93NUMPY\x04\x00" + bytes(100), "version 1, 2 or 3"),
        (npy([1, 2, 3])[:-1], "describes 24 bytes of data, but there are 23"),
        (npy([1, 2, 3]) + b"x", "describes 24 bytes of data, but there are 25"),
        (npy([1, 2, 3])[:50], "header is cut short"),
        (described(SHAPE % "(1000000000000,)"), "describes 8,000,000,000,000 bytes"),
        (described(SHAPE % "(0, 10000000000, 10000000000)"), "array is too big"),
        (described(SHAPE % "(-1,)"), "shape"),
        (described(SHAPE % "(True,)"), "shape"),
        (described(SHAPE % "3"), "shape"),
        (described(SHAPE % ("(" * 3000)), "header is damaged"),
        (described("['descr']"), "header is damaged"),
        (described("{'descr': '<q9', 'fortran_order': False, 'shape': ()}"), "dtype '<q9'"),
        (described("{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,)}"), "has no bytes"),
        (described("{'descr': '|O', 'fortran_order': False, 'shape': ()}", b"\x80\x04N."), "pickled"),
        (described("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': ()}", bytes(8)), "pickled"),
        (described("{}" + " " * 20_000), "too long"),
    ],
)
def test_what_is_not_one_whole_array_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_array(data)


@given(st.data())
def test_damage_is_an_error_or_an_array(data: st.DataObject) -> None:
    whole = bytearray(npy(np.arange(5, dtype="<u2")))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        whole[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        read_array(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


# --- npz ---


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_the_arrays_of_an_npz_come_back_by_name(compressed: bool) -> None:
    arrays = {"x": np.arange(6.0).reshape(2, 3), "deep/y": np.array(7, "<u2"), "z.npy": np.zeros((0, 3), "?")}
    found = read_arrays(npz(compressed=compressed, **arrays))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_what_is_not_one_whole_npz_is_refused_by_name() -> None:
    whole = npz(compressed=True, x=np.arange(1000.0))
    for part in range(1, 10):
        with pytest.raises(ValueError, match="damaged"):
            read_arrays(whole[: len(whole) * part // 10])
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 0xFF
    with pytest.raises(ValueError, match="damaged"):
        read_arrays(bytes(changed))
    with pytest.raises(PickledError):
        read_arrays(npz(x=np.array([{}, None])))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "words")
    with pytest.raises(ValueError, match="not of npy files"):
        read_arrays(other.getvalue())


def test_an_npz_of_more_than_an_example_holds_is_refused_before_it_is_inflated() -> None:
    data = bytearray(npz(compressed=True, x=np.zeros(1000)))
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = (3 << 30).to_bytes(4, "little")
    with pytest.raises(ValueError, match="more than 2 GiB"):
        read_arrays(bytes(data))


def test_arrays_are_written_as_numpy_writes_them() -> None:
    for shape in ((), (3,), (2, 3), (1,) * 20, (0, 7)):
        for dtype in ("<f4", "<i8", "|u1", "|b1", "<c16"):
            array = np.zeros(shape, dtype)
            ours, theirs = to_npy(array), npy(array, (1, 0))
            assert len(ours) % 64 == array.nbytes % 64
            assert read_header(ours)[0] == read_header(theirs)[0]
            np.testing.assert_array_equal(np.load(io.BytesIO(ours)), array)
    swapped = np.arange(6, dtype=">i4").reshape(2, 3).T
    assert to_npy(swapped) == to_npy(np.ascontiguousarray(swapped, "<i4"))
    assert to_npy(np.arange(3, dtype="<i2")) == npy(np.arange(3, dtype="<i2"), (1, 0))


@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_headers_are_text_of_their_version_and_not_too_long() -> None:
    for name, version in (("\u00e9", (1, 0)), ("\u00e9", (3, 0)), ("\u65e5", (3, 0))):
        array = np.zeros(2, [(name, "<i2")])
        assert read_array(npy(array, version)).dtype.names == (name,)
    for size in (10_000, 10_001):
        text = "{'descr': '<i2', 'fortran_order': False, 'shape': (), }".ljust(size).encode()
        data = b"\x93NUMPY\x01\0" + size.to_bytes(2, "little") + text + b"\x07\0"
        if size == 10_000:
            assert read_array(data) == 7
        else:
            with pytest.raises(ValueError, match=r"^the npy header is cut short or too long$"):
                read_array(data)
    header = b"{'descr': '\xff', 'fortran_order': False, 'shape': ()}".ljust(60)
    odd = b"\x93NUMPY\x03\0" + (60).to_bytes(4, "little") + header
    with pytest.raises(ValueError, match="which NumPy does not know"):
        read_array(odd)
