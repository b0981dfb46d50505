"""Dataclasses, named tuples and other kinds of classes that are cheap to define: no code is compiled for a class.

To define a standard dataclass, Python compiles source text, which takes 1 to 10 million instructions. A conversion
imports fifty of them, which took a quarter of its start-up time. Creating an object of these classes takes one or two
microseconds longer, so the constructor of a class is compiled after a hundred of its objects. Type checkers see the
standard classes, and `dataclasses.fields` and `dataclasses.replace` work.
"""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from dataclasses import Field
    from inspect import Signature

    from typing_extensions import Self

_Object = TypeVar("_Object")

_FEW: Final = 100
"""Number of objects that the shared constructor makes of a class before its own constructor is compiled."""


_ABSENT: Final = object()
"""The default of a field without one."""


class _Factory:
    """A field's default that a function makes for each object."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def _field(*, default_factory: Callable[[], object]) -> object:
    return _Factory(default_factory)


def new_counter() -> Counter[Any]:
    """Return an empty Counter, as `Counter()` does with ten times as many instructions, which are those of a sample."""
    return Counter.__new__(Counter)


def _dataclass(cls: Any = None, *, frozen: bool = False, eq: bool = True, repr: bool = True) -> Any:
    """Turn a class with annotated attributes into a dataclass, as `dataclasses.dataclass` does."""
    if cls is None:
        return lambda decorated: _dataclass(decorated, frozen=frozen, eq=eq, repr=repr)
    _describe(cls)
    cls.__dataclass_fields__, cls._is_frozen = _LazyFields(), frozen
    cls.__init__ = _init
    if repr:
        cls.__repr__ = _repr
    if eq:
        cls.__eq__, cls.__hash__ = _eq, _hash if frozen else None
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse
    return cls


def _describe(cls: Any) -> None:
    """Give a class the names, types and defaults of its fields, those of its base classes first.

    The method `check` of a class attribute, such as a field of a spec, returns the value to store.
    """
    defaults, factories, checks = {**getattr(cls, "_defaults", {})}, {**getattr(cls, "_factories", {})}, {}
    own = vars(cls)
    types = {name: kind for name, kind in cls.__annotations__.items() if "ClassVar[" not in kind}
    for name in types:
        value = getattr(cls, name, _ABSENT)
        if isinstance(value, _Factory):
            factories[name] = value.make
            defaults.pop(name, None)
        elif value is not _ABSENT:
            defaults[name] = value
            factories.pop(name, None)
        if name in own and hasattr(own[name], "check"):
            checks[name] = own[name].check
    cls._types = getattr(cls, "_types", {}) | types
    cls._defaults, cls._factories, cls._checks = defaults, factories, checks
    cls.__signature__ = _SIGNATURE
    cls._few = iter(range(_FEW))


def _bound(cls: Any, args: tuple[object, ...], given: dict[str, object]) -> dict[str, Any]:
    """Return the value of each field for the arguments of a call."""
    positional = dict(zip(cls._types, args, strict=False))
    values: dict[str, Any] = {**cls._defaults, **positional, **given}
    for name, make in cls._factories.items():
        if name not in values:
            values[name] = make()
    named = not given or (given.keys() <= cls._types.keys() and given.keys().isdisjoint(positional))
    if not named or len(values) < len(cls._types) or len(positional) < len(args):
        cls.__signature__.bind(*args, **given)  # raises the error
    return values


def _init(self: Any, *args: object, **given: object) -> None:
    cls = type(self)
    values = _bound(cls, args, given)
    for name, check in cls._checks.items():
        values[name] = check(values[name])
    for name, value in values.items():  # after `__dict__.update`, CPython keeps a dict for each later object, too
        object.__setattr__(self, name, value)
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    if next(cls._few, None) is None and not cls._checks and cls.__init__ is _init:
        cls.__init__ = _compiled_init(cls)


_LITERALS: Final = {list: "[]", dict: "{}"}
"""Expressions that make what some functions return, without calling them."""


def _compiled_init(cls: Any) -> Any:
    """Compile a constructor for the fields of a class, which needs no import of `dataclasses` itself."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_absent": object()}
    head, body = ["self"], []
    for name in cls._types:
        value = name
        if name in cls._factories:
            known[f"_make_{name}"] = cls._factories[name]
            head.append(f"{name}=_absent")
            made = _LITERALS.get(cls._factories[name], f"_make_{name}()")
            value = f"{made} if {name} is _absent else {name}"
        elif name in cls._defaults:
            known[f"_default_{name}"] = cls._defaults[name]
            head.append(f"{name}=_default_{name}")
        else:
            head.append(name)
        body.append(f"_set(self, {name!r}, {value})" if cls._is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(head)}):\n " + "\n ".join(body), known)
    return known["__init__"]


def _standard_dataclass(cls: Any) -> Any:
    """Make the standard library's dataclass with the annotations and defaults of a class, for its fields."""
    import dataclasses

    fields: list[tuple[str, Any, Any]] = []
    for name in cls._types:
        known: dict[str, Any] = {"default": cls._defaults[name]} if name in cls._defaults else {}
        if name in cls._factories:
            known = {"default_factory": cls._factories[name]}
        fields.append((name, cls._types[name], dataclasses.field(**known)))
    return dataclasses.make_dataclass(cls.__name__, fields)


def defaults_of(cls: type, absent: object) -> dict[str, object]:
    """Return the default of each field of a dataclass, of this module or the standard library; `absent` without one."""
    described = next(vars(kind) for kind in cls.__mro__ if "__dataclass_fields__" in vars(kind))
    if "_types" in described:
        return {name: described["_defaults"].get(name, absent) for name in described["_types"]}
    from dataclasses import MISSING, fields

    return {field.name: absent if field.default is MISSING else field.default for field in fields(cls)}


def _values(self: Any) -> tuple[object, ...]:
    return tuple(getattr(self, name) for name in self._types)


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._types)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: object, name: str, *value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}" if value else f"cannot delete field {name!r}")


def _replace(obj: _Object, /, **changes: object) -> _Object:
    """Return a copy with other values of some fields, as `dataclasses.replace` does."""
    return type(obj)(**{name: getattr(obj, name) for name in obj._types} | changes)  # type: ignore[attr-defined]


class _NamedTuple(tuple[Any, ...]):
    """Base class of named tuples that behave like those of `typing.NamedTuple`."""

    _types: ClassVar[dict[str, str]] = {}
    _fields: ClassVar[tuple[str, ...]] = ()
    _few: ClassVar[Iterator[int]]

    def __init_subclass__(cls) -> None:
        _describe(cls)
        cls._fields = tuple(cls._types)
        for number, name in enumerate(cls._fields):
            setattr(cls, name, property(itemgetter(number)))

    def __new__(cls, *args: object, **given: object) -> Self:
        if next(cls._few, None) is None:
            _take_standard_methods(cls)
        if given or len(args) != len(cls._fields):
            values = _bound(cls, args, given)
            args = tuple(map(values.__getitem__, cls._fields))
        return tuple.__new__(cls, args)

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return _repr(self)

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: object) -> Self:
        changed = type(self)(*map(changes.pop, self._fields, self))
        if changes:
            raise TypeError(f"got unexpected field names: {[*changes]}")
        return changed


def _take_standard_methods(cls: Any) -> None:
    """Replace the methods of a named tuple that are called most by those of the standard library, which are faster."""
    defaults = [cls._defaults[name] for name in cls._fields if name in cls._defaults]
    cls._standard = made = namedtuple(cls.__name__, cls._fields, defaults=defaults)  # type: ignore[misc]
    for name in ("__new__", "_make", "_replace", *cls._fields):
        setattr(cls, name, vars(made)[name])


class _LazyFields:
    """Descriptor of `__dataclass_fields__`, which builds the standard library's fields on first access."""

    def __get__(self, _: object, cls: Any) -> dict[str, Field[Any]]:
        import dataclasses

        return {field.name: field for field in dataclasses.fields(_standard_dataclass(cls))}


class _LazySignature:
    """Descriptor of `__signature__`, which builds the signature of `__init__` on access."""

    def __get__(self, _: object, cls: Any) -> Signature:
        from inspect import Parameter, Signature

        defaults = cls._defaults | dict.fromkeys(cls._factories, ...)
        kind, empty = Parameter.POSITIONAL_OR_KEYWORD, Parameter.empty
        return Signature(
            [
                Parameter(name, kind, default=defaults.get(name, empty), annotation=cls._types[name])
                for name in cls._types
            ]
        )


_SIGNATURE: Final = _LazySignature()


class _TypedDict:
    """Base class of typed dicts, which make plain dicts, as those of `typing.TypedDict` do."""

    def __init_subclass__(cls, *, total: bool = True) -> None:
        super().__init_subclass__()

    def __new__(cls, **values: object) -> dict[str, object]:  # type: ignore[misc]
        return values


class _Protocol:
    """Base class of protocols, which no code tests at run time."""


class _Generic:
    """Base class of generic classes, which are the same class for all types at run time."""

    def __class_getitem__(cls, types: object) -> Any:
        return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import Generic as Generic
    from typing import NamedTuple as NamedTuple
    from typing import Protocol as Protocol
    from typing import TypedDict as TypedDict
else:
    dataclass, field, replace, NamedTuple = _dataclass, _field, _replace, _NamedTuple
    Generic, Protocol, TypedDict = _Generic, _Protocol, _TypedDict
