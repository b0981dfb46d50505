"""The model of a manifest's JSON: which keys it has, and which values they accept; says which value is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["ENTRIES", "MANIFEST", "contradictions", "lineage_agrees", "shape_features"]

Rule: TypeAlias = Callable[[Any, str], None]
"""Called with a value and its path in the document, such as `shards[0].records`; raises ValueError if it is wrong."""

_DTYPES: Final = {
    "bytes": ("bytes",),
    "int64": ("int64", "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"),
    "float": ("float32", "float16", "float64"),
    "raw": ("uint8", "float64", "bool", "int8", "int16", "int32", "int64", "uint16", "float16", "float32"),
}
"""The dtypes that each encoding can hold."""


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"


def _refuse(path: str, what: str, value: Any) -> None:
    raise ValueError(f"{path or 'the document'} must be {what}, not {_show(value)}")


def _text(value: Any, path: str) -> None:
    """Text that can be a file's name."""
    try:
        valid = isinstance(value, str) and "\0" not in value and bool(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        valid = False
    if not valid:
        _refuse(path, "text", value)


def _below(value: Any, path: str) -> None:
    """The path of a file in the manifest's folder or below."""
    _text(value, path)
    if not value or value.startswith("/") or ".." in value.split("/"):
        _refuse(path, "a path below the manifest's folder", value)


def _word(value: Any, path: str) -> None:
    """Any text."""
    if not isinstance(value, str):
        _refuse(path, "text", value)


def _count(value: Any, path: str) -> None:
    """A whole number that fits in 63 bits."""
    if type(value) is not int or not 0 <= value < 2**63:
        _refuse(path, "a whole number, 0 or more", value)


def _matching(pattern: str, what: str) -> Rule:
    """Text that matches a regular expression as a whole."""
    fits = re.compile(pattern).fullmatch

    def rule(value: Any, path: str) -> None:
        if not isinstance(value, str) or not fits(value):
            _refuse(path, what, value)

    return rule


def _one_of(*words: str) -> Rule:
    return _matching("|".join(words), f"one of {', '.join(words)}")


def _or_null(inner: Rule) -> Rule:
    def rule(value: Any, path: str) -> None:
        if value is not None:
            inner(value, path)

    return rule


def _list(inner: Rule, length: int | None = None) -> Rule:
    """A list of items that `inner` accepts, of any length or a certain one."""

    def rule(value: Any, path: str) -> None:
        if not isinstance(value, list) or length not in (None, len(value)):
            _refuse(path, "a list" if length is None else f"a list of {length}", value)
        for number, item in enumerate(value):
            inner(item, f"{path}[{number}]")

    return rule


def _map(inner: Rule) -> Rule:
    def rule(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            _refuse(path, "an object", value)
        for name, item in value.items():
            inner(item, f"{path}.{name}" if path else name)

    return rule


def _object(required: dict[str, Rule], optional: dict[str, Rule] | None = None) -> Rule:
    """An object with certain keys; other keys are ignored."""
    known = {**required, **(optional or {})}

    def rule(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            _refuse(path, "an object", value)
        dot = f"{path}." if path else ""
        for name, inner in known.items():
            if name in value:
                inner(value[name], f"{dot}{name}")
            elif name in required:
                raise ValueError(f"{dot}{name} is missing")

    return rule


_NAMES: Final = list(dict.fromkeys(dtype for dtypes in _DTYPES.values() for dtype in dtypes))
_SPEC: Final = _object(
    {"output": _object({"path": _below}, {"compression": _one_of("none", "gzip")})},
    {"input": _object({}, {"fields": _object({})})},
)
_INPUT: Final = _object({"name": _text, "size": _or_null(_count), "version": _or_null(_word)})
_SHARD: Final = _object(
    {
        "path": _below,
        "records": _count,
        "bytes": _count,
        "digest": _matching("crc32c:[0-9a-f]{8}", "crc32c: and eight hexadecimal digits"),
    },
    {"split": _text},
)
_LOOK: Final = {"dtype": _one_of(*_NAMES), "shape": _list(_or_null(_count)), "encoding": _one_of(*_DTYPES)}
_TOTALS: Final = _object({}, dict.fromkeys(("inputs", "shards", "records", "bytes"), _count))
_SKIPPED: Final = _object({"samples": _count, "members": _map(_count)})
_GAVE: Final = _object(
    {"samples": _count, "faulty": _count, "skipped": _map(_count), "schema": _count, "counts": _map(_count)}
)
_LINEAGE: Final = _object(
    {
        "schemas": _list(_map(_object(_LOOK))),
        "inputs": _list(_GAVE),
        "shards": _list(_list(_list(_count, 4))),
    }
)

MANIFEST: Final = _object(
    {
        "spec": _SPEC,
        "inputs": _list(_INPUT),
        "shards": _list(_SHARD),
        "features": _map(_object(_LOOK, {"count": _count})),
        "skipped": _SKIPPED,
    },
    {"totals": _TOTALS, "documents": _list(_below), "lineage": _LINEAGE},
)
"""The whole document; raises ValueError with the path of the first value that is wrong."""


ENTRIES: Final = {"inputs": _INPUT, "shards": _SHARD}
"""One entry of each of the long lists."""


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
    if not features[name].get("shape"):
        return []
    if f"{name}/shape" in features:
        return [f"{name}/shape"]
    folder = name.rpartition("/")[0]
    axes = [f"{folder}/{axis}" for axis in ("height", "width", "channels")]
    return axes if features[name]["encoding"] == "raw" and all(axis in features for axis in axes) else []
