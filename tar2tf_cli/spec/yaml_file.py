"""Spec files: YAML to a conversion, every fault found at once and named as `file:line:column`.

    input: {bucket: shards, template: 'train-{0..3}.tar', key_split: first}
    ops:
      - decode: jpg
      - resize: {ext: jpg, size: [224, 224]}
    select: {image: jpg, label: json:annotations.0.label}
    types: {label: int64}
    output: {path: 'out/train-<>.record', max_shard_size: 100MB}

Besides these, the top level takes preset, image_size, max_pixels, shuffle, seed, limit, split, on_error and
max_errors. Each key means what the flag of its name means.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.features.presets import PRESETS
from tar2tf_cli.features.types import TYPES
from tar2tf_cli.ops import OPS, from_yaml
from tar2tf_cli.ops.select import select_from_yaml
from tar2tf_cli.spec.conversion import Conversion, Input, Output, parse_size

__all__ = ["SpecError", "build", "load", "read"]


class SpecError(UsageError):
    """A spec file with faults, one line each."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where in the document, as keys and indexes from the outside in, and what it is."""

    path: tuple[str | int, ...]
    message: str


def load(path: str) -> tuple[dict[str, Any], Callable[[Iterable[Fault]], SpecError]]:
    """A spec file as plain data, and how to name places in it.

    Args:
        path: the file; `-` is standard input.

    Raises:
        SpecError: when it is no YAML mapping, or has a key twice.
        SourceError: when it cannot be read.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    name = "<stdin>" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else _read_text(path)
        document = YAML(typ="rt", pure=True).load(text)
    except ReaderError as error:
        raise SpecError(f"{name}: is no text: {error.reason} (character {error.position + 1})") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = str(error.problem or error).partition("\n")[0]
        if isinstance(error, DuplicateKeyError):
            problem = problem.partition(" with value")[0].replace("found duplicate key", "duplicate key")
        raise SpecError(f"{place}: {problem}") from None
    if not isinstance(document, dict):
        raise SpecError(f"{name}:1:1: a spec is a mapping with input, output and the like")

    def spec_error(faults: Iterable[Fault]) -> SpecError:
        lines = [(_position(document, fault.path), fault.message) for fault in faults]
        return SpecError("\n".join(f"{name}:{line}:{column}: {text}" for (line, column), text in sorted(lines)))

    return _plain(document), spec_error


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot be read: {getattr(error, 'strerror', None) or error}", shard=path) from None


def _plain(node: Any) -> Any:
    """A YAML node as plain dicts, lists and scalars."""
    if isinstance(node, dict):
        return {_plain(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(item) for item in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _position(document: Any, path: tuple[str | int, ...]) -> tuple[int, int]:
    """Line and column, from 1, of the deepest node on a path that the document has."""
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


def read(path: str, flags: Mapping[str, Any] | None = None) -> Conversion:
    """The conversion that a spec file describes, with flags laid over it.

    Args:
        path: the file; `-` is standard input.
        flags: values as `build` takes them, which override the file's.

    Raises:
        SpecError: naming every fault of the file with line and column.
        UsageError: when what results contradicts itself.
    """
    document, spec_error = load(path)
    faults = list(check(document))
    if faults:
        raise spec_error(faults)
    return build(overlaid(document, flags or {}))


def overlaid(document: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A spec with another laid over it: input and output key by key, everything else as a whole."""
    merged = dict(document)
    for name, value in flags.items():
        merged[name] = {**(merged.get(name) or {}), **value} if name in ("input", "output") else value
    return merged


def build(document: Mapping[str, Any]) -> Conversion:
    """The conversion that plain data describes, as a spec file holds it; data is taken to be checked.

    Raises:
        UsageError: when the bucket or output path is missing, or options contradict each other.
    """
    inputs, outputs = dict(document.get("input") or {}), dict(document.get("output") or {})
    if not inputs.get("bucket"):
        raise UsageError(
            "no bucket is given", hint="name it as the first argument, or as input: {bucket: ...} in the spec"
        )
    if not outputs.get("path"):
        raise UsageError("no output is given", hint="name it with -o, or as output: {path: ...} in the spec")
    template = inputs.get("template") or ()
    inputs["template"] = (template,) if isinstance(template, str) else tuple(template)
    inputs["kind"] = inputs.pop("from", "tar")
    inputs = {name: value for name, value in inputs.items() if name not in _IDENTITY}
    if inputs.get("rows") is not None:
        inputs["rows"] = tuple(inputs["rows"])
    if outputs.get("max_shard_size") is not None:
        outputs["max_shard_size"] = parse_size(outputs["max_shard_size"])
    rest = {name: value for name, value in document.items() if name not in ("input", "output", "version")}
    rest["ops"] = tuple(from_yaml(item) for item in rest.get("ops") or ())
    if "types" in rest:
        rest["types"] = {str(name): kind for name, kind in rest["types"].items()}
    if rest.get("select") is not None:
        rest["select"] = select_from_yaml(rest["select"])
    return Conversion(Input(**inputs), Output(**outputs), **rest)


def check(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Every fault of a spec."""
    hints = get_type_hints(Conversion)
    del hints["record_to_example"]
    for name, value in document.items():
        if name not in hints:
            yield Fault((name,), f"there is no key {name!r}{_meant(str(name), hints)}")
        elif name in ("input", "output"):
            yield from _check_section(name, value, _input_hints() if name == "input" else get_type_hints(Output))
        elif name == "ops":
            yield from _check_ops(value)
        elif name == "select":
            yield from _attempt((name,), partial(select_from_yaml, value))
        elif name == "types":
            yield from _check_types(value)
        elif name == "preset":
            if str(value) not in PRESETS:
                yield Fault((name,), f"there is no preset {value!r}{_meant(str(value), PRESETS)}")
        else:
            yield from _check_value((name,), value, hints[name])


_IDENTITY = ("digest", "fields")
"""What a manifest's input holds besides, to tell whether labels or the class of examples changed."""


def _input_hints() -> dict[str, Any]:
    """What belongs under `input`, by the names it has there."""
    hints = {"from" if name == "kind" else name: hint for name, hint in get_type_hints(Input).items()}
    return {**hints, "example_class": str, "rows": list[int], **dict.fromkeys(_IDENTITY, Any)}


def _check_section(section: str, value: Any, hints: dict[str, Any]) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault((section,), f"{section} is a mapping, with {', '.join(hints)}")
        return
    for name, item in value.items():
        path = (section, name)
        if name not in hints:
            yield Fault(path, f"there is no key {name!r} in {section}{_meant(str(name), hints)}")
        elif name == "template":
            yield from _check_value(path, item, str | list[str])
        elif name == "max_shard_size":
            yield from _attempt(path, partial(parse_size, item))
        else:
            yield from _check_value(path, item, hints[name])


def _check_ops(value: Any) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield Fault(("ops",), "ops is a list")
        return
    for position, item in enumerate(value):
        inner = next(iter(item), None) if isinstance(item, dict) else None
        path = ("ops", position) if inner is None else ("ops", position, inner)
        unknown = list(_check_fields(path, inner, item)) if isinstance(inner, str) and inner in OPS else []
        yield from unknown or _attempt(path, partial(from_yaml, item))


def _check_fields(path: tuple[str | int, ...], name: Any, item: dict[Any, Any]) -> Iterator[Fault]:
    """Fields that an op does not have, each where it stands."""
    op, value = OPS[name], item[name]
    if is_dataclass(op) and isinstance(value, dict):
        names = [field.name for field in fields(op)]
        for key in value:
            if key not in names:
                yield Fault((*path, key), f"{name} has no field {key!r}{_meant(str(key), names)}")


def _check_types(value: Any) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault(("types",), "types is a mapping of features to types")
        return
    for name, kind in value.items():
        if kind not in TYPES:
            yield Fault(("types", name), f"{kind!r} is no type{_meant(str(kind), TYPES)}; types are {', '.join(TYPES)}")


def _check_value(path: tuple[str | int, ...], value: Any, hint: Any) -> Iterator[Fault]:
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(hint).validate_python(value, strict=not isinstance(value, int))
    except ValidationError as error:
        message = error.errors()[0]["msg"].replace("Input should be", f"{path[-1]} should be")
        near = _meant(value, get_args(hint)) if isinstance(value, str) else ""
        yield Fault(path, f"{message}, not {value!r}{near}")


def _attempt(path: tuple[str | int, ...], parse: Callable[[], object]) -> Iterator[Fault]:
    """The fault that parsing a value gives, if it does."""
    try:
        parse()
    except (ValueError, UsageError) as error:
        yield Fault(path, str(error))


def _meant(name: str, names: Iterable[Any]) -> str:
    near = difflib.get_close_matches(name, [str(known) for known in names], 1)
    return f"; did you mean {near[0]!r}?" if near else ""
