"""What ops are: frozen values that turn one sample into one, none or several; a registry knows them by name.

An op declares its fields once. They determine what `--op` and a spec file accept, the arguments of the Python class and
the canonical form in the manifest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from tar2tf_cli.api.values import Sample
from tar2tf_cli.errors import LackingError, ProblemsError, Tar2tfError, UsageError, failure, meant
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.formats.files import DEFAULT_MAX_PIXELS, whole, whole_sample

Kept = TypeVar("Kept", covariant=True)
JsonSchema: TypeAlias = "Mapping[str, Any]"


class Rule(Generic[Kept]):
    """A rule and, as a JSON Schema of draft 7, the values that it accepts in a spec file.

    Args:
        check: called with a value and its name in errors; returns what is stored, or raises ValueError.
        schema: describes the values in the form in which they should be written; the check may accept others.
    """

    def __init__(self, check: Callable[[Any, str], Kept], schema: JsonSchema) -> None:
        self._check = check
        self.schema = schema
        self.__doc__ = check.__doc__

    def __call__(self, value: Any, label: str) -> Kept:
        try:
            return self._check(value, label)
        except OverflowError:
            raise ValueError(f"{label} is too large") from None


def rule(**schema: Any) -> Callable[[Callable[[Any, str], Kept]], Rule[Kept]]:
    """Make a rule of the function below, with a JSON Schema of what it accepts."""
    return lambda check: Rule(check, schema)


@rule(type="string", minLength=1)
def text(value: Any, label: str) -> str:
    """Accept text that is not empty, or a path."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given:
        raise ValueError(f"{label} must be text or a path, not {value!r}")
    try:
        os.fsencode(given)
    except UnicodeEncodeError as error:
        raise ValueError(f"{label} has the character {given[error.start]!r}, which no text can have") from None
    return given


def whole_number(least: int | None = None, most: int | None = None) -> Rule[int]:
    """Accept a whole number within limits."""
    limits = {"minimum": least, "maximum": most}

    @rule(type="integer", **{name: limit for name, limit in limits.items() if limit is not None})
    def check(value: Any, label: str) -> int:
        try:
            number = int(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            number = None
        if number is None or isinstance(value, bool):
            raise ValueError(f"{label} must be a whole number, not {value!r}")
        if least is not None and number < least:
            raise ValueError(f"{label} must be {least} or more, not {number}")
        if most is not None and number > most:
            raise ValueError(f"{label} must be {most:,} or less, not {number}")
        return number

    return check


def seconds(value: Any, label: str, unit: str = "seconds") -> float:
    """Accept a number of seconds, or of another unit, 0 or more."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or not number >= 0:
        raise ValueError(f"{label} must be a number of {unit}, 0 or more, not {value!r}")
    return number


def one_of(*choices: str) -> Rule[Any]:
    """Accept one of several words."""

    @rule(enum=list(choices))
    def check(value: Any, label: str) -> str:
        if value not in choices:
            raise ValueError(refusal(label, value, choices))
        return str(value)

    return check


def optional(rule: Rule[Kept]) -> Rule[Kept | None]:
    """Also accept nothing."""
    return Rule(lambda value, label: None if value is None else rule(value, label), rule.schema)


@rule(type="boolean")
def yes_or_no(value: Any, label: str) -> bool:
    """Accept true or false, as values, as text, or as 1 or 0."""
    known = {"true": True, "false": False, 1: True, 0: False}
    given = value.lower() if isinstance(value, str) else value
    if isinstance(given, (str, int)) and given in known:
        return known[given]
    raise ValueError(f"{label} must be true or false, not {value!r}")


def accepted(rule: Callable[[Any, str], Kept], value: Any, label: str) -> Kept:
    """Return what a rule stores for a value.

    Raises:
        UsageError: when the rule does not accept it.
    """
    try:
        return rule(value, label)
    except ValueError as error:
        raise UsageError(str(error)) from None


def workers(given: int | None) -> int | None:
    """Return a number of workers, or None for as many as there are CPUs.

    Raises:
        UsageError: when it is less than 1.
    """
    return None if given is None else accepted(whole_number(1), given, "workers")


def refusal(label: str, value: Any, choices: Sequence[Any]) -> str:
    """Return the error message for a value that is not one of the choices."""
    words = ", ".join(map(repr, choices[:-1]))
    return f"{label} must be {words} or {choices[-1]!r}, not {value!r}{meant(value, choices)}"


RAISED: Final = (Exception, SystemExit)
"""What a user's function may raise; `sys.exit(0)` in it would end a command as if everything were done."""


def called(func: Callable[..., Any], *values: Any) -> Any:
    """Call a user's function.

    Raises:
        SampleError: names the function, and what it raised.
        Tar2tfError: when that is no fault of the sample: see `failure`.
    """
    try:
        return func(*values)
    except RAISED as error:
        raise failure(f"the function {label(func)} raised", error) from error


def label(func: Any) -> str:
    """Return the name of a function: `module:name`."""
    if isinstance(func, partial):
        return label(func.func)
    return f"{getattr(func, '__module__', '?')}:{getattr(func, '__qualname__', type(func).__name__)}"


def source_digest(func: Any, *, with_globals: bool = True) -> str | None:
    """Hash a function's source file and bound values, so that the hash changes when its code does.

    The line number of a lambda or inner function is included. For a function without a file (in a notebook), its code
    is hashed.

    Args:
        with_globals: whether to include globals, which a program may have set. A file that is loaded only for its
            function determines its globals.
    """
    from pathlib import Path

    inner = func.func if isinstance(func, partial) else func
    code, path = getattr(inner, "__code__", None), _file_of(inner)
    if code is None and path is None:
        return None
    digest = blake2b(Path(path).read_bytes() if path else _code_text(inner.__code__).encode(), digest_size=8)
    line = [code.co_firstlineno] if path and code and "<" in inner.__qualname__ else []
    if bound := line + _bound(func, with_globals=with_globals):
        texts = [_identity(item, inner.__module__) or type(item).__name__ for item in bound]
        digest.update(repr(texts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def is_identified(value: Any) -> bool:
    """Whether a value's text, or a function's name and `source_digest`, identifies it uniquely.

    It does not for a function without a file, or one bound to an object whose type alone is known. Imported
    modules are not examined.
    """
    if not isinstance(value, (FunctionType, partial)):
        return _identity(value, None) is not None
    inner = value.func if isinstance(value, partial) else value
    return _file_of(inner) is not None and _identity(value, inner.__module__) is not None


def _file_of(func: Any) -> str | None:
    path = getattr(sys.modules.get(getattr(func, "__module__", "")), "__file__", None)
    return path if path and path.endswith(".py") else None


def _bound(func: Any, *, with_globals: bool = True) -> list[Any]:
    """Return the values a function depends on: arguments of a partial, defaults, closure variables, globals."""
    bound: list[Any] = []
    if isinstance(func, partial):
        bound += [*func.args, *(item for pair in sorted(func.keywords.items()) for item in pair)]
        func = func.func
    for cell in getattr(func, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a variable that is not set yet
            bound.append(cell.cell_contents)
    if isinstance(func, FunctionType):
        bound += [*(func.__defaults__ or ()), *(func.__kwdefaults__ or {}).values()]
        names = sorted(_names(func.__code__)) if with_globals else []
        bound += [func.__globals__[name] for name in names if name in func.__globals__]
    return bound


def _names(code: CodeType) -> set[str]:
    inner = [_names(item) for item in code.co_consts if isinstance(item, CodeType)]
    return set(code.co_names).union(*inner)


def _identity(value: Any, home: str | None, above: tuple[Any, ...] = ()) -> str | None:
    """Return a text that identifies a value uniquely; None if there is none.

    Args:
        home: the module whose file is known; its functions are identified by their bound values.
        above: functions being identified, to stop recursion.
    """
    from pathlib import PurePath

    if isinstance(value, (*_PLAIN, PurePath)):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r} {value.flags}"
    if isinstance(value, (tuple, list, dict, set, frozenset)):
        texts = [_identity(item, home, above) for item in (value.items() if isinstance(value, dict) else value)]
        known = [text for text in texts if text is not None]
        kind = type(value).__name__
        return f"{kind} {known if kind in ('tuple', 'list', 'dict') else sorted(known)}" if known == texts else None
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (MethodType, BuiltinFunctionType)):
        owner = _identity(value.__self__, home, above)
        return None if owner is None else f"{owner}.{value.__name__}"
    if isinstance(value, partial):
        return _identity((value.func, value.args, value.keywords), home, above)
    if isinstance(value, FunctionType) and value.__module__ == home and value not in above:
        texts = [_identity(item, home, (*above, value)) for item in _bound(value)]
        return None if None in texts else f"{label(value)} {value.__code__.co_firstlineno} {texts}"
    return label(value) if hasattr(value, "__qualname__") else None


_PLAIN: Final = (str, bytes, int, float, type(None))


def _code_text(code: CodeType) -> str:
    """Return code and constants as text, the same for the same source."""
    constants = [_code_text(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


Kind: TypeAlias = Literal["sample", "example"]

Samples: TypeAlias = "Sample | Iterable[Sample] | None"


class OpContext(NamedTuple):
    """The settings of a conversion that an op may depend on, besides its own fields.

    Attributes:
        seed: random seed; random choices depend on it and on the sample's key.
        max_pixels: images of more pixels (height x width) are not decoded.
        image_size: height and width in pixels for the preset imagenet-tensor; None keeps each image's size.
        palettes: receives the names of entries that `decode` finds to be PNGs with a palette; nothing depends on it.

    >>> OpContext(seed=7).seed
    7
    """

    seed: int = 0
    max_pixels: int = DEFAULT_MAX_PIXELS
    image_size: int | None = None
    palettes: set[str] | None = None


class Op:
    """An op. Subclasses are frozen dataclasses with a `name`, a `usage` for `--op`, `examples` of it, and `apply`.

    Attributes:
        checks: the rule for each field; those of the fields that an op inherits are inherited, too.
        unlocked: whether the work is done by libraries that release the GIL.
        only: what it works on, samples or examples; None for both.
        by_name: whether it uses only entries that it names, so that large ones may stay in files; see `entry`.
        gives_names: whether the sample may have another key or other names of entries afterwards.
    """

    name: ClassVar[str]
    usage: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    checks: ClassVar[Mapping[str, Rule[Any]]] = {}
    releases_gil: ClassVar[bool] = False
    only: ClassVar[Kind | None] = "sample"
    by_name: ClassVar[bool] = False
    gives_names: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.checks = {**super(cls, cls).checks, **cls.checks}  # type: ignore[misc]

    def __post_init__(self) -> None:
        """Store what the rule for each field makes of its value."""
        for name, check in self.checks.items():
            object.__setattr__(self, name, check(getattr(self, name), name))

    @property
    def filter_entry(self) -> str | None:
        """The only entry by which the op skips a sample or keeps it unchanged; None for any other op."""
        return None

    @property
    def bound(self) -> Sequence[Any]:
        """The user's objects that the op depends on, which include an op that the user defined."""
        return [] if type(self) in OPS.values() else [self]

    @property
    def own_code(self) -> bool:
        """Whether it runs code of the user, which may not be safe in threads and is not on other machines."""
        return any(callable(value) or isinstance(value, Op) for value in self.bound)

    def apply(self, sample: Sample, context: OpContext) -> Samples:
        """Return the changed sample, None to skip it, or several samples.

        Raises:
            SampleError: when the op cannot be applied to the sample.
        """
        raise NotImplementedError

    def notes(self, palettes: Collection[str] = ()) -> list[str]:
        """What to tell the user: before samples are changed, or once entries turn out to be PNGs with a palette."""
        return []

    @classmethod
    def help(cls) -> str:
        """Return what the op does in one short sentence: the first paragraph of its docstring."""
        return cls._paragraphs()[0]

    @classmethod
    def more(cls) -> str:
        """Return the details: the second paragraph, if there is one."""
        return "".join(cls._paragraphs()[1:2])

    @classmethod
    def schema(cls) -> JsonSchema:
        """Return the JSON Schema of VALUE in `NAME: VALUE` of a spec file."""
        fields = cls._fields()
        rules = {name: cls.checks[name].schema for name in fields}
        required = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
        mapping = {"type": "object", "properties": rules, "required": required, "additionalProperties": False}
        if not rules:
            return {"anyOf": [{"type": "null"}, mapping]}
        values = {"type": "array", "items": [*rules.values()], "minItems": len(required), "maxItems": len(rules)}
        return {"anyOf": [{"type": "string"}, mapping, values]}

    @classmethod
    def _fields(cls) -> dict[str, dataclasses.Field[Any]]:
        return {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def _paragraphs(cls) -> list[str]:
        paragraphs = [" ".join(text.split()) for text in (cls.__doc__ or "").split("\n\n")]
        return [text for text in paragraphs if not text.startswith((">>>", "Args:"))]

    @classmethod
    def from_value(cls, value: Any) -> Op:
        """Parse `NAME: VALUE` of a spec file: a mapping of fields, a list of them, or text as for `--op`.

        Text has comma-separated fields in order, or `field=value` in any order.

        Raises:
            ProblemsError: for fields that do not exist.
            ValueError: when the value is invalid; says why.
        """
        if isinstance(value, dict):
            return cls._of_fields(value)
        if isinstance(value, str):
            parts = [part.partition("=") for part in value.split(",") if part]
        else:
            parts = [(item, "", "") for item in (value if isinstance(value, list) else [value]) if value is not None]
        names = list(cls._fields())
        values: dict[str, Any] = {}
        for position, (given, equals, text) in enumerate(parts):
            if not equals and position >= len(names):
                raise ValueError(f"takes at most {len(names)} values")
            name, item = (given, text) if equals else (names[position], given)
            if name in values:
                raise ValueError(f"has {name!r} twice")
            values[name] = item
        return cls._of_fields(values)

    @classmethod
    def _of_fields(cls, values: Mapping[str, Any]) -> Op:
        fields = cls._fields()
        if unknown := [name for name in values if name not in fields]:
            raise ProblemsError(problems=[((name,), f"has no field {name!r}{meant(name, fields)}") for name in unknown])
        for name, field in fields.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise ValueError(f"needs {name!r}")
        return cls(**values)

    def canonical(self) -> dict[str, Any]:
        """Return the op as in the manifest and a spec file: `{NAME: {FIELD: VALUE}}`."""
        fields = self._fields().items()
        changed = {name: item for name, field in fields if (item := getattr(self, name)) != field.default}
        return {self.name: {name: list(item) if isinstance(item, tuple) else item for name, item in changed.items()}}

    @property
    def as_flag(self) -> str:
        """The op as after `--op` if one text says all of it, otherwise its name."""
        fields = self.canonical()[self.name]
        return f"{self.name}:{fields}" if isinstance(fields, str) else self.name

    def entry(self, sample: Sample, ext: str) -> Any:
        """Return the entry an op works on.

        Raises:
            SampleError: when the sample has no entry of that name, or it is too large to be held in memory.
        """
        if ext not in sample:
            raise missing_entry(sample, f"{self.name}: has no entry {ext!r}")
        return whole(sample[ext])


def missing_entry(sample: Sample, complaint: str) -> LackingError:
    """Make the error for a missing entry, which lists the entries that the sample has."""
    have = ", ".join(name for name in sample if not name.startswith("__"))
    return LackingError(f"{complaint}, only {have or 'no entries'}")


OPS: Final[dict[str, type[Op]]] = {}
"""Every op by name, once any name of `tar2tf_cli.ops` was used: it imports their files."""

T = TypeVar("T", bound=type[Op])


def register(cls: T) -> T:
    """Register an op under its name."""
    OPS[cls.name] = cls
    return cls


def parse_op(item: Any) -> Op:
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
    if len(named) != 1:
        raise UsageError(f"an op is a name, or one name with its fields, not {item!r}")
    ((name, value),) = named.items()
    if name not in OPS:
        raise UsageError(f"there is no op {name!r}{meant(name, OPS)}", hint=f"ops: {', '.join(OPS)}")
    try:
        return OPS[name].from_value(value)
    except ProblemsError as error:
        problems = [((name, *path), f"{name} {message}") for path, message in error.problems]
        raise ProblemsError(problems=problems, hint=f"write {OPS[name].usage}") from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name} {error}", hint=f"write {OPS[name].usage}") from None


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
        context: what they may depend on.
        renamed: whether names in the sample may no longer be those of its members.
        skipped: called with the op that skips the sample, or one of those that were made of it.

    Raises:
        SampleError: when an op fails.
        UsageError: when a package is missing.
        MachineError: when the machine lacks something.
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
    """The error, without the name of a member that is not in the shard."""
    if renamed and error.member:
        error.message, error.member = f"entry {getattr(op, 'ext', error.member)!r}: {error.message}", None
    return error


def keyword_aliases(cls: T, **aliases: str) -> None:
    """Let a class also accept keyword arguments under the names of the AIS tar2tf client."""
    original = cls.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **values: Any) -> None:
        original(self, *args, **{aliases.get(name, name): value for name, value in values.items()})

    cls.__init__ = init  # type: ignore[method-assign]
