"""Label maps: the number of each class, read from a file or assigned in sorted order."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final

from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.features.label_files import FORMS, NUMBER, Label, Labels, label_of, parse_labels
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.streams import GZIP_MAGIC, LFS_POINTER, LFS_PULL

AUTO: Final = "auto"
"""The value, instead of a path, for a map of all values of a feature, numbered from 0 in sorted order."""

IMAGENET: Final = "imagenet"
"""The value, instead of a path, for the map of ImageNet-1k; a file of this name is written `./imagenet`."""


@cache
def imagenet_labels() -> Labels:
    """Return the 1,000 classes of ImageNet-1k (ILSVRC 2012), numbered from 0 in the sorted order of their synsets.

    Texts are the words of the synsets in WordNet 3.0.
    """
    from importlib import resources

    return parse_labels(resources.files(__package__).joinpath("imagenet.tsv").read_text("utf-8"))


def number_classes(names: Collection[str]) -> Labels:
    """Number classes from 0 in the sorted order of their names (by code point), without texts.

    If all names are synsets of ImageNet-1k, they get its labels, even if they are only a few.
    """
    if names and imagenet_labels().keys() >= set(names):
        return imagenet_labels()
    return {name: Label(number) for number, name in enumerate(sorted(names))}


def load_labels(path: str | os.PathLike[str]) -> Labels:
    """Load the labels in a file or, if the path is `imagenet`, those of ImageNet-1k.

    Raises:
        SourceError: when the file cannot be read.
        UsageError: when the file is not a label map; the message names the line or class.
    """
    import gzip  # imported here, as it takes a millisecond

    name = os.fspath(path)
    if name == IMAGENET:
        return imagenet_labels()
    try:
        with open(name, "rb") as file:
            data = file.read()
        if data.startswith(LFS_POINTER):
            raise SourceError("is a Git LFS pointer, not a label map", shard=name, hint=LFS_PULL)
        text = (gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data).decode("utf-8-sig")
        return parse_labels(text, name.lower().removesuffix(".gz"))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "its gzip stream is damaged"
        raise SourceError(f"the label map cannot be read: {reason}", shard=name) from None
    except UnicodeDecodeError:
        raise UsageError("is not a label map: it is not UTF-8", shard=name) from None
    except ValueError as error:
        raise UsageError(str(error), shard=name, hint=FORMS) from None


def to_bytes(labels: Labels) -> bytes:
    """Serialise labels to JSON, sorted by number, then by class; equal labels give equal bytes."""
    order = sorted(labels.items(), key=lambda item: (item[1].number, item[0]))
    whole = {name: {"label": label.number, "human_labels": label.text} for name, label in order}
    return json.dumps(whole, indent=1).encode("ascii") + b"\n"


class LabelMap(dict[str, int]):
    """A label map: the number of each text that a feature may have, sorted by number and then by text.

    Args:
        numbers: the numbers by text.
        path: the file of the map; None if it has none.

    Raises:
        ValueError: when a number is not a whole number of 64 bits.
    """

    def __init__(self, numbers: Mapping[str, object], path: str | None = None) -> None:
        labels = {str(text): label_of(str(text), number).number for text, number in numbers.items()}
        super().__init__(sorted(labels.items(), key=lambda item: (item[1], item[0])))
        self.path = path

    @classmethod
    def load(cls, path: str) -> LabelMap:
        """Load a map from a file, or that of `imagenet`; see `load_labels`."""
        return cls({name: label.number for name, label in load_labels(path).items()}, path)

    @classmethod
    def of(cls, texts: Collection[str], first: int = 0) -> LabelMap:
        """Number texts in sorted order: whole numbers by value, others by code point."""
        order = sorted(texts, key=int if all(re.fullmatch(NUMBER, text) for text in texts) else None)
        return cls({text: number for number, text in enumerate(order, first)})

    def numbers(self, value: object) -> object:
        """Return the number of a text, or of each text in a list.

        Raises:
            SampleError: when a text has no number; the message names the text and the map.
        """
        items = _items(value)
        if items is not None:
            return [self.numbers(item) for item in items]
        text = _text(value)
        if text not in self:
            where = f"the label map {self.path}" if self.path else "the label map"
            hint = "add it to the map, or skip such samples with --on-error skip"
            if not isinstance(value, (bytes, str)) and value in self.values():
                hint = "it is one of the numbers of the map, not one of its texts; leave out --labels if it is meant so"
            raise SampleError(f"{where} has no number for {text!r}", hint=hint)
        return self[text]


class PlaceholderLabelMap(LabelMap):
    """A placeholder for a map that is not known yet: the number of any text is 0, and texts are collected."""

    def __contains__(self, text: object) -> bool:
        return True

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, 0)


def _items(value: Any) -> Sequence[Any] | None:
    """Return the items of a list or an array; None for a single value."""
    if isinstance(value, (list, tuple)):
        return value
    return value.tolist() if getattr(value, "shape", ()) else None


def _text(value: Any) -> str:
    """Convert a value to the text of a label map, without surrounding spaces.

    Raises:
        SampleError: when the value is not text or a number.
    """
    value = whole(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            raise SampleError("it is not UTF-8 text, so it is in no label map") from None
    if getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise SampleError(f"a label map has no number for a value of type {type(value).__name__}")
    return str(value).strip()
