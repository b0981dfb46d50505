"""Batches of features of several shapes: the error without an option, `ragged` and `pad`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from commands import convert
from make_bytes import npy
from shards import write_tar
from tar2tf_cli import load_dataset, open_records
from tar2tf_cli.errors import UsageError

RANDOM = np.random.default_rng(7)
ARRAYS = [RANDOM.integers(0, 9, (2 + number % 3, 1 + number % 2, 3)).astype("int32") for number in range(7)]
LISTS = [[*range(number % 4)] for number in range(7)]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven records with an array of several shapes, a list of several lengths, an array of one shape, and a number."""
    folder = tmp_path_factory.mktemp("batches")
    contents = [
        (str(number), {"a.npy": npy(array), "boxes": " ".join(map(str, values)).encode(), "cls": b"%d" % number})
        for number, (array, values) in enumerate(zip(ARRAYS, LISTS, strict=True))
    ]
    contents = [(key, {**entries, "same.npy": npy(np.ones((2, 2)))}) for key, entries in contents]
    write_tar(folder / "a.tar", contents)
    types = ("--type", "boxes=int64_list", "--type", "cls=int64", "--key-split", "first")
    convert(folder / "a.tar", "-o", folder / "out.record", "--op", "decode:a.npy", "--op", "decode:same.npy", *types)
    return folder / "_out-manifest.json"


def test_ragged_batches_keep_the_shape_of_each_value(manifest: Path) -> None:
    batches = list(load_dataset(manifest, batch=4, ragged=True))
    assert [len(batch["cls"]) for batch in batches] == [4, 3]
    assert isinstance(batches[0]["a.npy"], tf.RaggedTensor)
    assert batches[0]["same.npy"].shape == (4, 2, 2)
    values = [value.numpy() if hasattr(value, "numpy") else value for batch in batches for value in batch["a.npy"]]
    for value, array in zip(values, ARRAYS, strict=True):
        assert np.array_equal(np.array(value.tolist()), array)
    assert [row for batch in batches for row in batch["boxes"].to_list()] == LISTS


def test_padded_batches_are_filled_up_with_zeros(manifest: Path) -> None:
    batches = list(load_dataset(manifest, batch=4, pad=True).as_numpy_iterator())
    whole = np.zeros((4, 4, 2, 3), np.int32)
    for place, array in enumerate(ARRAYS[:4]):
        whole[place, : array.shape[0], : array.shape[1]] = array
    assert np.array_equal(batches[0]["a.npy"], whole)
    assert batches[0]["a.npy"].dtype == np.int32
    assert batches[0]["boxes"].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 2]]
    assert batches[1]["cls"].tolist() == [4, 5, 6]


def test_batches_of_values_of_one_shape_are_the_examples_stacked(tmp_path: Path) -> None:
    """They are parsed many at a time."""
    dtypes = ["uint8", "int16", "uint32", "int64", "uint64", "float16", "float32", "float64", "bool", "complex64"]
    contents = []
    for number in range(7):
        arrays = {f"{dtype}.npy": npy(RANDOM.integers(0, 2, (2, 3)).astype(dtype)) for dtype in dtypes}
        arrays |= {"none.npy": npy(np.zeros((2, 0))), "three.npy": npy(np.arange(3) - number)}
        contents.append((str(number), {**arrays, "cls": b"%d" % number, "w": b"%d.5" % number, "txt": b"t" * number}))
    write_tar(tmp_path / "a.tar", contents)
    ops = [word for name in contents[0][1] if name.endswith("npy") for word in ("--op", f"decode:{name}")]
    convert(tmp_path / "a.tar", "-o", tmp_path / "x.record", *ops, "--type", "cls=int64", "--type", "w=float")
    manifest = tmp_path / "_x-manifest.json"
    single = list(load_dataset(manifest).as_numpy_iterator())
    batches = load_dataset(manifest, batch=4)
    assert int(batches.cardinality()) == 2
    spec = load_dataset(manifest).element_spec
    assert {name: (each.dtype, each.shape) for name, each in batches.element_spec.items()} == {
        name: (each.dtype, tf.TensorShape([None, *each.shape])) for name, each in spec.items()
    }
    for batch, examples in zip(batches.as_numpy_iterator(), (single[:4], single[4:]), strict=True):
        assert batch.keys() == single[0].keys()
        for name, values in batch.items():
            stacked = np.array([example[name] for example in examples], values.dtype)
            assert values.dtype == (object if name in ("__key__", "txt") else single[0][name].dtype)
            assert np.array_equal(values, stacked), name


def test_the_error_of_a_batch_that_cannot_be_made_names_the_feature_and_what_to_do(manifest: Path) -> None:
    for batches in (load_dataset(manifest, batch=4), load_dataset(manifest).batch(4)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"the feature a.npy has .*\[2 1 3\] and \[3 2 3\]"
        ) as info:
            list(batches)
        assert "ragged=True or pad=True" in str(info.value)
    assert [len(batch["cls"]) for batch in load_dataset(manifest).batch(1, drop_remainder=True)] == [1] * 7


def test_batches_of_values_of_one_shape_need_no_option_even_where_others_differ(manifest: Path) -> None:
    dataset = load_dataset(manifest, batch=1)
    batches = list(dataset.as_numpy_iterator())
    assert all(np.array_equal(batch["a.npy"][0], array) for batch, array in zip(batches, ARRAYS, strict=True))
    assert [batch["boxes"][0].tolist() for batch in batches] == LISTS
    assert dataset.element_spec["a.npy"].shape.as_list() == [None, None, None, 3]
    assert int(dataset.cardinality()) == 7


@pytest.mark.parametrize("options", [{}, {"ragged": True}, {"pad": True}])
def test_the_cardinality_of_batches_is_known(manifest: Path, options: dict[str, bool]) -> None:
    assert int(load_dataset(manifest, batch=3, **options).cardinality()) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ragged": True, "pad": True, "batch": 2}, "use one of them"),
        ({"ragged": True}, "ragged says how batches are made; add batch=N"),
        ({"pad": True}, "pad says how batches are made"),
    ],
)
def test_options_that_do_not_fit_are_refused(manifest: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_dataset(manifest, **options)


def test_values_of_several_types_are_not_stacked(tmp_path: Path) -> None:
    features = [{"int64_list": {"value": [1, 2]}}, {"float_list": {"value": [0.5, 1]}}]
    records = [tf.train.Example(features={"feature": {"x": feature}}).SerializeToString() for feature in features]
    with tf.io.TFRecordWriter(str(tmp_path / "x.record")) as writer:
        for record in records:
            writer.write(record)
    (batch,) = open_records(tmp_path / "x.record").batches(2)
    assert batch["x"].dtype == object
    assert [(value.dtype.name, value.tolist()) for value in batch["x"]] == [("int64", [1, 2]), ("float32", [0.5, 1.0])]
