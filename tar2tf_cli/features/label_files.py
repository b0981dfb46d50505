"""Parses files with label maps: lines, CSV, JSON, COCO categories, Object Detection API pbtxt, and YOLO YAML."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tar2tf_cli.structs import NamedTuple

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
        raise ValueError("the label map is nested too deep") from None
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
