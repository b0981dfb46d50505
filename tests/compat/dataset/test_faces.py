"""Arguments of `Dataset.load` and `load_from_tar`: each is used or refused; faulty samples, seeds and iterations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from jpeg_shards import ALL, IMAGES
from shards import write_tar
from tar2tf_cli import AisDataset, Dataset, default_record_parser
from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.ops import Decode, Filter, Resize, Rotate, SelectDict, SelectJSON
from verify_runs import an_example


def nothing(sample: Any) -> Any:
    return sample


LOADS: list[tuple[str, Callable[..., Any]]] = [
    ("load", lambda bucket, **options: Dataset(bucket).load(ALL, **options)),
    ("load_from_tar", lambda bucket, **options: AisDataset(bucket).load_from_tar(ALL, **options)),
    (
        "record_to_pair",
        lambda bucket, **options: AisDataset(bucket).load_from_tar(ALL, record_to_pair=nothing, **options),
    ),
]
loads = pytest.mark.parametrize("load", [load for _, load in LOADS], ids=[name for name, _ in LOADS])


@loads
@pytest.mark.parametrize(
    "unused", [{"record_to_example": nothing}, {"max_shard_size": "1MB"}, {"overwrite": True}, {"update": True}]
)
def test_arguments_for_files_are_refused_in_memory(
    load: Callable[..., Any], unused: dict[str, Any], bucket: str
) -> None:
    (name,) = unused
    with pytest.raises(UsageError, match=f"{name} is only for TFRecord files: also give a path"):
        load(bucket, **unused)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"output_types": (tf.int32, tf.int32), "output_shapes": ((),)},
            "output_shapes ((),) do not fit output_types (tf.int32, tf.int32)",
        ),
        (
            {"output_types": {"x": tf.int32}, "output_shapes": {"y": ()}},
            "output_shapes {'y': ()} do not fit output_types {'x': tf.int32}",
        ),
        ({"output_types": tf.int32, "output_shapes": "z"}, "output_shapes 'z' do not fit output_types tf.int32"),
        (
            {"output_types": {"x": tf.int32}},
            "output_types are {x: one value}, but each element is (one value, one value)",
        ),
        ({"output_types": (tf.int32,)}, "output_types are one value, but each element is (one value, one value)"),
        (
            {"output_types": (tf.int32, (tf.int32,) * 2)},
            "output_types are (one value, (one value, one value)), but each element is (one value, one value)",
        ),
    ],
)
def test_types_and_shapes_of_another_form_are_refused(options: dict[str, Any], error: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("k", {"cls": b"1", "txt": b"2"})])
    with pytest.raises(UsageError) as caught:
        Dataset(str(tmp_path), conversions=[], selections=["cls", "txt"]).load("a.tar", **options)
    assert str(caught.value) == error


VALUES: list[tuple[str, Any, Any]] = [
    ("7", tf.float32, np.float32(7)),
    ("2.0", tf.int32, np.int32(2)),
    ("2.5", tf.string, b"2.5"),
    ("255", tf.uint8, np.uint8(255)),
    ("[true, false]", None, np.array([True, False])),
    ("[[1, 2], [3, 4]]", None, np.array([[1, 2], [3, 4]])),
    ("[0.5, 1]", None, np.array([0.5, 1])),
    ("0.5", None, np.float32(0.5)),
    ("true", None, np.True_),
    ('"x"', None, b"x"),
]


@pytest.mark.parametrize(("text", "dtype", "value"), VALUES)
def test_a_value_of_json_has_the_dtype_asked_for_or_its_own(text: str, dtype: Any, value: Any, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("k", {"json": b'{"a": %s}' % text.encode()})])
    data = Dataset(str(tmp_path), conversions=[], selections=[SelectJSON("json", "a")])
    ((found),) = data.load("a.tar", **({} if dtype is None else {"output_types": dtype})).as_numpy_iterator()
    assert np.array_equal(found, value)
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None)


def test_lists_of_different_lengths_and_objects_are_nested(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("k", {"json": b'{"a": [[1], [2, 3], []], "b": {"c": "x"}}'})])
    data = Dataset(
        str(tmp_path), conversions=[], selections=SelectDict(a=SelectJSON("json", "a"), b=SelectJSON("json", "b"))
    )
    (found,) = data.load("a.tar").as_numpy_iterator()
    assert [value.tolist() for value in found["a"][:2]] == [[1], [2, 3]]
    assert (found["a"][2], found["b"]) == ((), {"c": b"x"})


@pytest.mark.parametrize(
    ("text", "dtype", "error"),
    [
        ('"x"', tf.int32, "'x' cannot be read as int32; for text, give output_types with tf.string in its place"),
        ("300", tf.uint8, "300 cannot be read as uint8; {skip}"),
        ("-1", tf.uint8, "-1 cannot be read as uint8; {skip}"),
        ("2.5", tf.int32, "2.5 cannot be read as int32; {skip}"),
        ("null", tf.int32, "None cannot be read as int32; {skip}"),
    ],
)
def test_a_value_that_a_dtype_would_change_is_an_error_that_names_the_sample(
    text: str, dtype: Any, error: str, tmp_path: Path
) -> None:
    write_tar(tmp_path / "a.tar", [("j", {"json": b'{"a": 1}'}), ("k", {"json": b'{"a": %s}' % text.encode()})])
    data = Dataset(str(tmp_path), conversions=[], selections=[SelectJSON("json", "a")])
    options = {"output_types": dtype, "num_workers": 1}
    skip = 'correct the sample, or skip such samples with on_error="skip"'
    with pytest.raises(tf.errors.UnknownError) as caught:
        list(data.load("a.tar", **options))
    assert f"SampleError: sample k: {error.format(skip=skip)}\n" in str(caught.value)
    assert [int(value) for value in data.load("a.tar", on_error="skip", **options)] == [1]


def test_a_first_value_that_is_no_tensor_and_an_empty_set_are_errors(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("k", {"json": b'{"a": null}'})])
    data = Dataset(str(tmp_path), conversions=[], selections=[SelectJSON("json", "a")])
    with pytest.raises(SampleError) as caught:
        data.load("a.tar")
    assert str(caught.value) == "sample k: None cannot be converted to a tensor"
    with pytest.raises(SourceError) as nothing_left:
        Dataset(str(tmp_path), conversions=[Filter("cls")], selections=["json"]).load("a.tar")
    assert str(nothing_left.value) == f"{tmp_path}: has no samples to infer dtypes and shapes from"


def test_the_default_parser_names_the_features_of_which_it_needs_one() -> None:
    with pytest.raises(tf.errors.UnknownError) as caught:
        default_record_parser(an_example(x=1))
    names = "image_raw, image, jpg, jpeg, png, bmp, webp, img"
    assert f"SampleError: has none of the features {names}\n" in str(caught.value)
    for image in (b"x", b"no image"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
            default_record_parser(an_example(image_raw=image, label=1))


@pytest.mark.parametrize("load", [load for _, load in LOADS[:2]], ids=[name for name, _ in LOADS[:2]])
@pytest.mark.parametrize("unused", [{"output_types": (tf.int32,)}, {"output_shapes": ((),)}])
def test_arguments_for_memory_are_refused_with_a_path(
    load: Callable[..., Any], unused: dict[str, Any], bucket: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(unused))} is only for datasets in memory, without a path"):
        load(bucket, path=tmp_path / "x.record", **unused)
    assert [*tmp_path.iterdir()] == []


def test_a_function_for_pairs_is_refused_with_a_path(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="record_to_pair is only for datasets in memory"):
        AisDataset(bucket).load_from_tar(ALL, tmp_path / "x.record", record_to_pair=nothing)


@loads
def test_an_argument_that_there_is_not_is_a_type_error_that_names_the_near_one(
    load: Callable[..., Any], bucket: str
) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'shufle_tar'; did you mean 'shuffle_tar'"):
        load(bucket, shufle_tar=True)


@loads
def test_no_number_of_workers_means_one_for_each_cpu(load: Callable[..., Any], bucket: str) -> None:
    assert len([*load(bucket, num_workers=None)]) == len(IMAGES)


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Six images, of which the second is none, and the fifth has other channels than the first."""
    gray = bytes(tf.io.encode_jpeg(np.zeros((8, 8, 1), np.uint8)).numpy())
    data = [IMAGES[0], b"not a JPEG", IMAGES[2], IMAGES[3], gray, IMAGES[5]]
    folder = tmp_path / "faulty"
    write_tar(folder / "a.tar", [(f"{n}", {"jpg": image, "cls": b"%d" % n}) for n, image in enumerate(data)])
    return folder


def test_a_faulty_sample_is_an_error_that_names_the_argument_to_skip_it(faulty: Path) -> None:
    train = Dataset(faulty, conversions=[Decode("jpg")], selections=["jpg", "cls"]).load("a.tar")
    with pytest.raises(tf.errors.UnknownError, match='on_error="skip"'):
        list(train)


@pytest.mark.parametrize("workers", [1, 3])
def test_faulty_samples_are_skipped_on_request_and_counted(
    faulty: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = Dataset(faulty, conversions=[Decode("jpg")], selections=["jpg", "cls"])
    train = data.load("a.tar", on_error="skip", num_workers=workers)
    with caplog.at_level(logging.WARNING, "tar2tf_cli"):
        for _ in range(2):
            assert [int(label) for _, label in train] == [0, 2, 3, 5]
    (note,) = [record.message for record in caplog.records if "skipped" in record.message]
    assert note.startswith("note: 2 samples skipped, first: ")
    assert f"{faulty}/a.tar: 1: " in note


def test_faulty_samples_are_skipped_in_files_too(faulty: Path, tmp_path: Path) -> None:
    data = Dataset(faulty, conversions=[Decode("jpg")], selections=["jpg", "cls"])
    with pytest.raises(SampleError):
        data.load("a.tar", tmp_path / "x.record", num_workers=1)
    records = AisDataset(faulty, conversions=[Decode("jpg")], selections=["jpg", "cls"]).load_from_tar(
        "a.tar", tmp_path / "x.record", num_workers=1, on_error="skip"
    )
    assert len([*records]) == 5


def pixels(data: tf.data.Dataset) -> list[bytes]:
    return [image.numpy().tobytes() for image in data]


def test_a_random_rotation_draws_again_at_each_iteration_from_the_seed(bucket: str) -> None:
    rotated = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (16, 16)), Rotate("jpg")], selections=["jpg"])
    first, second = rotated.load(ALL, seed=1), rotated.load(ALL, seed=1)
    epochs = [pixels(first) for _ in range(3)]
    assert len({*map(tuple, epochs)}) == 3
    assert [pixels(second) for _ in range(3)] == epochs
    assert pixels(rotated.load(ALL, seed=2)) not in epochs


def test_the_order_in_memory_follows_from_the_seed_and_differs_between_iterations(bucket: str) -> None:
    data = Dataset(bucket, conversions=[], selections=["cls", "__key__"])
    first, second = (data.load(ALL, shuffle_tar=True, seed=5) for _ in range(2))
    orders = [[key.numpy() for _, key in first] for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert [[key.numpy() for _, key in second] for _ in range(2)] == orders
