"""`TFExample`: features in memory, as TensorFlow parses them."""

from __future__ import annotations

import struct
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
