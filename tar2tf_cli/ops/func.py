"""Your own function as an op."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from types import CodeType
from typing import Any, ClassVar, Final

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops.base import Op, OpContext, register
from tar2tf_cli.samples import KEY, Sample

__all__ = ["Func", "label", "load_object", "source_digest"]


@register
class Func(Op):
    """Call your function: it takes a sample (a dict) and returns a sample, None to drop it, or several samples.

    Args:
        func: a callable, or where to find one: `package.module:name` or `path/file.py:name`.
    """

    name: ClassVar[str] = "func"
    usage: ClassVar[str] = "func:MODULE:NAME or func:FILE.py:NAME"

    def __init__(self, func: Callable[[Sample], Any] | str) -> None:
        self.func: Callable[[Sample], Any] = load_object(func) if isinstance(func, str) else func
        if not callable(self.func):
            raise ValueError(f"{func!r} is not callable")
        self.label = func if isinstance(func, str) else label(func)
        self._where = func if isinstance(func, str) else None
        self._digest = source_digest(self.func)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the function: by where it is if that was given, else by cloudpickle, which takes lambdas too."""
        if self._where:
            return {"where": self._where}
        import cloudpickle

        try:
            return {"pickled": cloudpickle.dumps(self.func), "label": self.label, "digest": self._digest}
        except Exception as error:
            raise UsageError(
                f"the function {self.label} cannot be pickled: {error}",
                hint="use one worker, or a function of a module",
            ) from None

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "where" in state:
            self.__init__(state["where"])  # type: ignore[misc]
        else:
            import pickle

            self._where = None
            self.func, self.label, self._digest = pickle.loads(state["pickled"]), state["label"], state["digest"]

    @classmethod
    def parse(cls, text: str) -> Op:
        return cls(text)

    @classmethod
    def from_value(cls, value: Any) -> Op:
        if not isinstance(value, str):
            raise ValueError(f"takes MODULE:NAME or FILE.py:NAME, not {value!r}")
        return cls(value)

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
        raise self._failure(
            f"returned {type(result).__name__}; a sample, None or an iterable of samples is needed", key
        )

    def _several(self, results: Iterable[Any], key: str) -> Iterator[Sample]:
        try:
            for result in results:
                yield dict(self._checked(result, key))  # its own, as later ops change it and the function may go on
        except SampleError:
            raise
        except Exception as error:
            raise self._failure(f"raised {type(error).__name__}: {error}", key) from error

    def _checked(self, result: Any, key: str) -> Sample:
        if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
            raise self._failure(f"gave {type(result).__name__} where a sample (a dict with text keys) is needed", key)
        if not isinstance(result.setdefault(KEY, key), str):
            raise self._failure(f"gave a sample whose {KEY} is {result[KEY]!r} instead of a text", key)
        return result

    def _failure(self, what: str, key: str) -> SampleError:
        return SampleError(f"the function {self.label} {what}", key=key)


def label(func: Any) -> str:
    """What to call a function: `module:name`."""
    if isinstance(func, partial):
        return label(func.func)
    return f"{getattr(func, '__module__', '?')}:{getattr(func, '__qualname__', type(func).__name__)}"


def source_digest(func: Any) -> str | None:
    """What tells that the code behind a function changed: a hash of the file it stands in, and of what it is bound to.

    A lambda or inner function is told from others by its line, one without a file (in a notebook) by its code.
    """
    inner = func.func if isinstance(func, partial) else func
    code = getattr(inner, "__code__", None)
    path = getattr(sys.modules.get(getattr(inner, "__module__", "")), "__file__", None)
    if path and path.endswith(".py"):
        with open(path, "rb") as file:
            digest = blake2b(file.read(), digest_size=8)
        bound = [code.co_firstlineno] if code and "<" in inner.__qualname__ else []
    elif code:
        digest, bound = blake2b(_code_text(code).encode(), digest_size=8), []
    else:
        return None
    if isinstance(func, partial):
        bound += [*func.args, *(item for pair in sorted(func.keywords.items()) for item in pair)]
    bound += [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    if bound:
        digest.update(repr([item if isinstance(item, _PLAIN) else type(item).__name__ for item in bound]).encode())
    return digest.hexdigest()


_PLAIN: Final = (str, bytes, int, float, type(None))


def _code_text(code: CodeType) -> str:
    """Code and constants, the same for the same source."""
    constants = [_code_text(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def load_object(where: str) -> Any:
    """The object that `package.module:name` or `path/file.py:name` names.

    Raises:
        ValueError: saying what could not be found or imported.
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
    """The module in a file, under a name by which pickled objects find it again."""
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
