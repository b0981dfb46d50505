"""What tf.io.parse_single_example rejects, although protobuf reads it as a tf.train.Example.

TensorFlow parses examples with its own code (tensorflow/core/util/example_proto_fast_parsing.cc), which expects the
forms that writers use: no unknown fields below the Example, key and value in each entry, and lists in one form.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from tar2tf_cli.formats.example import TAGS, Kind
from tar2tf_cli.formats.example_parser import ParsedFeature, feature_at, fields, parse

__all__ = ["strict_feature_at", "strict_parse"]

_DELIMITED: Final = 0x0A
_VALUE: Final = 0x12
_LISTS: Final = {tag[0] for tag in TAGS.values()}
_ONE_BY_ONE: Final[dict[Kind, int]] = {"bytes": 0x0A, "float": 0x0D, "int64": 0x08}
_BY: Final = "tf.io.parse_single_example cannot read it"


def strict_parse(message: bytes) -> dict[str, ParsedFeature]:
    """Return the features of a tf.train.Example that protobuf and `tf.io.parse_single_example` both accept.

    The latter when it is asked for every feature, as VarLenFeature of the kind that protobuf finds. Like both, it reads
    a tf.train.SequenceExample as an example of its context.

    Raises:
        ValueError: when one of them rejects it; says what is wrong, and at which byte.
    """
    found = parse(message, sequence=True)
    values: dict[str, tuple[int, int]] = {}
    position = 0
    for tag, start, end in fields(message, 0, len(message), 0):
        if tag & 7 == 3:
            raise ValueError(f"a group ends at byte {end}: {_BY}")
        if message[position] == _DELIMITED:  # Features with their tag in more bytes are skipped as unknown
            for name, first, last in _entries(message, start, end):
                if first < last and found[name].kind:
                    values[name] = first, last
                    _check_kind(message, first)
        position = end
    for name, (start, end) in values.items():
        _check_value(message, start, end, found[name])
    return found


def strict_feature_at(message: bytes, position: int) -> tuple[ParsedFeature | None, int]:
    """Return what `feature_at` returns, and None also for an entry that `strict_parse` may reject.

    Raises:
        ValueError: when there is no field of Features.
    """
    feature, end = feature_at(message, position)
    if feature:
        ((_, first, last),) = _entries(message, position, end)
        if first < last and feature.kind:
            _check_kind(message, first)
            _check_value(message, first, last, feature)
    return feature, end


def _entries(message: bytes, position: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, and start and end of the value, of each entry of Features."""
    for tag, start, stop in fields(message, position, end, 1):
        if message[position] != _DELIMITED:
            raise ValueError(f"unexpected field tag {tag:#04x} at byte {position} among the features: {_BY}")
        parts = list(fields(message, start, stop, 2))
        if len(parts) != 2 or any(tag not in (_DELIMITED, _VALUE) for tag, *_ in parts):
            raise ValueError(f"the entry at byte {position} is not a name and a feature: {_BY}")
        by_tag = {tag: (first, last) for tag, first, last in parts}
        name = message[slice(*by_tag.get(_DELIMITED, (0, 0)))].decode("utf-8")
        yield name, *by_tag.get(_VALUE, (stop, stop))
        position = stop


def _check_kind(message: bytes, start: int) -> None:
    """Check that a Feature message begins with a list."""
    if message[start] not in _LISTS:
        raise ValueError(f"the feature at byte {start} does not begin with a list: {_BY}")


def _check_value(message: bytes, start: int, end: int, feature: ParsedFeature) -> None:
    """Check the list of a Feature message that protobuf has read."""
    kind = feature.kind or "bytes"
    if message[start] != TAGS[kind][0]:
        raise ValueError(f"the feature at byte {start} has lists of two kinds: {_BY}")
    _, first, last = next(fields(message, start, end, 3))
    if first == last or (kind != "bytes" and message[first] == _DELIMITED):
        return
    ends = [stop for _, stop in feature.runs if first < stop <= last]
    if not ends or ends[-1] != last:  # there are unknown fields, or values of a list that another replaced
        ends = [stop for *_, stop in fields(message, first, last, 4)]
    tag = _ONE_BY_ONE[kind]
    if any(message[place] != tag for place in chain((first,), ends[:-1])):
        raise ValueError(f"the list at byte {start} has values in two forms: {_BY}")
