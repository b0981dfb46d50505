"""Selections of the entries, or values in entries, that become features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.files import whole
from tar2tf_cli.ops.base import ANY, missing_entry, names_matching
from tar2tf_cli.ops.rules import split_at_commas


class MissingValueError(SampleError):
    """A JSON entry has nothing at a path."""


class Select:
    """Select an entry by name.

    Attributes:
        gives_objects: whether the value may be an object of JSON, or a list of them.

    >>> Select("cls").select({"__key__": "a", "cls": b"1"})
    b'1'
    """

    gives_objects: ClassVar[bool] = False

    def __init__(self, ext_name: str) -> None:
        if not isinstance(ext_name, str) or not ext_name:
            raise ValueError("a selection needs the name of an entry")
        self.ext_name = ext_name

    def select(self, sample: Sample) -> object:
        """Return the entry.

        Raises:
            SampleError: when the sample has no entry of that name.
        """
        if self.ext_name not in sample:
            raise missing_entry(sample, f"has no entry {self.ext_name!r} to select", self.ext_name, "--select")
        return sample[self.ext_name]

    def canonical(self) -> object:
        """Return the selection as in a spec file."""
        return self.ext_name


class SelectAll(Select):
    """Select all entries whose names match a pattern, such as `*.jpg`, in natural order: 2 before 10.

    The result is a list or, for decoded entries, one array with a new first dimension.
    """

    def select(self, sample: Sample) -> object:
        """Return the entries.

        Raises:
            SampleError: when no entry matches, or arrays have several shapes.
        """
        names = names_matching(sample, self.ext_name)
        if not names:
            raise missing_entry(sample, f"has no entry {self.ext_name!r} to select", self.ext_name, "--select")
        values = [whole(sample[name]) for name in names]
        return self._stacked(values) if all(getattr(value, "ndim", 0) for value in values) else values

    def _stacked(self, arrays: Sequence[Any]) -> object:
        import numpy as np

        shapes = {array.shape: list(array.shape) for array in arrays}
        if len(shapes) > 1:
            shown = ", ".join(map(str, shapes.values()))
            hint = f"give them one shape: --op 'resize:{self.ext_name},HEIGHTxWIDTH'"
            raise SampleError(f"entries {self.ext_name!r} have several shapes, {shown}", hint=hint)
        return np.stack(arrays)


class SelectJSON(Select):
    """Select a value inside a JSON entry.

    Args:
        ext_name: the entry.
        nested_path: a key or index, or a list of them from the outside in; `*` takes every item of a list, or every
            value of an object, and so makes a list.
        default: replaces a value that is missing or null; if a `*` finds nothing, the list is empty.

    >>> SelectJSON("json", ["label", "name"]).select({"json": b'{"label": {"name": "cat"}}'})
    'cat'
    """

    gives_objects: ClassVar[bool] = True

    def __init__(self, ext_name: str, nested_path: str | int | Sequence[str | int], default: object = None) -> None:
        super().__init__(ext_name)
        if ANY in ext_name:
            raise ValueError(f"a path needs one entry, but {ext_name!r} is a pattern for several")
        self.path: list[str | int] = [nested_path] if isinstance(nested_path, (str, int)) else list(nested_path)
        if not self.path:
            raise ValueError("a selection needs a path into the entry")
        self.default = default

    def select(self, sample: Sample) -> object:
        """Return the value.

        Raises:
            SampleError: when the entry is not JSON, or has nothing at the path.
        """
        if self.default is not None and self.ext_name not in sample:
            return self._missing(self.path)
        return self._at(json_of(self.ext_name, super().select(sample)), self.path)

    def _at(self, value: Any, path: Sequence[str | int], items: tuple[int, ...] = ()) -> Any:
        """Return the value at the rest of a path; `items` has the item number at each earlier `*`."""
        for place, part in enumerate(path):
            if part == ANY and isinstance(value, (list, dict)):
                each, rest = value.values() if isinstance(value, dict) else value, path[place + 1 :]
                return [self._at(item, rest, (*items, number)) for number, item in enumerate(each)]
            try:
                value = value[int(part)] if isinstance(value, list) else value[str(part)]
            except (KeyError, IndexError, TypeError, ValueError):
                return self._missing(path[place:], items)
        return self.default if value is None and self.default is not None else value

    def _missing(self, path: Sequence[str | int], items: tuple[int, ...] = ()) -> object:
        """Return the default for a missing rest of a path.

        Raises:
            MissingValueError: when there is no default.
        """
        if self.default is not None:
            return [] if ANY in path else self.default
        numbers = iter(items)
        where = ".".join(str(next(numbers, ANY) if part == ANY else part) for part in self.path)
        raise MissingValueError(f"entry {self.ext_name!r} has nothing at {where!r}")

    def canonical(self) -> object:
        parts = [str(part) for part in self.path]
        plain = all(part and not {".", "="} & set(part) for part in parts) and not parts[0].startswith("[")
        default = "" if self.default is None else f"={json.dumps(self.default)}"
        return f"{self.ext_name}:{'.'.join(parts) if plain else json.dumps(parts)}{default}"


_parsed = lru_cache(maxsize=1)(json.loads)
"""Parse JSON, caching the last result, as several selections often read the same entry in turn."""


def json_of(name: str, value: object) -> Any:
    """Return the parsed value of a JSON entry, not to be changed; a value that is neither bytes nor text is returned as
    is.

    Raises:
        SampleError: when the entry is not JSON.
    """
    value = whole(value)
    if not isinstance(value, (bytes, str)):
        return value
    try:
        return _parsed(value)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"entry {name!r} is not JSON: {error}") from None


class SelectList:
    """Combine several selections as a list; the features are named NAME/0, NAME/1, ...

    >>> pairs = Dataset("shards", conversions=[], selections=SelectList(["jpg", "cls"]))
    >>> pairs.load("photos-0.tar").element_spec[1].dtype
    tf.int32
    """

    def __init__(self, *selections: object) -> None:
        if len(selections) == 1 and isinstance(selections[0], (list, tuple)):
            selections = tuple(selections[0])
        self.selections: list[Selection] = [to_selection(selection) for selection in selections]

    def parts(self) -> Iterable[tuple[int, Selection]]:
        """Return the selections with their positions."""
        return enumerate(self.selections)

    def canonical(self) -> object:
        return [selection.canonical() for selection in self.selections]


class SelectDict:
    """Combine several selections as a dict; the features are named NAME/key.

    >>> named = Dataset("shards", conversions=[], selections=SelectDict({"x": "jpg", "y": "cls"}))
    >>> sorted(named.load("photos-0.tar").element_spec)
    ['x', 'y']
    """

    def __init__(self, selections: Mapping[str, object] | None = None, **more: object) -> None:
        self.selections: dict[str, Selection] = {
            name: to_selection(item) for name, item in {**(selections or {}), **more}.items()
        }

    def parts(self) -> Iterable[tuple[str, Selection]]:
        """Return the selections with their keys."""
        return self.selections.items()

    def canonical(self) -> object:
        return {name: selection.canonical() for name, selection in self.selections.items()}


Selection: TypeAlias = Select | SelectList | SelectDict


def to_selection(value: object) -> Selection:
    """Convert a value to a selection: itself, `entry`, `*.entry`, `entry:nested.path=0`, or a list or dict of these.

    A path with dots or equals signs in its keys is written as a JSON list: `entry:["nested", "pa.th"]`.

    Raises:
        ValueError: when it is not a selection.
    """
    if isinstance(value, (Select, SelectList, SelectDict)):
        return value
    if isinstance(value, Mapping):
        return SelectDict(value)
    if isinstance(value, (list, tuple)):
        return SelectList(*value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a selection; write ENTRY, ENTRY:nested.path, a list or a mapping")
    entry, colon, path = value.partition(":")
    if colon and path:
        return SelectJSON(entry, *_path(path))
    return SelectAll(entry) if ANY in entry else Select(entry)


def _path(text: str) -> tuple[list[str | int], object]:
    """Parse the text after the colon of a selection: a path, and a default after an equals sign, which may be JSON."""
    if text.startswith("["):
        try:
            path, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            path, end = [], len(text)
        rest = text[end:]
        if not path or not all(isinstance(part, (str, int)) for part in path) or rest[:1] not in ("", "="):
            raise ValueError(f'{text} is not a path; write nested.path, or keys with dots as JSON: ["nested", "pa.th"]')
    else:
        plain, equals, rest = text.partition("=")
        path, rest = plain.split("."), equals + rest
    return path, _default(rest[1:]) if rest else None


def _default(text: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if value is None:
        raise ValueError("the default cannot be null: no feature can hold it")
    return value


def parse_select(value: object) -> dict[str, Selection]:
    """Parse `select` to selections by feature name.

    Args:
        value: a mapping of features to values for `to_selection`; or one or several texts as for `--select`:
            `jpg,cls`, `image=jpg`, `label=json:annotations.0.label`.

    Raises:
        ValueError: for an empty name, a name given twice, or an invalid selection.
    """
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        value = _by_name([part for item in value for part in _parts(item)])
    if not isinstance(value, Mapping) or not value:
        raise ValueError("select must name entries, such as jpg,cls, or map features to entries")
    return {str(name): to_selection(item) for name, item in value.items()}


def _parts(item: object) -> list[object]:
    """Split text at its commas, except inside JSON lists and quotes; an object is one part."""
    return [*split_at_commas(item)] if isinstance(item, str) else [item]


def _by_name(items: Sequence[object]) -> dict[str, object]:
    """Return items such as `image=jpg` by feature name, which defaults to the entry's name."""
    selections: dict[str, Any] = {}
    for item in items:
        text = item if isinstance(item, str) else getattr(item, "ext_name", "")
        name, equals, source = text.partition("=")
        if not equals or ":" in name:  # the text after it is then the default of a JSON value
            name, source = text.partition(":")[0], item
        if not name or not source:
            raise ValueError(f"select {item!r} has an empty {'entry' if name else 'feature'} name; write NAME=ENTRY")
        if ANY in name:
            raise ValueError(f"select {item!r} names no feature; write NAME={item}")
        if name in selections:
            raise ValueError(f"select names the feature {name!r} twice; write NAME=ENTRY for one of them")
        selections[name] = source
    return selections


def flatten(selections: Mapping[str, Selection]) -> dict[str, Select]:
    """Flatten nested selections to selections of single values, named NAME/0 or NAME/key."""
    flat: dict[str, Select] = {}
    for name, selection in selections.items():
        if isinstance(selection, Select):
            flat[name] = selection
        else:
            flat |= flatten({f"{name}/{key}": part for key, part in selection.parts()})
    return flat
