"""Functions of the user: call them, name them, and compute digests that change with their code."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Final, TypeVar

from tar2tf_cli.errors import RAISED, failure
from tar2tf_cli.formats.checksums import blake2b

T = TypeVar("T")

SOURCE: Final = "__tar2tf_source__"
"""The global variable of a user's module with the bytes of its file."""


def called(func: Callable[..., T], *values: object) -> T:
    """Call a user's function.

    Raises:
        SampleError: names the function, and the exception that it raised.
        Tar2tfError: when the sample is not at fault: see `failure`.
    """
    try:
        return func(*values)
    except RAISED as error:
        raise failure(f"the function {label(func)} raised", error) from error


def label(func: object) -> str:
    """Return the name of a function: `module:name`."""
    if isinstance(func, partial):
        return label(func.func)
    return f"{getattr(func, '__module__', '?')}:{getattr(func, '__qualname__', type(func).__name__)}"


def source_digest(func: object, *, with_globals: bool = True) -> str | None:
    """Hash a function's source file and bound values, so that the hash changes when its code does.

    The line number of a lambda or inner function is included. For a function without a file (in a notebook), its code
    is hashed.

    Args:
        func: the function.
        with_globals: whether to include globals, which a program may have set. A file that is loaded only for its
            function determines its globals.
    """
    from pathlib import Path

    inner = func.func if isinstance(func, partial) else func
    code, path = getattr(inner, "__code__", None), _file_of(inner)
    if path:
        try:
            source = Path(path).read_bytes()
        except FileNotFoundError:  # the file is on another machine
            source = vars(sys.modules[inner.__module__])[SOURCE]
    elif code:
        source = _code_text(code).encode()
    else:
        return None
    digest = blake2b(source, digest_size=8)
    line = [code.co_firstlineno] if path and code and "<" in getattr(inner, "__qualname__", "") else []
    if bound := line + _bound(func, with_globals=with_globals):
        home = getattr(inner, "__module__", None)
        texts = [_identity(item, home) or type(item).__name__ for item in bound]
        digest.update(repr(texts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def is_identified(value: object) -> bool:
    """Whether a value's text, or a function's name and `source_digest`, identifies it uniquely.

    A function without a file, or bound to an object of which only the type is known, is not identified. Imported
    modules are ignored.
    """
    if not isinstance(value, (FunctionType, partial)):
        return _identity(value, None) is not None
    inner = value.func if isinstance(value, partial) else value
    return _file_of(inner) is not None and _identity(value, inner.__module__) is not None


def _file_of(func: object) -> str | None:
    path = getattr(sys.modules.get(getattr(func, "__module__", "")), "__file__", None)
    return path if path and path.endswith(".py") else None


def _bound(func: object, *, with_globals: bool = True) -> list[object]:
    """Return the values a function depends on: arguments of a partial, defaults, closure variables, globals."""
    bound: list[object] = []
    if isinstance(func, partial):
        bound += [*func.args, *(item for pair in sorted(func.keywords.items()) for item in pair)]
        func = func.func
    for cell in getattr(func, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # the variable is not set yet
            bound.append(cell.cell_contents)
    if isinstance(func, FunctionType):
        bound += [*(func.__defaults__ or ()), *(func.__kwdefaults__ or {}).values()]
        names = sorted(_names(func.__code__)) if with_globals else []
        bound += [func.__globals__[name] for name in names if name in func.__globals__]
    return bound


def _names(code: CodeType) -> set[str]:
    inner = [_names(item) for item in code.co_consts if isinstance(item, CodeType)]
    return set(code.co_names).union(*inner)


def _identity(value: object, home: str | None, above: tuple[object, ...] = ()) -> str | None:
    """Return a text that identifies a value uniquely; None if there is none.

    Args:
        value: the value.
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
    """Return code and constants as text; equal sources give equal texts."""
    constants = [_code_text(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
