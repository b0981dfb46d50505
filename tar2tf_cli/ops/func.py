"""The op func, which calls a function of the user, and the import of such functions."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from tar2tf_cli.api.op import JsonSchema, JsonValue, OpContext
from tar2tf_cli.api.values import KEY, Sample
from tar2tf_cli.errors import RAISED, SampleError, Tar2tfError, UsageError, failure
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.ops.base import DeclaredOp, register
from tar2tf_cli.ops.rules import split_at_commas
from tar2tf_cli.ops.user_code import SOURCE, label, source_digest
from tar2tf_cli.samples.keys import is_utf8


@register
class Func(DeclaredOp):
    """Call your own Python function.

    The function takes a sample (a dict). It returns a sample, several samples, or None to skip the sample.

    It may take more arguments by name: `func:crop.py:crop,size=3` calls crop(sample, size=3). A value is JSON, or else
    text. In YAML, write {func: crop.py:crop, args: {size: 3}}.

    Args:
        func: a callable, or the location of one: `package.module:name` or `path/file.py:name`.
        ext_name: has no effect; accepted because the AIS tar2tf client accepts it.
        args: further arguments for the function, by name.

    >>> tag = Func(lambda sample: {**sample, "split": "train"})
    >>> tag.apply({"__key__": "a"}, OpContext())["split"]
    'train'
    """

    name = "func"
    usage = "func:MODULE:NAME[,ARG=VALUE...] or func:FILE.py:NAME[,ARG=VALUE...]"
    examples = ("func:crop.py:crop", "func:crop.py:crop,size=3", "func:package.module:function")
    gives_names = True

    def __init__(
        self,
        func: Callable[..., object] | str,
        ext_name: str | None = None,
        args: Mapping[str, JsonValue] | None = None,
    ) -> None:
        self.func: Callable[..., Any] = load_object(func) if isinstance(func, str) else func
        self.args = {str(name): value for name, value in (args or {}).items()}
        if odd := [name for name in self.args if not name.isidentifier()]:
            raise ValueError(f"takes arguments by name, and {odd[0]!r} is none")
        if not callable(self.func):
            raise ValueError(f"{func!r} is not callable")
        self.label: str = func if isinstance(func, str) else label(func)
        self._where = func if isinstance(func, str) else None
        self._digest = source_digest(self.func, with_globals=self._where is None)

    @property
    def file(self) -> tuple[str, bytes] | None:
        """The path of the function's file, as the user wrote it, and its source; None without a file."""
        place = _place(self._where or "")
        return (place, _source(place).source) if place.endswith(".py") else None

    @property
    def bound(self) -> list[object]:
        """Return the function."""
        return [self.func]

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle: the function's location if given, otherwise the function itself, even a lambda.

        The state includes the source of a file, which other machines may not have.
        """
        if self._where:
            place = _place(self._where)
            return {**vars(self), "func": _source(place) if place.endswith(".py") else None}
        import cloudpickle

        try:
            return {**vars(self), "func": cloudpickle.dumps(self.func)}
        except Exception as error:
            raise UsageError(
                f"the function {self.label} cannot be pickled: {error}",
                hint="use one worker, or define the function in a module",
            ) from None

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._where and state["func"]:
            _received[_place(self._where)] = state["func"]
        self.func = load_object(self._where) if self._where else pickle.loads(state["func"])

    @classmethod
    def from_value(cls, value: JsonValue) -> Func:
        where, args = (value.get("func"), value.get("args")) if isinstance(value, dict) else (value, None)
        if not isinstance(where, str) or not (args is None or isinstance(args, dict)):
            raise ValueError(f"takes MODULE:NAME or FILE.py:NAME, and perhaps args by name, not {value!r}")
        where, *written = split_at_commas(where) or [where]
        return cls(where, args={**_arguments(written), **(args or {})})

    @classmethod
    def schema(cls) -> JsonSchema:
        return {"type": "string", "pattern": ":"}

    def canonical(self) -> dict[str, JsonValue]:
        more: dict[str, JsonValue] = {"args": self.args} if self.args else {}
        return {self.name: self.label, **more, **({"digest": self._digest} if self._digest else {})}

    def apply(self, sample: Sample, context: OpContext) -> Sample | Iterator[Sample] | None:
        key = sample[KEY]
        try:
            result = self.func(sample, **self.args)
        except RAISED as error:
            raise self._raised(error, key) from error
        if result is None:
            return None
        if isinstance(result, dict):
            return self._checked(result, key)
        if isinstance(result, Iterable) and not isinstance(result, (str, bytes)):
            return self._several(result, key)
        raise self._failure(f"returned {type(result).__name__}; return a sample, None or an iterable of samples", key)

    def _several(self, results: Iterable[object], key: str) -> Iterator[Sample]:
        try:
            for result in results:
                yield dict(self._checked(result, key))  # a copy, as later ops change it and the function may continue
        except RAISED as error:
            raise self._raised(error, key) from error

    def _checked(self, result: object, key: str) -> Sample:
        if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
            raise self._failure(f"returned {type(result).__name__} instead of a sample (a dict with text keys)", key)
        if not isinstance(result.setdefault(KEY, key), str):
            raise self._failure(f"returned a sample whose {KEY} is {result[KEY]!r}, not text", key)
        if not is_utf8(result):
            raise self._failure("returned a sample whose key, or the name of an entry, is not UTF-8", key)
        return result

    def _raised(self, error: BaseException, key: str) -> Tar2tfError:
        return failure(f"the function {self.label} raised", error).at(key=key)

    def _failure(self, what: str, key: str) -> SampleError:
        return SampleError(f"the function {self.label} {what}", key=key)


def _arguments(written: Iterable[str]) -> dict[str, JsonValue]:
    """Parse `NAME=VALUE`, where VALUE may be JSON."""
    parsed: dict[str, JsonValue] = {}
    for item in written:
        name, equals, text = item.partition("=")
        if not equals:
            raise ValueError(f"takes arguments as NAME=VALUE, not {item!r}")
        try:
            parsed[name] = json.loads(text)
        except (ValueError, RecursionError):
            parsed[name] = text
    return parsed


loaded: set[str] = set()
"""Modules and files of the user that this process imported."""

_ask: Callable[[str], None] | None = None


@contextmanager
def asking(ask: Callable[[str], None]) -> Iterator[None]:
    """Inside the `with` block, call a function with the location of each object before it is imported.

    The block reads a document that may be someone else's, such as a manifest; the function may raise an error.
    """
    global _ask
    before, _ask = _ask, ask
    try:
        yield
    finally:
        _ask = before


def load_object(where: str) -> Any:
    """Import the object at `package.module:name` or `path/file.py:name`.

    Raises:
        ValueError: when there is no such file, module or object.
        UsageError: when importing it fails; gives the reason.
    """
    place, colon, name = where.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"{where!r} is not MODULE:NAME or FILE.py:NAME")
    if _ask:
        _ask(where)
    loaded.add(place)
    try:
        module = _load_file(place) if place.endswith(".py") else importlib.import_module(place)
    except RAISED as error:
        raise _not_imported(place, error) from None
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            raise ValueError(f"{place} has no {name!r}")
        thing = getattr(thing, part)
    return thing


def _not_imported(place: str, error: BaseException) -> Exception:
    what = f"{place} cannot be imported: {type(error).__name__}: {error}"
    lacks = error.name or "" if isinstance(error, ModuleNotFoundError) else None
    if isinstance(error, FileNotFoundError) or (lacks and f"{place}.".startswith(f"{lacks}.")):
        return ValueError(what)
    if lacks:
        return UsageError(what, hint=f"install it, or add the folder that has {lacks}.py to PYTHONPATH")
    if isinstance(error, SystemExit):
        return UsageError(what, hint="move its main program below if __name__ == '__main__':")
    shown = f"python {place}" if place.endswith(".py") else f"python -m {place}"
    return UsageError(what, hint=f"correct it; {shown} shows where it fails")


class UserSource(NamedTuple):
    """The source of a user's file, with its real path."""

    path: str
    source: bytes


_received: dict[str, UserSource] = {}
"""Sources sent to this process by other machines, by the path that the user wrote."""


def receive_source(path: str, source: bytes) -> None:
    """Register the source of a file on another machine, under the path that the user wrote there."""
    _received[path] = UserSource(path, source)


def _place(where: str) -> str:
    return where.rpartition(":")[0]


def _source(path: str) -> UserSource:
    if path in _received:
        return _received[path]
    resolved = os.path.realpath(path, strict=True)
    with open(resolved, "rb") as file:
        return UserSource(resolved, file.read())


def _load_file(path: str) -> ModuleType:
    """Import a file as a module, under a name by which pickled objects are found."""
    resolved, source = _source(path)
    name = f"tar2tf_user_{blake2b(os.fsencode(resolved), digest_size=8).hexdigest()}"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = resolved
        vars(module)[SOURCE] = source
        try:
            exec(compile(source, resolved, "exec"), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
