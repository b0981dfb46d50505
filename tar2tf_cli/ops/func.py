"""Your own function as an op."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops.base import Op, OpContext, register
from tar2tf_cli.ops.rules import JsonSchema
from tar2tf_cli.samples.grouping import KEY, Sample

__all__ = ["Func", "is_identified", "label", "load_object", "source_digest"]


@register
class Func(Op):
    """Call your own Python function.

    It takes a sample (a dict) and returns a sample, None to skip it, or several samples.

    Args:
        func: a callable, or the location of one: `package.module:name` or `path/file.py:name`.
    """

    name: ClassVar[str] = "func"
    usage: ClassVar[str] = "func:MODULE:NAME or func:FILE.py:NAME"
    examples: ClassVar[tuple[str, ...]] = ("func:crop.py:crop", "func:package.module:function")

    def __init__(self, func: Callable[[Sample], Any] | str) -> None:
        self.func: Callable[[Sample], Any] = load_object(func) if isinstance(func, str) else func
        if not callable(self.func):
            raise ValueError(f"{func!r} is not callable")
        self.label = func if isinstance(func, str) else label(func)
        self._where = func if isinstance(func, str) else None
        self._digest = source_digest(self.func, with_globals=self._where is None)

    @property
    def bound(self) -> list[Any]:
        """The function."""
        return [self.func]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function: by its location if that was given, else by cloudpickle, which also supports lambdas."""
        if self._where:
            return Func, (self._where,)
        import cloudpickle

        try:
            return _unpickled, (cloudpickle.dumps(self.func), self.label, self._digest)
        except Exception as error:
            raise UsageError(
                f"the function {self.label} cannot be pickled: {error}",
                hint="use one worker, or a function of a module",
            ) from None

    @classmethod
    def from_value(cls, value: Any) -> Op:
        if not isinstance(value, str):
            raise ValueError(f"takes MODULE:NAME or FILE.py:NAME, not {value!r}")
        return cls(value)

    @classmethod
    def schema(cls) -> JsonSchema:
        return {"type": "string", "pattern": ":"}

    def canonical(self) -> dict[str, Any]:
        return {self.name: self.label, **({"digest": self._digest} if self._digest else {})}

    def apply(self, sample: Sample, context: OpContext) -> Sample | Iterator[Sample] | None:
        key = sample[KEY]
        try:
            result = self.func(sample)
        except Exception as error:
            raise self._failure(f"raised {type(error).__name__}: {error}", key) from error
        if result is None or isinstance(result, dict):
            return self._checked(result, key) if result is not None else None
        if isinstance(result, Iterable) and not isinstance(result, (str, bytes)):
            return self._several(result, key)
        raise self._failure(f"returned {type(result).__name__}; return a sample, None or an iterable of samples", key)

    def _several(self, results: Iterable[Any], key: str) -> Iterator[Sample]:
        try:
            for result in results:
                yield dict(self._checked(result, key))  # a copy, as later ops change it and the function may continue
        except SampleError:
            raise
        except Exception as error:
            raise self._failure(f"raised {type(error).__name__}: {error}", key) from error

    def _checked(self, result: Any, key: str) -> Sample:
        if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
            raise self._failure(f"returned {type(result).__name__} instead of a sample (a dict with text keys)", key)
        if not isinstance(result.setdefault(KEY, key), str):
            raise self._failure(f"returned a sample whose {KEY} is {result[KEY]!r}, not text", key)
        return result

    def _failure(self, what: str, key: str) -> SampleError:
        return SampleError(f"the function {self.label} {what}", key=key)


def _unpickled(data: bytes, name: str, digest: str | None) -> Func:
    import pickle

    op = Func.__new__(Func)
    op.func, op.label, op._where, op._digest = pickle.loads(data), name, None, digest
    return op


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

    It does not for a function without a file, or one bound to an object of which only the type is known. Imported
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


def load_object(where: str) -> Any:
    """Import the object at `package.module:name` or `path/file.py:name`.

    Raises:
        ValueError: when it cannot be found or imported; says why.
    """
    place, colon, name = where.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"{where!r} is not MODULE:NAME or FILE.py:NAME")
    try:
        module = _load_file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise ValueError(f"{place} cannot be imported: {type(error).__name__}: {error}") from None
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{place} has no {name!r}")
        found = getattr(found, part)
    return found


def _load_file(path: str) -> Any:
    """Import a file as a module, under a name by which pickled objects can find it."""
    from importlib.util import module_from_spec, spec_from_file_location

    resolved = os.path.realpath(path, strict=True)
    name = f"tar2tf_user_{blake2b(resolved.encode(), digest_size=8).hexdigest()}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, resolved)
        if spec is None or spec.loader is None:
            raise ImportError("not a Python file")
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
