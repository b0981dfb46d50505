"""Label maps: the number of each class, read from a file or assigned in sorted order."""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from tar2tf_cli.errors import SampleError, SourceError, UsageError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.formats.streams import GZIP_MAGIC, LFS_POINTER, LFS_PULL
from tar2tf_cli.structs import NamedTuple

# --- Files with label maps: lines, CSV, JSON, COCO categories, Object Detection API pbtxt, and YOLO YAML ---

FORMS: Final = (
    'write lines of CLASS, CLASS<TAB>TEXT or CLASS<TAB>N, JSON such as {"CLASS": N}, or COCO categories, or a .pbtxt, '
    ".csv or YOLO .yaml file"
)
"""A hint about the forms of label maps."""

NUMBER: Final = r"-?[0-9]+"


class Label(NamedTuple):
    """The number and the text of a class in a label map."""

    number: int
    text: str = ""


Labels: TypeAlias = dict[str, Label]
"""Labels by class."""


def parse_labels(text: str, name: str = "") -> Labels:
    """Parse a label map.

    Args:
        text: the content of its file.
        name: the name of the file in lower case, by whose suffix CSV and YAML are recognized.

    Raises:
        ValueError: when the text is invalid; the message names the line or class.
    """
    labels = _parser(text, name)(text)
    if not labels:
        raise ValueError("the label map has no classes")
    return labels


def _parser(text: str, name: str) -> Callable[[str], Labels]:
    if re.match(r"\s*(#[^\n]*\n\s*)*item\s*:?\s*\{", text):
        return _from_pbtxt
    if text.lstrip().startswith(("{", "[")):
        return _from_json
    if name.endswith((".yaml", ".yml")):
        return _from_yaml
    return _from_csv if name.endswith(".csv") else _from_lines


def label_of(name: str, item: object) -> Label:
    """Parse the label of a class: a number, or an object with the number and its text or texts.

    Raises:
        ValueError: when the item is neither.
    """
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


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    unique: dict[str, object] = {}
    for name, item in pairs:
        if name in unique:
            raise ValueError(f"the label map has {name!r} twice")
        unique[name] = item
    return unique


def _in_order(names: Iterable[object]) -> Labels:
    """Number names from 0 in the order of a list."""
    texts = [*names]
    if odd := [item for item in texts if not isinstance(item, str)]:
        raise ValueError(f"the label map lists {odd[0]!r}, which is not the name of a class")
    return {name: Label(number) for number, name in enumerate(_unique((str(name), None) for name in texts))}


def _from_json(text: str) -> Labels:
    try:
        items = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"the label map is not JSON: line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("the label map is nested too deeply") from None
    if isinstance(items, dict) and isinstance(items.get("categories"), list):
        items = items["categories"]
    elif isinstance(items, dict):
        return {name: label_of(name, item) for name, item in items.items()}
    if items and all(isinstance(item, dict) for item in items):
        return _of_categories(items)
    return _in_order(items)


def _of_categories(items: Sequence[Mapping[str, object]]) -> Labels:
    """Return the labels in COCO's categories: objects with `id` and `name`."""
    pairs = []
    for item in items:
        if not isinstance(item.get("name"), str) or "id" not in item:
            raise ValueError(
                f"the label map lists {dict(item)!r}, which has no 'id' and 'name' as COCO's categories do"
            )
        pairs.append((str(item["name"]), item["id"]))
    return {name: label_of(name, number) for name, number in _unique(pairs).items()}


_PBTXT_TOKEN: Final = r"""(?x)\s+ | \#[^\n]* | (?P<brace>[{}]) | (?P<key>[A-Za-z_]\w*)\s*:?
 | (?P<number>-?\d+) | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)' | [,;]"""


def _from_pbtxt(text: str) -> Labels:
    """Parse the labels in a StringIntLabelMap; each class has an entry for its name and for its display name.

    Source: tensorflow/models, research/object_detection/protos/string_int_label_map.proto.
    """
    pairs: list[tuple[str, object]] = []
    shown: list[tuple[str, int]] = []
    for line, item in _pbtxt_items(text):
        number, name = item.get("id"), item.get("name", item.get("display_name"))
        if not isinstance(number, int) or not isinstance(name, str):
            raise ValueError(f"the item at line {line} of the label map needs an id and a name")
        display = item.get("display_name")
        pairs.append((name, {"label": number, "human_labels": display if isinstance(display, str) else ""}))
        if isinstance(display, str):
            shown.append((display, number))
    labels = {name: label_of(name, item) for name, item in _unique(pairs).items()}
    for display, number in shown:
        labels.setdefault(display, Label(number, display))
    return labels


def _pbtxt_items(text: str) -> Iterable[tuple[int, dict[str, object]]]:
    """Iterate over the top-level items of a text message: the line at which each begins, and its plain fields."""
    position, depth, key, begin = 0, 0, "", 1
    item: dict[str, object] = {}
    while position < len(text):
        match = re.compile(_PBTXT_TOKEN).match(text, position)
        line = text.count("\n", 0, position) + 1
        if match is None:
            raise ValueError(f"line {line} of the label map is not a text message: {text[position : position + 20]!r}")
        position = match.end()
        kind, written = match.lastgroup, match[match.lastgroup] if match.lastgroup else ""
        if kind == "brace" and written == "{":
            if not depth:
                item, begin = {}, line
            depth += 1
        elif kind == "brace":
            depth -= 1
            if depth < 0:
                raise ValueError(f"line {line} of the label map closes a brace that is not open")
            if not depth:
                yield begin, item
        elif kind == "key":
            key = written
        elif kind == "number" and depth == 1:
            item[key] = int(written)
        elif kind in ("double", "single") and depth == 1:
            item[key] = str(item.get(key, "")) + re.sub(r"\\(.)", r"\1", written)
    if depth:
        raise ValueError("the label map ends inside of an item")


def _from_yaml(text: str) -> Labels:
    """Parse the labels in YOLO's data file: `names`, a list or a mapping of numbers to names."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        names = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(f"the label map is not YAML: {str(error).splitlines()[0]}") from None
    names = names.get("names", names) if isinstance(names, dict) else names
    if isinstance(names, list):
        return _in_order(names)
    if not isinstance(names, dict):
        raise ValueError("the label map has no 'names', a list or a mapping of numbers to names")
    if all(isinstance(number, int) for number in names):
        pairs = _unique((str(name), number) for number, name in names.items())
        return {name: label_of(name, number) for name, number in pairs.items()}
    return {str(name): label_of(str(name), number) for name, number in names.items()}


_NAME_COLUMNS: Final = ("name", "class", "class_name", "category", "label_name", "text", "label")
_NUMBER_COLUMNS: Final = ("id", "number", "index", "class_id", "category_id", "label", "value")


def _from_csv(text: str) -> Labels:
    """Parse CSV labels with two columns, name and number, with or without a header; one column is parsed as lines."""
    import csv

    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    if not rows or len(rows[0]) == 1:
        return _from_lines("\n".join(row[0] for row in rows))
    header = [cell.strip().lower() for cell in rows[0]]
    number = next((header.index(column) for column in _NUMBER_COLUMNS if column in header), None)
    name = next((header.index(c) for c in _NAME_COLUMNS if c in header and header.index(c) != number), None)
    if number is None or name is None:
        numeric = [re.fullmatch(NUMBER, cell.strip()) is not None for cell in rows[0][:2]]
        if sum(numeric) != 1:
            raise ValueError("the label map has no header with a column for the name and one for the number of a class")
        number, name = numeric.index(True), numeric.index(False)
    else:
        rows = rows[1:]
    pairs = []
    for position, row in enumerate(rows, 1):
        if len(row) <= max(number, name) or not re.fullmatch(NUMBER, row[number].strip()):
            raise ValueError(f"row {position} of the label map has no number: {','.join(row)!r}")
        pairs.append((row[name].strip(), int(row[number])))
    return {name: label_of(name, item) for name, item in _unique(pairs).items()}


def _from_lines(text: str) -> Labels:
    """Parse labels numbered by line, as by `tf.lookup.TextFileInitializer`: only newlines end lines, and blank lines
    count.

    The text after a tab is the number if it is a number in every line.
    """
    lines: dict[str, tuple[int, str]] = {}
    for position, line in enumerate(text.replace("\r\n", "\n").split("\n")):
        name, _, words = line.partition("\t")
        name = name.strip()
        if not name:
            if words.strip():
                raise ValueError(f"line {position + 1} of the label map has no class")
            continue
        if name in lines:
            raise ValueError(f"line {position + 1} of the label map repeats {name!r}")
        lines[name] = position, words.strip()
    numbered = [re.fullmatch(NUMBER, words) is not None for _, words in lines.values()]
    if all(numbered):
        return {name: label_of(name, int(words)) for name, (_, words) in lines.items()}
    if sum(numbered) >= len(numbered) / 2:
        position = [*lines.values()][numbered.index(False)][0]
        raise ValueError(f"line {position + 1} of the label map has no number after its class, but others have one")
    return {name: Label(position, words) for name, (position, words) in lines.items()}


# --- Label maps ---

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
