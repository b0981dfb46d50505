"""The strict parser accepts exactly what protobuf and tf.io.parse_single_example both parse."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from example_messages import encoded, features_of_any_kind, hand_encoded_examples, in_bytes, tensorflow_parses
from hypothesis_profile import example_count
from tar2tf_cli.formats.example import parse, strict_parse

pytestmark = pytest.mark.spread

NAME = in_bytes(0x0A, b"x")
INTS = in_bytes(0x1A, in_bytes(0x0A, b"\x05"))
TEXT = in_bytes(0x0A, in_bytes(0x0A, b"hi"))
FLOAT = b"\0\0\x80\x3f"
MIXED = in_bytes(0x1A, b"\x08\x05\x0a\x01\x05")
UNKNOWN, UNKNOWN_GROUP = b"\x38\x01", b"\x3b\x08\x01\x3c"


def value(*lists: bytes) -> bytes:
    return in_bytes(0x12, *lists)


def message(*entries: bytes) -> bytes:
    return in_bytes(0x0A, *(in_bytes(0x0A, entry) for entry in entries))


GOOD = message(NAME + value(INTS))
PARSED = {
    "nothing": b"",
    "a value before its name": message(value(INTS) + NAME),
    "a name twice in an entry without value": message(NAME + NAME),
    "a value twice in an entry without name": message(value(INTS) + value(INTS)),
    "an unknown field in the example": UNKNOWN + GOOD + in_bytes(0x3A, b"zz"),
    "an unknown field behind a list": message(NAME + value(INTS + UNKNOWN)),
    "an unknown field behind packed values": message(NAME + value(in_bytes(0x1A, in_bytes(0x0A, b"\x05"), UNKNOWN))),
    "a list of one kind twice": message(NAME + value(INTS + INTS)),
    "a kind that comes back": message(NAME + value(TEXT + INTS + TEXT)),
    "a feature without kind": message(NAME + value()),
    "an empty list": message(NAME + value(in_bytes(0x1A))),
    "a name in two entries": message(NAME + value(INTS), NAME + value(INTS)),
    "a name in two entries, of two kinds": message(NAME + value(TEXT), NAME + value(INTS)),
    "a mixed list, and a good one of its name": message(
        NAME + value(in_bytes(0x1A, b"\x08\x05\x0a\x01\x05")), NAME + value(INTS)
    ),
    "features in two parts": GOOD + message(in_bytes(0x0A, b"y") + value(TEXT)),
    "values one by one": message(NAME + value(in_bytes(0x1A, b"\x08\x05\x08\x06"))),
    "packed values, then one by one": message(NAME + value(in_bytes(0x1A, b"\x0a\x01\x05\x08\x05"))),
    "packed floats twice": message(NAME + value(in_bytes(0x12, in_bytes(0x0A, FLOAT) * 2))),
    "no features, with a long tag": b"\x8a\x00\x00" + GOOD,
    "an empty list of features with a long tag": b"\x8a\x00" + message(NAME + value(in_bytes(0x1A)))[1:],
    "features with a long tag, and others of their names": b"\x8a\x00" + GOOD[1:] + GOOD,
    "an empty entry of features with a long tag": b"\x8a\x00" + message(b"")[1:] + GOOD,
    "a name with a long tag": message(b"\x8a\x00\x01x" + value(INTS)),
    "a sequence example": GOOD + in_bytes(0x12, in_bytes(0x0A, in_bytes(0x0A, b"s"))),
}
REJECTED = {
    "an unknown field before a list, and a good list of its name": message(
        NAME + value(UNKNOWN + INTS), NAME + value(INTS)
    ),
    "an entry without name": message(value(INTS)),
    "an entry without value": message(NAME),
    "an empty entry": message(b""),
    "a name twice": message(NAME + NAME + value(INTS)),
    "a value twice": message(NAME + value(INTS) + value(INTS)),
    "an unknown field among the features": in_bytes(0x0A, UNKNOWN, in_bytes(0x0A, NAME, value(INTS))),
    "an unknown field in an entry": message(NAME + value(INTS) + UNKNOWN),
    "an unknown field before a list": message(NAME + value(UNKNOWN + INTS)),
    "an unknown field before values": message(NAME + value(in_bytes(0x1A, UNKNOWN, b"\x0a\x01\x05"))),
    "an unknown field among texts": message(NAME + value(in_bytes(0x0A, b"\x0a\x01a", UNKNOWN, b"\x0a\x01b"))),
    "a group in the example": UNKNOWN_GROUP + GOOD,
    "a group behind the features": GOOD + UNKNOWN_GROUP,
    "lists of two kinds": message(NAME + value(TEXT + INTS)),
    "values one by one, then packed": message(NAME + value(MIXED)),
    "floats one by one, then packed": message(NAME + value(in_bytes(0x12, b"\x0d", FLOAT, b"\x0a\x04", FLOAT))),
    "features with a long tag, which TensorFlow does not see": b"\x8a\x00" + GOOD[1:],
    "an entry with a long tag": in_bytes(0x0A, b"\x8a\x00" + in_bytes(0x0A, NAME, value(INTS))[1:]),
    "a list with a long tag": message(NAME + value(b"\x9a\x00" + INTS[1:])),
    "values with a long tag": message(NAME + value(in_bytes(0x1A, b"\x8a\x00\x01\x05"))),
    "a number among the features": in_bytes(0x0A, b"\x08\x05"),
    "a number for a name": message(b"\x08\x05" + value(INTS)),
    "a number in a list of bytes": message(NAME + value(in_bytes(0x0A, b"\x08\x05"))),
    "a name that is not UTF-8": message(in_bytes(0x0A, b"\xff") + value(INTS)),
    "a number without end": message(NAME + value(in_bytes(0x1A, in_bytes(0x0A, b"\x80")))),
}


@pytest.mark.parametrize("encoded", PARSED.values(), ids=PARSED)
def test_what_tensorflow_parses_is_an_example(encoded: bytes) -> None:
    assert tensorflow_parses(encoded)
    assert strict_parse(encoded) == parse(encoded, sequence=True)


@pytest.mark.parametrize("encoded", REJECTED.values(), ids=REJECTED)
def test_what_tensorflow_rejects_is_not_an_example(encoded: bytes) -> None:
    assert not tensorflow_parses(encoded)
    with pytest.raises(ValueError, match=r"byte|does not end"):
        strict_parse(encoded)


def agrees_with_tensorflow(encoded: bytes) -> None:
    try:
        strict_parse(encoded)
    except ValueError:
        assert not tensorflow_parses(encoded)
    else:
        assert tensorflow_parses(encoded)


@example_count(100)
@given(hand_encoded_examples)
def test_a_message_encoded_by_hand_is_an_example_exactly_if_tensorflow_parses_it(encoded: bytes) -> None:
    agrees_with_tensorflow(encoded)


@example_count(150)
@given(features_of_any_kind, st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=2))
def test_a_damaged_example_is_one_exactly_if_tensorflow_parses_it(features: dict, damages: list) -> None:
    changed = bytearray(encoded(features))
    for place, byte in damages:
        if changed:
            changed[int(place * len(changed))] = byte
    agrees_with_tensorflow(bytes(changed))


def test_a_sequence_example_is_read_as_its_context() -> None:
    sequence = tf.train.SequenceExample()
    sequence.context.feature["a"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["b"].feature.add()
    assert list(strict_parse(sequence.SerializeToString())) == ["a"]
