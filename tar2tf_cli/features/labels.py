"""Label maps: the number of each class, read from a file in any of the usual forms, or made of the classes."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.streams import GZIP_MAGIC

FORMS: Final = 'write JSON, {"CLASS": {"label": N, "human_labels": "TEXT"}}, or lines of CLASS or CLASS<TAB>TEXT'
"""How a label map is written."""

AUTO: Final = "auto"
"""Stands for the map of all values of a feature, which are numbered from 0 in sorted order, instead of a path."""

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
    from importlib import resources

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
    import gzip  # only here, as it takes a millisecond

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
    if isinstance(items, dict):
        return {name: _label(name, item) for name, item in items.items()}
    if odd := [item for item in items if not isinstance(item, str)]:
        raise ValueError(f"the label map lists {odd[0]!r}, which is not the name of a class")
    return {name: Label(number) for number, name in enumerate(_unique((name, None) for name in items))}


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for name, item in pairs:
        if name in unique:
            raise ValueError(f"the label map has {name!r} twice")
        unique[name] = item
    return unique


def _label(name: str, item: Any) -> Label:
    """The label of a class: a number, or an object with the number and its text, or texts."""
    item = item if isinstance(item, Mapping) else {"label": item}
    if "label" not in item:
        raise ValueError(f"the class {name!r} has no label in the label map")
    number, texts = item["label"], item.get("human_labels", "")
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ValueError(f"the label of the class {name!r} is {number!r}, not a whole number")
    text = ", ".join(texts) if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else texts
    if not isinstance(text, str):
        raise ValueError(f"human_labels of the class {name!r} is {texts!r}, not text")
    return Label(number, text)


def _from_lines(text: str) -> Labels:
    """Labels by line; what follows the tabulator is the number where it is one in every line."""
    lines: dict[str, str] = {}
    for position, line in enumerate(text.splitlines(), 1):
        name, _, words = line.partition("\t")
        name = name.strip()
        if not name:
            if words.strip():
                raise ValueError(f"line {position} of the label map has no class")
            continue
        if name in lines:
            raise ValueError(f"line {position} of the label map repeats {name!r}")
        lines[name] = words.strip()
    if lines and all(re.fullmatch(_NUMBER, text) for text in lines.values()):
        return {name: _label(name, int(words)) for name, words in lines.items()}
    return {name: Label(number, words) for number, (name, words) in enumerate(lines.items())}


_NUMBER: Final = r"-?[0-9]+"


def to_bytes(labels: Labels) -> bytes:
    """Return the map as a JSON document, sorted by number, then by class; equal maps give equal bytes."""
    order = sorted(labels.items(), key=lambda item: (item[1].number, item[0]))
    whole = {name: {"label": label.number, "human_labels": label.text} for name, label in order}
    return json.dumps(whole, indent=1).encode("ascii") + b"\n"


class LabelMap(dict[str, int]):
    """The number of each text that a feature may have, sorted by number and then by text.

    Args:
        numbers: the numbers by text.
        path: the file that they are from; None if there is none.

    Raises:
        ValueError: when one is not a whole number of 64 bits.
    """

    def __init__(self, numbers: Mapping[str, Any], path: str | None = None) -> None:
        labels = {str(text): _label(str(text), number).number for text, number in numbers.items()}
        super().__init__(sorted(labels.items(), key=lambda item: (item[1], item[0])))
        self.path = path

    @classmethod
    def load(cls, path: str) -> LabelMap:
        """Load the map in a file, or that of `imagenet`; see `load_labels`."""
        return cls({name: label.number for name, label in load_labels(path).items()}, path)

    @classmethod
    def of(cls, texts: Collection[str], first: int = 0) -> LabelMap:
        """Number texts in sorted order: whole numbers by value, others by code point."""
        order = sorted(texts, key=int if all(re.fullmatch(_NUMBER, text) for text in texts) else None)
        return cls({text: number for number, text in enumerate(order, first)})

    def numbers(self, value: Any) -> Any:
        """Return the number of a text, or of each in a list.

        Raises:
            SampleError: when there is none; names the text and the map.
        """
        items = _items(value)
        if items is not None:
            return [self.numbers(item) for item in items]
        text = _text(value)
        if text not in self:
            where = f"the label map {self.path}" if self.path else "the label map"
            hint = "add it to the map, or skip such samples with --on-error skip"
            raise SampleError(f"{where} has no number for {text!r}", hint=hint)
        return self[text]


class Unnumbered(LabelMap):
    """Stands for a map that is not known yet: the number of any text is 0, and the texts are remembered."""

    def __contains__(self, text: object) -> bool:
        return True

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, 0)


def _items(value: Any) -> Sequence[Any] | None:
    """The items of a list or an array; None for a single value."""
    if isinstance(value, (list, tuple)):
        return value
    return value.tolist() if getattr(value, "shape", ()) else None


def _text(value: Any) -> str:
    """A value as the text that a label map has, without spaces around it.

    Raises:
        SampleError: when it is not text or a number.
    """
    value = whole(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise SampleError("it is not UTF-8 text, so it is in no label map") from None
    if getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise SampleError(f"a label map has no number for a value of type {type(value).__name__}")
    return str(value).strip()
