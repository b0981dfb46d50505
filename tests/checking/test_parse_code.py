"""What `tar2tf inspect --code` prints runs as it is, and parses every record, whoever wrote the file."""

from __future__ import annotations

import bz2
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from inspect_runs import a_jpeg, a_png
from make_bytes import npy
from shards import PHOTOS, write_tar
from tar2tf_cli import load_dataset
from verify_runs import Ran, a_tar, an_example, convert, framed, some_examples, write


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


def in_pieces() -> bytes:
    """An example whose list of integers is in two pieces, of which TensorFlow's fast parser reads only the first."""
    pieces = b"".join(tf.train.Int64List(value=values).SerializeToString() for values in ([1, 2], [3]))
    feature = b"\x1a" + bytes([len(pieces)]) + pieces
    entry = b"\x0a\x01x\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    example = b"\x0a" + bytes([len(features)]) + features
    assert list(tf.train.Example.FromString(example).features.feature["x"].int64_list.value) == [1, 2, 3]
    return example + an_example(y=7)


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
    "vectors": [an_example(**{"x": [1.0] * n, "x/shape": [n], "y": b"ab", "y/shape": [2]}) for n in (1, 2)],
    "vectors of one number": [an_example(**{"x": 4, "x/shape": [1]}) for n in (1, 2)],
    "vectors that are missing": [an_example(**{"x": [1.0, 2.0], "x/shape": [2]}), an_example(y=1)],
    "lists in pieces": [in_pieces(), an_example(x=[1, 2, 3], y=1)],
    "npy": [an_example(npy=npy(np.ones((n, 3), np.int16))) for n in (1, 2)],
    "tensors": [an_example(t=tf.io.serialize_tensor(np.ones((n, 2), np.float64)).numpy()) for n in (1, 2)],
    "names of any kind": [an_example(**{'a"b\\': 1, "é\n": b"x", "{}": [1.0, 2.0]}) for _ in range(2)],
    "two kinds of lists": [an_example(a=1, b=2), an_example(a=0.5, b=3)],
    "features without values": [tf.train.Example(features={"feature": {"x": {}}}).SerializeToString(), an_example(x=1)],
    "no features": [b"", b""],
    "sequences": [a_sequence(steps) for steps in (1, 4, 2)],
    "sequences and examples": [a_sequence(2), an_example(id=7), a_sequence(1), an_example(id=8, more=b"x")],
    "sequences and examples with lists": [a_sequence(2), *(an_example(ns=[1] * n, bs=[b"x"] * 2) for n in (2, 3))],
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
        if not isinstance(features, dict) or "sequences" in name:
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


def test_a_feature_that_is_named_like_a_feature_list_is_read(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    records = [an_example(**{"tags[]": [1, number]}) for number in range(3)]
    found = run_code(run_inspect(write(tmp_path / "x", framed(*records)), "--code").out)
    assert [one["tags[]"].numpy().tolist() for one in found] == [[1, 0], [1, 1], [1, 2]]


def test_lists_beside_sequences_are_vectors(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    found = parsed(tmp_path, run_inspect, "sequences and examples with lists")
    assert [one["ns"].numpy().tolist() for one in found] == [[], [1, 1], [1, 1, 1]]
    assert [one["bs"].numpy().tolist() for one in found] == [[], [b"x", b"x"], [b"x", b"x"]]


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


SHAPES: dict[str, tuple[int, ...]] = {"number": (), "vector": (3,), "one": (1,), "none": (0,), "matrix": (2, 3)}


DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


@pytest.mark.parametrize("lacking", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_kind_that_we_write_are_those_that_load_dataset_gives(
    tmp_path: Path, run_inspect: Callable[..., Ran], dtype: str, lacking: bool
) -> None:
    arrays = {f"{name}.npy": npy((np.ones(shape) / 3 + 1).astype(dtype)) for name, shape in SHAPES.items()}
    contents = [(f"{n}", {**arrays, "v.npy": npy(np.ones(n, dtype))}) for n in range(3)]
    if lacking:
        contents.append(("3", {"cls": b"1"}))
        arrays.pop("number.npy")
    tar = write_tar(tmp_path / "in.tar", contents)
    func = tmp_path / "decode.py"
    func.write_text(
        "import io, numpy as np\n"
        "def fn(s):\n"
        "    return {k: np.load(io.BytesIO(v)) if k.endswith('npy') else v for k, v in s.items()}\n"
    )
    assert convert(tar, "-o", tmp_path / "out" / "x.record", "--op", f"func:{func}:fn").code == 0
    loaded = list(load_dataset(tmp_path / "out"))
    several = ["_x-manifest.json", *(["", "x.record"] if dtype == "float64" else [])]
    for named in (tmp_path / "out" / name for name in several):
        parsed = run_code(run_inspect(named, "--code").out)
        assert len(parsed) == len(loaded)
        for one, other in zip(parsed, loaded, strict=True):
            for name in (*arrays, "v.npy"):
                assert one[name].dtype == other[name].dtype
                assert one[name].shape == other[name].shape
                assert one[name].numpy().tobytes() == other[name].numpy().tobytes()


CODE = """\
{comments}feature_description = {{
{features}}}


@tf.autograph.experimental.do_not_convert
def parse(record):
{body}

files = [
    {path!r},
]
dataset = tf.data.TFRecordDataset(files)
dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
"""


def test_what_cannot_be_parsed_is_said_in_a_comment(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    valueless = tf.train.Example(features={"feature": {"x": {}, "y": {}}}).SerializeToString()
    parsed = "    features = tf.io.parse_single_example(record, feature_description)\n    return features\n"
    two = "is a list of bytes in some records, of int64 in others, which TensorFlow cannot parse"
    others = (
        "# {} of {} records are not tf.train.Examples, so parsing them fails:\n"
        "# tar2tf verify lists them, and verify --salvage writes the others to a new file.\n"
    )
    number = '    "{}": tf.io.FixedLenFeature([], tf.int64),  # int64\n'
    for records, comments, features, body in (
        ([an_example(a=1), b"\xffab", an_example(a=2)], others.format(1, 3), number.format("a"), parsed),
        ([b"\xffab", an_example(a=1), b"\xff"], others.format(2, 3), number.format("a"), parsed),
        ([valueless], "", '    # "x" has no values\n    # "y" has no values\n', "    return record\n"),
        ([an_example(a=1, b=1), an_example(a=b"x", b=2)], "", f'    # "a" {two}\n{number.format("b")}', parsed),
    ):
        path = write(tmp_path / "x.record", framed(*records))
        code = run_inspect(path, "--code").out
        text = CODE.format(comments=comments, features=features, body=body, path=str(path)).replace("'", '"')
        assert code == f"import tensorflow as tf\n\n{text}"


def test_a_compression_that_tensorflow_does_not_read_is_an_error(
    tmp_path: Path, run_inspect: Callable[..., Ran]
) -> None:
    path = write(tmp_path / "x.record", bz2.compress(framed(*some_examples(3))))
    ran = run_inspect(path, "--code")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: TensorFlow does not read TFRecord compressed with bzip2\n"


def test_only_code_that_reads_arrays_imports_numpy(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    tar = write_tar(tmp_path / "in.tar", [("0", {"cls": b"1", "npy": npy(np.ones((2, 3)))})])
    for name, options in (("array", ()), ("number", ("--op", "keep:cls"))):
        assert convert(tar, "-o", tmp_path / name / "x.record", *options).code == 0
        code = run_inspect(tmp_path / name, "--code").out
        assert ("import numpy" in code, "import threading" in code) == (name == "array",) * 2


def test_a_raw_array_without_a_manifest_stays_bytes(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    tar = write_tar(tmp_path / "in.tar", [("0", {"npy": npy(np.ones((2, 3)))})])
    assert convert(tar, "-o", tmp_path / "out" / "x.record", "--op", "decode:npy").code == 0
    (tmp_path / "out" / "_x-manifest.json").unlink()
    (parsed,) = run_code(run_inspect(tmp_path / "out", "--code").out)
    assert parsed["npy"].numpy() == np.ones((2, 3)).tobytes()


@pytest.mark.parametrize("preset", ["image-label", "imagenet", "imagenet-tensor", "webdataset"])
def test_what_presets_write_is_parsed(tmp_path: Path, run_inspect: Callable[..., Ran], preset: str) -> None:
    sample = {"jpg": a_jpeg(), "cls": b"1", **({"npy": npy(np.ones(3))} if preset == "webdataset" else {})}
    tar = write_tar(tmp_path / "in.tar", [("a", sample), ("b", sample)])
    assert convert(tar, "-o", tmp_path / "out" / "x.record", "--preset", preset).code == 0
    (first, _) = run_code(run_inspect(tmp_path / "out", "--code").out)
    assert any(value.dtype == tf.uint8 and value.shape == (8, 16, 3) for value in first.values())


def test_many_files_are_named_by_a_glob(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    for number in range(30):
        write(tmp_path / f"x-{number:05d}", framed(*some_examples(1)))
    code = run_inspect(tmp_path, "--code").out
    assert len(code.splitlines()) < 25
    assert len(run_code(code)) == 30


def test_code_is_for_shards_of_one_kind(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    write(tmp_path / "x.tar", a_tar([("a.jpg", b"x")]))
    write(tmp_path / "x.record", framed(an_example(x=1)))
    ran = run_inspect(tmp_path, "--code")
    assert (ran.code, "not for both" in ran.err) == (2, True)


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
