"""`TFExample`: features in memory, as TensorFlow parses them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_profile import example_count
from tar2tf_cli.errors import (
    ImageError,
    SampleError,
)
from tar2tf_cli.pipeline import (
    TFExample,
)

# --- TFExample ---


def test_tensorflow_parses_what_a_tfexample_holds() -> None:
    import tensorflow as tf

    example = TFExample()
    example.add_int64("label", -7)
    example.add_int64_list("box", [1, 2**63 - 1, -(2**63)])
    example.add_float("score", 0.1)
    example.add_float_list("scores", np.array([[0.5, 1.5]], np.float64))
    example.add_bytes("name", b"\xff")
    example.add_bytes_list("parts", [b"", b"two"])
    parsed = tf.train.Example.FromString(example.to_bytes())
    expected = tf.train.Example()
    features = expected.features.feature
    features["label"].int64_list.value[:] = [-7]
    features["box"].int64_list.value[:] = [1, 2**63 - 1, -(2**63)]
    features["score"].float_list.value[:] = [0.1]
    features["scores"].float_list.value[:] = [0.5, 1.5]
    features["name"].bytes_list.value[:] = [b"\xff"]
    features["parts"].bytes_list.value[:] = [b"", b"two"]
    assert parsed == expected
    ours = TFExample.from_bytes(expected.SerializeToString())
    assert ours == example
    assert (ours.get_int64("label"), ours.get_bytes("name")) == (-7, b"\xff")
    assert ours.get_float("score") == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert ours.get_int64_list("box") == [1, 2**63 - 1, -(2**63)]
    assert ours.get_float_list("scores") == [0.5, 1.5]
    assert ours.get_bytes_list("parts") == [b"", b"two"]


_VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda values: ("int64_list", values)),
    st.lists(st.floats(width=32, allow_nan=False)).map(lambda values: ("float_list", values)),
    st.lists(st.binary(max_size=300)).map(lambda values: ("bytes_list", values)),
)


@example_count(100)
@given(st.dictionaries(st.text(max_size=5), _VALUES, max_size=5))
def test_any_features_come_back_from_bytes_and_from_tensorflow(features: dict[str, tuple[str, list[Any]]]) -> None:
    import tensorflow as tf

    example = TFExample()
    for name, (kind, values) in features.items():
        getattr(example, f"add_{kind}")(name, values)
    parsed = tf.train.Example.FromString(example.to_bytes())
    for again in (TFExample.from_bytes(example.to_bytes()), TFExample.from_bytes(parsed.SerializeToString())):
        assert again == example
        for name, (kind, values) in features.items():
            assert getattr(again, f"get_{kind}")(name) == values


def test_has_tells_the_kind_of_a_feature() -> None:
    example = TFExample(plain=b"text")
    example.add_int64("label", 1)
    example.add_float_list("scores", [])
    example.add_image("image", np.zeros((2, 3, 3), np.uint8))
    kinds = {
        name: [
            kind
            for kind in ("int64", "float", "bytes", "image", "")
            if getattr(example, f"has_{kind}".rstrip("_"))(name)
        ]
        for name in (*example, "absent")
    }
    assert kinds == {
        "plain": ["bytes", ""],
        "label": ["int64", ""],
        "scores": ["float", ""],
        "image": ["bytes", "image", ""],
        "absent": [],
    }


def test_images_go_in_and_come_out() -> None:
    import tensorflow as tf

    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    example = TFExample()
    example.add_image("png", pixels)
    example.add_image("jpeg", pixels, "jpeg", quality=90)
    assert np.array_equal(example.get_image("png"), pixels)
    assert np.array_equal(example.get_image("png"), tf.io.decode_png(example.get_bytes("png")))
    assert np.array_equal(example.get_image("jpeg"), tf.io.decode_jpeg(example.get_bytes("jpeg")))
    example.add_bytes("text", b"no image")
    with pytest.raises(ImageError):
        example.get_image("text")
    with pytest.raises(ImageError):
        example.add_image("float", pixels / 255)


def test_asking_for_what_a_tfexample_has_not_got_says_what_it_has() -> None:
    example = TFExample(name=b"x")
    example.add_int64_list("box", [1, 2])
    with pytest.raises(SampleError, match="has no feature 'label', only box, name"):
        example.get_int64("label")
    with pytest.raises(SampleError, match="'box' holds 2 values, not one"):
        example.get_int64("box")
    with pytest.raises(SampleError, match="'name' holds bytes values, not float"):
        example.get_float("name")
    with pytest.raises(TypeError, match="int is not a feature; set 'y' with add_int64"):
        example["y"] = 3  # type: ignore[assignment]
    with pytest.raises(OverflowError):
        example.add_int64("big", 2**63)
    with pytest.raises(TypeError):
        example.add_bytes("text", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        example.add_int64("half", 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"."):
        TFExample.from_bytes(b"not an example")
    assert repr(example) == "TFExample(box: int64, shape [2], name: bytes, 1 long: b'x')"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda example: example.get_int64("label"), "has no feature 'label', only box, none, one, text"),
        (lambda example: TFExample().get_bytes("label"), "has no feature 'label'"),
        (lambda example: example.get_int64("box"), "the feature 'box' holds 2 values, not one; use the list's getter"),
        (
            lambda example: example.get_float("none"),
            "the feature 'none' holds 0 values, not one; use the list's getter",
        ),
        (lambda example: example.get_float_list("box"), "the feature 'box' holds int64 values, not float"),
        (lambda example: example.get_bytes_list("one"), "the feature 'one' holds float values, not bytes"),
        (lambda example: example.get_image("one"), "the feature 'one' holds float values, not bytes"),
        (lambda example: example.get_int64_list("text"), "the feature 'text' holds bytes values, not int64"),
        (
            lambda example: example.__setitem__("y", [3]),
            "list is not a feature; set 'y' with add_int64, add_float, add_bytes or add_image",
        ),
        (lambda example: example.add_bytes("y", "text"), "str is not a byte string"),
        (lambda example: example.add_bytes_list("y", [b"", 3]), "int is not a byte string"),
    ],
)
def test_a_wrong_call_is_answered_with_what_the_example_holds(call: Callable[[TFExample], Any], says: str) -> None:
    example = TFExample(text=b"x")
    example.add_int64_list("box", [1, 2])
    example.add_float_list("none", [])
    example.add_float("one", 1.0)
    with pytest.raises((SampleError, TypeError)) as caught:
        call(example)
    assert str(caught.value) == says
    assert sorted(example) == ["box", "none", "one", "text"]


def test_bytes_of_any_kind_are_bytes_and_arrays_of_any_order_lists() -> None:
    example = TFExample()
    example.add_bytes("a", bytearray(b"a"))  # type: ignore[arg-type]
    example.add_bytes_list("b", [memoryview(b"b"), b"c"])  # type: ignore[list-item]
    example.add_float_list("c", np.asfortranarray([[1, 2], [3, 4]]))
    assert dict(example)["a"] == b"a"
    assert example.get_bytes_list("b") == [b"b", b"c"]
    assert example.get_float_list("c") == [1, 2, 3, 4]
    assert (example.get_bytes_list("a"), example.has("c"), example.has("d")) == ([b"a"], True, False)
    same = TFExample.from_bytes(example.to_bytes())
    assert (same == example, same != example) == (True, False)
    assert (example == dict(example), example != dict(example)) == (False, True)
    same.add_bytes("a", b"b")
    assert (same == example, same != example) == (False, True)
