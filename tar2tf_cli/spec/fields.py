"""The field rules of a spec: the values that flags, YAML and Python may give, and their stored form."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tar2tf_cli.api.op import JsonSchema, JsonValue, Op
from tar2tf_cli.errors import Problem, ProblemsError, UsageError
from tar2tf_cli.features.feature_map import AUTO, TYPES, TypeName
from tar2tf_cli.formats.streams import IMAGE_SUFFIXES
from tar2tf_cli.ops.base import ANY, Declared
from tar2tf_cli.ops.rules import Rule, accepted, real, refusal, rule, text, whole_number
from tar2tf_cli.plugins import preset_names
from tar2tf_cli.structs import Generic, NamedTuple

if TYPE_CHECKING:
    from tar2tf_cli.features.labels import LabelMap
    from tar2tf_cli.ops.annotations import Boxes, Mask, Points
    from tar2tf_cli.ops.select import Selection

Given = TypeVar("Given")
Kept = TypeVar("Kept")
K = TypeVar("K", bound=str | int)
V = TypeVar("V")
_REQUIRED: Final[Any] = object()


class Checked(Generic[Given, Kept]):
    """A field of a frozen dataclass: accepts a `Given` value, stores it as `Kept` by a rule.

    Args:
        check: called with a value and its name in errors; returns the value to store, which it must accept, too.
        default: the default value; if it is None, the field accepts None.
        recorded: whether the value can change the output, so that it belongs in the manifest.
    """

    def __init__(
        self, check: Callable[[object, str], Kept], default: object = _REQUIRED, *, recorded: bool = True
    ) -> None:
        self._check = check
        self.default: Any = default
        self.recorded: bool = recorded
        self.name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Kept:
        """Return the default, which `dataclass` reads on the class; an object has the value itself."""
        if self.default is _REQUIRED:
            raise AttributeError(self.name)
        return self.default  # type: ignore[no-any-return]

    @property
    def schema(self) -> JsonSchema:
        """The JSON Schema of the field's values in a spec file, with the default if the schema allows it."""
        schema: JsonSchema = getattr(self._check, "schema", {})
        return {**schema, "default": self.default} if type(self.default) in (bool, int, str) else schema

    if TYPE_CHECKING:  # `dataclass` stores what `check` returns

        def __set__(self, instance: object, value: Given) -> None: ...

    def check(self, value: object, label: str = "") -> Kept:
        """Validate a value and return it as stored.

        Raises:
            UsageError: when it is invalid; names the problem, and the nearest valid name.
        """
        if value is None and self.default is None:
            return None  # type: ignore[return-value]
        return accepted(self._check, value, label or self.name)


Exact: TypeAlias = Checked[Kept, Kept]
"""Make a field that stores its value unchanged."""


def fields_of(kind: type) -> dict[str, Checked[Any, Any]]:
    """Return the fields of a spec class by name."""
    return {name: field for name, field in vars(kind).items() if isinstance(field, Checked)}


MOST_SHARDS: Final = 1_000_000
_TEXTS: Final[JsonSchema] = {"anyOf": [text.schema, {"type": "array", "items": text.schema}]}


@rule(**_TEXTS)
def texts(value: object, label: str) -> tuple[str, ...]:
    """Accept one text, or several."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"{label} must be text or a list of texts, not {value!r}")
    return tuple(items)


@rule(**_TEXTS)
def paths_or_urls(value: object, label: str) -> tuple[str, ...]:
    """Accept one path or URL, or several."""
    return tuple(text(item, label) for item in (value if isinstance(value, (list, tuple)) else [value]))


@rule(anyOf=[whole_number(1).schema, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *([kKMGTPE]i?)?[bB]?$"}])
def size(value: object, label: str) -> int:
    """Accept a size in bytes: `100MB` (10^8), `100MiB` (binary) or a number."""
    if type(value) is int and value > 0:
        return value
    from humanfriendly import InvalidSize, disk_size_units, parse_size

    units = {word.lower() for scale in disk_size_units for unit in scale for word in (unit.symbol, unit.name)}
    written = re.sub(r"[\d.\s]+", "", str(value).lower()).removesuffix("s")
    known = written in ("", "b", "byte", *units, *(unit[0] for unit in units))
    try:
        number = int(parse_size(str(value))) if known and not isinstance(value, bool) else -1
    except (InvalidSize, OverflowError, ValueError):
        number = -1
    if number <= 0:
        raise UsageError(f"{label}: {value!r} is not a size; write 100MB, 1GiB or a number of bytes above 0")
    return number


D = TypeVar("D", bound=Declared)


def _declared(find: Callable[[], type[D]]) -> Rule[tuple[D, ...]]:
    """Return a rule that accepts one declaration of a class, as text or mapping, or a list; imports the class when
    needed.
    """

    def check(value: object, label: str) -> tuple[D, ...]:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_each(enumerate(items), partial(_declaration, find, label)).values())

    def schema() -> JsonSchema:
        one = find().schema()["anyOf"]
        assert isinstance(one, list)
        return {"anyOf": [*one[:2], {"type": "array", "items": {"anyOf": one[:2]}}]}

    return Rule(check, schema)


def _declaration(find: Callable[[], type[D]], label: str, _: int, item: JsonValue) -> D:
    kind = find()
    try:
        return item if isinstance(item, kind) else kind.from_value(item)
    except (TypeError, ValueError, UsageError) as error:
        raise ProblemsError(problems=[(path, f"{label} {message}") for path, message in problems_of(error)]) from None


def _boxes() -> type[Boxes]:
    from tar2tf_cli.ops.annotations import Boxes

    return Boxes


def _points() -> type[Points]:
    from tar2tf_cli.ops.annotations import Points

    return Points


def _mask() -> type[Mask]:
    from tar2tf_cli.ops.annotations import Mask

    return Mask


boxes, points, masks = _declared(_boxes), _declared(_points), _declared(_mask)


@rule(type="array", items={"$ref": "#/definitions/op"})
def ops(value: object, label: str) -> tuple[Op, ...]:
    """Parse a list of ops, each as for `parse_op`."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{label} must be a list of ops, such as ['decode:jpg'], not {value!r}")
    return tuple(_each(enumerate(value), _op).values())


def _op(_: int, item: object) -> Op:
    from tar2tf_cli.ops import parse_op  # imported here, as few conversions need it

    return parse_op(item)


@rule(
    anyOf=[
        text.schema,
        {"type": "array", "items": text.schema, "minItems": 1, "uniqueItems": True},
        {"type": "object", "additionalProperties": {"$ref": "#/definitions/selection"}, "minProperties": 1},
    ]
)
def select(value: object, label: str) -> dict[str, Selection]:
    """Parse features and the selection for each."""
    from tar2tf_cli.ops.select import parse_select

    return parse_select(value)


def _named(mapping: JsonSchema, pattern: str) -> list[JsonSchema]:
    """Return the schemas of a mapping, of an equivalent text, and of a list of such texts."""
    written = {"type": "string", "pattern": pattern}
    return [{"type": "object", **mapping}, written, {"type": "array", "items": written}]


_PAIR: Final = f"[^=,]+=({'|'.join(TYPES)})"


@rule(anyOf=_named({"additionalProperties": {"enum": list(TYPES)}}, f"^{_PAIR}(,{_PAIR})*$"))
def types(value: object, label: str) -> dict[str, TypeName]:
    """Parse the types of features by name, or texts such as `NAME=TYPE,NAME=TYPE`."""

    def known(name: object, kind: object) -> TypeName:
        for accepted_kind in TYPES:
            if kind == accepted_kind:
                return accepted_kind
        raise ValueError(refusal(f"the type of {name!r}", kind, TYPES))

    pairs = _pairs(value, f"{label} %r is not NAME=TYPE, where TYPE is one of {', '.join(TYPES)}")
    return {str(name): kind for name, kind in _each(pairs.items(), known).items()}


_MAP: Final[JsonSchema] = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}


@rule(anyOf=_named({"additionalProperties": {"anyOf": [text.schema, _MAP]}}, "^[^=]+=.+"))
def labels(value: object, label: str) -> dict[str, LabelMap | str]:
    """Parse the label maps of features by name, or texts such as `NAME=FILE`; files are read."""

    def load(name: object, item: object) -> LabelMap | str:
        from tar2tf_cli.features.labels import LabelMap

        if isinstance(item, LabelMap) or (isinstance(item, Mapping) and item):
            return item if isinstance(item, LabelMap) else LabelMap(item)
        given = text(item, f"{label} of {name!r}")
        return AUTO if given == AUTO else LabelMap.load(os.path.expanduser(given))

    pairs: Mapping[str | int, object]
    if isinstance(value, Mapping):
        pairs = value
    else:
        parted = [(item, *item.partition("=")) for item in texts(value, label)]
        if odd := [item for item, name, _, given in parted if not (name and given)]:
            raise ValueError(f"{label} {odd[0]!r} is not NAME=FILE, NAME={AUTO} or NAME=imagenet")
        pairs = {name: given for _, name, _, given in parted}
    return {str(name): item for name, item in _each(pairs.items(), load).items()}


@rule(
    anyOf=[
        {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}},
        {"type": "string", "pattern": "^[^=,/]+=[0-9.]+(,[^=,/]+=[0-9.]+)*$"},
    ]
)
def split(value: object, label: str) -> dict[str, float]:
    """Parse the fraction of samples in each split, by name, or a text such as `train=0.9,val=0.1`."""
    form = f"{label} %r is not NAME=FRACTION, such as train=0.9,val=0.1"
    pairs = _pairs(value, form)
    written = ",".join(f"{name}={fraction}" for name, fraction in pairs.items())
    fractions = {str(name): real(fraction) for name, fraction in pairs.items()}
    if any(map(isnan, fractions.values())) or (not pairs and isinstance(value, str)):
        raise ValueError(form % written)
    if any("/" in name or not name for name in fractions) or not all(0 < item <= 1 for item in fractions.values()):
        raise ValueError(f"{label} {written!r} needs plain names, and fractions greater than 0 and at most 1")
    if fractions and abs(sum(fractions.values()) - 1) > 1e-6:
        raise ValueError(f"the fractions of {label} {written!r} sum to {sum(fractions.values()):g}, not to 1")
    return fractions


@rule(
    anyOf=[
        whole_number(1, MOST_SHARDS).schema,
        {"type": "object", "additionalProperties": whole_number(1, MOST_SHARDS).schema, "minProperties": 1},
        {"type": "string", "pattern": "^([1-9][0-9]*|[^=,/]+=[1-9][0-9]*(,[^=,/]+=[1-9][0-9]*)*)$"},
    ]
)
def num_shards(value: object, label: str) -> int | dict[str, int]:
    """Parse a number of shards, or one for each split, such as `train=100,val=4`."""
    number = whole_number(1, MOST_SHARDS)
    if not isinstance(value, Mapping) and not (isinstance(value, str) and "=" in value):
        return number(value, label)
    pairs = _pairs(value, f"{label} %r is not NAME=N, such as train=100,val=4")
    return {str(name): number(count, f"{label} {name}") for name, count in pairs.items()}


@rule(**text.schema)
def one_selection(value: object, label: str) -> str:
    """Accept the selection of one value."""
    from tar2tf_cli.spec.sample_keys import selection_of

    selection_of(text(value, label), label)
    return str(value)


FILE_KINDS: Final = (
    *("file", *sorted(IMAGE_SUFFIXES)),
    *("flac", "m4a", "mp3", "ogg", "opus", "wav", "avi", "mkv", "mov", "mp4", "webm"),
    *("bin", "csv", "html", "json", "npy", "npz", "pdf", "pt", "txt", "xml"),
)
"""Suffixes that declare a column to have paths of such files; `file` stands for any."""


class Column(NamedTuple):
    """A column of a table and the type of its cells.

    Attributes:
        name: the column's name in the header, or its number from 1 if the table has no header.
        kind: a type; or the suffix of the files, if cells are their paths; or empty for unchanged values.
    """

    name: str
    kind: str = ""

    @property
    def is_file(self) -> bool:
        """Whether the cells are paths of files."""
        return self.kind in FILE_KINDS

    @classmethod
    def parse(cls, text: str) -> Column:
        """Parse `COLUMN`, `COLUMN:TYPE` or `COLUMN:SUFFIX`; add a colon at the end of a name that contains one.

        Raises:
            ValueError: when there is no such kind.
        """
        name, colon, kind = text.rpartition(":")
        if not colon:
            return cls(text)
        if kind and kind not in (*TYPES, *FILE_KINDS):
            raise ValueError(refusal(f"the kind of the column {name!r}", kind, (*TYPES, *FILE_KINDS)))
        return cls(name, kind)


@rule(anyOf=_named({"additionalProperties": text.schema, "minProperties": 1}, "^[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*$"))
def columns(value: object, label: str) -> dict[str, str]:
    """Parse the columns of a table by entry, or texts such as `image=path:jpg,label=label:int64`."""

    def known(name: object, column: object) -> str:
        if not Column.parse(text(column, f"the column of {name!r}")).name:
            raise ValueError(f"{label} {name}={column} names no column")
        return str(column)

    form = f"{label} %r is not ENTRY=COLUMN, ENTRY=COLUMN:TYPE or ENTRY=COLUMN:SUFFIX, such as image=path:jpg"
    return {str(name): column for name, column in _each(_pairs(value, form).items(), known).items()}


@rule(anyOf=_named({}, "^[^=]+="))
def arguments(value: object, label: str) -> dict[str, object]:
    """Parse keyword arguments, or texts such as `NAME=VALUE`, where VALUE may be JSON."""
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    parsed: dict[str, object] = {}
    for item in texts(value, label):
        name, equals, written = item.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{label} {item!r} is not NAME=VALUE, such as normalize=true")
        try:
            parsed[name] = json.loads(written)
        except (ValueError, RecursionError):
            parsed[name] = written
    return parsed


@rule(type="integer", minimum=-1, maximum=2**63 - 1)
def limit(value: object, label: str) -> int | None:
    """Accept a number of samples; -1, as in older scripts, means all of them."""
    number = whole_number(-1, 2**63 - 1)(value, label)
    return None if number == -1 else number


@rule(anyOf=[{"type": "boolean"}, text.schema])
def entry_or_all(value: object, label: str) -> str | None:
    """Accept the name of an entry; true is `*`, which means all entries, and false is None."""
    return (ANY if value else None) if isinstance(value, bool) else text(value, label)


@rule(type="number", exclusiveMinimum=0, maximum=1)
def fraction(value: object, label: str) -> float:
    """Accept a fraction greater than 0 and at most 1."""
    number = real(value)
    if isinstance(value, bool) or not 0 < number <= 1:
        raise ValueError(f"{label} must be a fraction greater than 0 and at most 1, such as 0.1, not {value!r}")
    return number


@rule(type="array", items=whole_number(0).schema, minItems=2, maxItems=2)
def rows(value: object, label: str) -> tuple[int, int]:
    """Accept a first row and an exclusive end."""
    numbers = [whole_number(0)(item, label) for item in value] if isinstance(value, (list, tuple)) else []
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ValueError(f"{label} must be a first row and an exclusive end, not {value!r}")
    return numbers[0], numbers[1]


@rule(**text.schema)
def key_template(value: object, label: str) -> str:
    """Accept a template for the keys of samples."""
    from tar2tf_cli.spec.sample_keys import KeyTemplate

    KeyTemplate(text(value, label))
    return str(value)


@rule(**text.schema)
def join_on(value: object, label: str) -> str:
    """Accept `COLUMN=SELECTION`, or a selection."""
    from tar2tf_cli.spec.sample_keys import JoinOn

    JoinOn.parse(text(value, label))
    return str(value)


@rule(enum=preset_names())
def preset(value: object, label: str) -> str:
    """Accept the name of a preset."""
    from tar2tf_cli.features.presets import find_preset

    find_preset(str(value))
    return str(value)


def function(value: object, label: str) -> Callable[..., object]:
    """Accept a function."""
    if not callable(value):
        raise ValueError(f"{label} must be a function, not {value!r}")
    return value  # type: ignore[no-any-return]


@rule(type="string", pattern=":")
def loadable(value: object, label: str) -> str | type:
    """Accept a class, or text that names one."""
    return value if isinstance(value, type) else text(value, label)


def _pairs(value: object, complaint: str) -> Mapping[str | int, object]:
    """Return a mapping unchanged, or parse texts such as `NAME=VALUE,NAME=VALUE` into one."""
    if isinstance(value, Mapping):
        return value
    try:
        given = ",".join(texts(value, complaint.partition(" ")[0]))
    except ValueError:
        raise ValueError(complaint % (value,)) from None
    pairs: dict[str | int, object] = {}
    for item in filter(None, given.split(",")):
        name, equals, written = item.partition("=")
        if not equals or not name:
            raise ValueError(complaint % item)
        pairs[name] = written
    return pairs


def _each(items: Iterable[tuple[K, V]], parse: Callable[[K, V], Kept]) -> dict[K, Kept]:
    """Parse the items of a mapping or an enumerated list, and report the problems of all items in one error."""
    kept, problems, hint = dict[K, Kept](), list[Problem](), None
    for place, item in items:
        try:
            kept[place] = parse(place, item)
        except (UsageError, ValueError) as error:
            problems += [((place, *path), message) for path, message in problems_of(error)]
            hint = getattr(error, "hint", None)
    if problems:
        raise ProblemsError(problems=problems, hint=hint if len(problems) == 1 else None)
    return kept


def problems_of(error: Exception) -> Iterator[Problem]:
    """Yield each problem of an error with its path in the value."""
    if isinstance(error, ProblemsError):
        yield from error.problems
    else:
        yield (), error.message if isinstance(error, UsageError) else str(error)
