"""Spec files: parses YAML to a `Conversion`, reports all problems as `file:line:column`, and makes the JSON Schema.

    input: {bucket: shards, template: 'train-{0..3}.tar', key_split: first}
    ops:
      - decode: jpg
      - resize: {ext: jpg, size: [224, 224]}
    select: {image: jpg, label: json:annotations.0.label}
    types: {label: int64}
    output: {path: 'out/train-<>.record', max_shard_size: 100MB}

The top level also has the other fields of `Conversion`. Each key means the same as the flag of that name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.errors import Problem, SourceError, UsageError, did_you_mean
from tar2tf_cli.ops.base import details, summary
from tar2tf_cli.ops.rules import text
from tar2tf_cli.plugins import PluginGroup, plugin_names
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.fields import Checked, fields_of, problems_of

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError

SECTIONS: Final[dict[str, type]] = {"input": Input, "output": Output}
IDENTITY: Final = ("digest", "fields", "keys_digest", "described", "joined", "revision")
"""Keys added to a manifest's input, by which a later run detects changed labels, key lists, joined inputs and the like.
"""
_PATHS: Final = ("bucket", "path", "labels", "keys")
"""Keys whose ~ is expanded, as no shell does it in a file or for a quoted path with <>."""
_MOST_DEPTH: Final = 64
_MOST_VALUES: Final = 100_000
_TOO_DEEP: Final = f"nested more than {_MOST_DEPTH} deep"


class SpecError(UsageError):
    """A spec file has problems, listed one per line."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the message: one for each problem."""
        return self.message.split("\n")


class SpecFile:
    """A parsed spec file, which may have problems.

    Args:
        path: the file; `-` is standard input.

    Attributes:
        data: the content of the file as plain dicts, lists and scalars.

    Raises:
        SpecError: when it is not a YAML mapping, or has a duplicate key.
        SourceError: when it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._name = "<stdin>" if path == "-" else path
        try:
            self._document = _parsed(sys.stdin.read() if path == "-" else _read_text(path))
            plain = _plain(self._document)
        except ValueError as error:
            raise SpecError(f"{self._name}:{error}") from None
        if not isinstance(plain, dict):
            raise SpecError(f"{self._name}:1:1: a spec must be a mapping with input, output and the like")
        self.data: dict[str, Any] = plain

    def check(self) -> None:
        """Raise an error if the file has problems.

        Raises:
            SpecError: names all problems with line and column.
        """
        problem_list = sorted((_position(self._document, path), text) for path, text in problems(self.data))
        if problem_list:
            raise SpecError("\n".join(f"{self._name}:{line}:{column}: {text}" for (line, column), text in problem_list))


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot be read: {getattr(error, 'strerror', None) or error}", shard=path) from None


def _parsed(text: str) -> object:
    """Parse YAML; mappings and lists have the position of each item in `lc`.

    Raises:
        ValueError: when the text is not YAML, has a duplicate key or is nested too deeply; the message is `LINE:COLUMN:
            FAULT`.
    """
    from ruamel.yaml import YAML  # imported here, as it takes longer than most commands take to start
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError
    from ruamel.yaml.scanner import RoundTripScanner, ScannerError

    class _Scanner(RoundTripScanner):
        """A YAML scanner that refuses too deeply nested brackets, which would take quadratic time."""

        def fetch_flow_collection_start(self, TokenClass: object, to_push: str) -> None:
            super().fetch_flow_collection_start(TokenClass, to_push)
            if self.flow_level > _MOST_DEPTH:
                raise ScannerError(None, None, _TOO_DEEP, self.reader.get_mark())

    yaml = YAML(typ="rt", pure=True)
    yaml.Scanner = _Scanner
    try:
        return yaml.load(text)
    except ReaderError as error:
        raise ValueError(f" not a text file: {error.reason} (character {error.position + 1})") from None
    except MarkedYAMLError as error:
        raise ValueError(_complaint(error)) from None
    except RecursionError:
        raise ValueError(f" {_TOO_DEEP}") from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # ruamel.yaml did not expect the document
        unhashable = "unhashable" in str(error)  # each version of Python words it differently
        raise ValueError(f" not valid YAML: {'a list or mapping as a key' if unhashable else error}") from None


def _complaint(error: MarkedYAMLError) -> str:
    """Return line, column and description of a syntax error."""
    mark = error.problem_mark
    place = f"{mark.line + 1}:{mark.column + 1}:" if mark else ""
    problem = str(error.problem or error).partition("\n")[0]
    if problem.startswith("found duplicate key"):
        problem = problem.partition(" with value")[0].removeprefix("found ")
    return f"{place} {problem}"


def _plain(document: object) -> object:
    """Convert a YAML document to plain dicts, lists and scalars; the value of an alias is repeated.

    Raises:
        ValueError: when aliases make too many values, or refer to themselves.
    """
    from ruamel.yaml.comments import TaggedScalar

    left = _MOST_VALUES

    def convert(node: object, depth: int = 0) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f" more than {_MOST_VALUES:,} values, counting those that aliases repeat")
        if depth > _MOST_DEPTH:
            raise ValueError(f" {_TOO_DEEP}, or an alias contains itself")
        if isinstance(node, dict):
            return {convert(key, depth + 1): convert(value, depth + 1) for key, value in node.items()}
        if isinstance(node, list):
            return [convert(item, depth + 1) for item in node]
        if isinstance(node, TaggedScalar):
            raise ValueError(f" there is no type {node.tag.value!r}; write {node.value!r} without it")
        for kind in (bool, int, float, str):
            if isinstance(node, kind):
                return kind(node)
        return node

    return convert(document)


def _position(document: object, path: tuple[str | int, ...]) -> tuple[int, int]:
    """Return line and column, from 1, of the deepest existing node on a path in a YAML document."""
    node: Any = document
    line, column = node.lc.line, node.lc.col
    for part in path:
        try:
            marks = node.lc
            line, column = marks.item(part) if isinstance(node, list) else marks.key(part)
            node = node[part]
        except (KeyError, IndexError, AttributeError, TypeError):
            break
    return line + 1, column + 1


def read(path: str, flags: Mapping[str, object] | None = None) -> Conversion:
    """Build the conversion of a spec file, with flags that override it.

    Args:
        path: the file; `-` is standard input.
        flags: values as for `build`, which override the file's.

    Raises:
        SpecError: for a file with problems; names all of them with line and column.
        UsageError: when the resulting options contradict each other.
    """
    spec = SpecFile(path)
    spec.check()
    return build(merge_specs(spec.data, flags or {}))


def merge_specs(document: Mapping[str, object], flags: Mapping[str, object]) -> dict[str, object]:
    """Merge a second spec over a first: input and output key by key, everything else as a whole."""
    merged = dict(document)
    for name, value in flags.items():
        before = merged.get(name)
        if name in SECTIONS and isinstance(before, Mapping) and isinstance(value, Mapping):
            value = {**before, **value}
        merged[name] = value
    return merged


def build(document: Mapping[str, Any]) -> Conversion:
    """Build the conversion from plain data, as in a spec file.

    Raises:
        UsageError: when the bucket or output path is missing, a value is wrong, or options contradict each other.
    """
    sections = {name: _known(kind, document.get(name) or {}) for name, kind in SECTIONS.items()}
    if not sections["input"].get("bucket"):
        raise UsageError(
            "no bucket is given", hint="name it as the first argument, or as input: {bucket: ...} in the spec"
        )
    if not sections["output"].get("path"):
        raise UsageError("no output is given", hint="name it with -o, or as output: {path: ...} in the spec")
    for name in _PATHS:
        for section in sections.values():
            if isinstance(value := section.get(name), str):
                section[name] = os.path.expanduser(value)
    parts = {name: kind(**sections[name]) for name, kind in SECTIONS.items()}
    return Conversion(**{**_known(Conversion, document), **parts})


def spec_fields(kind: type) -> dict[str, Checked[object, object]]:
    """Return the fields of a spec by their names in a spec file, which cannot contain functions."""
    fields = {"from" if name == "kind" else name: field for name, field in fields_of(kind).items()}
    return {name: field for name, field in fields.items() if name not in ("record_to_example", "example_ops")}


def _known(kind: type, document: Mapping[str, object]) -> dict[str, object]:
    """Rename the keys of a mapping to the names of a spec's fields."""
    return {field.name: document[name] for name, field in spec_fields(kind).items() if name in document}


def problems(document: Mapping[str, object], kind: type = Conversion, section: str = "") -> Iterator[Problem]:
    """Yield every problem of a spec, or of a section of it."""
    fields = spec_fields(kind)
    for name, value in document.items():
        inner = SECTIONS.get(name) if kind is Conversion else None
        if inner is not None and isinstance(value, dict):
            yield from (((name, *path), message) for path, message in problems(value, inner, f" in {name}"))
        elif inner is not None:
            yield (name,), f"{name} must be a mapping with {', '.join(spec_fields(inner))}"
        elif name in fields:
            try:
                fields[name].check(value, name)
            except UsageError as error:
                yield from (((name, *path), message) for path, message in problems_of(error))
        elif kind is not Input or name not in IDENTITY:
            yield (name,), f"there is no key {name!r}{section}{did_you_mean(name, fields)}"


# --- The JSON Schema: draft 7, which editors support best. It describes the usual way of writing; tar2tf accepts more,
# such as a number in quotes. ---

_ADDED: Final[tuple[tuple[str, str, PluginGroup], ...]] = (
    ("input", "from", "inputs"),
    ("output", "to", "formats"),
    ("", "preset", "presets"),
)
"""The fields whose value may name another package's plugin: section, name, and group of entry points."""

_ATTRIBUTE: Final = r"(?m)^    (\w+): (.*(?:\n {6,}.*)*)"


def spec_schema() -> dict[str, object]:
    """Return the JSON Schema of spec files as plain JSON."""
    whole = _of(Conversion)
    for name, kind in SECTIONS.items():
        whole["properties"][name] = {**_of(kind), "description": _described(Conversion)[name]}
    identity = {name: {"description": "Written by tar2tf into manifests."} for name in IDENTITY}
    whole["properties"]["input"]["properties"].update(identity)
    for section, name, group in _ADDED:
        fields = whole["properties"][section]["properties"] if section else whole["properties"]
        fields[name] = {**fields[name], "enum": [*fields[name]["enum"], *plugin_names(group)]}
    selection = {"$ref": "#/definitions/selection"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "description": "A conversion by tar2tf.",
        **whole,
        "definitions": {
            "op": _op(),
            "selection": {
                "anyOf": [
                    text.schema,
                    {"type": "array", "items": selection},
                    {"type": "object", "additionalProperties": selection},
                ],
                "description": "An entry, all such as *.jpg, ENTRY:path=DEFAULT in JSON, a list or mapping of these.",
            },
        },
    }


def _of(kind: type) -> dict[str, Any]:
    """Return the schema of a mapping with the fields of a spec class."""
    described = _described(kind)
    properties = {
        name: {**field.schema, "description": described[field.name]} for name, field in spec_fields(kind).items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _described(kind: type) -> dict[str, str]:
    """Return the meaning of each field, from the docstring of the class."""
    from inspect import getdoc  # imported here, as it takes longer than most commands take to start

    described = re.findall(_ATTRIBUTE, getdoc(kind) or "")
    return {name: _sentence(meaning) for name, meaning in described}


def _sentence(meaning: str) -> str:
    text = " ".join(meaning.split())
    return text[:1].upper() + text[1:]


def _op() -> dict[str, object]:
    """Return the schema of one item of `ops`."""
    from tar2tf_cli.ops import all_ops

    ops = all_ops()
    fields = {
        name: {**op.schema(), "description": f"{summary(op)} {details(op)}".strip(), "examples": list(op.examples)}
        for name, op in ops.items()
    }
    names = "|".join(ops)
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": fields,
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
            {"type": "string", "pattern": f"^({names})(:.*)?$"},
            {
                "type": "object",
                "properties": {"func": fields["func"], "args": {"type": "object"}, "digest": {"type": "string"}},
                "required": ["func"],
                "minProperties": 2,
                "additionalProperties": False,
            },
        ],
        "description": "An op: NAME: FIELDS, or NAME:FIELDS as text, as after --op.",
    }
