"""What the kernel parses is what the general parser makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_messages import MESSAGE, encoded, features_of_any_kind, hand_encoded_examples
from kernel_build import built, needs_compiler
from tar2tf_cli.formats.example import ParsedFeature, parse_any, strict_parse_any

pytestmark = [needs_compiler, pytest.mark.spread]


def parse(message: bytes) -> Any:
    """What the kernel makes of a message; where it leaves it to the general parser, what that does."""
    found = built().features(message, ParsedFeature)
    if found is not None:
        assert list(strict_parse_any(message)) == list(found)
    return parse_any(message) if found is None else found


def outcome(parser: Any, message: bytes) -> Any:
    """Names, kinds and values in order, or the error."""
    try:
        return [(name, feature.kind, feature.count, feature.runs) for name, feature in parser(message).items()]
    except ValueError as error:
        return str(error)


@given(features_of_any_kind)
def test_examples_as_they_are_usually_written_are_parsed_alike(features: Any) -> None:
    message = encoded(features)
    assert outcome(parse, message) == outcome(parse_any, message)


@settings(max_examples=150)  # fewer do not reach every line of the parser
@given(hand_encoded_examples)
def test_examples_of_any_form_are_parsed_alike(message: bytes) -> None:
    assert outcome(parse, message) == outcome(parse_any, message)


@settings(max_examples=150)  # fewer do not reach every line of the parser
@given(features_of_any_kind, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_examples_are_parsed_alike(features: Any, damages: list[tuple[int, int]]) -> None:
    message = bytearray(encoded(features) or b"\0")
    for place, byte in damages:
        message[place % len(message)] = byte
    assert outcome(parse, bytes(message)) == outcome(parse_any, bytes(message))


def test_an_example_cut_at_any_byte_is_refused_alike() -> None:
    message = encoded({name: feature for name, feature in MESSAGE.items() if feature[1]})
    assert built().features(message, ParsedFeature)
    for end in range(len(message)):
        assert outcome(parse, message[:end]) == outcome(parse_any, message[:end])


@pytest.mark.parametrize("message", [b"", b"\x0a\x00", b"\x0a"])
def test_empty_examples_are_parsed_alike(message: bytes) -> None:
    assert outcome(parse, message) == outcome(parse_any, message)
