"""The feature lists of a tf.train.SequenceExample; example_parser.py reads its context, as it reads an Example.

SequenceExample { 1: Features, 2: FeatureLists { 1: map entry { 1: name, 2: FeatureList { 1: Feature … } } } }
"""

from __future__ import annotations

from typing import Final

from tar2tf_cli.formats.example_parser import ParsedFeature, feature_in, fields

__all__ = ["is_sequence", "parse_lists"]

_FIRST: Final = 0x0A
_SECOND: Final = 0x12


def parse_lists(message: bytes) -> dict[str, list[ParsedFeature]]:
    """Return the feature lists of a serialised tf.train.SequenceExample by name.

    Raises:
        ValueError: when the bytes are not a SequenceExample.
    """
    found: dict[str, list[ParsedFeature]] = {}
    for tag, start, end in fields(message, 0, len(message), 0):
        if tag == _SECOND:
            for inner, first, last in fields(message, start, end, 1):
                if inner == _FIRST:
                    name, features = _entry(message, first, last)
                    found[name] = features
    return found


def is_sequence(message: bytes) -> bool:
    """Whether a message is a tf.train.SequenceExample with feature lists."""
    try:
        return bool(parse_lists(message))
    except ValueError:
        return False


def _entry(message: bytes, start: int, end: int) -> tuple[str, list[ParsedFeature]]:
    name, features = "", []
    for tag, first, last in fields(message, start, end, 2):
        if tag == _FIRST:
            name = message[first:last].decode("utf-8")
        elif tag == _SECOND:
            places = (place for inner, *place in fields(message, first, last, 3) if inner == _FIRST)
            features += [feature_in(message, *place) for place in places]
    return name, features
