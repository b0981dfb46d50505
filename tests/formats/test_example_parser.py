"""The parser of tf.train.Example agrees with protobuf on every message, and refuses what protobuf refuses."""

from __future__ import annotations

import struct

import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import example as example_of
from hypothesis import given
from hypothesis import strategies as st

from example_messages import MESSAGE, comparable, encoded, features_of_any_kind, hand_encoded_examples, parsed
from hypothesis_profile import example_count
from tar2tf_cli.formats.example import Encoder, decode, feature_in, parse_features, varint

pytestmark = pytest.mark.spread


@example_count(200)
@given(features_of_any_kind)
@example_of(MESSAGE)
def test_decoding_gives_back_what_was_encoded(features):
    assert comparable(decode(encoded(features))) == comparable(features)


def test_decoding_reads_lists_that_are_not_packed():
    floats = b"\x0d" + struct.pack("<f", 1.5) + b"\x0a\x04" + struct.pack("<f", 2.5)
    ints = b"\x08\x07\x0a\x02\x01\x02\x08" + varint(2**64 - 1)
    message = b"".join(
        b"\x0a" + varint(len(entry)) + entry
        for name, tag, content in [(b"f", b"\x12", floats), (b"i", b"\x1a", ints)]
        for body in [tag + varint(len(content)) + content]
        for entry in [b"\x0a\x01" + name + b"\x12" + varint(len(body)) + body]
    )
    message = b"\x0a" + varint(len(message)) + message
    assert decode(message) == parsed(message) == {"f": ("float", [1.5, 2.5]), "i": ("int64", [7, 1, 2, -1])}


def test_an_unset_feature_has_no_kind():
    message = tf.train.Example()
    message.features.feature["x"].SetInParent()
    assert decode(message.SerializeToString()) == {"x": (None, [])}


def test_of_a_name_that_comes_twice_the_last_counts_as_in_protobuf():
    message = encoded({"x": ("bytes", [b"one"])}) + encoded({"x": ("int64", [2])})
    assert decode(message) == parsed(message) == {"x": ("int64", [2])}


def in_example(feature: bytes) -> bytes:
    """An example whose feature `x` is these bytes."""
    entry = b"\x0a\x01x\x12" + varint(len(feature)) + feature
    features = b"\x0a" + varint(len(entry)) + entry
    return b"\x0a" + varint(len(features)) + features


@pytest.mark.parametrize(
    ("feature", "kind", "values"),
    [
        (b"\x0a\x03\x0a\x01y\x1a\x03\x0a\x01\x07", "int64", [7]),
        (b"\x0a\x03\x0a\x01y\x0a\x03\x0a\x01z", "bytes", [b"y", b"z"]),
        (b"\x0a\x03\x0a\x01y\x1a\x03\x0a\x01\x07\x0a\x03\x0a\x01z", "bytes", [b"z"]),
        (b"\x1a\x00\x20\x01", "int64", []),
    ],
    ids=["two kinds", "one kind twice", "a kind that comes back", "an unknown field"],
)
def test_a_feature_may_hold_more_than_one_list(feature, kind, values):
    message = in_example(feature)
    assert decode(message) == parsed(message) == {"x": (kind, values)}


def test_a_feature_in_two_parts_is_merged():
    parts = [b"\x12" + varint(len(part)) + part for part in (b"\x1a\x02\x08\x05", b"\x1a\x03\x0a\x01\x06")]
    entry = b"\x0a\x01x" + b"".join(parts)
    message = b"\x0a" + varint(len(entry) + 2) + b"\x0a" + varint(len(entry)) + entry
    assert decode(message) == parsed(message) == {"x": ("int64", [5, 6])}


def test_the_values_of_a_list_in_several_packed_parts_are_counted_together():
    message = b"\x1a\x07\x0a\x02\x01\x02\x0a\x01\x03"
    assert list(tf.train.Feature.FromString(message).int64_list.value) == [1, 2, 3]
    feature = feature_in(message, 0, len(message))
    assert (feature.count, feature.values()) == (3, [1, 2, 3])


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
def test_groups_lie_within_each_other_as_deep_as_protobuf_allows(depth):
    for groups in (99 - depth, 100 - depth, 101 - depth):
        message = b"\x1b" * groups + b"\x1c" * groups
        for tag in (b"\x1a", b"\x12", b"\x0a", b"\x0a")[4 - depth :]:
            message = tag + varint(len(message)) + message
        agrees_with_protobuf(message)


def test_a_sequence_example_is_refused_by_name():
    message = tf.train.SequenceExample()
    message.context.feature["x"].int64_list.value.append(1)
    message.feature_lists.feature_list["y"].feature.add()
    with pytest.raises(ValueError, match=r"has feature_lists, as a tf\.train\.SequenceExample"):
        decode(message.SerializeToString())


@given(features_of_any_kind)
def test_parsed_features_are_encoded_as_they_were(features):
    given = {name: (kind, content) for name, (kind, content) in features.items()}
    message = encoded(given)
    assert b"".join(Encoder().encode(parse_features(message))[0]) == message


@pytest.mark.parametrize(
    "number", [b"\xff" * 9 + b"\x7f", b"\x81" + b"\x80" * 8 + b"\x02", b"\x81\x80\x80\x00"], ids=repr
)
def test_varints_longer_than_need_be_are_read_as_protobuf_reads_them(number):
    for values in (b"\x08" + number, b"\x0a" + varint(len(number)) + number):
        message = in_example(b"\x1a" + varint(len(values)) + values)
        assert decode(message) == parsed(message)


def agrees_with_protobuf(message: bytes) -> None:
    """Decoding gives what protobuf gives, and refuses with ValueError what protobuf refuses."""
    try:
        features = decode(message)
    except ValueError as error:
        if "SequenceExample" not in str(error):
            with pytest.raises(DecodeError):
                parsed(message)
    else:
        assert comparable(features) == comparable(parsed(message))


@example_count(300)
@given(st.binary(max_size=40))
@example_of(b"\x0a" + b"\x80" * 9 + b"\x00")
@example_of(b"\x0a\x0c\x0a\x0a\x12\x01a\x12\x05\x0a\x03\x0a\x01x")
@example_of(b"\xff" * 40)
def test_arbitrary_bytes_are_refused_and_read_as_by_protobuf(message):
    agrees_with_protobuf(message)


spots = st.floats(0, 1, exclude_max=True)
tokens = st.sampled_from([b"\x0a", b"\x12", b"\x1a", b"\x08", b"\x0d", b"\x00", b"\x01", b"\x80", b"\x85\x80\x00"])


@example_count(500)
@given(features_of_any_kind, st.lists(st.tuples(spots, spots, tokens | st.binary(max_size=2)), min_size=1, max_size=3))
@example_of(MESSAGE, [(0.5, 0.6, b"")])
def test_damaged_messages_are_refused_and_read_as_by_protobuf(features, damages):
    message = encoded(features)
    for first, second, replacement in damages:
        start, end = sorted((int(first * len(message)), int(second * len(message))))
        message = message[:start] + replacement + message[min(end, start + 4) :]
    agrees_with_protobuf(message)


def test_a_message_cut_at_any_byte_is_refused():
    message = encoded(MESSAGE)
    for cut in range(1, len(message)):
        with pytest.raises(ValueError, match="byte"):
            decode(message[:cut])


@pytest.mark.parametrize("kind", ["int64", "float", "bytes"])
def test_a_field_of_another_number_is_skipped_as_by_protobuf(kind):
    message = tf.train.Example()
    getattr(message.features.feature["x"], f"{kind}_list").SetInParent()
    whole = bytearray(message.SerializeToString())
    for place in (0, 2, 4, 7, 9):
        damaged = bytearray(whole)
        damaged[place] |= 0x60
        agrees_with_protobuf(bytes(damaged))


@example_count(100)
@given(hand_encoded_examples)
def test_hand_encoded_messages_are_refused_and_read_as_by_protobuf(message):
    agrees_with_protobuf(message)
