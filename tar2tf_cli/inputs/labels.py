"""Label maps: the number and the text of each class.

A map is a JSON document `{CLASS: {"label": N, "human_labels": TEXT}}`, or one class per line, with an optional text
after a tab, numbered from 0 in that order. Either may be compressed with gzip. The file beside a manifest is such a
JSON document, and can be used as a map again. The map of the 1,000 classes of ImageNet-1k comes with the package.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Collection
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.formats.magic import GZIP_MAGIC

__all__ = [
    "FORMS",
    "IMAGENET",
    "Label",
    "Labels",
    "imagenet_labels",
    "load_labels",
    "number_classes",
    "parse_labels",
    "to_bytes",
]

FORMS: Final = 'write JSON, {"CLASS": {"label": N, "human_labels": "TEXT"}}, or lines of CLASS or CLASS<TAB>TEXT'
"""How a label map is written."""

IMAGENET: Final = "imagenet"
"""Stands for the map of ImageNet-1k instead of a path; a file of this name is written `./imagenet`."""


class Label(NamedTuple):
    """The number and the text of a class."""

    number: int
    text: str = ""


Labels: TypeAlias = dict[str, Label]
"""Labels by class."""


@cache
def imagenet_labels() -> Labels:
    """Return the 1,000 classes of ImageNet-1k (ILSVRC 2012), numbered from 0 in the sorted order of their synsets.

    Texts are the words of the synsets in WordNet 3.0.
    """
    return parse_labels(resources.files(__package__).joinpath("imagenet.tsv").read_text("utf-8"))


def number_classes(names: Collection[str]) -> Labels:
    """Number classes from 0 in the sorted order of their names (by code point), without texts.

    If all are synsets of ImageNet-1k, even if only a few, they get its labels.
    """
    if names and imagenet_labels().keys() >= set(names):
        return imagenet_labels()
    return {name: Label(number) for number, name in enumerate(sorted(names))}


def load_labels(path: str | os.PathLike[str]) -> Labels:
    """Load the map in a file or, if the path is `imagenet`, that of ImageNet-1k.

    Raises:
        SourceError: when the file cannot be read.
        UsageError: when it is not a label map; names the line or class.
    """
    name = os.fspath(path)
    if name == IMAGENET:
        return imagenet_labels()
    try:
        with open(name, "rb") as file:
            data = file.read()
        text = (gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data).decode("utf-8-sig")
        return parse_labels(text)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "its gzip stream is damaged"
        raise SourceError(f"the label map cannot be read: {reason}", shard=name) from None
    except UnicodeDecodeError:
        raise UsageError("is not a label map: it is not UTF-8", shard=name) from None
    except ValueError as error:
        raise UsageError(str(error), shard=name, hint=FORMS) from None


def parse_labels(text: str) -> Labels:
    """Parse a map: JSON if it begins with a brace or a bracket, otherwise lines.

    Raises:
        ValueError: when it is invalid; says which line or class is wrong.
    """
    labels = _from_json(text) if text.lstrip().startswith(("{", "[")) else _from_lines(text)
    if not labels:
        raise ValueError("the label map has no classes")
    return labels


def _from_json(text: str) -> Labels:
    try:
        items = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"the label map is not JSON: line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("the label map is nested too deep") from None
    if not isinstance(items, dict):
        raise ValueError("the label map is a JSON list, not an object")
    return {name: _label(name, item) for name, item in items.items()}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the label map has {next(name for name in names if names.count(name) > 1)!r} twice")
    return whole


def _label(name: str, item: Any) -> Label:
    if not isinstance(item, dict) or "label" not in item:
        raise ValueError(f"the class {name!r} has no label in the label map")
    number, text = item["label"], item.get("human_labels", "")
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ValueError(f"the label of the class {name!r} is {number!r}, not a whole number")
    if not isinstance(text, str):
        raise ValueError(f"human_labels of the class {name!r} is {text!r}, not text")
    return Label(number, text)


def _from_lines(text: str) -> Labels:
    labels: Labels = {}
    for position, line in enumerate(text.splitlines(), 1):
        name, _, words = line.partition("\t")
        name = name.strip()
        if not name:
            if words.strip():
                raise ValueError(f"line {position} of the label map has no class")
            continue
        if name in labels:
            raise ValueError(f"line {position} of the label map repeats {name!r}")
        labels[name] = Label(len(labels), words.strip())
    return labels


def to_bytes(labels: Labels) -> bytes:
    """Return the map as a JSON document, sorted by number, then by class; equal maps give equal bytes."""
    order = sorted(labels.items(), key=lambda item: (item[1].number, item[0]))
    whole = {name: {"label": label.number, "human_labels": label.text} for name, label in order}
    return json.dumps(whole, indent=1).encode("ascii") + b"\n"
