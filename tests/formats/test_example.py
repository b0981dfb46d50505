"""Encoded tf.train.Examples are read by protobuf and by tf.io, and equal features give equal bytes."""

from __future__ import annotations

import math
import struct

import pytest
import tensorflow as tf
from hypothesis import assume, given
from hypothesis import example as example_of
from hypothesis import strategies as st

from example_messages import MESSAGE, comparable, encoded, features_of_any_kind, float32s, names, parsed, proto, values
from hypothesis_profile import example_count
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.example import MAX_RECORD, Encoder, decode, float_list, int64_list, packed_floats, varint

pytestmark = pytest.mark.spread


@example_count(150)
@given(features_of_any_kind)
@example_of(MESSAGE)
@example_of({})
def test_a_message_is_protobuf_s_deterministic_serialisation_byte_for_byte(features):
    # Python's protobuf (upb) sorts "ab" before "a", where C++ and Go, and this project, sort plainly
    assume(not any(one != other and one.startswith(other) for one in features for other in features))
    assert encoded(features) == proto(features).SerializeToString(deterministic=True)


@given(features_of_any_kind)
def test_features_stand_in_the_order_of_their_names(features):
    assert list(decode(encoded(features))) == sorted(features)


@given(features_of_any_kind)
def test_protobuf_parses_what_was_encoded(features):
    assert comparable(parsed(encoded(features))) == comparable(features)


@example_count(25)
@given(st.dictionaries(names, values, min_size=1, max_size=4))
@example_of(MESSAGE)
def test_tensorflow_parses_what_was_encoded(features):
    types = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}
    wanted = {name: tf.io.VarLenFeature(types[kind]) for name, (kind, _) in features.items()}
    found = tf.io.parse_single_example(encoded(features), wanted)
    given_back = {name: (kind, found[name].values.numpy().tolist()) for name, (kind, _) in features.items()}
    assert comparable(given_back) == comparable(features)


@given(st.permutations(sorted(MESSAGE)))
def test_equal_features_give_equal_bytes_in_any_order(order):
    assert encoded({name: MESSAGE[name] for name in order}) == encoded(MESSAGE)


@given(st.lists(st.dictionaries(names, st.binary(max_size=300), max_size=4), max_size=8))
def test_an_encoder_s_memory_of_earlier_examples_changes_nothing(examples):
    encoder = Encoder()
    for features in [*examples, *reversed(examples)]:
        assert b"".join(encoder.encode(features)[0]) == b"".join(Encoder().encode(features)[0])


def test_an_encoder_s_cache_of_lengths_may_overflow():
    encoder = Encoder()
    for size in [*range(10_000), 127, 128, 16_383, 16_384]:
        message = b"".join(encoder.encode({"x": bytes(size)})[0])
        assert decode(message) == {"x": ("bytes", [bytes(size)])}


def test_large_values_are_passed_on_uncopied():
    value = bytes(1 << 20)
    assert any(part is value for part in Encoder().encode({"jpg": value, "cls": b"1"})[0])


@given(st.dictionaries(names, st.integers(0, 70_000), max_size=5))
def test_the_size_foretold_from_lengths_is_that_of_the_message(lengths):
    message = b"".join(Encoder().encode({name: bytes(length) for name, length in lengths.items()})[0])
    assert Encoder().size(lengths) == len(message)


def test_an_example_of_two_gibibytes_is_refused_and_one_byte_less_is_not():
    encoder = Encoder()
    overhead = encoder.size({"jpg": 2**31 - 100}) - (2**31 - 100)
    assert encoder.size({"jpg": MAX_RECORD - overhead}) == MAX_RECORD
    with pytest.raises(SampleError, match=r"would take 2,147,483,648 bytes; .* at most 2,147,483,647") as caught:
        encoder.size({"jpg": MAX_RECORD - overhead + 1})
    assert "--select" in caught.value.hint
    with pytest.raises(SampleError, match="at most"):
        encoder.size({"jpg": 2**30, "png": 2**30})


def test_a_name_that_is_not_utf_8_is_refused_by_name():
    with pytest.raises(SampleError, match=r"the name of the entry '\\udcff' is not UTF-8"):
        Encoder().encode({"\udcff": b""})


@pytest.mark.parametrize("value", [1e300, -1e300, 3.5e38])
def test_a_float_beyond_float32_is_refused_and_not_made_infinite(value):
    with pytest.raises(OverflowError):
        float_list([value])


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_integer_beyond_64_bits_is_refused(value):
    with pytest.raises(OverflowError):
        int64_list([value])


@given(st.lists(float32s, max_size=10))
def test_floats_given_as_bytes_are_those_given_as_numbers(numbers):
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    assert packed_floats(data).message == float_list(numbers).message
    assert packed_floats(data, (1, len(numbers))).shape == (1, len(numbers))


@pytest.mark.parametrize("number", [0, 127, 128, 16_383, 16_384, 2**32, 2**63, 2**64 - 1])
def test_a_varint_has_seven_bits_a_byte(number):
    data = varint(number)
    assert len(data) == max(1, math.ceil(number.bit_length() / 7))
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data)) == number
