"""The features of a manifest: descriptions that readers accept, and the faults of those that they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from example_messages import encoded
from tar2tf_cli.errors import SourceError
from tar2tf_cli.features.decoder import Decoder

ADVICE = "; verify the manifest, restore it from a copy, or convert again"
NUMBER = {"encoding": "int64", "dtype": "int64", "shape": []}


def shape_of(rank: int | None, encoding: str = "int64") -> dict[str, Any]:
    return {"encoding": encoding, "dtype": "int64" if encoding == "int64" else "float32", "shape": [rank]}


def array(*shape: int | None, encoding: str = "raw", dtype: str = "uint8") -> dict[str, Any]:
    return {"encoding": encoding, "dtype": dtype, "shape": list(shape)}


AXES = {f"image/{axis}": NUMBER for axis in ("height", "width", "channels")}


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"x": array(None, None)}, "the feature 'x' has the shape [None, None], but there is no feature 'x/shape'"),
        (
            {"x": array(None, 2, None, encoding="float", dtype="float16")},
            "the feature 'x' has the shape [None, 2, None], but there is no feature 'x/shape'",
        ),
        (
            {"image/raw": array(None, None, 3), "image/height": NUMBER, "image/width": NUMBER},
            "the feature 'image/raw' has the shape [None, None, 3], but there is no feature 'image/raw/shape'",
        ),
        (
            {"image/raw": array(None, None), **AXES},
            "the feature 'image/raw' has 2 dimensions in the manifest, but 'image/height' is int64 []",
        ),
        (
            {"image/raw": array(None, None, 3), **AXES, "image/width": shape_of(2)},
            "the feature 'image/raw' has 3 dimensions in the manifest, but 'image/width' is int64 [2]",
        ),
        (
            {"x": array(None, None), "x/shape": shape_of(3)},
            "the feature 'x' has 2 dimensions in the manifest, but 'x/shape' is int64 [3]",
        ),
        (
            {"x": array(None, None), "x/shape": shape_of(2, "float")},
            "the feature 'x' has 2 dimensions in the manifest, but 'x/shape' is float [2]",
        ),
        (
            {"x": array(2), "x/shape": NUMBER},
            "the feature 'x' has 1 dimensions in the manifest, but 'x/shape' is int64 []",
        ),
        ({"x": array(2, dtype="bytes")}, "the feature 'x' is raw bytes, which cannot hold bytes"),
        (
            {"x": array(encoding="int64", dtype="float16")},
            "the feature 'x' is a list of int64, which cannot hold float16",
        ),
        ({"x": array(encoding="float", dtype="int8")}, "the feature 'x' is a list of float, which cannot hold int8"),
    ],
    ids=lambda value: value.partition("; ")[0] if isinstance(value, str) else "",
)
def test_features_that_contradict_themselves_are_refused(features: dict[str, Any], says: str) -> None:
    with pytest.raises(SourceError) as caught:
        Decoder(features)
    assert str(caught.value) == says + ADVICE


@pytest.mark.parametrize(
    ("features", "values", "wanted"),
    [
        ({"x": array(None, 2)}, {"x": ("bytes", [bytes(range(6))])}, {"x": [[0, 1], [2, 3], [4, 5]]}),
        ({"x": array(2, None)}, {"x": ("bytes", [bytes(range(6))])}, {"x": [[0, 1, 2], [3, 4, 5]]}),
        ({"x": array(3)}, {"x": ("bytes", [bytes(range(3))])}, {"x": [0, 1, 2]}),
        ({"x": array()}, {"x": ("bytes", [b"\7"])}, {"x": 7}),
        ({"x": array(encoding="int64", dtype="bool")}, {"x": ("int64", [1])}, {"x": True}),
        (
            {"x": array(None, 2, encoding="float", dtype="float16")},
            {"x": ("float", [0.5, 1, 2, 4])},
            {"x": [[0.5, 1], [2, 4]]},
        ),
        (
            {"x": array(None, None), "x/shape": shape_of(2)},
            {"x": ("bytes", [bytes(range(6))]), "x/shape": ("int64", [3, 2])},
            {"x": [[0, 1], [2, 3], [4, 5]]},
        ),
        (  # one value for each axis, of an image in folders
            {
                "a/b/raw": array(None, None, None),
                "a/b/height": NUMBER,
                "a/b/width": NUMBER,
                "a/b/channels": shape_of(1),
            },
            {
                "a/b/raw": ("bytes", [bytes(range(6))]),
                "a/b/height": ("int64", [3]),
                "a/b/width": ("int64", [1]),
                "a/b/channels": ("int64", [2]),
            },
            {"a/b/raw": [[[0, 1]], [[2, 3]], [[4, 5]]], "a/b/height": 3, "a/b/width": 1, "a/b/channels": [2]},
        ),
    ],
    ids=lambda value: (
        str([described["shape"] for described in value.values() if "shape" in described])
        if isinstance(next(iter(value.values())), dict)
        else ""
    ),
)
def test_arrays_have_the_shape_that_the_manifest_or_the_example_gives(
    features: dict[str, Any], values: dict[str, Any], wanted: dict[str, Any]
) -> None:
    decoded = Decoder(features)(encoded(values))
    assert {name: np.asarray(value).tolist() for name, value in decoded.items()} == wanted


@pytest.mark.parametrize(
    ("features", "values", "says"),
    [
        ({"x": NUMBER}, {}, "'x' is missing, but every example has it in the manifest"),
        ({"x": NUMBER}, {"x": ("bytes", [b"a"])}, "'x' is bytes, but int64 in the manifest"),
        ({"x": NUMBER}, {"x": ("int64", [1, 2])}, "'x' has 2 values, but 1 in the manifest"),
        ({"x": NUMBER}, {"x": ("int64", [])}, "'x' has 0 values, but 1 in the manifest"),
        ({"x": array(2, 3)}, {"x": ("bytes", [bytes(5)])}, "'x' has 5 bytes, but 6 in the manifest"),
        ({"x": array(2, 3)}, {"x": ("bytes", [bytes(6)] * 2)}, "'x' has 2 values, but 1 in the manifest"),
        (
            {"x": array(2, 600, encoding="float", dtype="float32")},
            {"x": ("float", [0.0] * 1201)},
            "'x' has 1,201 values, but 1,200 in the manifest",
        ),
        (
            {"x": array(2, 600, dtype="int16")},
            {"x": ("bytes", [bytes(1201)])},
            "'x' has 1,201 bytes, but 2,400 in the manifest",
        ),
        (
            {"image/raw": array(None, None, 3), **AXES},
            {
                "image/raw": ("bytes", [bytes(8)]),
                "image/height": ("int64", [2]),
                "image/width": ("int64", [1]),
                "image/channels": ("int64", [4]),
            },
            "'image/channels' is 4, but 3 by its shape in the manifest",
        ),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_an_example_that_is_not_as_described_is_named(
    features: dict[str, Any], values: dict[str, Any], says: str, together: bool
) -> None:
    decoder, message = Decoder(features), encoded(values)
    with pytest.raises(ValueError, match=r".") as caught:
        [*decoder.each([message, message])] if together else decoder(message)
    assert str(caught.value) == f"the feature {says}"


@pytest.mark.parametrize(
    ("feature", "dtype", "shape"),
    [
        (array(), "uint8", (0,)),
        (array(3), "uint8", (0,)),
        (array(None), "uint8", (0,)),
        (array(2, None, dtype="float16"), "float16", (0, 0)),
        (array(2, 2, encoding="float", dtype="float32"), "float32", (0, 0)),
        (array(encoding="int64", dtype="int16"), "int16", (0,)),
        (array(encoding="bytes", dtype="bytes"), "object", (0,)),
        (array(None, encoding="bytes", dtype="bytes"), "object", (0,)),
    ],
)
def test_a_feature_that_some_examples_lack_is_an_empty_array_there(
    feature: dict[str, Any], dtype: str, shape: tuple[int, ...]
) -> None:
    decoder = Decoder({"x": {**feature, "count": 1}}, 2)
    for made in (decoder(encoded({})), *decoder.each([encoded({})] * 2)):
        assert (made["x"].dtype, made["x"].shape) == (np.dtype(dtype), shape)


@pytest.mark.parametrize(
    ("feature", "stored", "value"),
    [
        (array(encoding="int64", dtype="int16"), ("int64", [-5]), np.int16(-5)),
        (array(encoding="float", dtype="float16"), ("float", [0.5]), np.float16(0.5)),
        (array(encoding="bytes", dtype="bytes"), ("bytes", [b"ab"]), b"ab"),
        (array(), ("bytes", [b"\7"]), np.uint8(7)),
    ],
)
def test_a_single_value_is_a_scalar_unless_some_examples_lack_it(
    feature: dict[str, Any], stored: tuple[str, list[Any]], value: Any
) -> None:
    message = encoded({"x": stored})
    made = Decoder({"x": {**feature, "count": 2}}, 2)(message)["x"]
    assert (made, type(made)) == (value, type(value))
    listed = Decoder({"x": {**feature, "count": 1}}, 2)(message)["x"]
    assert (listed.tolist(), listed.dtype) == ([value], getattr(value, "dtype", np.dtype("O")))
