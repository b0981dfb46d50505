"""What is parsed quickly is parsed alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tar2tf_cli.formats.example_parser import parse
from tar2tf_cli.formats.example_usual import _features, parse_usual
from wire import MESSAGE, encoded, features_of_any_kind, hand_encoded_examples

pytestmark = pytest.mark.spread


def outcome(parser: Any, message: bytes) -> Any:
    """Names, kinds and values in order, or the error."""
    try:
        return [(name, feature.kind, feature.count, feature.runs) for name, feature in parser(message).items()]
    except ValueError as error:
        return str(error)


@given(features_of_any_kind)
def test_examples_as_they_are_usually_written_are_parsed_alike(features: Any) -> None:
    message = encoded(features)
    assert outcome(parse_usual, message) == outcome(parse, message)


@settings(max_examples=150)  # fewer do not reach every line of the parser
@given(hand_encoded_examples)
def test_examples_of_any_form_are_parsed_alike(message: bytes) -> None:
    assert outcome(parse_usual, message) == outcome(parse, message)


@settings(max_examples=150)  # fewer do not reach every line of the parser
@given(features_of_any_kind, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_examples_are_parsed_alike(features: Any, damages: list[tuple[int, int]]) -> None:
    message = bytearray(encoded(features) or b"\0")
    for place, byte in damages:
        message[place % len(message)] = byte
    assert outcome(parse_usual, bytes(message)) == outcome(parse, bytes(message))


def test_an_example_cut_at_any_byte_is_refused_alike() -> None:
    message = encoded({name: feature for name, feature in MESSAGE.items() if feature[1]})
    assert _features(message) is not None
    for end in range(len(message)):
        assert outcome(parse_usual, message[:end]) == outcome(parse, message[:end])


@pytest.mark.parametrize("message", [b"", b"\x0a\x00", b"\x0a"])
def test_empty_examples_are_parsed_alike(message: bytes) -> None:
    assert outcome(parse_usual, message) == outcome(parse, message)
