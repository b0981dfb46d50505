"""Example messages from hypothesis, encoded by hand and by protobuf, with the features they hold."""

from __future__ import annotations

import math

import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from tar2tf_cli.formats.example import Encoder, bytes_list, float_list, int64_list, varint

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


def in_bytes(tag: int, *parts: bytes) -> bytes:
    """A field with a length."""
    data = b"".join(parts)
    return bytes([tag]) + varint(len(data)) + data


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


# --- Messages encoded by hand ---

numbers = st.sampled_from([0, 1, 5, 127, 128, 300, 2**31, 2**63, 2**64 - 1])


# made once, as hypothesis takes longer to make a strategy than to draw from it
once_in_eight, up_to_four = st.integers(0, 7).map(lambda number: not number), st.integers(0, 4)


def drawn_varint(draw, number):
    """A number, now and then in more bytes than it takes."""
    data = varint(number)
    if not draw(once_in_eight):
        return data
    return data[:-1] + bytes([data[-1] | 0x80]) + b"\x80" * draw(up_to_four) + b"\0"


@st.composite
def varints(draw, values=numbers):
    return drawn_varint(draw, draw(values))


def field(number, wire, content):
    """A field with a number, or one of several."""
    tags = [each << 3 | wire for each in ((number,) if isinstance(number, int) else number)]
    return st.builds(bytes.__add__, varints(st.sampled_from(tags)), content)


@st.composite
def delimited(draw, content):
    data = draw(content)
    return drawn_varint(draw, len(data)) + data


def end_to_end(parts, most=3):
    return st.lists(parts, max_size=most).map(b"".join)


def a_group(inside):
    return st.builds(
        lambda number, data, end: varint(number << 3 | 3) + data + varint(end << 3 | 4),
        st.just(7), end_to_end(inside), st.sampled_from([7, 7, 7, 6]),
    )  # fmt: skip


UNKNOWN = (0, 1, 2, 3, 4, 100, 2**28)
unknown = st.recursive(
    st.one_of(
        field(UNKNOWN, 0, varints()),
        field(UNKNOWN, 1, st.binary(min_size=8, max_size=8)),
        field(UNKNOWN, 2, delimited(st.binary(max_size=3))),
        field(UNKNOWN, 5, st.binary(min_size=4, max_size=4)),
        field(UNKNOWN, 6, st.just(b"")),
    ).map(bytes),  # one alternative to a group, not five
    a_group,
    max_leaves=3,
)


def mixed(parts):
    """A message of such fields; of eight, one is unknown."""
    return end_to_end(st.one_of(*[parts] * 7, unknown))


hand_encoded_lists = st.one_of(
    field(1, 2, delimited(mixed(field(1, 2, delimited(st.binary(max_size=4)))))),
    field(2, 2, delimited(mixed(field(1, 5, st.just(b"\0\0\x80\x3f")) | field(1, 2, delimited(st.just(bytes(8))))))),
    field(3, 2, delimited(mixed(field(1, 0, varints()) | field(1, 2, delimited(end_to_end(varints())))))),
)
hand_encoded_entries = mixed(
    field(1, 2, delimited(st.sampled_from([b"a", b"b", b"", b"\xff"])))
    | field(2, 2, delimited(mixed(hand_encoded_lists)))
)
hand_encoded_examples = mixed(field(1, 2, delimited(mixed(field(1, 2, delimited(hand_encoded_entries))))))


TENSORFLOW = {"bytes_list": tf.string, "float_list": tf.float32, "int64_list": tf.int64}


def tensorflow_parses(message: bytes) -> bool:
    """Whether protobuf reads a message as an Example, and parse_single_example all features that protobuf finds.

    A feature that has values for the one and none for the other is one that a training would not see.
    """
    try:
        found = tf.train.Example.FromString(message).features.feature
        kinds = {name: feature.WhichOneof("kind") for name, feature in found.items()}
        asked = {name: tf.io.VarLenFeature(TENSORFLOW[kind]) for name, kind in kinds.items() if kind}
        parsed = tf.io.parse_single_example(message, {"another name": tf.io.VarLenFeature(tf.int64), **asked})
    except (DecodeError, tf.errors.InvalidArgumentError, UnicodeDecodeError):  # the last for the text of the second
        return False
    return not any(
        getattr(found[name], str(kind)).value and not len(parsed[name].values) for name, kind in kinds.items() if kind
    )
