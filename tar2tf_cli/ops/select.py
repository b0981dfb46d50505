"""Selections: which entries, or parts of entries, become features."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.stored import whole
from tar2tf_cli.ops.base import missing_entry
from tar2tf_cli.samples.names import Sample

_ITEM: Final = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")


class Select:
    """Select an entry by name."""

    def __init__(self, ext_name: str) -> None:
        if not isinstance(ext_name, str) or not ext_name:
            raise ValueError("a selection needs the name of an entry")
        self.ext_name = ext_name

    def select(self, sample: Sample) -> Any:
        """Return the entry.

        Raises:
            SampleError: when the sample has no entry of that name.
        """
        if self.ext_name not in sample:
            raise missing_entry(sample, f"has no entry {self.ext_name!r} to select")
        return sample[self.ext_name]

    def canonical(self) -> Any:
        """Return the selection as in a spec file."""
        return self.ext_name


class SelectJSON(Select):
    """Select a value inside a JSON entry.

    Args:
        ext_name: the entry.
        nested_path: a key or index, or a list of them from the outside in.
    """

    def __init__(self, ext_name: str, nested_path: str | int | Sequence[str | int]) -> None:
        super().__init__(ext_name)
        self.path = [nested_path] if isinstance(nested_path, (str, int)) else list(nested_path)
        if not self.path:
            raise ValueError("a selection needs a path into the entry")

    def select(self, sample: Sample) -> Any:
        """Return the value.

        Raises:
            SampleError: when the entry is not JSON, or has nothing at the path.
        """
        value = whole(super().select(sample))
        if isinstance(value, (bytes, str)):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise SampleError(f"entry {self.ext_name!r} is not JSON: {error}") from None
        for part in self.path:
            value = self._step(value, part)
        return value

    def _step(self, value: Any, part: str | int) -> Any:
        try:
            if isinstance(value, list):
                return value[int(part)]
            if isinstance(value, dict):
                return value[str(part)]
            raise TypeError
        except (KeyError, IndexError, TypeError, ValueError):
            path = ".".join(map(str, self.path))
            raise SampleError(f"entry {self.ext_name!r} has nothing at {path!r}") from None

    def canonical(self) -> Any:
        parts = [str(part) for part in self.path]
        plain = all(part and "." not in part for part in parts) and not parts[0].startswith("[")
        return f"{self.ext_name}:{'.'.join(parts) if plain else json.dumps(parts)}"


class SelectList:
    """Combine several selections as a list; the features are named NAME/0, NAME/1, ..."""

    def __init__(self, *selections: Any) -> None:
        if len(selections) == 1 and isinstance(selections[0], (list, tuple)):
            selections = tuple(selections[0])
        self.selections = [to_selection(selection) for selection in selections]

    def parts(self) -> Iterable[tuple[int, Selection]]:
        """The selections, by position."""
        return enumerate(self.selections)

    def canonical(self) -> Any:
        return [selection.canonical() for selection in self.selections]


class SelectDict:
    """Combine several selections as a dict; the features are named NAME/key."""

    def __init__(self, selections: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.selections = {name: to_selection(item) for name, item in {**(selections or {}), **more}.items()}

    def parts(self) -> Iterable[tuple[str, Selection]]:
        """The selections, by key."""
        return self.selections.items()

    def canonical(self) -> Any:
        return {name: selection.canonical() for name, selection in self.selections.items()}


Selection: TypeAlias = Select | SelectList | SelectDict


def to_selection(value: Any) -> Selection:
    """Convert a value to a selection: one itself, `entry`, `entry:nested.path`, or a list or dict of these.

    A path with dots in its keys is written as a JSON list: `entry:["nested", "pa.th"]`.

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
    if not colon or not path:
        return Select(entry)
    return SelectJSON(entry, _path(path))


def _path(text: str) -> list[str | int]:
    if not text.startswith("["):
        return [*text.split(".")]
    try:
        path = json.loads(text)
    except (ValueError, RecursionError):
        path = []
    if not path or not all(isinstance(part, (str, int)) for part in path):
        raise ValueError(f'{text} is not a path; write nested.path, or keys with dots as JSON: ["nested", "pa.th"]')
    return list(path)


def parse_select(value: Any) -> dict[str, Selection]:
    """Parse `select` to selections by feature name.

    Args:
        value: a mapping of features to values for `to_selection`; or one or several texts as for `--select`:
            `jpg,cls`, `image=jpg`, `label=json:annotations.0.label`.

    Raises:
        ValueError: for an empty name, a name given twice, or what is not a selection.
    """
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        value = _by_name([part for item in value for part in _parts(item)])
    if not isinstance(value, Mapping) or not value:
        raise ValueError("select must name entries, such as jpg,cls, or map features to entries")
    return {str(name): to_selection(item) for name, item in value.items()}


def _parts(item: Any) -> list[Any]:
    """Split text at its commas, except inside JSON paths; an object is one part."""
    return _ITEM.findall(item) if isinstance(item, str) else [item]


def _by_name(items: list[Any]) -> dict[str, Any]:
    """Return items such as `image=jpg` by feature name, which defaults to the entry's name."""
    selections: dict[str, Any] = {}
    for item in items:
        text = item if isinstance(item, str) else getattr(item, "ext_name", "")
        name, equals, source = text.partition("=")
        if not equals:
            name, source = text.partition(":")[0], item
        if not name or not source:
            raise ValueError(f"select {item!r} has an empty {'entry' if name else 'feature'} name; write NAME=ENTRY")
        if name in selections:
            raise ValueError(f"select names the feature {name!r} twice; write NAME=ENTRY for one of them")
        selections[name] = source
    return selections


def flatten(selections: Mapping[str, Selection]) -> dict[str, Select]:
    """Return the selections of single values by feature name; those inside nested ones are NAME/0, NAME/key."""
    flat: dict[str, Select] = {}
    for name, selection in selections.items():
        if isinstance(selection, Select):
            flat[name] = selection
        else:
            flat |= flatten({f"{name}/{key}": part for key, part in selection.parts()})
    return flat
