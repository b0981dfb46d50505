"""Arrays of every dtype and shape come back as they were."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from make_bytes import npy
from shards import write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.conversion.run import convert
from tar2tf_cli.errors import SampleError
from tar2tf_cli.ops import Decode
from tar2tf_cli.spec.conversion import Conversion, Input, Output

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SHAPES = [(), (0,), (3,), (2, 0), (4, 5, 1)]
DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of any bits, NaN and the greatest numbers among them."""
    kind = np.dtype(dtype)
    drawn = np.random.default_rng(3).integers(0, 256, int(np.prod(shape)) * kind.itemsize, dtype=np.uint8)
    return (drawn % 2).astype(bool).reshape(shape) if dtype == "bool" else drawn.view(kind).reshape(shape)


def converted(tmp_path: Path, *arrays: np.ndarray) -> str:
    write_tar(tmp_path / "a.tar", [(str(place), {"npy": npy(array)}) for place, array in enumerate(arrays)])
    conversion = Conversion(Input(str(tmp_path)), Output(str(tmp_path / "x.record")), ops=[Decode("npy")])
    return str(convert(conversion, workers=1).manifest)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_of_any_dtype_shape_and_order_comes_back_as_it_was(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    array = values(dtype, shape)
    swapped, columns_first = array.astype(array.dtype.newbyteorder(">")), array.copy(order="F")
    manifest = converted(tmp_path, array, swapped, columns_first)
    by_tensorflow = [item["npy"].numpy() for item in load_dataset(manifest)]
    by_numpy = [np.asarray(item["npy"]) for item in open_records(manifest)]
    for found in (*by_tensorflow, *by_numpy):
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["int16", "uint8", "uint64", "float16", "float32", "float64", "complex128"])
def test_an_array_that_some_examples_lack_is_empty_there_for_both_readers(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    array = values(dtype, shape)
    write_tar(tmp_path / "a.tar", [("0", {"npy": npy(array), "cls": b"1"}), ("1", {"cls": b"2"})])
    (tmp_path / "own.py").write_text(LOADS)
    ops = [f"func:{tmp_path / 'own.py'}:fn"]
    manifest = convert(Conversion(str(tmp_path), str(tmp_path / "x.record"), ops=ops), workers=1).manifest
    for one, other in zip(load_dataset(manifest), open_records(manifest), strict=True):
        found = one["npy"].numpy()
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, other["npy"].shape, other["npy"].tobytes())
        assert found.tobytes() == (array.tobytes() if one["cls"] == b"1" else b"")


LOADS = """
import io, numpy
def fn(sample):
    return {name: numpy.load(io.BytesIO(value)) if name == "npy" else value for name, value in sample.items()}
"""


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 5, 1)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_preset_webdataset_keeps_dtypes_too(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = values(dtype, shape)
    write_tar(tmp_path / "a.tar", [("0", {"npy": npy(array)})])
    manifest = convert(Conversion(str(tmp_path), str(tmp_path / "x.record"), preset="webdataset"), workers=1).manifest
    for found in (next(iter(load_dataset(manifest)))["npy"].numpy(), np.asarray(open_records(manifest)[0]["npy"])):
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_a_third_of_double_precision_is_not_rounded(tmp_path: Path) -> None:
    manifest = converted(tmp_path, np.array([1 / 3, 2 / 3]))
    assert next(iter(load_dataset(manifest)))["npy"].numpy().tolist() == [1 / 3, 2 / 3]


def test_single_values_among_arrays_of_one_come_back_as_arrays_of_one(tmp_path: Path) -> None:
    manifest = converted(tmp_path, np.array(7), np.array([8]))
    assert [item["npy"].numpy().tolist() for item in load_dataset(manifest)] == [[7], [8]]
    assert [item["npy"].tolist() for item in open_records(manifest)] == [[7], [8]]


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("datetime64", np.array(["2020-01-01"], "datetime64[D]")),
        ("timedelta64", np.array([1], "timedelta64[s]")),
        ("str", np.array(["a"])),
        ("bytes", np.array([b"a"])),
        ("longdouble", np.zeros(2, "g")),
        ("clongdouble", np.zeros(2, "G")),
        ("void", np.zeros(2, "V3")),
        ("void", np.zeros(2, [("x", "i4")])),
    ],
)
def test_a_dtype_that_cannot_come_back_is_refused_by_name(name: str, array: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=f"no feature can hold an array of {name};"):
        converted(tmp_path, array)
