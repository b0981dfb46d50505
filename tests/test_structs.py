"""Structs are the standard dataclasses and named tuples, only cheaper to define."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from tar2tf_cli import structs

T = typing.TypeVar("T")


@structs.dataclass(frozen=True)
class Shard:
    """A struct to try."""

    name: str
    size: int = 0
    keys: list[str] = structs.field(default_factory=list)


@structs.dataclass(frozen=True)
class Tar(Shard):
    """A struct with the fields of another."""

    method: str = "none"


@structs.dataclass(eq=False)
class Counts:
    """A struct that is equal to itself only."""

    samples: int = 0

    def __post_init__(self) -> None:
        """Count one more."""
        self.samples += 1


class Span(structs.NamedTuple):
    """A named tuple to try."""

    start: int
    end: int = 9


@dataclasses.dataclass(frozen=True)
class StandardShard:
    """The struct as the standard library makes it."""

    name: str
    size: int = 0
    keys: list[str] = dataclasses.field(default_factory=list)


class StandardSpan(typing.NamedTuple):
    """The named tuple as the standard library makes it."""

    start: int
    end: int = 9


def test_fields_are_given_by_position_or_name_and_have_defaults() -> None:
    assert Tar("a", method="gzip", size=3) == Tar("a", 3, [], "gzip")
    assert Shard("a").keys == []
    assert Shard("a").keys is not Shard("a").keys
    assert Counts().samples == 1
    assert [*Span(1)] == [1, 9]
    assert Span(end=2, start=1) == (1, 2)


def test_class_variables_are_no_fields() -> None:
    @structs.dataclass
    class Op:
        name: typing.ClassVar[str] = "flip"
        ext: str

    assert Op("jpg").ext == "jpg"
    assert [*structs.defaults_of(Op, None)] == ["ext"]


def test_a_constructor_that_replaced_the_shared_one_stays() -> None:
    @structs.dataclass
    class Op:
        ext: str

    shared = Op.__init__
    Op.__init__ = lambda self, ext_name: shared(self, ext_name)  # type: ignore[method-assign,assignment,misc]
    made = [Op(ext_name="jpg") for _ in range(200)]  # type: ignore[call-arg]
    assert {op.ext for op in made} == {"jpg"}


@pytest.mark.parametrize("kind", [Shard, StandardShard])
def test_defaults_are_those_of_either_kind_of_dataclass(kind: type) -> None:
    assert structs.defaults_of(kind, "absent") == {"name": "absent", "size": 0, "keys": "absent"}


@pytest.mark.parametrize(
    "call",
    [
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3, 4),
        lambda kind: kind(1, **{next(iter(inspect.signature(kind).parameters)): 1}),
        lambda kind: kind(1, other=1),
        lambda kind: kind(other=1),
    ],
)
@pytest.mark.parametrize("kind", [Shard, StandardShard, Span, StandardSpan])
def test_calls_that_do_not_fit_the_fields_are_refused(call: Callable[[type], object], kind: type) -> None:
    with pytest.raises(TypeError):
        call(kind)


@pytest.mark.parametrize("value", [Tar("a", 3, [], "gzip"), Span(1, 2)])
def test_copies_are_equal(value: object) -> None:
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value
    assert type(pickle.loads(pickle.dumps(value))) is type(value)


def test_equality_and_hashes_are_those_of_the_standard_library() -> None:
    assert Shard("a") != Shard("b")
    assert Shard("a") != Tar("a")
    assert Counts() != Counts()
    assert hash(Span(1, 2)) == hash((1, 2))
    assert hash(structs.replace(Shard("a"), keys=())) == hash(("a", 0, ()))  # type: ignore[arg-type]
    assert repr(Shard("a")) == repr(StandardShard("a")).replace("StandardShard", "Shard")
    assert repr(Span(1)) == repr(StandardSpan(1)).replace("StandardSpan", "Span")


def test_frozen_fields_are_not_assigned() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Shard("a").name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Shard("a").name
    with pytest.raises(AttributeError):
        Span(1).start = 2  # type: ignore[misc]


def test_the_functions_of_the_standard_library_know_them() -> None:
    assert dataclasses.is_dataclass(Tar)
    assert [(field.name, field.default) for field in dataclasses.fields(Shard)] == [
        (field.name, field.default) for field in dataclasses.fields(StandardShard)
    ]
    assert dataclasses.replace(Tar("a"), size=1) == structs.replace(Tar("a"), size=1) == Tar("a", 1)
    assert dataclasses.asdict(Shard("a")) == dataclasses.asdict(StandardShard("a"))
    assert [*inspect.signature(Tar).parameters] == ["name", "size", "keys", "method"]
    assert Span(1)._replace(end=2)._asdict() == {"start": 1, "end": 2}
    assert Span._fields == ("start", "end")


def test_many_objects_of_a_class_are_made_alike() -> None:
    for number in range(300):
        assert vars(Tar("a", number)) == {"name": "a", "size": number, "keys": [], "method": "none"}
        assert Counts(number).samples == number + 1
        assert [*Span(number)] == [number, 9]
        assert (Span(end=2, start=number).start, Span(1, number).end) == (number, number)
    assert Tar("a").keys is not Tar("a").keys
    test_fields_are_given_by_position_or_name_and_have_defaults()
    test_equality_and_hashes_are_those_of_the_standard_library()
    test_frozen_fields_are_not_assigned()
    test_the_functions_of_the_standard_library_know_them()
    for value in (Tar("a", 3, [], "gzip"), Span(1, 2)):
        test_copies_are_equal(value)
    for kind in (Tar, Span):
        with pytest.raises(TypeError):
            kind(1, 2, 3, 4, 5)


@pytest.mark.parametrize("change", [lambda shard: setattr(shard, "name", "b"), lambda shard: delattr(shard, "name")])
def test_what_a_frozen_field_refuses_is_named_as_by_the_standard_library(change: Callable[[object], None]) -> None:
    said = []
    for shard in (Shard("a"), StandardShard("a")):
        with pytest.raises(dataclasses.FrozenInstanceError) as caught:
            change(shard)
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("args", "given", "says"),
    [
        ((), {}, "missing a required argument: 'name'"),
        (("a", 1, 2), {}, "too many positional arguments"),
        (("a",), {"name": "b"}, "multiple values for argument 'name'"),
        (("a",), {"sizes": 1}, "got an unexpected keyword argument 'sizes'"),
        ((), {"size": 1}, "missing a required argument: 'name'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: tuple[object, ...], given: dict[str, object], says: str) -> None:
    @structs.dataclass
    class File:
        name: str
        size: int = 0

    class Extent(structs.NamedTuple):
        name: str
        size: int = 0

    for kind in (File, Extent):
        with pytest.raises(TypeError) as caught:
            kind(*args, **given)  # type: ignore[arg-type]
        assert str(caught.value) == says
    with pytest.raises(TypeError) as caught:
        Extent("a")._replace(start=1, end=2)
    assert str(caught.value) == "got unexpected field names: ['start', 'end']"


def test_a_typed_dict_makes_plain_dicts() -> None:
    class Where(structs.TypedDict, total=False):
        shard: str
        offset: int

    assert type(Where(shard="a")) is dict
    assert Where(shard="a", offset=1) == {"shard": "a", "offset": 1}
    assert Where() == {}


def test_a_class_fits_a_protocol_that_it_names() -> None:
    class Named(structs.Protocol):
        def name(self) -> str: ...

    class File(Named):
        def name(self) -> str:
            return "a"

    assert File().name() == "a"


def test_a_generic_class_is_the_same_for_all_types() -> None:
    class Kept(structs.Generic[T]):
        def __init__(self, value: T) -> None:
            self.value = value

    assert Kept[int](3).value == 3
    assert isinstance(Kept[str]("a"), Kept)


def test_a_field_of_a_subclass_replaces_the_default_of_another_kind() -> None:
    @structs.dataclass
    class Base:
        names: object = structs.field(default_factory=list)
        size: object = 1

    @structs.dataclass
    class Other(Base):
        names: object = "a"
        size: object = structs.field(default_factory=dict)

    assert (Base().names, Base().size) == ([], 1)
    assert (Other().names, Other().size) == ("a", {})


def test_structs_that_are_defined_in_a_function_behave_as_standard_ones() -> None:
    def made(dataclass: Callable[..., Any], field: Callable[..., Any]) -> list[Any]:
        @dataclass
        class Open:
            name: str
            size: int = 3

        @dataclass(frozen=True)
        class Closed:
            name: str
            keys: list[int] = field(default_factory=list)

        @dataclass(frozen=True)
        class More(Closed):
            last: int = 7

        @dataclass(eq=False, repr=False)
        class Plain:
            name: str = "x"

        found: list[Any] = [repr(Open("a")), repr(More("a", [1])), Open("a") == Open("a", 3), Open("a") == Closed("a")]
        found += [
            More("a") == More("a"),
            More("a", last=8) == More("a"),
            Plain() == Plain(),
            Plain.__repr__ is object.__repr__,
        ]
        found += [Closed("a").keys is Closed("a").keys, hash(Plain()) == hash(Plain())]
        for change in (
            lambda: hash(Open("a")),
            lambda: hash(More("a")),
            lambda: setattr(More("a"), "last", 1),
            lambda: delattr(Closed("a"), "name"),
            lambda: Open(),
            lambda: More("a", [], 1, 2),
            lambda: Closed(other=1),
        ):
            try:
                found.append(change())
            except (TypeError, AttributeError) as error:
                found.append((type(error), str(error)))
        one = Open("a")
        one.size = 4
        del one.name
        return [*found, vars(one), *(Open(str(number)).name for number in range(250))]

    ours, theirs = made(structs.dataclass, structs.field), made(dataclasses.dataclass, dataclasses.field)
    calls = slice(14, 17)  # whose messages name the function otherwise
    assert [kind for kind, _ in ours[calls]] == [kind for kind, _ in theirs[calls]] == [TypeError] * 3
    del ours[calls], theirs[calls]
    assert ours == theirs
