"""Types of TFRecorder's fields, and the datasets they become."""

from __future__ import annotations

import numpy as np
import pytest

from commands import tar2tf
from recorder_classes import AllTypes, ToyExample
from recorder_runs import ROWS, write_rows
from tar2tf_cli import load_dataset
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.recorder import (
    Example,
    generate_and_save_train_eval_test_tfrecords_files,
    generate_dataset,
    get_tfrecord_filepaths,
    tfrecordable,
)

pytestmark = pytest.mark.spread

# --- Types and datasets ---


@pytest.mark.parametrize("given", [None, AllTypes])
def test_every_type_comes_back_with_its_dtype_in_declared_order(tmp_path, given):
    path = write_rows(tmp_path / "examples.csv", ROWS[:1] + ROWS[2:])
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", AllTypes, path, 1, examples_shuffle=False)
    dataset = generate_dataset(get_tfrecord_filepaths(tmp_path / "out" / "train"), given)
    dtypes = [spec.dtype.name for spec in dataset.element_spec]
    assert dtypes == ["string", "bool", "int64", "float64", "float32", "int32", "int32", "float32"]
    first, second = dataset.as_numpy_iterator()
    assert first[:6] == (b"a", True, 2**63 - 1, 0.1, np.float32(0.1), 7)
    assert second[:6] == (b"ccc", True, 0, -2.5, -2.5, 7)
    np.testing.assert_array_equal(first[6], [[-3, -2, -1], [0, 1, 2]])
    np.testing.assert_array_equal(second[7], [0.5, 0.5, 0.5])
    assert tar2tf("verify", tmp_path / "out" / "train" / "_manifest.json").returncode == 0
    loaded = next(load_dataset(tmp_path / "out" / "train" / "_manifest.json").as_numpy_iterator())
    assert loaded["exact"] == 0.1
    assert loaded["flag"]


def stored(dtype, value):
    """What an attribute is stored as, with its dtype and shape; or the error and its hint."""

    class One(Example):
        @tfrecordable(dtype=getattr(Example.Field, f"TYPE_{dtype}"))
        def thing(self):
            return value

    try:
        made = One().values()["thing"]
    except SampleError as error:
        return error.message, error.hint
    return (made.tolist(), made.dtype, made.shape) if isinstance(made, np.ndarray | np.generic) else made


BIG = 2**31


@pytest.mark.parametrize(
    ("dtype", "value", "fault"),
    [
        ("BOOL", 2, "2 is neither true nor false"),
        ("BOOL", "no", "'no' is neither true nor false"),
        ("BOOL", 1.0, "1.0 is neither true nor false"),
        ("INT32", BIG, "2147483648 does not fit"),
        ("INT32", -BIG - 1, "-2147483649 does not fit"),
        ("INT32", 1.5, "'float' object cannot be interpreted as an integer"),
        ("INT64", 2**63, "9223372036854775808 does not fit"),
        ("INT64", "7", "'str' object cannot be interpreted as an integer"),
        ("FLOAT", 1e300, "float too large to pack with f format"),
        ("FLOAT", "1", "'1' is text"),
        ("DOUBLE", b"1", "b'1' is text"),
        ("DOUBLE", [1], "float() argument must be a string or a real number, not 'list'"),
        ("STRING", 5, "int is not text"),
        ("ARRAY_INT32", [1.5], "an array of float64 does not hold whole numbers"),
        ("ARRAY_INT32", [0, BIG], "a value does not fit"),
        ("ARRAY_INT32", [0, -BIG - 1], "a value does not fit"),
        (
            "ARRAY_FLOAT32",
            np.array([1.0]),
            "an array of float64 would be rounded; convert it: .astype(numpy.float32)",
        ),
        ("ARRAY_FLOAT32", [1e300], "overflow encountered in cast"),
        ("ARRAY_FLOAT32", ["a"], "an array of <U1 does not hold numbers"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(dtype, value, fault):
    name = getattr(Example.Field, f"TYPE_{dtype}")
    assert stored(dtype, value) == (f"'thing' is not of type {name}: {fault}", None)


def test_values_are_stored_as_their_type_up_to_its_limits():
    found = {
        f"{dtype} {value!r}": stored(dtype, value)
        for dtype, *values in (
            ("BOOL", 0, 1, True, np.False_, np.int64(1)),
            ("INT32", BIG - 1, -BIG, np.uint8(7)),
            ("INT64", 2**63 - 1, -(2**63)),
            ("FLOAT", True, 0.1),
            ("STRING", "ä", b"\xff"),
            ("ARRAY_INT32", [BIG - 1, -BIG], [[True]], np.zeros(0, np.int64), np.array([7], np.uint8)),
            ("ARRAY_FLOAT32", [0.5, 2], [[True]], np.array([3], np.uint8), np.array([0.5], np.float16)),
        )
        for value in values
    }
    assert [*found.values()] == [
        (False, np.bool_, ()),
        (True, np.bool_, ()),
        (True, np.bool_, ()),
        (False, np.bool_, ()),
        (True, np.bool_, ()),
        (BIG - 1, np.int32, ()),
        (-BIG, np.int32, ()),
        (7, np.int32, ()),
        (2**63 - 1, np.int64, ()),
        (-(2**63), np.int64, ()),
        (1.0, np.float32, ()),
        (float(np.float32(0.1)), np.float32, ()),
        "ä",
        b"\xff",
        ([BIG - 1, -BIG], np.int32, (2,)),
        ([[1]], np.int32, (1, 1)),
        ([], np.int32, (0,)),
        ([7], np.int32, (1,)),
        ([0.5, 2.0], np.float32, (2,)),
        ([[1.0]], np.float32, (1, 1)),
        ([3.0], np.float32, (1,)),
        ([0.5], np.float32, (1,)),
    ]
    assert {dtype: stored(dtype, None) for dtype in ("BOOL", "STRING", "ARRAY_INT32")} == dict.fromkeys(
        ("BOOL", "STRING", "ARRAY_INT32"), ("'thing' has no value", "set it in load")
    )


def test_attributes_behave_as_properties_and_subclasses_inherit_them():
    class More(ToyExample):
        @tfrecordable(dtype=Example.Field.TYPE_STRING)
        def name_again(self):
            """The name."""
            return self.name

    example = More("x", 3)
    assert list(More.fields()) == ["label", "data", "name_again"]
    assert (example.label, example.name_again, More.name_again.__doc__) == (3, "x", "The name.")
    example.label = 4
    assert example.label == 4
    with pytest.raises(AttributeError):
        example.name_again = "y"
    example.release()
    assert example.data is None
    with pytest.raises(UsageError, match="does not support the dtype"):
        tfrecordable(dtype="int8")


def test_arguments_of_a_class_reach_its_other_base():
    class Tagged:
        def __init_subclass__(cls, tag, **options):
            super().__init_subclass__(**options)
            cls.tag = tag

    class Mine(Example, Tagged, tag="mine"):
        pass

    assert Mine.tag == "mine"


def test_datasets_are_divided_between_trainers(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", ToyExample, path, 1, src_data_dirpath=data)
    paths = get_tfrecord_filepaths(tmp_path / "out" / "train")
    whole = [int(label) for label, _ in generate_dataset(paths)]
    halves = [[int(label) for label, _ in generate_dataset(paths, num_workers=2, worker_index=i)] for i in (0, 1)]
    assert halves == [whole[0::2], whole[1::2]]
    shuffled = generate_dataset(paths, dataset_num_shuffled_tfrecord_files=1000, dataset_fetching_num_threads=2)
    assert sorted(int(label) for label, _ in shuffled) == sorted(whole)
    with pytest.raises(UsageError, match="must be given together"):
        generate_dataset(paths, num_workers=2)


def test_a_dataset_needs_a_manifest_or_a_class(toys, tmp_path):
    path, data = toys
    generate_and_save_train_eval_test_tfrecords_files(tmp_path / "out", ToyExample, path, 1, src_data_dirpath=data)
    (tmp_path / "out" / "train" / "_manifest.json").unlink()
    paths = get_tfrecord_filepaths(tmp_path / "out" / "train")
    with pytest.raises(UsageError, match="example_class"):
        generate_dataset(paths)
    assert next(generate_dataset(paths, ToyExample).as_numpy_iterator())[1].shape == (5, 4)
    with pytest.raises(SourceError):
        get_tfrecord_filepaths(tmp_path / "nowhere")
