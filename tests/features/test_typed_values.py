"""Each kind of value as a feature, with a type and without, and what is said of values that cannot be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tar2tf_cli.api.values import Feature
from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.features.feature_map import FeatureMap, describe
from tar2tf_cli.formats.example import bytes_list, float_list, int64_list, raw


def made(value: object, kind: Any) -> bytes | Feature:
    return FeatureMap({"x": kind} if kind else {}).features({"__key__": "k", "x": value})["x"]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("value", "kind", "feature"),
    [
        *((value, "int64", int64_list([7], ())) for value in ("7", b" 7 ", "[7]", 7, 7.0, [7], np.array(7))),
        (True, "int64", int64_list([1], ())),
        *((value, "int64_list", int64_list([1, 2])) for value in ("1 2", b"1,2", "[1, 2]", [1, "2"], (1, 2.0))),
        ("[[1],[2]]", "int64_list", int64_list([1, 2], (2, 1))),
        (np.array([[1, 2], [3, 4]]), "int64_list", int64_list([1, 2, 3, 4])),
        ("", "int64_list", int64_list([])),
        ("1.5", "float", float_list([1.5], ())),
        ([1, "0.5"], "float_list", float_list([1, 0.5])),
        ("a", "bytes", b"a"),
        (5, "bytes", b"5"),
        (np.array([b"a"], object), "bytes", b"a"),
        (np.array(["a"], object), "bytes", b"a"),
        (np.array([1, 2], np.uint8), "bytes", b"\1\2"),
        (["a", b"\xff"], "bytes_list", bytes_list([b"a", b"\xff"])),
        ("a", "bytes_list", bytes_list([b"a"])),
        ([["a"], ["b"]], "bytes_list", bytes_list([b"a", b"b"], (2, 1))),
        ("é\udcff", None, b"\xc3\xa9\xff"),
        (bytearray(b"x"), None, b"x"),
        (True, None, int64_list([1], ())),
        (0.5, None, float_list([0.5], ())),
        ([True, 2], None, int64_list([1, 2])),
        ([1, 0.5], None, float_list([1, 0.5])),
        (["a", b"b"], None, bytes_list([b"a", b"b"])),
        ([[1, 2], [3, 4]], None, int64_list([1, 2, 3, 4], (2, 2))),
        (np.uint8(3), None, int64_list([3], (), "uint8")),
        (np.array([3], np.uint8), None, raw(b"\3", (1,), "uint8")),
        (np.array([[1, 2]], ">u8").T, None, raw(b"\1" + bytes(7) + b"\2" + bytes(7), (2, 1), "uint64")),
        (np.array(0.5), None, raw(np.array(0.5).tobytes(), (), "float64")),
        (np.array([0.5, 1], np.float16), None, Feature("float", "float16", (2,), float_list([0.5, 1]).message)),
        (np.array([1, 2], np.int16), None, int64_list([1, 2], (2,), "int16")),
        (np.array([True]), None, int64_list([1], (1,), "bool")),
        (np.array([[b"a"]], object), None, bytes_list([b"a"], (1, 1))),
        (np.array([1j]), None, raw(np.array([1j]).tobytes(), (1,), "complex128")),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_becomes_a_feature_of_its_kind(value: object, kind: str | None, feature: bytes | Feature) -> None:
    assert made(value, kind) == feature


NUMBER = "number texts with --labels x=FILE or --labels x=auto"


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (None, None, "it is null"),
        ([], None, "an empty list has no type; give it one with --type: int64_list, float_list or bytes_list"),
        ({"a": 1}, None, "a feature cannot be a dict; select a part of it"),
        ([None], None, "a list of null cannot be a feature; make it an array"),
        ([1, "a"], None, "a list of int, str has no single type"),
        ([{"a": 1}, [2]], None, "a list of a list, an object has no single type"),
        (
            [[1], [2, 3], [4, 5, 6]],
            None,
            "lists of different lengths, 1 and 3, are not an array; select a part of them",
        ),
        ([[1], 2], None, "lists of different lengths, 0 and 1, are not an array; select a part of them"),
        (np.array(["a"]), None, "no feature can hold an array of str"),
        (np.array(["a"], object), None, "no feature can hold an array of object"),
        (np.array(["2020-01-01"], "M8[D]"), None, "no feature can hold an array of datetime64"),
        (2**63, None, "a value does not fit in 64 bits"),
        (None, "int64", "it is null"),
        ({"a": 1}, "bytes", "it holds a dict"),
        ("cat", "int64", f"'cat' is not a whole number; {NUMBER}"),
        (["cat", "dog"], "int64_list", "'cat' is not a whole number"),
        ("1 2", "int64", "holds 2 values instead of one; the type of a list is int64_list"),
        ("", "float", "holds 0 values instead of one; the type of a list is float_list"),
        (2.5, "int64", "2.5 is not a whole number"),
        ("2.5", "int64", "'2.5' is not a whole number"),
        ([1, None], "float_list", "null is not a number"),
        ({"a": 1}, "float", "an object is not a number"),
        ([[1], [2, 3]], "int64_list", "lists of different lengths, 1 and 2, are not an array; select a part of them"),
        ("1e39", "float", "a value does not fit in a float32"),
        (2**63, "int64", "a value does not fit in 64 bits"),
        ("[1, 2", "int64_list", "the text is not JSON: Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ("[" * 100_000, "int64_list", f"the JSON is nested too deeply; {NUMBER}"),
        ([None], "bytes_list", "it holds null"),
        (
            [[b"a"], [b"b", b"c"]],
            "bytes_list",
            "lists of different lengths, 1 and 2, are not an array; select a part of them",
        ),
        (np.array([b"a", b"b"], object), "bytes", "holds 2 values instead of one; the type of a list is bytes_list"),
        (np.array([], object), "bytes", "holds 0 values instead of one; the type of a list is bytes_list"),
        (int64_list([1]), "float", "it is int64, shape [1] already"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_that_cannot_be_a_feature_is_named(value: object, kind: str | None, says: str) -> None:
    with pytest.raises(SampleError) as caught:
        made(value, kind)
    what = f"is not of type {kind}" if kind else "cannot become a feature"
    assert caught.value.sentence == f"'x' {what}: {says}"


def test_a_feature_is_described_by_its_shape_or_first_bytes() -> None:
    assert describe(b"x" * 24) == f"bytes, 24 long: b'{'x' * 24}'"
    assert describe(b"x" * 1025) == f"bytes, 1,025 long: b'{'x' * 24}'..."
    assert describe(int64_list([1, 2])) == "int64, shape [2]"
    assert describe(raw(b"x", ())) == "uint8, shape []"


def test_labels_that_are_found_in_the_inputs_need_a_conversion() -> None:
    with pytest.raises(UsageError) as caught:
        FeatureMap({}, labels={"x": "auto"}).features({"__key__": "k", "x": "a"})
    assert caught.value.sentence == (
        "--labels x=auto must read all inputs before the first sample is made; "
        "use convert, or the label map in the manifest that it wrote"
    )
