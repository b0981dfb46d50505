"""Features in the form that the parser gives them in, as messages made here and by protobuf."""

from __future__ import annotations

import math

import tensorflow as tf
from hypothesis import strategies as st

from tar2tf_cli.formats.example import Encoder, bytes_list, float_list, int64_list

names = st.text(max_size=8) | st.sampled_from(["jpg", "cls", "seg.png", "é", "名前", "x" * 200])
int64s = st.integers(-(2**63), 2**63 - 1)
float32s = st.floats(width=32, allow_nan=True, allow_infinity=True)
values = st.one_of(
    st.tuples(st.just("bytes"), st.lists(st.binary(max_size=20), max_size=4)),
    st.tuples(st.just("bytes"), st.lists(st.integers(100, 20_000).map(bytes), min_size=1, max_size=2)),
    st.tuples(st.just("int64"), st.lists(int64s, max_size=6)),
    st.tuples(st.just("float"), st.lists(float32s, max_size=6)),
)
features_of_any_kind = st.dictionaries(names, values, max_size=5)

MAKERS = {"bytes": bytes_list, "int64": int64_list, "float": float_list}

MESSAGE = {
    "a": ("int64", [1, -1, 2**63 - 1]),
    "b": ("float", [1.5, math.inf]),
    "c": ("bytes", [b"", b"yy"]),
    "d": ("bytes", [bytes(200)]),
    "é": ("int64", []),
}


def encoded(features) -> bytes:
    """Features given as kind and values; a list of one bytes value is given to the encoder as plain bytes."""
    ready = {
        name: content[0] if kind == "bytes" and len(content) == 1 else MAKERS[kind](content)
        for name, (kind, content) in features.items()
    }
    parts, size = Encoder().encode(ready)
    message = b"".join(parts)
    assert len(message) == size
    return message


def proto(features) -> tf.train.Example:
    message = tf.train.Example()
    message.features.SetInParent()
    for name, (kind, content) in features.items():
        values = getattr(message.features.feature[name], f"{kind}_list")
        values.SetInParent()
        values.value.extend(content)
    return message


def parsed(message: bytes) -> dict[str, tuple[str | None, list]]:
    """What protobuf reads from a message, in the form that `decode` gives."""
    found = {}
    for name, feature in tf.train.Example.FromString(message).features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = (kind and kind.removesuffix("_list"), list(getattr(feature, kind).value) if kind else [])
    return found


def comparable(features) -> list[str]:
    """Equal for equal features, NaN included."""
    return sorted(repr((name, kind, list(content))) for name, (kind, content) in features.items())
