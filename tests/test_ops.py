"""Ops through the real conversion, with TensorFlow as the oracle; one meaning for flag, spec file and Python class."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
import pytest
import skimage.data
import tensorflow as tf
from ruamel.yaml import YAML

from shards import examples, tree, write_tar
from tar2tf_cli import load_dataset
from tar2tf_cli.conversion.run import Summary, convert
from tar2tf_cli.errors import ImageError, SampleError, Tar2tfError, UsageError
from tar2tf_cli.ops import (
    OPS,
    Cast,
    CenterCrop,
    Convert,
    Decode,
    DropEmpty,
    Encode,
    Func,
    Keep,
    Op,
    OpContext,
    Rename,
    Resize,
    Rotate,
    from_cli,
    from_yaml,
)
from tar2tf_cli.ops.base import apply_ops
from tar2tf_cli.spec.conversion import Conversion, Input, Output

SIZES = [(24, 32), (31, 17), (40, 40), (9, 50), (24, 33), (64, 48)]


def encoded(size: tuple[int, int], format: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """A photograph of a height and width."""
    file = io.BytesIO()
    image = PIL.Image.fromarray(skimage.data.astronaut()).resize(size[::-1]).convert(mode)
    image.save(file, format, **({"quality": 90} if format == "JPEG" else {}), **options)
    return file.getvalue()


IMAGES = {f"{number:04d}": encoded(size, mode="L" if number == 1 else "RGB") for number, size in enumerate(SIZES)}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of JPEGs of different sizes, one of them gray, with a class each."""
    folder = tmp_path_factory.mktemp("images")
    found = [(key, {"jpg": data, "cls": key[-1:].encode()}) for key, data in IMAGES.items()]
    write_tar(folder / "a.tar", found[:3])
    write_tar(folder / "b.tar", found[3:])
    return folder


def run(bucket: Path, out: Path, *ops: Op, workers: int = 1, **options: Any) -> Summary:
    """A conversion of a bucket to `out/all.record`."""
    output = Output(str(out / "all.record"))
    return convert(Conversion(Input(str(bucket)), output, ops=ops, **options), workers=workers)


def loaded(bucket: Path, out: Path, *ops: Op, **options: Any) -> list[dict[str, tf.Tensor]]:
    """What `load_dataset` returns of a conversion."""
    manifest = run(bucket, out, *ops, **options).manifest
    assert manifest
    return list(load_dataset(manifest))


# --- Each op and chains of them, against TensorFlow ---


def decoded(data: bytes) -> tf.Tensor:
    return tf.io.decode_image(data, expand_animations=False)


def cropped(image: tf.Tensor) -> tf.Tensor:
    height, width = image.shape[:2]
    side = min(height, width)
    return tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)


def turned(image: tf.Tensor) -> tf.Tensor:
    return tf.image.rot90(image, 3)


TO = tf.image.convert_image_dtype
BY = tf.image.resize
D = Decode("jpg")
CHAINS: dict[str, tuple[Sequence[Op], Callable[[bytes], tf.Tensor], float]] = {
    "decode": ([D], decoded, 0),
    **{
        f"convert to {dtype}": ([D, Convert("jpg", dtype)], lambda b, dtype=dtype: TO(decoded(b), dtype), 0)
        for dtype in ("uint8", "float16", "float32", "uint16", "int16", "int32", "int64")
    },
    "resize up and down": ([D, Resize("jpg", (28, 36))], lambda b: BY(decoded(b), (28, 36)), 0.01),
    "resize of floats": (
        [D, Convert("jpg", "float32"), Resize("jpg", (20, 20))],
        lambda b: BY(TO(decoded(b), tf.float32), (20, 20)),
        0.01 / 255,
    ),
    "the original's defaults": (
        [D, Convert("jpg", "float32"), Resize("jpg", (224, 224))],
        lambda b: BY(TO(decoded(b), tf.float32), (224, 224)),
        0.01 / 255,
    ),
    "resize, cast": ([D, Resize("jpg", (20, 30)), Cast("jpg", "uint8")], lambda b: BY(decoded(b), (20, 30)), 1.01),
    "cast to int8": ([D, Cast("jpg", "int8")], lambda b: tf.saturate_cast(decoded(b), tf.int8), 0),
    "cast to float32": ([D, Cast("jpg", "float32")], lambda b: tf.saturate_cast(decoded(b), tf.float32), 0),
    "cast to int32": ([D, Cast("jpg", "int32")], lambda b: tf.saturate_cast(decoded(b), tf.int32), 0),
    "rotate by 90": ([D, Rotate("jpg", 90)], lambda b: turned(decoded(b)), 0),
    "rotate by -90": ([D, Rotate("jpg", -90)], lambda b: tf.image.rot90(decoded(b), 1), 0),
    "rotate by 180": ([D, Rotate("jpg", 180)], lambda b: tf.image.rot90(decoded(b), 2), 0),
    "rotate by 360": ([D, Rotate("jpg", 360)], decoded, 0),
    "center_crop": ([D, CenterCrop("jpg")], lambda b: cropped(decoded(b)), 0),
    "all of them": (
        [D, CenterCrop("jpg"), Rotate("jpg", 90), Resize("jpg", (18, 18)), Convert("jpg", "float16")],
        lambda b: tf.cast(BY(turned(cropped(decoded(b))), (18, 18)), tf.float16),
        0.13,  # half a unit of the last place of float16 below 256
    ),
    "encode to png": (
        [D, Encode("jpg", "png"), D, Rotate("jpg", 90)],
        lambda b: turned(decoded(tf.io.encode_png(decoded(b)))),
        0,
    ),
    "encode to jpeg": (
        [D, Encode("jpg", "jpeg", 80), D],
        lambda b: decoded(tf.io.encode_jpeg(decoded(b), quality=80, chroma_downsampling=True)),
        0,
    ),
    "an order": (
        [D, Resize("jpg", (11, 13)), Rotate("jpg", 90), Resize("jpg", (20, 20))],
        lambda b: BY(turned(BY(decoded(b), (11, 13))), (20, 20)),
        0.02,
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_ops_in_a_conversion_do_what_tensorflow_does(chain: str, bucket: Path, tmp_path: Path) -> None:
    ops, oracle, tolerance = CHAINS[chain]
    found = loaded(bucket, tmp_path, *ops)
    assert [item["__key__"].numpy().decode() for item in found] == list(IMAGES)
    for item, data in zip(found, IMAGES.values(), strict=True):
        expected = oracle(data)
        image = item["jpg"]
        assert image.shape == expected.shape
        if chain != "resize, cast":
            assert image.dtype == expected.dtype
        if tolerance:
            assert np.abs(image.numpy().astype("f8") - expected.numpy().astype("f8")).max() <= tolerance
        else:
            np.testing.assert_array_equal(image, expected)


def test_a_cast_of_what_was_resized_saturates_and_truncates(bucket: Path, tmp_path: Path) -> None:
    found = loaded(bucket, tmp_path, Decode("jpg"), Resize("jpg", (50, 60)), Cast("jpg", "uint8"))
    apart = []
    for item, data in zip(found, IMAGES.values(), strict=True):
        assert item["jpg"].dtype == tf.uint8
        expected = tf.saturate_cast(BY(decoded(data), (50, 60)), tf.uint8)
        apart.append(np.abs(item["jpg"].numpy().astype(int) - expected.numpy().astype(int)))
    assert max(part.max() for part in apart) <= 1
    assert np.mean([part.mean() for part in apart]) < 0.003  # where a whole number lies within the tolerance of resize


def test_float64_pixels_are_stored_as_the_floats_an_example_has(bucket: Path, tmp_path: Path) -> None:
    found = loaded(bucket, tmp_path, Decode("jpg"), Convert("jpg", "float64"))
    for item, data in zip(found, IMAGES.values(), strict=True):
        np.testing.assert_array_equal(item["jpg"], tf.cast(TO(decoded(data), tf.float64), tf.float32))


@pytest.mark.parametrize("format", ["PNG", "BMP"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_png_and_bmp_are_decoded_whatever_they_are_called(format: str, mode: str, tmp_path: Path) -> None:
    data = encoded((20, 31), format, mode)
    write_tar(tmp_path / "in" / "a.tar", [("0001", {"jpg": data})])
    (item,) = loaded(tmp_path / "in", tmp_path / "out", Decode("jpg"))
    np.testing.assert_array_equal(item["jpg"], decoded(data))


@pytest.mark.parametrize(
    "chain",
    [
        [D, Rotate("jpg"), Resize("jpg", (32, 32)), Cast("jpg", "uint8")],
        [D, CenterCrop("jpg"), Encode("jpg", "jpeg"), Rename(image="jpg"), Keep("image")],
        [D, Convert("jpg", "float32")],
    ],
    ids=["random", "encode", "floats"],
)
def test_any_number_of_workers_gives_the_same_bytes(chain: list[Op], bucket: Path, tmp_path: Path) -> None:
    outputs = []
    for workers in (1, 2):
        run(bucket, tmp_path / str(workers), *chain, workers=workers)
        outputs.append(tree(tmp_path / str(workers)))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 2


def test_random_angles_differ_by_key_and_by_seed(bucket: Path, tmp_path: Path) -> None:
    def images(folder: str, *ops: Op, **options: Any) -> list[np.ndarray]:
        return [item["jpg"].numpy() for item in loaded(bucket, tmp_path / folder, D, *ops, **options)]

    plain, zero, one = images("plain"), images("0", Rotate("jpg")), images("1", Rotate("jpg"), seed=1)
    assert all(not np.array_equal(a, b) for a, b in zip(plain, zero, strict=True))
    assert all(not np.array_equal(a, b) for a, b in zip(zero, one, strict=True))
    again = images("again", Rotate("jpg", 0))
    assert all(np.array_equal(a, b) for a, b in zip(zero, again, strict=True))


def test_a_random_angle_does_not_depend_on_the_samples_before(bucket: Path, tmp_path: Path) -> None:
    all_of_them = loaded(bucket, tmp_path / "all", D, Rotate("jpg"))
    output = Output(str(tmp_path / "b" / "all.record"))
    summary = convert(Conversion(Input(str(bucket), ("b.tar",)), output, ops=(D, Rotate("jpg"))), workers=1)
    for one, other in zip(all_of_them[3:], load_dataset(summary.manifest), strict=True):
        np.testing.assert_array_equal(one["jpg"], other["jpg"])


# --- Flag, spec file and class mean the same ---

GRAMMAR: list[tuple[str, str, Sequence[Callable[[], Op]]]] = [
    ("decode:jpg", "decode: jpg", [lambda: Decode("jpg"), lambda: Decode(ext_name="jpg"), lambda: Decode(ext="jpg")]),
    ("decode:seg.png", "decode: {ext: seg.png}", [lambda: Decode("seg.png")]),
    (
        "convert:jpg,float32",
        "convert: {ext: jpg, dtype: float32}",
        [
            lambda: Convert("jpg", "float32"),
            lambda: Convert("jpg", tf.float32),
            lambda: Convert("jpg", np.float32),
            lambda: Convert("jpg", np.dtype("float32")),
            lambda: Convert("jpg", float),
            lambda: Convert(ext_name="jpg", dst_type=tf.float32),
        ],
    ),
    ("convert:jpg,float16", "convert: [jpg, float16]", [lambda: Convert("jpg", tf.half)]),
    (
        "resize:jpg,224x320",
        "resize: {ext: jpg, size: [224, 320]}",
        [
            lambda: Resize("jpg", (224, 320)),
            lambda: Resize("jpg", [224, 320]),
            lambda: Resize("jpg", np.array([224, 320])),
            lambda: Resize(ext_name="jpg", dst_size=(224, 320)),
        ],
    ),
    ("resize:jpg,32", "resize: {ext: jpg, size: 32}", [lambda: Resize("jpg", 32), lambda: Resize("jpg", (32, 32))]),
    ("resize:jpg,9x8", "resize: {ext: jpg, size: 9x8}", [lambda: Resize("jpg", "9x8")]),
    (
        "rotate:jpg,90",
        "rotate: {ext: jpg, angle: 90}",
        [lambda: Rotate("jpg", 90), lambda: Rotate(ext_name="jpg", angle=90), lambda: Rotate("jpg", 90.0)],
    ),
    ("rotate:jpg,-12.5", "rotate: [jpg, -12.5]", [lambda: Rotate("jpg", -12.5)]),
    ("rotate:jpg", "rotate: jpg", [lambda: Rotate("jpg"), lambda: Rotate("jpg", 0), lambda: Rotate(ext_name="jpg")]),
    ("rotate:jpg,0", "rotate: {ext: jpg, angle: 0}", [lambda: Rotate("jpg")]),
    ("center_crop:jpg", "center_crop: jpg", [lambda: CenterCrop("jpg"), lambda: CenterCrop(ext_name="jpg")]),
    (
        "cast:jpg,uint8",
        "cast: {ext: jpg, dtype: uint8}",
        [lambda: Cast("jpg", "uint8"), lambda: Cast("jpg", tf.uint8), lambda: Cast(ext_name="jpg", dst_type=np.uint8)],
    ),
    ("cast:jpg,int32", "cast: 'jpg,int32'", [lambda: Cast("jpg", int)]),
    ("encode:jpg", "encode: jpg", [lambda: Encode("jpg"), lambda: Encode("jpg", "jpeg", 95)]),
    (
        "encode:jpg,jpeg,quality=90",
        "encode: {ext: jpg, format: jpeg, quality: 90}",
        [lambda: Encode("jpg", "jpeg", 90), lambda: Encode(ext_name="jpg", quality=90)],
    ),
    ("encode:jpg,quality=80,format=jpeg", "encode: {ext: jpg, quality: 80}", [lambda: Encode("jpg", quality=80)]),
    ("encode:jpg,png", "encode: [jpg, png]", [lambda: Encode("jpg", "png")]),
    (
        "rename:image=jpg,jpeg",
        "rename: {image: [jpg, jpeg]}",
        [
            lambda: Rename(image=["jpg", "jpeg"]),
            lambda: Rename({"image": ["jpg", "jpeg"]}),
            lambda: Rename(image="jpg;jpeg"),
        ],
    ),
    ("rename:image=jpg,label=cls", "rename: {image: jpg, label: cls}", [lambda: Rename(image="jpg", label=["cls"])]),
    (
        "keep:jpg,prefix:seg,suffix:png,contains:mask,cls=3",
        "keep: [jpg, prefix:seg, suffix:png, contains:mask, cls=3]",
        [lambda: Keep("jpg", "prefix:seg", "suffix:png", "contains:mask", "cls=3")],
    ),
    ("keep:jpg", "keep: jpg", [lambda: Keep("jpg")]),
    ("drop_empty", "drop_empty", [DropEmpty]),
    ("func:posixpath:basename", "func: posixpath:basename", [lambda: Func("posixpath:basename")]),
]


@pytest.mark.parametrize(("flag", "yaml", "classes"), GRAMMAR, ids=[flag for flag, _, _ in GRAMMAR])
def test_an_op_is_the_same_as_flag_in_yaml_and_in_python(
    flag: str, yaml: str, classes: Sequence[Callable[[], Op]]
) -> None:
    op = from_cli(flag)
    assert from_yaml(YAML(typ="safe").load(yaml)).canonical() == op.canonical()
    assert from_yaml(flag).canonical() == op.canonical()
    for make in classes:
        assert make().canonical() == op.canonical()
    assert from_yaml(op.canonical()).canonical() == op.canonical()
    if not isinstance(op, Func):
        assert from_yaml(op.canonical()) == op
        assert hash(op) == hash(from_cli(flag))


def test_every_op_is_among_those_whose_grammar_is_tested() -> None:
    assert {flag.partition(":")[0] for flag, _, _ in GRAMMAR} == set(OPS)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("resise:jpg,2x2", ["resise", "'resize'"]),
        ("decode", ["decode", "'ext'"]),
        ("decode:jpg,png", ["decode", "1 values at most"]),
        ("decode:exd=jpg", ["decode", "'exd'", "'ext'"]),
        ("decode:jpg,ext=png", ["decode", "'ext'", "twice"]),
        ("convert:jpg", ["convert", "'dtype'"]),
        ("convert:jpg,float31", ["convert", "dtype", "float32", "'float31'"]),
        ("cast:jpg,bool", ["cast", "dtype", "'bool'"]),
        ("resize:jpg", ["resize", "'size'"]),
        ("resize:jpg,0x5", ["resize", "size", "'0x5'"]),
        ("resize:jpg,1x2x3", ["resize", "size"]),
        ("resize:jpg,ax5", ["resize", "size"]),
        ("resize:jpg,sise=4", ["resize", "'sise'", "'size'"]),
        ("resize:size=4x4,jpg", ["resize", "'size'", "twice"]),
        ("rotate:jpg,north", ["rotate", "angle", "'north'"]),
        ("rotate:jpg,nan", ["rotate", "angle"]),
        ("rotate:jpg,inf", ["rotate", "angle"]),
        ("encode:jpg,gif", ["encode", "format", "'gif'"]),
        ("encode:jpg,jpeg,0", ["encode", "quality"]),
        ("encode:jpg,jpeg,101", ["encode", "quality"]),
        ("encode:jpg,qualitty=9", ["encode", "'qualitty'", "'quality'"]),
        ("rename:jpg", ["rename", "name"]),
        ("rename:image=", ["rename"]),
        ("keep:", ["keep", "rule"]),
        ("keep:sufix:png", ["keep", "'sufix'", "'suffix'"]),
        ("drop_empty:jpg", ["drop_empty", "0 values"]),
        ("func:nowhere_at_all:f", ["func", "nowhere_at_all"]),
        ("func:posixpath:basenam", ["func", "'basenam'"]),
        ("func:nowhere.py:f", ["func", "nowhere.py"]),
        ("func:posixpath", ["func", "MODULE:NAME"]),
        ("func:posixpath:sep", ["func", "callable"]),
    ],
)
def test_a_wrong_op_says_which_what_and_the_nearest_name(flag: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        from_cli(flag)
    for word in words:
        assert word in str(caught.value)
    with pytest.raises(ValueError, match=words[0]):
        from_yaml(flag)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"resize": {"ext": "jpg"}}, ["resize", "'size'"]),
        ({"resize": ["jpg", 2, 3]}, ["resize", "2 values"]),
        ({"decode": 5}, ["decode", "ext", "5"]),
        ({"decode": None}, ["decode", "'ext'"]),
        ({"decode": {"ext": ""}}, ["decode", "ext"]),
        ({"resize": {1: 2}}, ["resize", "1"]),
        ({"rename": [1]}, ["rename", "mapping"]),
        ({"rename": {"image": 5}}, ["rename", "5"]),
        ({"rename": {}}, ["rename"]),
        ({"keep": []}, ["keep"]),
        ({"func": {"a": 1}}, ["func"]),
        ({"decode": "jpg", "cast": "jpg"}, ["one name"]),
        ([], ["one name"]),
        ({}, ["one name"]),
        ({7: 7}, ["7"]),
    ],
)
def test_a_wrong_op_of_a_spec_file_says_what_is_wrong(item: Any, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        from_yaml(item)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Decode(5),
        lambda: Convert("jpg", "floaty"),
        lambda: Convert("jpg", tf.string),
        lambda: Resize("jpg", (0, 1)),
        lambda: Resize("jpg", None),
        lambda: Rotate("jpg", "x"),
        lambda: Encode("jpg", "webp"),
        lambda: Rename(),
        lambda: Rename(a=[]),
        Keep,
        lambda: Keep(3),
        lambda: Func(3),
    ],
)
def test_wrong_arguments_of_a_class_are_value_errors(make: Callable[[], Op]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()


# --- Entries: keep, rename, drop_empty as go-tfdata has them ---


def through(sample: dict[str, Any], *ops: Op) -> list[dict[str, Any]]:
    return list(apply_ops({"__key__": "k", **sample}, ops, OpContext()))


ENTRIES = {"jpg": b"i", "seg.png": b"s", "mask.a": b"m", "png": b"p", "cls": b"3\n"}


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (["jpg"], {"jpg"}),
        (["jp"], set()),
        (["prefix:seg"], {"seg.png"}),
        (["suffix:png"], {"seg.png", "png"}),
        (["contains:ask"], {"mask.a"}),
        (["cls=3"], {"cls"}),
        (["cls=4"], set()),
        (["jpg=3"], set()),
        (["jpg", "cls=3", "prefix:mask"], {"jpg", "cls", "mask.a"}),
        (["jpg", "jpg"], {"jpg"}),
        (["__key__"], set()),
    ],
)
def test_keep_is_the_union_of_its_rules(rules: list[str], kept: set[str]) -> None:
    (sample,) = through(dict(ENTRIES), Keep(*rules))
    assert set(sample) == {"__key__", *kept}
    assert all(sample[name] is ENTRIES[name] for name in kept)


def test_rename_takes_the_first_source_that_is_present() -> None:
    op = Rename(image=["jpg", "png"], label="cls")
    assert through({"png": b"p", "jpg": b"j", "cls": b"1"}, op) == [
        {"__key__": "k", "png": b"p", "image": b"j", "label": b"1"}
    ]
    assert through({"png": b"p", "cls": b"1"}, op) == [{"__key__": "k", "image": b"p", "label": b"1"}]
    assert through({"image": b"i", "cls": b"1"}, op) == [{"__key__": "k", "image": b"i", "label": b"1"}]


def test_rename_without_any_source_is_an_error_naming_both() -> None:
    with pytest.raises(SampleError, match=r"jpg, jpeg.*'image'"):
        through({"png": b"p"}, Rename(image=["jpg", "jpeg"]))


def test_samples_without_entries_are_dropped_and_others_are_not(bucket: Path, tmp_path: Path) -> None:
    found = loaded(bucket, tmp_path, Keep("cls=2", "cls=5"), DropEmpty())
    assert [item["__key__"].numpy() for item in found] == [b"0002", b"0005"]
    assert [item["cls"].numpy() for item in found] == [b"2", b"5"]


def test_a_conversion_that_drops_everything_leaves_an_empty_dataset(bucket: Path, tmp_path: Path) -> None:
    summary = run(bucket, tmp_path, Keep("nothing"), DropEmpty())
    assert (summary.records, summary.shards) == (0, [])
    assert list(load_dataset(summary.manifest)) == []


# --- Your function ---

FUNCTIONS = """
import numpy as np

def upper(sample):
    return {"text": sample["cls"].decode() + "!", "key": sample["__key__"]}

def twice(sample):
    for number in range(2):
        yield {"number": number, "cls": sample["cls"]}

def even(sample):
    return sample if int(sample["cls"]) % 2 == 0 else None

def listed(sample):
    return [{"__key__": sample["__key__"] + "-a", "x": 1}, {"__key__": sample["__key__"] + "-b", "x": 2}]

def fails(sample):
    if sample["cls"] == b"4":
        raise LookupError("no such thing")
    return sample

def fails_late(sample):
    yield sample
    if sample["__key__"] == "0001":
        raise LookupError("no such thing")

def number(sample):
    return 5

def numbers(sample):
    return [1, 2]

def text(sample):
    return "abc"

def odd_names(sample):
    return {5: 6}

def odd_key(sample):
    return {"__key__": 7, "cls": b"1"}

def alien(sample):
    return {**sample, "thing": object()}

class Namespace:
    @staticmethod
    def inner(sample):
        return {"inner": 1}
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of functions, which is a module of the same name, too."""
    path = tmp_path / "fns" / f"own_functions_{tmp_path.name}.py"
    path.parent.mkdir()
    path.write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def test_a_function_is_found_in_a_module_in_a_file_and_as_it_is(functions: Path, bucket: Path, tmp_path: Path) -> None:
    ways = {
        "file": Func(f"{functions}:upper"),
        "module": Func(f"{functions.stem}:upper"),
        "itself": Func(lambda sample: {"text": sample["cls"].decode() + "!", "key": sample["__key__"]}),
        "flag": from_cli(f"func:{functions}:upper"),
    }
    for name, op in ways.items():
        run(bucket, tmp_path / name, op)
        assert examples(tmp_path / name / "all.record")[1] == {"__key__": [b"0001"], "key": [b"0001"], "text": [b"1!"]}
    run(bucket, tmp_path / "inner", Func(f"{functions}:Namespace.inner"))
    assert examples(tmp_path / "inner" / "all.record")[0]["inner"] == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_in_a_file_runs_in_workers(workers: int, functions: Path, bucket: Path, tmp_path: Path) -> None:
    run(bucket, tmp_path / "out", Func(f"{functions}:twice"), workers=workers)
    found = examples(tmp_path / "out" / "all.record")
    assert [(item["__key__"][0], item["number"][0]) for item in found] == [
        (key.encode(), number) for key in IMAGES for number in range(2)
    ]


def test_a_lambda_runs_in_workers(bucket: Path, tmp_path: Path) -> None:
    offset = 40
    run(bucket, tmp_path, Func(lambda sample: {"n": int(sample["cls"]) + offset}), workers=2)
    assert [item["n"] for item in examples(tmp_path / "all.record")] == [[40 + number] for number in range(6)]


def test_none_drops_a_sample_and_a_list_makes_several(functions: Path, bucket: Path, tmp_path: Path) -> None:
    run(bucket, tmp_path / "out", Func(f"{functions}:even"), Func(f"{functions}:listed"))
    keys = [item["__key__"][0].decode() for item in examples(tmp_path / "out" / "all.record")]
    assert keys == ["0000-a", "0000-b", "0002-a", "0002-b", "0004-a", "0004-b"]


@pytest.mark.parametrize(
    ("name", "key", "words", "workers"),
    [
        ("fails", "0004", ["raised LookupError: no such thing"], 1),
        ("fails", "0004", ["raised LookupError: no such thing"], 2),
        ("fails_late", "0001", ["raised LookupError: no such thing"], 1),
        ("number", "0000", ["returned int"], 1),
        ("numbers", "0000", ["int", "sample"], 1),
        ("text", "0000", ["returned str"], 1),
        ("odd_names", "0000", ["dict", "text keys"], 1),
        ("odd_key", "0000", ["__key__", "7"], 2),
    ],
)
def test_a_function_that_misbehaves_is_named_with_sample_and_shard(
    name: str, key: str, words: list[str], workers: int, functions: Path, bucket: Path, tmp_path: Path
) -> None:
    with pytest.raises(SampleError) as caught:
        run(bucket, tmp_path / "out", Func(f"{functions}:{name}"), workers=workers)
    message = str(caught.value)
    assert f"{functions}:{name}" in message
    assert caught.value.key == key
    assert caught.value.shard == str(bucket / ("a.tar" if key < "0003" else "b.tar"))
    for word in [key, caught.value.shard, *words]:
        assert word in message
    assert not (tmp_path / "out" / "all.record").exists()


def test_what_cannot_become_a_feature_is_named_with_the_sample(functions: Path, bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"a\.tar, sample 0000.*'thing'.*object"):
        run(bucket, tmp_path / "out", Func(f"{functions}:alien"))


def test_faulty_samples_of_a_function_are_passed_over_if_wanted(functions: Path, bucket: Path, tmp_path: Path) -> None:
    summary = run(bucket, tmp_path / "out", Func(f"{functions}:fails"), on_error="skip")
    assert (summary.records, summary.skipped_samples) == (5, 1)
    assert summary.errors[0]["key"] == "0004"


def test_a_function_that_cannot_be_pickled_is_named_and_works_in_this_process(bucket: Path, tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()

    def locked(sample: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return sample

    with pytest.raises(UsageError, match=r"test_ops:.*locked.*pickled") as caught:
        run(bucket, tmp_path / "two", Func(locked), workers=2)
    assert "one worker" in (caught.value.hint or "")
    assert run(bucket, tmp_path / "one", Func(locked), workers=1).records == 6


def scaled(sample: dict[str, Any], factor: int) -> dict[str, Any]:
    return {"n": int(sample["cls"]) * factor}


def test_a_function_that_changed_is_another_conversion(functions: Path, bucket: Path, tmp_path: Path) -> None:
    def made(number: int) -> Func:
        return Func(lambda sample: {"n": number})

    assert made(1).canonical() == made(1).canonical()
    assert made(1).canonical() != made(2).canonical()
    assert Func(partial(scaled, factor=2)).canonical() != Func(partial(scaled, factor=3)).canonical()
    assert Func(partial(scaled, factor=2)).canonical() == Func(partial(scaled, factor=2)).canonical()
    one = Func(lambda sample: {"n": 1})
    other = Func(lambda sample: {"n": 2})
    assert one.canonical() != other.canonical()
    before = Func(f"{functions}:upper").canonical()
    functions.write_text(FUNCTIONS + "\n# changed\n")
    assert Func(f"{functions}:upper").canonical() != before
    run(bucket, tmp_path / "out", one)
    assert run(bucket, tmp_path / "out", one).up_to_date
    with pytest.raises(UsageError):
        run(bucket, tmp_path / "out", other)


def test_functions_without_a_file_are_told_apart_by_their_code() -> None:
    def made(source: str) -> dict[str, Any]:
        space: dict[str, Any] = {"__name__": "__notebook__"}
        exec(source, space)
        return Func(space["f"]).canonical()

    assert made("f = lambda s: {'n': 1}") == made("f = lambda s: {'n': 1}")
    assert made("f = lambda s: {'n': 1}") != made("f = lambda s: {'n': 2}")
    assert made("def f(s):\n  def g(): return 1\n  return {'n': g()}") != made(
        "def f(s):\n  def g(): return 2\n  return {'n': g()}"
    )


# --- What cannot be decoded ---


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (encoded((8, 8), "GIF", "P"), "GIF"),
        (encoded((8, 8), "WEBP"), "WEBP"),
        (encoded((8, 8), "TIFF"), "TIFF"),
        (b"plain text", "plain"),
        (b"", "empty"),
        (encoded((8, 8))[:200], "JPEG"),
        (encoded((8, 8), "PNG")[:-30], "PNG"),
    ],
    ids=["gif", "webp", "tiff", "text", "empty", "cut jpeg", "cut png"],
)
def test_what_is_no_jpeg_png_or_bmp_fails_with_the_members_name(data: bytes, word: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("good", {"jpg": IMAGES["0000"]}), ("bad", {"jpg": data})])
    with pytest.raises(ImageError, match=word) as caught:
        run(tmp_path / "in", tmp_path / "out", Decode("jpg"))
    assert caught.value.key == "bad"
    assert caught.value.member == "bad.jpg"
    assert "a.tar, member bad.jpg" in str(caught.value)


def bomb(height: int, width: int) -> bytes:
    """The header of a PNG of any size and a few bytes that are no pixels."""
    import struct
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "options",
    [{"ops": (D,)}, {"preset": "imagenet"}, {"preset": "imagenet-tensor"}],
    ids=["decode", "imagenet", "imagenet-tensor"],
)
def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(options: dict[str, Any], tmp_path: Path) -> None:
    def go(data: bytes, folder: str, **more: Any) -> Any:
        write_tar(tmp_path / folder / "in" / "a.tar", [("x", {"jpg": data, "cls": b"1"})])
        output = Output(str(tmp_path / folder / "all.record"))
        return convert(Conversion(Input(str(tmp_path / folder / "in")), output, **options, **more), workers=1)

    with pytest.raises(ImageError, match="30000x30000 pixels are more than the limit of 134217728"):
        go(bomb(30000, 30000), "huge")
    with pytest.raises(ImageError, match="24x32 pixels are more than the limit of 767"):
        go(encoded((24, 32), "PNG"), "small", max_pixels=24 * 32 - 1)
    assert go(encoded((24, 32), "PNG"), "fits", max_pixels=24 * 32).records == 1


def test_an_op_on_bytes_says_that_decode_is_missing(bucket: Path, tmp_path: Path) -> None:
    for op in (Resize("jpg", 4), Convert("jpg", "float32"), Cast("jpg", "uint8"), Rotate("jpg", 90), CenterCrop("jpg")):
        with pytest.raises(SampleError, match=rf"sample 0000.*{op.name}: entry 'jpg'.*decode:jpg"):
            run(bucket, tmp_path / op.name, op)


def test_an_op_on_an_entry_that_is_not_there_names_those_that_are(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"sample 0000.*decode.*'png'.*jpg, cls"):
        run(bucket, tmp_path, Decode("png"))
    with pytest.raises(SampleError, match="decode"):
        run(bucket, tmp_path, Decode("jpg"), Decode("jpg"))


def test_encode_refuses_floats(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(Tar2tfError, match=r"sample 0000.*encode.*float32"):
        run(bucket, tmp_path, Decode("jpg"), Resize("jpg", 8), Encode("jpg"))
