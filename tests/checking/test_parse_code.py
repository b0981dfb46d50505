"""What `tar2tf inspect --code` prints runs as it is, and parses every record, whoever wrote the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from checked import Ran, a_tar, an_example, convert, framed, some_examples, write
from inspected import a_jpeg, a_png
from shards import PHOTOS


def an_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def a_sequence(steps: int) -> bytes:
    sequence = tf.train.SequenceExample()
    sequence.context.feature["id"].int64_list.value.append(steps)
    for number in range(steps):
        sequence.feature_lists.feature_list["frames"].feature.add().bytes_list.value.append(a_png())
        sequence.feature_lists.feature_list["words"].feature.add().int64_list.value.extend(range(number))
    return sequence.SerializeToString()


def a_gray_png() -> bytes:
    return a_png(4, 6, 1)


def boxes(count: int) -> dict[str, Any]:
    """Objects as the Object Detection API writes them."""
    sides = {f"image/object/bbox/{side}": [0.5] * count for side in ("xmin", "xmax", "ymin", "ymax")}
    classes = {"image/object/class/label": [1] * count, "image/object/class/text": [b"cat"] * count}
    return {name: values for name, values in {**sides, **classes}.items() if values}


FILES: dict[str, list[bytes]] = {
    "keys and labels": some_examples(5),
    "classification": [an_example(**{"image/encoded": a_jpeg(), "image/class/label": 3}) for _ in range(3)],
    "object detection": [
        an_example(**{"image/height": 8, "image/encoded": a_jpeg(), "image/format": b"jpeg", **boxes(count)})
        for count in (0, 1, 3)
    ],
    "tfds": [an_example(image=a_png(), label=n, **{"image/filename": b"%d.png" % n}) for n in range(3)],
    "tfds with boxes": [an_example(image=a_jpeg(), **{"objects/bbox": [0.1] * 4 * n}) for n in (1, 2)],
    "keras cv": [an_example(image=a_jpeg(), boxes=[1.0] * 4 * n, classes=[2.0] * n) for n in (1, 4)],
    "waymo": [an_example(**{"state/current/x": [1.5] * 128, "roadgraph_samples/xyz": [0.5] * 60}) for _ in range(2)],
    "features that are missing": [an_example(a=1, b=b"x", c=0.5), an_example(a=2)],
    "lists that are missing": [an_example(a=[1, 2], b=[b"x", b"y"], c=[0.5, 1.5]), an_example(z=1)],
    "images that are missing": [an_example(jpg=a_jpeg(), n=1), an_example(n=2)],
    "an empty image": [an_example(jpg=a_jpeg()), an_example(jpg=b"")],
    "images of two kinds": [an_example(image=a_jpeg()), an_example(image=a_png()), an_example(image=a_gray_png())],
    "gray images": [an_example(image=a_gray_png()) for _ in range(2)],
    "several images": [an_example(frames=[a_png()] * n) for n in (1, 2)],
    "an array of floats": [an_example(**{"x": [1.0] * 6 * n, "x/shape": [2, 3 * n]}) for n in (1, 2)],
    "an array of bytes": [an_example(**{"x": bytes(range(24)), "x/shape": [4, 2, 3]}) for _ in range(2)],
    "npy": [an_example(npy=an_npy(np.ones((n, 3), np.int16))) for n in (1, 2)],
    "tensors": [an_example(t=tf.io.serialize_tensor(np.ones((n, 2), np.float64)).numpy()) for n in (1, 2)],
    "names of any kind": [an_example(**{'a"b\\': 1, "é\n": b"x", "{}": [1.0, 2.0]}) for _ in range(2)],
    "two kinds of lists": [an_example(a=1, b=2), an_example(a=0.5, b=3)],
    "features without values": [tf.train.Example(features={"feature": {"x": {}}}).SerializeToString(), an_example(x=1)],
    "no features": [b"", b""],
    "sequences": [a_sequence(steps) for steps in (1, 4, 2)],
    "raw images": [a_jpeg(), a_png()],
    "raw tensors": [tf.io.serialize_tensor(np.arange(n)).numpy() for n in (1, 3)],
    "raw bytes": [b"\x99\x01\xfe" * 9, b"\x99"],
}  # fmt: skip


def run_code(code: str) -> list[Any]:
    """Run a program as it is, and return what its dataset gives."""
    space: dict[str, Any] = {}
    exec(compile(code, "pasted", "exec"), space)
    return list(space["dataset"])


@pytest.mark.parametrize("name", FILES)
def test_the_code_parses_every_record(tmp_path: Path, run_inspect: Callable[..., Ran], name: str) -> None:
    path = write(tmp_path / "x.tfrecord", framed(*FILES[name]))
    code = run_inspect(path, "--code").out
    parsed = run_code(code)
    assert len(parsed) == len(FILES[name])
    for record, features in zip(FILES[name], parsed, strict=True):
        if not isinstance(features, dict) or name == "sequences":
            continue
        for key, wanted in tf.train.Example.FromString(record).features.feature.items():
            kind = wanted.WhichOneof("kind")
            values = list(getattr(wanted, kind).value) if kind else None
            if not kind:
                continue
            if key in features and features[key].dtype in (tf.int64, tf.float32):
                assert features[key].numpy().ravel().tolist() == pytest.approx(values)
            elif key in features and features[key].dtype == tf.string and values:
                assert features[key].numpy().ravel().tolist() == values if len(values) > 1 else True


def parsed(tmp_path: Path, run_inspect: Callable[..., Ran], name: str) -> list[Any]:
    return run_code(run_inspect(write(tmp_path / "x", framed(*FILES[name])), "--code").out)


def test_images_are_decoded_and_arrays_reshaped(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    def shapes(name: str, feature: str) -> list[list[int]]:
        return [list(features[feature].shape) for features in parsed(tmp_path, run_inspect, name)]

    assert shapes("images of two kinds", "image") == [[8, 16, 3], [3, 5, 3], [4, 6, 3]]
    assert shapes("gray images", "image") == [[4, 6, 1]] * 2
    assert shapes("images that are missing", "jpg") == [[8, 16, 3], [0, 0, 3]]
    assert shapes("an empty image", "jpg") == [[8, 16, 3], [0, 0, 3]]
    assert shapes("an array of floats", "x") == [[2, 3], [2, 6]]
    assert shapes("an array of bytes", "x") == [[4, 2, 3]] * 2
    assert shapes("npy", "npy") == [[1, 3], [2, 3]]
    assert shapes("tensors", "t") == [[1, 2], [2, 2]]
    assert shapes("object detection", "image/object/bbox/xmin") == [[0], [1], [3]]
    assert shapes("sequences", "frames") == [[1], [4], [2]]
    assert [image.shape for image in parsed(tmp_path, run_inspect, "raw images")] == [(8, 16, 3), (3, 5, 3)]
    assert [tensor.shape for tensor in parsed(tmp_path, run_inspect, "raw tensors")] == [(1,), (3,)]


def test_missing_features_have_defaults(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    _, second = parsed(tmp_path, run_inspect, "features that are missing")
    assert (second["a"].numpy(), second["b"].numpy(), second["c"].numpy()) == (2, b"", 0.0)


@pytest.mark.parametrize(
    "arguments", [(), ("--compression", "gzip"), ("--preset", "image-label"), ("--op", "decode:jpg")]
)
def test_our_own_shards_are_parsed(tmp_path: Path, run_inspect: Callable[..., Ran], arguments: tuple[str, ...]) -> None:
    ran = convert(PHOTOS, "-o", tmp_path / "x-<>.record", "--records-per-shard", "6", *arguments)
    assert ran.code == 0, ran.err
    code = run_inspect(tmp_path, "*.record", "--code").out
    decoded = run_code(code)
    assert decoded
    assert any(value.dtype == tf.uint8 and value.shape.rank == 3 for value in decoded[0].values())


def test_many_files_are_named_by_a_glob(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    for number in range(30):
        write(tmp_path / f"x-{number:05d}", framed(*some_examples(1)))
    code = run_inspect(tmp_path, "--code").out
    assert len(code.splitlines()) < 25
    assert len(run_code(code)) == 30


def test_code_is_for_tfrecord_only(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    ran = run_inspect(write(tmp_path / "x.tar", a_tar([("a.jpg", b"x")])), "--code")
    assert (ran.code, "is for TFRecord" in ran.err) == (2, True)


def test_only_one_thing_is_printed(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    path = write(tmp_path / "x", framed(*some_examples(2)))
    for arguments in (("--code", "--json"), ("--keys", "--code"), ("--extract", "x", "--keys")):
        assert run_inspect(path, *arguments).code == 2


@pytest.mark.parametrize("other", ["--keys", "--extract=k", "-n=1"])
def test_a_page_that_would_not_be_written_is_refused(
    other: str, tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    path = write(tmp_path / "x", framed(*some_examples(2)))
    ran = run_inspect(path, *other.split("="), "--html", tmp_path / "x.html")
    assert (ran.code, "--html" in ran.err) == (2, True)
