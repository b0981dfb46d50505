"""The base class of ops that are frozen dataclasses, the registry of ops by name, and `apply_ops`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from itertools import takewhile
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from tar2tf_cli.api.op import JsonSchema, JsonValue, Op, OpContext
from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import (
    RAISED,
    MissingNameError,
    Problem,
    ProblemsError,
    Tar2tfError,
    UsageError,
    did_you_mean,
    failure,
)
from tar2tf_cli.formats.files import whole, whole_sample
from tar2tf_cli.ops.rules import Rule, split_at_commas
from tar2tf_cli.plugins import files_in, load_plugin, plugin_names
from tar2tf_cli.structs import defaults_of

if TYPE_CHECKING:
    from typing_extensions import Self

_REQUIRED: Final = object()
"""Marker for a field without a default."""

ANY: Final = "*"
"""The wildcard for every item of a list in a path, or for any text in names of entries."""

IMAGE_ENTRIES: Final = ("image", "jpg", "jpeg", "png", "bmp", "webp", "img")
"""Entries for the image of a sample; the first that is present is used."""


class Declared:
    """Base class of frozen dataclasses whose fields have rules, from which their grammar follows.

    Fields and rules determine the text on the command line, the value in a spec file, the arguments of the Python
    class, the schema for editors and the canonical form in the manifest.

    Attributes:
        checks: the rule for each field; a subclass inherits the rules of the fields that it inherits.
        exactly_one: names of fields of which exactly one must be given.
    """

    checks: ClassVar[Mapping[str, Rule[object]]] = {}
    exactly_one: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.checks = {**super(cls, cls).checks, **cls.checks}  # type: ignore[misc]

    def __post_init__(self) -> None:
        """Store the value that the rule of each field returns."""
        for name, check in self.checks.items():
            object.__setattr__(self, name, check(getattr(self, name), name))
        if self.exactly_one and sum(getattr(self, name) is not None for name in self.exactly_one) != 1:
            raise ValueError(f"needs one of {', '.join(map(repr, self.exactly_one[:-1]))} and {self.exactly_one[-1]!r}")

    @classmethod
    def schema(cls) -> JsonSchema:
        """Return the JSON Schema of the values in a spec file: text, a mapping of fields, or a list of their values."""
        defaults = cls._fields()
        rules = {name: cls.checks[name].schema for name in defaults}
        required = [name for name, default in defaults.items() if default is _REQUIRED]
        alternatives: JsonSchema = {"oneOf": [{"required": [name]} for name in cls.exactly_one]}
        mapping: JsonValue = {
            "type": "object",
            "properties": rules,
            "required": required,
            "additionalProperties": False,
            **(alternatives if cls.exactly_one else {}),
        }
        if not rules:
            return {"anyOf": [{"type": "null"}, mapping]}
        values: JsonValue = {
            "type": "array",
            "items": [*rules.values()],
            "minItems": len(required) + bool(cls.exactly_one),
            "maxItems": len(rules),
        }
        return {"anyOf": [{"type": "string"}, mapping, values]}

    @classmethod
    def _fields(cls) -> dict[str, object]:
        """Return the default of each field; `_REQUIRED` for a field without one."""
        return defaults_of(cls, _REQUIRED)

    @classmethod
    def from_value(cls, value: JsonValue) -> Self:
        """Parse a mapping of fields, a list of their values, or text.

        Text has comma-separated fields in order, or `field=value` in any order; the name of a field that is true or
        false stands for true.

        Raises:
            ProblemsError: for fields that do not exist.
            ValueError: when the value is invalid; gives the reason.
        """
        if isinstance(value, dict):
            return cls._of_fields(value)
        names = list(cls._fields())
        parts: list[tuple[object, str, str]]
        if isinstance(value, str):
            parts = [cls._part(part) for part in split_at_commas(value)]
        else:
            parts = [(item, "", "") for item in (value if isinstance(value, list) else [value]) if value is not None]
        values: dict[str, object] = {}
        for position, (given, equals, written) in enumerate(parts):
            if not equals and position >= len(names):
                raise ValueError(f"takes at most {len(names)} values")
            name, item = (str(given), written) if equals else (names[position], given)
            if name in values:
                raise ValueError(f"has {name!r} twice")
            values[name] = item
        return cls._of_fields(values)

    @classmethod
    def _part(cls, part: str) -> tuple[str, str, str]:
        """Split text into a field's name, an equals sign and its value; without a name, into the text and two empty
        texts.
        """
        if isinstance(getattr(cls, part, None), bool):
            return part, "=", "true"
        name, equals, written = part.partition("=")
        return (name, equals, written) if name.isidentifier() else (part, "", "")

    @classmethod
    def _of_fields(cls, values: Mapping[str, object]) -> Self:
        defaults = cls._fields()
        if unknown := [name for name in values if name not in defaults]:
            problems: list[Problem] = [
                ((name,), f"has no field {name!r}{did_you_mean(name, defaults)}") for name in unknown
            ]
            raise ProblemsError(problems=problems)
        for name, default in defaults.items():
            if name not in values and default is _REQUIRED:
                raise ValueError(f"needs {name!r}")
        return cls(**values)

    def changed_fields(self) -> dict[str, JsonValue]:
        """Return the fields that differ from their defaults, as in a spec file."""
        changed = {name: item for name, default in self._fields().items() if (item := getattr(self, name)) != default}
        return {name: list(item) if isinstance(item, tuple) else item for name, item in changed.items()}


class DeclaredOp(Declared, Op):
    """Base class of ops that are frozen dataclasses with a rule for each field; exported as `tar2tf_cli.ops.Op`."""

    @property
    def bound(self) -> Sequence[object]:
        """Return the op itself if its class is the user's own; nothing for a registered class."""
        return [] if type(self) in OPS.values() else [self]

    def canonical(self) -> dict[str, JsonValue]:
        """Return the op as in the manifest and a spec file: `{NAME: {FIELD: VALUE}}`."""
        return {self.name: self.changed_fields()}

    def entry(self, sample: Sample, ext: str) -> Any:
        """Return the entry an op works on.

        Raises:
            SampleError: when the sample has no entry of that name, or it is too large to be held in memory.
        """
        if ext not in sample:
            raise missing_entry(sample, f"{self.name}: has no entry {ext!r}", ext, f"--op {self.name}")
        return whole(sample[ext])


def names_matching(sample: Sample, pattern: str) -> list[str]:
    """Return the names of the entries that match a glob, in natural order: 2 before 10."""
    from fnmatch import fnmatchcase

    return sorted((name for name in sample if fnmatchcase(name, pattern) and not name.startswith("__")), key=natural)


def natural(name: str) -> tuple[list[str | int], str]:
    """Return a key that sorts numbers in names by value."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)], name


def missing_entry(sample: Sample, complaint: str, name: str, option: str) -> MissingNameError:
    """Make the error for a missing entry, which lists the entries that the sample has.

    Args:
        sample: the sample.
        complaint: the fault.
        name: the name of the entry.
        option: the option that names it.
    """
    have = [entry for entry in sample if not entry.startswith("__")]
    message = f"{complaint}, only {', '.join(have) or 'no entries'}"
    return MissingNameError(message, name=name, names=have, option=option, noun="entry")


def summary(op: type[Op]) -> str:
    """Return a one-sentence summary of an op: the first paragraph of its docstring."""
    return paragraphs(op)[0]


def details(op: type[Op]) -> str:
    """Return the second paragraph of an op's docstring; empty if there is none."""
    return "".join(paragraphs(op)[1:2])


def paragraphs(op: type[Op]) -> list[str]:
    """Return the paragraphs of an op's docstring, without arguments and examples."""
    found = [" ".join(text.split()) for text in (op.__doc__ or "").split("\n\n")]
    return [text for text in found if not text.startswith((">>>", "Args:"))]


OPS: Final[dict[str, type[DeclaredOp]]] = {}
"""The ops by name whose files have been imported; all of them as `tar2tf_cli.ops.OPS`."""

_FIRST: Final = ("base", "image", "decode", "dtype", "resize", "crop", "rotate", "fields", "func", "select")
"""The modules whose ops are listed first, in this order."""

_FILES: Final = {
    **dict.fromkeys(("rename", "keep", "drop_empty", "filter"), "fields"),
    **dict.fromkeys(("encode", "orient"), "decode"),
    **dict.fromkeys(("convert", "cast"), "dtype"),
    "center_crop": "crop",
    "pad": "resize",
}
"""The file of each op that is not in a file of its name, which saves importing all others to find it."""

T = TypeVar("T", bound=type[DeclaredOp])


def register(cls: T) -> T:
    """Register an op under its name."""
    OPS[cls.name] = cls
    return cls


@cache
def import_ops() -> list[ModuleType]:
    """Import all modules of this folder, and list their ops in the order of the modules, not of imports."""
    modules = [_import(name) for name in dict.fromkeys((*_FIRST, *files_in("ops")))]
    of_files = {name: op for module in modules for name, op in OPS.items() if op.__module__ == module.__name__}
    ordered = {**of_files, **OPS}
    OPS.clear()
    OPS.update(ordered)
    return modules


def _import(file: str) -> ModuleType:
    return import_module(f"{__package__}.{file}")


def _import_op(name: str) -> None:
    """Import the file of an op, which registers it; all files if that one is not known."""
    if (file := _FILES.get(name, name)) in files_in("ops"):
        _import(file)
    if name not in OPS:
        import_ops()


def find_op(name: str) -> type[DeclaredOp]:
    """Return the class of an op.

    Raises:
        UsageError: when there is no op of that name, here or in another package.

    >>> find_op("resize").name
    'resize'
    """
    if name not in OPS:
        _import_op(name)
    if name not in OPS:
        added = load_plugin("ops", name)
        if not (isinstance(added, type) and issubclass(added, DeclaredOp)):
            names = all_ops()
            raise UsageError(f"there is no op {name!r}{did_you_mean(name, names)}", hint=f"ops: {', '.join(names)}")
        register(added)
    return OPS[name]


def all_ops() -> dict[str, type[DeclaredOp]]:
    """Return every op by name: first the built-in ops, then those of other packages.

    >>> "resize" in all_ops()
    True
    """
    import_ops()
    return {**OPS, **{name: find_op(name) for name in plugin_names("ops") if name not in OPS}}


def runs_own_code(op: Op) -> bool:
    """Whether an op runs code of the user, which may not be thread-safe or available on other machines."""
    return any(callable(value) or isinstance(value, Op) for value in op.bound)


def as_flag(op: Op) -> str:
    """Return the value of `--op` that gives an op, or the op's name if no single value does."""
    value = op.canonical()[op.name]
    return f"{op.name}:{value}" if isinstance(value, str) else op.name


def leading_filters(ops: Sequence[Op]) -> list[Op]:
    """Return the ops at the beginning that only skip samples by one of their entries."""
    return list(takewhile(lambda op: op.filter_entry is not None, ops))


def parse_op(item: object) -> Op:
    """Parse an item of `ops`: an op, text as for `--op`, or `{resize: {ext: jpg, size: [9, 9]}}`.

    Raises:
        UsageError: when it is invalid; names the problem, and the nearest valid name.

    >>> parse_op("rotate:jpg,90").angle
    90.0
    """
    if isinstance(item, Op):
        return item
    if isinstance(item, str):
        name, _, text = item.partition(":")
        item = {name: text.strip()}
    named = {name: value for name, value in item.items() if name != "digest"} if isinstance(item, Mapping) else {}
    if "args" in named and len(named) == 2:  # of a function
        name = next(name for name in named if name != "args")
        named = {name: {name: named[name], "args": named["args"]}}
    if len(named) != 1:
        raise UsageError(f"an op is a name, or one name with its fields, not {item!r}")
    ((name, value),) = named.items()
    op = find_op(name)
    try:
        return op.from_value(value)
    except ProblemsError as error:
        problems = [((name, *path), f"{name} {message}") for path, message in error.problems]
        raise ProblemsError(problems=problems, hint=f"write {op.usage}") from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name} {error}", hint=f"write {op.usage}") from None


def apply_ops(
    sample: Sample,
    ops: Sequence[Op],
    context: OpContext,
    *,
    renamed: bool = False,
    skipped: Callable[[Op], None] | None = None,
) -> Iterator[Sample]:
    """Apply ops to a sample in order; yield the resulting samples, if any.

    Args:
        sample: the sample.
        ops: the ops.
        context: settings that the ops may depend on.
        renamed: whether names in the sample may differ from the names of its members.
        skipped: called with the op that skips the sample, or one of the samples made from it.

    Raises:
        SampleError: when an op fails.
        UsageError: when a package is missing.
        MachineError: when the machine lacks memory or another resource.
    """
    for position, op in enumerate(ops):
        try:
            result = op.apply(sample if op.by_name else whole_sample(sample), context)
        except RAISED as error:
            raise _located(failure(f"{op.name} failed:", error), op, renamed=renamed) from error
        renamed = renamed or op.gives_names
        if result is None:
            if skipped:
                skipped(op)
            return
        if not isinstance(result, dict):
            for one in result:
                yield from apply_ops(one, ops[position + 1 :], context, renamed=renamed, skipped=skipped)
            return
        sample = result
    yield sample


def _located(error: Tar2tfError, op: Op, *, renamed: bool) -> Tar2tfError:
    """Remove from an error the name of a member that does not exist in the shard."""
    if renamed and error.member:
        error.message, error.member = f"entry {getattr(op, 'ext', error.member)!r}: {error.message}", None
    return error


def keyword_aliases(cls: T, **aliases: str) -> None:
    """Make a class accept keyword arguments by their names in the AIS tar2tf client, too."""
    original = cls.__init__

    @wraps(original)
    def init(self: object, *args: object, **values: object) -> None:
        original(self, *args, **{aliases.get(name, name): value for name, value in values.items()})

    cls.__init__ = init  # type: ignore[method-assign,assignment]
