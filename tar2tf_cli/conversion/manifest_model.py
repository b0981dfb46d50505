"""The model of a manifest's JSON: which keys it has, and which values they accept; says which value is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["INPUT", "MANIFEST", "SHARD", "check", "contradictions", "lineage_agrees", "shape_features"]


class Value(NamedTuple):
    """A value that is no list or object: whether one fits, and what it must be."""

    fits: Callable[[Any], bool]
    what: str


Rule: TypeAlias = "Value | tuple[None, Rule] | list[Rule] | dict[str | type[str], Rule]"
"""Which JSON is accepted.

A value; `(None, rule)` for null or what the rule accepts; `[rule]` for a list of any length, and several rules for one
of as many items, which all fit the first; `{str: rule}` for an object with any keys, and otherwise an object with these
keys: a name with a question mark may be missing, and other keys are ignored.
"""

_DTYPES: Final = {
    "bytes": ("bytes",),
    "int64": ("int64", "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"),
    "float": ("float32", "float16", "float64"),
    "raw": ("uint8", "float64", "bool", "int8", "int16", "int32", "int64", "uint16", "float16", "float32"),
}
"""The dtypes that each encoding can hold."""


def check(value: Any, rule: Rule, path: str = "") -> None:
    """Check that JSON is as a rule says.

    Raises:
        ValueError: when it is not; has the path of the first value that is wrong, such as `shards[0].records`.
    """
    if isinstance(rule, Value):
        if not rule.fits(value):
            _refuse(path, rule.what, value)
    elif isinstance(rule, tuple):
        if value is not None:
            check(value, rule[1], path)
    elif isinstance(rule, list):
        if not isinstance(value, list) or len(rule) not in (1, len(value)):
            _refuse(path, "a list" if len(rule) == 1 else f"a list of {len(rule)}", value)
        for number, item in enumerate(value):
            check(item, rule[0], f"{path}[{number}]")
    else:
        _check_object(value, rule, path)


def _check_object(value: Any, rule: dict[str | type[str], Rule], path: str) -> None:
    if not isinstance(value, dict):
        _refuse(path, "an object", value)
    dot = f"{path}." if path else ""
    for key, inner in rule.items():
        if key is str:
            for name, item in value.items():
                check(item, inner, f"{dot}{name}")
        elif (name := str(key).removesuffix("?")) in value:
            check(value[name], inner, f"{dot}{name}")
        elif name == key:
            raise ValueError(f"{dot}{name} is missing")


def _refuse(path: str, what: str, value: Any) -> None:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    raise ValueError(f"{path or 'the document'} must be {what}, not {shown}")


def _is_name(value: Any) -> bool:
    """Whether it is text that can be a file's name."""
    try:
        return isinstance(value, str) and "\0" not in value and value.encode("utf-8", "surrogateescape") is not None
    except UnicodeEncodeError:
        return False


def _is_below(value: Any) -> bool:
    """Whether it is the path of a file in the manifest's folder or below."""
    return _is_name(value) and bool(value) and not value.startswith("/") and ".." not in value.split("/")


def _matching(pattern: str, what: str) -> Value:
    """Text that matches a regular expression as a whole."""
    fits = re.compile(pattern).fullmatch
    return Value(lambda value: isinstance(value, str) and bool(fits(value)), what)


def _one_of(*words: str) -> Value:
    return _matching("|".join(words), f"one of {', '.join(words)}")


_NAME: Final = Value(_is_name, "text")
_TEXT: Final = Value(lambda value: isinstance(value, str), "text")
_BELOW: Final = Value(_is_below, "a path below the manifest's folder")
_COUNT: Final = Value(lambda value: type(value) is int and 0 <= value < 2**63, "a whole number, 0 or more")
_DTYPE: Final = _one_of(*dict.fromkeys(dtype for dtypes in _DTYPES.values() for dtype in dtypes))
_DIGEST: Final = _matching("crc32c:[0-9a-f]{8}", "crc32c: and eight hexadecimal digits")
_LOOK: Final[dict[str | type[str], Rule]] = {"dtype": _DTYPE, "shape": [(None, _COUNT)], "encoding": _one_of(*_DTYPES)}
_GAVE: Final[Rule] = {
    "samples": _COUNT,
    "faulty": _COUNT,
    "skipped": {str: _COUNT},
    "schema": _COUNT,
    "counts": {str: _COUNT},
}
INPUT: Final[Rule] = {"name": _NAME, "size": (None, _COUNT), "version": (None, _TEXT)}
SHARD: Final[Rule] = {"path": _BELOW, "records": _COUNT, "bytes": _COUNT, "digest": _DIGEST, "split?": _NAME}
MANIFEST: Final[Rule] = {
    "spec": {
        "output": {"path": _BELOW, "compression?": _one_of("none", "gzip")},
        "input?": {"fields?": {}},
    },
    "inputs": [INPUT],
    "shards": [SHARD],
    "features": {str: {**_LOOK, "count?": _COUNT}},
    "skipped": {"samples": _COUNT, "members": {str: _COUNT}},
    "totals?": {"inputs?": _COUNT, "shards?": _COUNT, "records?": _COUNT, "bytes?": _COUNT},
    "documents?": [_BELOW],
    "lineage?": {"schemas": [{str: _LOOK}], "inputs": [_GAVE], "shards": [[[_COUNT] * 4]]},
}


def lineage_agrees(whole: dict[str, Any]) -> bool:
    """Whether a manifest has a lineage that agrees with the rest of it; otherwise the lineage is of no use."""
    lineage, inputs, shards = whole.get("lineage"), whole["inputs"], whole["shards"]
    if lineage is None or len(lineage["inputs"]) != len(inputs) or len(lineage["shards"]) != len(shards):
        return False
    return all(given["schema"] < len(lineage["schemas"]) for given in lineage["inputs"]) and all(
        pieces
        and all(source < len(inputs) for source, *_ in pieces)
        and sum(records for _, records, *_ in pieces) == shard["records"]
        for pieces, shard in zip(lineage["shards"], shards, strict=True)
    )


def contradictions(features: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What cannot be true of a manifest's features, each as a sentence that begins with the feature."""
    for name, feature in features.items():
        encoding, dtype, shape = feature["encoding"], feature["dtype"], feature["shape"]
        if dtype not in _DTYPES[encoding]:
            holder = "raw bytes" if encoding == "raw" else f"a list of {encoding}"
            yield f"the feature {name!r} is {holder}, which cannot hold {dtype}"
        stored = shape_features(name, features)
        length = 1 if len(stored) > 1 else len(shape)
        for found in stored:
            kind, own = features[found]["encoding"], features[found]["shape"]
            if (
                kind != "int64"
                or own not in ([length], [] if length == 1 else [length])
                or len(stored) not in (1, len(shape))
            ):
                yield f"the feature {name!r} has {len(shape)} dimensions in the manifest, but {found!r} is {kind} {own}"


def shape_features(name: str, features: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of the features that hold the shape of an array: NAME/shape, or an image's height, width and channels."""
    if not features[name]["shape"]:
        return []
    if f"{name}/shape" in features:
        return [f"{name}/shape"]
    folder = name.rpartition("/")[0]
    axes = [f"{folder}/{axis}" for axis in ("height", "width", "channels")]
    return axes if features[name]["encoding"] == "raw" and all(axis in features for axis in axes) else []
