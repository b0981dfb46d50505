"""Batches that the kernel makes of the records of a TFRecord are what single records give, byte for byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow_outcome import outcome
from hypothesis_profile import example_count
from kernel_build import built, needs_compiler
from tar2tf_cli.formats.example import Encoder, bytes_list, float_list, frame, int64_list, packed_floats, varint
from tar2tf_cli.ops import parse_op

pytestmark = [needs_compiler, pytest.mark.xdist_group("kernel")]


def framed(message: bytes) -> bytes:
    return b"".join(frame([message], len(message)))


def record(**features: Any) -> bytes:
    return b"".join(frame(*Encoder().encode(features)))


def agree(path: Path, **options: Any) -> int:
    """Read a TFRecord with and without the kernel, which must agree; returns how many records the kernel made."""
    made, many = outcome(path, built(), **options)
    expected, none = outcome(path, None, **options)
    assert none == 0
    assert made == expected
    return many


def records(count: int, **more: Any) -> bytes:
    return b"".join(
        record(
            __key__=b"k%06d" % n,
            cls=int64_list([n - 50], ()),
            txt=b"a text %d" % n,
            score=float_list([n / 8], ()),
            **more,
        )
        for n in range(count)
    )


CHANGES: dict[str, dict[str, Any]] = {
    "tars": {"output": "o.tar"},
    "tars, the last dot": {"output": "o.tar", "key_split": "last"},
    "a type that it has": {"types": {"cls": "int64"}},
    "a number of a text": {"types": {"txt": "int64"}},
    "a float of a text": {"types": {"txt": "float", "score": "float"}},
    "a float of an integer": {"types": {"cls": "float"}},
    "bytes": {"types": {"txt": "bytes"}},
    "bytes of an integer": {"types": {"cls": "bytes"}},
    "a list": {"types": {"cls": "int64_list"}},
    "a selection": {"select": {"label": "cls", "text": "txt", "again": "txt"}, "types": {"label": "int64"}},
    "a selection of the key": {"select": {"__key__": "__key__", "key": "__key__", "a": "txt"}},
    "another key": {
        "select": {"__key__": "txt", "a": "cls"},
        "split": {"a": 0.5, "b": 0.5},
        "output": "o-<split>-<>.record",
    },
    "a rename": {"ops": ["rename:label=cls,b=score"], "types": {"label": "int64"}},
    "some kept": {"ops": ["keep:cls,txt"], "types": {"cls": "int64"}},
    "a filter": {"ops": ["filter:cls>=5"], "types": {"cls": "int64"}},
    "a filter of a text, to tars": {"ops": ["filter:txt=7"], "output": "o.tar"},
    "a part": {"types": {"cls": "int64"}, "sample": 0.5},
    "a part, to tars": {"sample": 0.5, "output": "o.tar"},
    "duplicates": {"drop_duplicates": "*", "output": "o.tar"},
    "duplicates of an entry": {"drop_duplicates": "txt", "types": {"cls": "int64"}},
    "a split": {"split": {"a": 0.5, "b": 0.5}, "output": "o-<split>-<>.record", "types": {"cls": "int64"}},
    "a type that it has, to tars": {"types": {"cls": "int64"}, "output": "o.tar"},
    "a number of a text, to tars": {"types": {"txt": "int64"}, "output": "o.tar"},
    "a selection, to tars": {"select": {"a": "score", "label": "cls", "again": "cls"}, "output": "o.tar"},
    "a selection of the key, to tars": {"select": {"__key__": "__key__", "key": "__key__"}, "output": "o.tar"},
    "a rename, to tars": {"ops": ["rename:label=cls,b=score"], "types": {"label": "int64"}, "output": "o.tar"},
    "some kept, to tars": {"ops": ["keep:score"], "output": "o.tar", "key_split": "last"},
    "a key in a feature": {"key_feature": "cls", "output": "o.tar"},
    "a key in a text": {"key_feature": "txt", "select": {"a": "txt", "b": "cls"}},
}


def changed(change: str, **options: Any) -> dict[str, Any]:
    given = {**CHANGES[change], **options}
    return {**given, "ops": [parse_op(op) for op in given.get("ops", ())]}


FALLS_BACK = {
    "a number of a text",
    "a number of a text, to tars",
    "a float of a text",
    "a float of an integer",
    "bytes of an integer",
    "a list",
    "a filter",
    "a filter of a text, to tars",
    "another key",
    "duplicates",
    "duplicates of an entry",
}


@pytest.mark.parametrize("change", CHANGES)
def test_plain_records_come_in_batches(change: str, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    path.write_bytes(records(500))
    assert (agree(path, **changed(change)) == 0) == (change in FALLS_BACK)


@pytest.mark.parametrize("change", CHANGES)
def test_records_of_texts_alone_come_in_batches(change: str, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    path.write_bytes(
        b"".join(record(__key__=b"k%06d" % n, cls=b"%d" % n, txt=b"%d" % n, score=b"%d.5" % n) for n in range(300))
    )
    rest = {"bytes of an integer", "a list", "another key"} if "integer" not in change else set()
    assert (agree(path, **changed(change)) == 0) == (change in {*rest, "another key", "a list"})


@pytest.mark.parametrize("change", ["tars", "a selection", "a rename"])
def test_records_without_a_key_come_in_batches_under_made_keys(change: str, tmp_path: Path) -> None:
    path = tmp_path / "some.name-0.record"
    lines = [record(cls=int64_list([n], ()), txt=b"t", score=float_list([0.5], ())) for n in range(300)]
    path.write_bytes(b"".join(lines))
    assert agree(path, **changed(change)) > 200
    lines[7] = record(__key__=b"own", cls=int64_list([7], ()), txt=b"t", score=float_list([0.5], ()))
    path.write_bytes(b"".join(lines))
    agree(path, **changed(change))


def test_lists_pass_in_batches_with_the_lengths_that_they_have(tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    lines = [
        record(
            __key__=b"k%d" % n,
            cls=int64_list([n], ()),
            boxes=float_list([0.5] * 4),
            sizes=int64_list([n] * (n % 3)),
            names=bytes_list([b"x" * n] * (1 + n % 2)),
        )
        for n in range(200)
    ]
    path.write_bytes(b"".join(lines))
    assert agree(path, select={"label": "cls", "b": "boxes", "s": "sizes", "n": "names"}) > 150
    assert agree(path, types={"cls": "int64"}, sample=0.3) == 0
    assert agree(path, output="o.tar") == 0
    described: Any = {
        "__key__": {"dtype": "bytes", "shape": [], "encoding": "bytes"},
        "cls": {"dtype": "int64", "shape": [], "encoding": "int64"},
        "boxes": {"dtype": "float32", "shape": [4], "encoding": "float"},
        "sizes": {"dtype": "int64", "shape": [None], "encoding": "int64"},
        "names": {"dtype": "bytes", "shape": [None], "encoding": "bytes"},
    }
    assert agree(path, types={"cls": "int64"}, described=described) > 150
    described["cls"]["dtype"] = "int32"
    assert agree(path, types={"cls": "int64"}, described=described) == 0
    described["boxes"]["shape"] = [2, 2]
    agree(path, ops=[parse_op("keep:boxes")], described=described)


KEYS = [
    b"a b",
    b" a",
    b"a ",
    b"a.b",
    b"d/e",
    b"d/",
    b"d.e/f",
    b"._a",
    b"__meta__",
    b"",
    b"\0",
    b"\xc3\xbc",
    b"\xff",
    b"k" * 90,
]
KEYS += [b"k" * 96, b"a\x7f", "a\u3000".encode()]


@pytest.mark.parametrize("key_split", ["first", "last"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_keys_are_named_alike_in_tars(on_error: str, key_split: str, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    for key in KEYS:
        path.write_bytes(records(5) + record(__key__=key, cls=int64_list([3], ()), txt=b"x") + records(3))
        agree(path, output="o.tar", on_error=on_error, key_split=key_split)


@pytest.mark.parametrize("name", ["a.b", "A", "a/b", "\u00e4", "a\0b", "__meta__", "n" * 95, "x/shape", " "])
@pytest.mark.parametrize("key_split", ["first", "last"])
def test_names_of_features_are_treated_alike(name: str, key_split: str, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    path.write_bytes(records(30, **{name: b"x"}))
    agree(path, output="o.tar", key_split=key_split, on_error="skip")
    agree(path, types={"cls": "int64"}, key_split=key_split, on_error="skip")


# --- Messages of other forms ---


def field(tag: int, content: bytes, longer: int = 0) -> bytes:
    """A field with a length, which may be written in more bytes than it needs."""
    length = varint(len(content))
    return (
        bytes([tag])
        + (length[:-1] + bytes([length[-1] | 0x80]) + b"\x80" * (longer - 1) + b"\0" if longer else length)
        + content
    )


def feature(name: bytes, tag: int, content: bytes, longer: int = 0) -> bytes:
    return field(0x0A, field(0x0A, name) + field(0x12, field(tag, content), longer))


def message(*features: bytes) -> bytes:
    return field(0x0A, b"".join(features))


KEY_PART, CLASS_PART = feature(b"__key__", 0x0A, field(0x0A, b"odd")), feature(b"cls", 0x1A, field(0x0A, b"\x07"))
ODD: dict[str, bytes] = {
    "nothing": b"",
    "no features": message(),
    "no message": b"\xff\xff",
    "a length in more bytes": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b"\x07", 1))),
    "a feature in more bytes": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b"\x07"), 2)),
    "an integer in more bytes": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b"\x87\0"))),
    "an integer of ten bytes": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b"\xff" * 9 + b"\x01"))),
    "an integer of more bits": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b"\xff" * 9 + b"\x7f"))),
    "an integer by itself": message(KEY_PART, feature(b"cls", 0x1A, b"\x08\x07")),
    "two integers": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b"\x07\x08"))),
    "no integer": message(KEY_PART, feature(b"cls", 0x1A, field(0x0A, b""))),
    "an empty list": message(KEY_PART, feature(b"cls", 0x1A, b"")),
    "another kind": message(KEY_PART, feature(b"cls", 0x0A, field(0x0A, b"7"))),
    "a float": message(KEY_PART, feature(b"cls", 0x12, field(0x0A, struct.pack("<f", 1.5)))),
    "a feature twice": message(KEY_PART, CLASS_PART, CLASS_PART),
    "another order": message(CLASS_PART, KEY_PART),
    "without a key": message(CLASS_PART),
    "without a class": message(KEY_PART),
    "one more": message(KEY_PART, CLASS_PART, feature(b"new", 0x0A, field(0x0A, b"x"))),
    "a shape": message(KEY_PART, CLASS_PART, feature(b"cls/shape", 0x1A, field(0x0A, b"\x01"))),
    "unset": message(KEY_PART, CLASS_PART, field(0x0A, field(0x0A, b"txt") + field(0x12, b""))),
    "a key that is a number": message(feature(b"__key__", 0x1A, field(0x0A, b"\x07")), CLASS_PART),
    "a key that is a float": message(feature(b"__key__", 0x12, field(0x0A, bytes(4))), CLASS_PART),
    "two keys": message(feature(b"__key__", 0x0A, field(0x0A, b"a") + field(0x0A, b"b")), CLASS_PART),
    "an unknown field": message(KEY_PART, CLASS_PART) + b"\x18\x01",
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("change", ["tars", "a type that it has", "a selection", "some kept", "a key in a text"])
def test_odd_records_are_treated_alike_among_plain_ones(what: str, change: str, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    for data in (records(6) + framed(ODD[what]) + records(6), framed(ODD[what]) * 3 + records(2)):
        path.write_bytes(data)
        for on_error in ("fail", "skip"):
            agree(path, **changed(change, on_error=on_error))


@pytest.mark.parametrize("bits", [0x7F800001, 0xFFBFFFFF, 0x7FC00000, 0xFFC00001, 0x7F800000, 0x80000000, 1])
def test_floats_keep_their_bits(bits: int, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    value = packed_floats(bits.to_bytes(4, "little"), ())
    path.write_bytes(b"".join(record(__key__=b"%d" % n, score=value) for n in range(9)))
    for types in ({}, {"score": "float"}):
        agree(path, types=types, ops=[parse_op("keep:score")])


@example_count(150)
@given(numbers=st.lists(st.floats(width=32) | st.integers(-(10**7), 10**7).map(lambda number: number / 64), max_size=9))
def test_numbers_become_the_text_that_numpy_writes(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
) -> None:
    path = tmp_path_factory.getbasetemp() / "numbers.record"
    path.write_bytes(
        b"".join(record(__key__=b"%d" % n, a=float_list([number], ())) for n, number in enumerate(numbers))
    )
    agree(path, output="o.tar", kind="tfrecord")


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_damage_is_named_alike(on_error: str, tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    data = records(60)
    for place in (3, 9, 20, len(data) // 2, len(data) // 2 + 7, len(data) - 3):
        changed_data = bytearray(data)
        changed_data[place] ^= 0x55
        for given_data in (bytes(changed_data), data[:place]):
            path.write_bytes(given_data)
            for change in ("tars", "a selection"):
                agree(path, **changed(change, on_error=on_error, chunk=1024, kind="tfrecord"))


@st.composite
def some_feature(draw: st.DrawFn) -> Any:
    return draw(
        st.one_of(
            st.binary(max_size=12),
            st.integers(-(2**63), 2**63 - 1).map(lambda number: int64_list([number], ())),
            st.floats(width=32).map(lambda number: float_list([number], ())),
            st.lists(st.integers(-3, 300), max_size=3).map(int64_list),
            st.lists(st.binary(max_size=3), max_size=3).map(bytes_list),
        )
    )


@example_count(150)
@given(
    data=st.data(),
    change=st.sampled_from(sorted(CHANGES)),
    on_error=st.sampled_from(["skip", "skip", "fail"]),
    chunk=st.sampled_from([600, 70_000]),
    first=st.booleans(),
)
def test_the_kernel_makes_of_any_records_what_python_makes_of_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, change: str, on_error: str, chunk: int, first: bool
) -> None:
    made = bytearray()
    for number in range(data.draw(st.integers(0, 5))):
        names = data.draw(st.lists(st.sampled_from(["cls", "txt", "score", "__key__", "x/shape"]), unique=True))
        features = {name: data.draw(some_feature()) for name in names}
        for copy in range(data.draw(st.integers(1, 8))):
            key = data.draw(st.sampled_from([{}, {"__key__": b"%d-%d" % (number, copy)}]))
            made += record(**{**features, **key})
        if data.draw(st.integers(0, 3)) == 0:
            made += framed(data.draw(st.sampled_from(sorted(ODD.values()))))
    if made and data.draw(st.integers(0, 4)) == 0:
        made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "any.record"
    path.write_bytes(made)
    agree(path, **changed(change, on_error=on_error, chunk=chunk, first=first, kind="tfrecord"))
