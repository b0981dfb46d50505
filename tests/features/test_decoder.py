"""Examples that are decoded many at once have the values that each has when it is decoded alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from example_messages import encoded, features_of_any_kind, float32s, hand_encoded_examples, int64s
from read_back import assert_same
from tar2tf_cli.features.decoder import Decoder

FEATURES: dict[str, Any] = {
    "number": {"encoding": "int64", "dtype": "int16", "shape": []},
    "half": {"encoding": "float", "dtype": "float16", "shape": []},
    "text": {"encoding": "bytes", "dtype": "bytes", "shape": []},
    "texts": {"encoding": "bytes", "dtype": "bytes", "shape": [None]},
    "flags": {"encoding": "int64", "dtype": "bool", "shape": [None]},
    "box": {"encoding": "float", "dtype": "float32", "shape": [2, 2]},
    "box/shape": {"encoding": "int64", "dtype": "int64", "shape": [2]},
    "tile": {"encoding": "raw", "dtype": "uint8", "shape": [2, 3]},
    "wave": {"encoding": "raw", "dtype": "float64", "shape": [None, None]},
    "wave/shape": {"encoding": "int64", "dtype": "int64", "shape": [2]},
    "image/raw": {"encoding": "raw", "dtype": "uint8", "shape": [None, None, None]},
    "image/height": {"encoding": "int64", "dtype": "int64", "shape": []},
    "image/width": {"encoding": "int64", "dtype": "int64", "shape": []},
    "image/channels": {"encoding": "int64", "dtype": "int64", "shape": []},
    "maybe": {"encoding": "bytes", "dtype": "bytes", "shape": [], "count": 1},
    "some": {"encoding": "int64", "dtype": "int64", "shape": [None], "count": 1},
    "patch": {"encoding": "raw", "dtype": "int32", "shape": [None], "count": 1},
}
RECORDS = 9


@st.composite
def described(draw: st.DrawFn) -> bytes:
    """An example as FEATURES describe it; rarely one with another value, or without one."""
    height, width = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows = draw(st.integers(1, 3))
    values: dict[str, tuple[str, list[Any]]] = {
        "number": ("int64", [draw(st.integers(-(2**15), 2**15 - 1))]),
        "half": ("float", [draw(st.floats(width=16))]),
        "text": ("bytes", [draw(st.binary(max_size=200))]),
        "texts": ("bytes", draw(st.lists(st.binary(max_size=4), max_size=3))),
        "flags": ("int64", draw(st.lists(st.integers(0, 1), max_size=3))),
        "box": ("float", draw(st.lists(float32s, min_size=4, max_size=4))),
        "box/shape": ("int64", [2, 2]),
        "tile": ("bytes", [draw(st.binary(min_size=6, max_size=6))]),
        "wave": ("bytes", [draw(st.binary(min_size=16 * rows, max_size=16 * rows))]),
        "wave/shape": ("int64", [rows, 2]),
        "image/raw": ("bytes", [draw(st.binary(min_size=3 * height * width, max_size=3 * height * width))]),
        "image/height": ("int64", [height]),
        "image/width": ("int64", [width]),
        "image/channels": ("int64", [3]),
    }
    if draw(st.booleans()):
        values["maybe"] = "bytes", [b"x"]
    if draw(st.booleans()):
        values["some"] = "int64", draw(st.lists(int64s, max_size=3))
    if draw(st.booleans()):
        values["patch"] = "bytes", [bytes(8)]
    if draw(st.integers(0, 12)) == 12:
        values[draw(st.sampled_from([*values]))] = draw(
            st.sampled_from([("bytes", []), ("int64", [7]), ("bytes", [b"u"])])
        )
    if draw(st.integers(0, 12)) == 12:
        del values[draw(st.sampled_from([*values]))]
    return encoded({name: values[name] for name in draw(st.permutations([*values]))})


def assert_alike(decoder: Decoder, messages: list[bytes]) -> None:
    """Decoded together and one by one: the same values and types up to the same error."""
    together = decoder.each(messages)
    for message in messages:
        alone, one = outcome(lambda message=message: decoder(message)), outcome(lambda: next(together))
        if isinstance(alone, str):
            assert one == alone
            return
        assert_same(one, alone)
        assert all(value.flags.writeable for value in one.values() if isinstance(value, np.ndarray))
    assert next(together, None) is None


def outcome(decode: Callable[[], Any]) -> Any:
    """The values of an example, or the error."""
    try:
        return decode()
    except ValueError as error:
        return str(error)


@settings(max_examples=60)
@given(st.lists(described(), max_size=9))
def test_examples_that_a_manifest_describes(messages: list[bytes]) -> None:
    assert_alike(Decoder(FEATURES, RECORDS), messages)


@given(st.lists(features_of_any_kind.map(encoded), max_size=6), st.lists(st.integers(0, 5), max_size=20))
def test_examples_as_they_are_stored(kinds: list[bytes], order: list[int]) -> None:
    """The same kinds come back, so that most are known."""
    assert_alike(Decoder(), [kinds[number % len(kinds)] for number in order if kinds])


@given(st.lists(hand_encoded_examples, max_size=9))
def test_examples_of_any_form(messages: list[bytes]) -> None:
    assert_alike(Decoder(), messages)


def test_more_features_than_the_kernel_takes() -> None:
    message = encoded({f"{number:03d}": ("int64", [number]) for number in range(100)})
    assert_alike(Decoder(), [message] * 9)


def test_values_keep_nothing_but_themselves() -> None:
    """One of many arrays that is kept does not keep the others."""
    message = encoded({"a": ("float", [1.0] * 1000), "b": ("bytes", [bytes(1000)] * 2)})
    values = [value["a"] for value in Decoder().each([message] * 50)]
    assert {len(value.base) for value in values} == {4000}


def test_a_feature_named_like_the_shape_of_a_single_value_is_a_feature_of_its_own() -> None:
    features = {
        "x": {"encoding": "int64", "dtype": "int64", "shape": [], "count": 1},
        "x/shape": {"encoding": "int64", "dtype": "int64", "shape": [2], "count": 2},
    }
    messages = [encoded({"x": ("int64", [5]), "x/shape": ("int64", [1, 2])}), encoded({"x/shape": ("int64", [3, 4])})]
    decoder = Decoder(features, 2)
    assert_alike(decoder, messages * 2)
    assert [[value["x"].tolist(), value["x/shape"].tolist()] for value in map(decoder, messages)] == [
        [[5], [1, 2]],
        [[], [3, 4]],
    ]
