"""Types, shapes, order and memory of a `Dataset` that streams."""

from __future__ import annotations

import gc
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from commands import python
from jpeg_shards import ALL, COUNT, IMAGES
from shards import PHOTOS, write_tar
from tar2tf_cli import AisDataset, Dataset
from tar2tf_cli.errors import DamagedShardError, SourceError, UsageError
from tar2tf_cli.flow.sample_flow import InputFlow
from tar2tf_cli.ops import (
    Decode,
    Func,
    Resize,
    SelectJSON,
)

pytestmark = pytest.mark.spread

# --- Types and shapes ---


def test_sizes_that_differ_are_open_dimensions(bucket: str) -> None:
    train = Dataset(bucket, conversions=[Decode("jpg")]).load(ALL)
    assert train.element_spec == (tf.TensorSpec((None, None, 3), tf.uint8), tf.TensorSpec((), tf.int32))
    for (image, _), data in zip(train, IMAGES, strict=True):
        np.testing.assert_array_equal(image, tf.io.decode_image(data))


def test_a_resize_that_something_undid_fixes_nothing(bucket: str) -> None:
    pad = Func(lambda sample: {**sample, "jpg": np.zeros((int(sample["cls"]) + 1, 2, 3), "uint8")})
    train = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", 8), pad]).load(ALL)
    assert train.element_spec[0].shape.as_list() == [None, None, 3]
    assert [image.shape[0] for image, _ in train][:5] == [1, 2, 3, 4, 5]


def test_a_resize_of_one_entry_fixes_no_other(bucket: str) -> None:
    both = Func(lambda sample: {**sample, "small": sample["jpg"]})
    data = Dataset(bucket, conversions=[Decode("jpg"), both, Resize("small", 8)], selections=["jpg", "small"])
    train = data.load(ALL)
    assert [spec.shape.as_list() for spec in train.element_spec] == [[None, None, 3], [8, 8, 3]]
    assert len(list(train)) == COUNT


def test_given_types_and_shapes_are_honoured(bucket: str) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", (8, 9))])
    both = data.load(ALL, output_types=(tf.float64, tf.string), output_shapes=((8, 9, 3), ()))
    assert both.element_spec == (tf.TensorSpec((8, 9, 3), tf.float64), tf.TensorSpec((), tf.string))
    assert next(iter(both))[1].numpy() == b"0\n"
    types = data.load(ALL, output_types=(tf.float32, tf.int64))
    assert types.element_spec == (tf.TensorSpec((8, 9, 3), tf.float32), tf.TensorSpec((), tf.int64))
    assert [int(label) for _, label in types] == [number % 5 for number in range(COUNT)]
    shapes = data.load(ALL, output_shapes=(tf.TensorShape([None, None, 3]), tf.TensorShape([])))
    assert shapes.element_spec == (tf.TensorSpec((None, None, 3), tf.float32), tf.TensorSpec((), tf.int32))
    assert len(list(shapes)) == COUNT


@pytest.mark.parametrize(
    ("entry", "options", "words"),
    [
        (b"cat", {"output_types": tf.int32}, "sample 0001.*'cat'.*int32|'cat'.*int32"),
        (b"300", {"output_types": tf.uint8}, "300.*uint8"),
        (b"2.5", {"output_types": tf.int64}, "2.5.*int64"),
        (b"99999999999", {}, "99999999999.*int32"),
        (b"x", {}, "'x'.*int32"),
    ],
)
def test_a_label_that_does_not_fit_is_an_error_naming_the_sample(
    entry: bytes, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_tar(tmp_path / "a.tar", [("0000", {"cls": b"1"}), ("0001", {"cls": entry})])
    train = Dataset(str(tmp_path), conversions=[], selections=["cls"]).load(**options)
    with pytest.raises(tf.errors.OpError, match=words) as caught:
        list(train)
    assert "0001" in str(caught.value)


def test_large_whole_numbers_stay_exact(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("1", {"cls": b"9007199254740993"})])
    (found,) = Dataset(str(tmp_path), conversions=[], selections=["cls"]).load(output_types=tf.int64)
    assert int(found) == 9007199254740993


def test_bytes_with_zeros_at_the_end_stay_whole(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [(f"{n}", {"bin": b"ab\0\0" + bytes([n])[:0]}) for n in range(70)])
    assert [item.numpy() for item in Dataset(str(tmp_path), conversions=[], selections=["bin"]).load()] == [
        b"ab\0\0"
    ] * 70


@pytest.mark.parametrize("value", ["null", "{}"])
def test_json_that_is_no_value_is_an_error(value: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0000", {"json": b'{"a": 1}'}), ("0001", {"json": b'{"a": %s}' % value.encode()})])
    train = Dataset(str(tmp_path), conversions=[], selections=[SelectJSON("json", "a")]).load()
    with pytest.raises(tf.errors.OpError, match="0001"):
        list(train)


def test_nested_lists_are_arrays_and_several_entries_a_list_of_strings(tmp_path: Path) -> None:
    boxes = [[[1, 2, 3, 4.5], [5, 6, 7, 8]], [[9, 10, 11, 12]]]
    about = [json.dumps({"annotations": [{"bbox": box} for box in found]}).encode() for found in boxes]
    frames = {"10.bin": b"c\0", "2.bin": b"b", "0.bin": b"a"}
    write_tar(tmp_path / "a.tar", [(f"{number}", {"json": item, **frames}) for number, item in enumerate(about)])
    selections = [SelectJSON("json", ["annotations", "*", "bbox"]), "*.bin"]
    found = list(Dataset(str(tmp_path), conversions=[], selections=selections).load(shuffle_tar=False))
    for (box, bins), wanted in zip(found, boxes, strict=True):
        np.testing.assert_array_equal(box, np.asarray(wanted, np.float32))
        assert bins.numpy().tolist() == [b"a", b"b", b"c\0"]


def test_no_samples_and_no_shards_are_errors(bucket: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [])
    with pytest.raises(SourceError, match="no samples"):
        Dataset(str(tmp_path)).load()
    empty = Dataset(str(tmp_path)).load(output_types=(tf.float32, tf.int32), output_shapes=((8, 8, 3), ()))
    with pytest.raises(tf.errors.OpError, match="no samples"):
        list(empty)
    with pytest.raises(SourceError):
        Dataset(bucket).load("nothing-*.tar")
    with pytest.raises(SourceError):
        Dataset(str(tmp_path / "nowhere")).load()


def test_arguments_that_do_not_go_together_are_usage_errors(bucket: str, tmp_path: Path) -> None:
    for options in ({"max_shard_size": "1MB"}, {"record_to_example": lambda sample: {}}):
        with pytest.raises(UsageError):
            Dataset(bucket).load(ALL, **options)
    data = Dataset(bucket, conversions=[], selections=[SelectJSON("json", "box"), SelectJSON("json", "name")])
    assert len(list(data.load(ALL))) == COUNT
    with pytest.raises(UsageError, match="'json'"):
        data.load(ALL, path=str(tmp_path / "x"))


# --- Streams ---


def test_each_epoch_reads_the_shards_anew(bucket: str) -> None:
    train = Dataset(bucket, conversions=[Decode("jpg"), Resize("jpg", 4)]).load(ALL)
    one, two = ([label.numpy() for _, label in train] for _ in range(2))
    assert one == two == [number % 5 for number in range(COUNT)]
    assert len(list(train.repeat(3))) == 3 * COUNT


@pytest.mark.parametrize("workers", [0, 1, 3, 16])
def test_the_order_does_not_depend_on_the_workers(workers: int, bucket: str) -> None:
    data = Dataset(bucket, conversions=[], selections=["__key__"])
    assert [key.numpy() for key in data.load(ALL, num_workers=workers)] == [b"%04d" % n for n in range(COUNT)]


def test_shuffled_shards_hold_the_same_samples_in_another_order(bucket: str) -> None:
    train = Dataset(bucket, conversions=[], selections=["__key__"]).load(ALL, shuffle_tar=True)
    orders = [[key.numpy() for key in train] for _ in range(3)]
    plain = [b"%04d" % n for n in range(COUNT)]
    assert all(sorted(order) == plain for order in orders)
    assert any(order != plain for order in orders)
    assert all(set(order[:8]) == set(plain[:8]) for order in orders)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the samples that were read, as they are read."""
    read: list[str] = []
    original = InputFlow.samples

    def samples(self: Any) -> Iterator[Any]:
        for sample in original(self):
            read.append(sample["__key__"])
            yield sample

    monkeypatch.setattr(InputFlow, "samples", samples)
    return read


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_dataset_streams_and_never_holds_a_shard(
    shuffle: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tar(tmp_path / "a.tar", [(f"{n:05d}", {"bin": b"x"}) for n in range(5000)])
    read = counting(monkeypatch)
    data = Dataset(str(tmp_path), conversions=[], selections=["bin"])
    elements = iter(data.load(num_workers=2, shuffle_tar=shuffle, output_types=tf.string, output_shapes=()))
    next(elements)
    assert 0 < len(read) <= (1000 if shuffle else 0) + 4 * 64
    del elements
    gc.collect()


def test_the_first_element_alone_decides_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tar(tmp_path / "a.tar", [(f"{n:05d}", {"bin": b"x"}) for n in range(500)])
    read = counting(monkeypatch)
    Dataset(str(tmp_path), conversions=[], selections=["bin"]).load(num_workers=2)
    assert len(read) < 20


@pytest.mark.xdist_group("s3")
def test_memory_does_not_grow_with_the_shard(tmp_path: Path) -> None:

    write_tar(tmp_path / "a.tar", [(f"{n:03d}", {"bin": bytes(1_000_000)}) for n in range(150)])
    script = f"""
import resource
from tar2tf_cli import Dataset
train = Dataset({str(tmp_path)!r}, conversions=[], selections=["bin"]).load(num_workers=2)
elements = iter(train)
for _ in range(30): next(elements)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(1 for _ in elements) == 120
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = python("-c", script, tensorflow=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 60  # MB, of the 150 that the shard has


@pytest.mark.parametrize("sized", [True, False])
def test_an_error_in_the_stream_names_sample_and_shard_behind_all_samples_before(sized: bool, tmp_path: Path) -> None:
    bad = [(f"{n:04d}", {"jpg": IMAGES[n] if n != 13 else b"GIF89a", "cls": b"1"}) for n in range(20)]
    write_tar(tmp_path / "a.tar", bad)
    ops = [Decode("jpg"), Resize("jpg", 8)] if sized else [Decode("jpg")]
    elements = iter(Dataset(str(tmp_path), conversions=ops).load())
    for _ in range(13):
        next(elements)
    with pytest.raises(tf.errors.OpError, match=r"a\.tar, member 0013\.jpg"):
        next(elements)


@pytest.mark.parametrize(
    "options",
    [{"conversions": [Func(lambda s: 1 / 0)]}, {"selections": ["nothing"]}, {"conversions": [Resize("jpg", 3)]}],
)
def test_an_error_in_the_first_sample_is_raised_by_load(options: dict[str, Any], bucket: str) -> None:
    with pytest.raises(Exception, match=r"train-0\.tar, sample 0000"):
        Dataset(bucket, **options).load(ALL)


def test_a_record_to_pair_that_raises_is_named_with_the_sample(bucket: str) -> None:
    def fails(sample: dict[str, Any]) -> Any:
        return 1 / int(sample["cls"] != 3), 1

    elements = iter(AisDataset(bucket).load_from_tar("train-0.tar", record_to_pair=fails))
    with pytest.raises(tf.errors.OpError, match=r"train-0\.tar, sample 0003.*fails raised ZeroDivisionError"):
        list(elements)


def test_a_truncated_shard_is_an_error_and_no_shorter_epoch(bucket: str, tmp_path: Path) -> None:
    whole = Path(bucket, "train-0.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises((DamagedShardError, tf.errors.OpError), match=r"a\.tar"):
        list(Dataset(str(tmp_path), conversions=[], selections=["cls"]).load())


def test_values_of_another_shape_are_errors_naming_the_sample(bucket: str) -> None:
    data = Dataset(bucket, conversions=[Decode("jpg")], selections=["jpg"])
    with pytest.raises(tf.errors.OpError, match=r"sample 0001.*shape"):
        list(data.load(ALL, output_types=tf.uint8, output_shapes=(40, 30, 3)))


def test_gray_photos_among_others_batch_with_a_number_of_channels_and_without_are_an_error_that_says_so() -> None:
    template = "photos-*.tar*"
    rgb = Dataset(PHOTOS, conversions=[Decode("jpg", channels=3), Resize("jpg", 8)]).load(template)
    assert {image.shape[1:] for image, _ in rgb.batch(8)} == {(8, 8, 3)}
    mixed = Dataset(PHOTOS, conversions=[Decode("jpg"), Resize("jpg", 8)]).load(template)
    with pytest.raises(tf.errors.OpError, match=r"Decode\('jpg', channels=3\)"):
        list(mixed.batch(8))


@pytest.mark.xdist_group("s3")
def test_memory_of_samples_is_used_again_in_a_process_of_tensorflow(tmp_path: Path) -> None:
    data = tf.io.encode_jpeg(np.full((500, 700, 3), 90, np.uint8)).numpy()
    write_tar(tmp_path / "a.tar", [(f"{number:03}", {"jpg": data, "cls": b"1"}) for number in range(60)])
    dataset = Dataset(str(tmp_path)).load("a.tar", num_workers=1)
    for _ in dataset.take(2):
        pass
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in dataset:
        pass
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 60 * 1000, "with new pages for each image there are 1,450"
