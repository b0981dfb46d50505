"""An op means the same as a flag, in a spec file and as a Python class."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ruamel.yaml import YAML

from commands import SECONDS
from tar2tf_cli import ops
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import (
    OPS,
    Cast,
    CenterCrop,
    Convert,
    Crop,
    Decode,
    DropEmpty,
    Encode,
    Filter,
    Func,
    Keep,
    Op,
    Orient,
    Pad,
    Rename,
    Resize,
    Rotate,
    parse_op,
)

# --- Flag, spec file and class mean the same ---

GRAMMAR: list[tuple[str, str, Sequence[Callable[[], Op]]]] = [
    ("decode:jpg", "decode: jpg", [lambda: Decode("jpg"), lambda: Decode(ext_name="jpg"), lambda: Decode(ext="jpg")]),
    (
        "decode:jpg,3",
        "decode: {ext: jpg, channels: 3}",
        [lambda: Decode("jpg", 3), lambda: Decode("jpg", channels=3), lambda: Decode(ext_name="jpg", channels="3")],
    ),
    ("decode:jpg,channels=0", "decode: [jpg, 0]", [lambda: Decode("jpg")]),
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
    (
        "decode:png,dtype=uint16",
        "decode: {ext: png, dtype: uint16}",
        [lambda: Decode("png", dtype="uint16"), lambda: Decode("png", 0, "uint16")],
    ),
    ("orient:jpg", "orient: jpg", [lambda: Orient("jpg"), lambda: Orient(ext_name="jpg")]),
    ("orient:jpg,3", "orient: {ext: jpg, channels: 3}", [lambda: Orient("jpg", 3)]),
    ("pad:jpg,9x8", "pad: {ext: jpg, size: [9, 8]}", [lambda: Pad("jpg", (9, 8)), lambda: Pad(ext="jpg", size="9x8")]),
    (
        "pad:png,9,255,nearest",
        "pad: {ext: png, size: 9, fill: 255, method: nearest}",
        [lambda: Pad("png", 9, 255, "nearest"), lambda: Pad("png", 9, method="nearest", fill=255.0)],
    ),
    (
        "crop:jpg,9x8",
        "crop: {ext: jpg, size: 9x8}",
        [lambda: Crop("jpg", (9, 8)), lambda: Crop("jpg", "9x8", "center")],
    ),
    ("crop:jpg,9,random", "crop: [jpg, 9, random]", [lambda: Crop("jpg", 9, at="random")]),
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
    ("filter:cls=3,5", "filter: cls=3,5", [lambda: Filter("cls=3,5")]),
    ("filter:!txt", "filter: '!txt'", [lambda: Filter(condition="!txt")]),
    ("keep:jpg", "keep: jpg", [lambda: Keep("jpg")]),
    ("drop_empty", "drop_empty", [DropEmpty]),
    ("func:posixpath:basename", "func: posixpath:basename", [lambda: Func("posixpath:basename")]),
]


@pytest.mark.parametrize(("flag", "yaml", "classes"), GRAMMAR, ids=[flag for flag, _, _ in GRAMMAR])
def test_an_op_is_the_same_as_flag_in_yaml_and_in_python(
    flag: str, yaml: str, classes: Sequence[Callable[[], Op]]
) -> None:
    op = parse_op(flag)
    assert parse_op(YAML(typ="safe").load(yaml)).canonical() == op.canonical()
    assert parse_op(flag).canonical() == op.canonical()
    for make in classes:
        assert make().canonical() == op.canonical()
    assert parse_op(op.canonical()).canonical() == op.canonical()
    if not isinstance(op, Func):
        assert parse_op(op.canonical()) == op
        assert hash(op) == hash(parse_op(flag))


FIND = """
import sys
from tar2tf_cli.ops import find_op

for name in sys.argv[1:]:
    assert "tar2tf_cli.ops.explode" not in sys.modules, name
    assert find_op(name).name == name
"""


def test_each_op_is_found_without_importing_all_files() -> None:
    names = sorted(OPS, key=lambda name: name == "explode")
    subprocess.run([sys.executable, "-c", FIND, *names], check=True, timeout=SECONDS)


EXAMPLES = [example for op in OPS.values() if op is not Func for example in op.examples]


def as_yaml(document: object) -> str:
    """A document as YAML text."""
    file = io.StringIO()
    YAML(typ="safe").dump(document, file)
    return file.getvalue()


@pytest.mark.parametrize("flag", EXAMPLES)
def test_every_example_of_an_op_is_the_same_as_flag_in_yaml_and_in_python(flag: str) -> None:
    op = parse_op(flag)
    in_yaml = YAML(typ="safe").load(as_yaml(op.canonical()))
    assert parse_op(in_yaml) == op
    if dataclasses.is_dataclass(op):
        fields = {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}
        assert type(op)(**fields) == op


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("resise:jpg,2x2", ["resise", "'resize'"]),
        ("decode", ["decode", "'ext'"]),
        ("decode:jpg,3,1", ["decode", "dtype must be 'uint8' or 'uint16', not '1'"]),
        ("decode:jpg,3,uint8,1x1,1", ["decode", "at most 4 values"]),
        ("decode:jpg,at_least=0", ["decode", "at_least must be HEIGHTxWIDTH in pixels, not '0'"]),
        ("pad:jpg", ["pad", "'size'"]),
        ("pad:jpg,4,red", ["pad", "fill must be a number, not 'red'"]),
        ("crop:jpg,4,middle", ["crop", "at must be", "'center'", "'middle'"]),
        ("decode:jpg,png", ["decode", "channels must be a whole number, not 'png'"]),
        ("decode:jpg,4", ["decode", "channels must be 0 (those of the file), 1 (gray), 3 (RGB) or indices, not 4"]),
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
        ("filter:", ["filter", "condition"]),
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
        parse_op(flag)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"resize": {"ext": "jpg"}}, ["resize", "'size'"]),
        ({"resize": ["jpg", 2, 3]}, ["resize", "method", "'nearest'", "3"]),
        ({"resize": {"ext": "jpg", "size": 2, "short": 3}}, ["resize", "needs one of 'size', 'short' and 'long'"]),
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
    with pytest.raises(UsageError) as caught:
        parse_op(item)
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


def test_the_class_of_every_op_is_a_name_of_the_module() -> None:
    classes = {op.__name__: op for op in ops.OPS.values()}
    assert {name: getattr(ops, name) for name in classes} == classes
    assert {"Flip", *classes, *ops.__all__} <= {*dir(ops)}
    for name in ("Flop", "nowhere", "_Op"):
        with pytest.raises(AttributeError, match=f"^module 'tar2tf_cli.ops' has no attribute '{name}'$"):
            getattr(ops, name)
