"""Your own function as an op."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from tar2tf_cli.errors import SampleError, UsageError
from tar2tf_cli.ops.base import Op, OpContext, register
from tar2tf_cli.samples import KEY, Sample

__all__ = ["Func", "label", "load_object"]


@register
class Func(Op):
    """Call your function: it takes a sample (a dict) and returns a sample, None to drop it, or several samples.

    Args:
        func: a callable, or where to find one: `package.module:name` or `path/file.py:name`.
    """

    name: ClassVar[str] = "func"
    usage: ClassVar[str] = "func:MODULE:NAME or func:FILE.py:NAME"

    def __init__(self, func: Callable[[Sample], Any] | str, ext_name: str | None = None) -> None:
        self.func: Callable[[Sample], Any] = load_object(func) if isinstance(func, str) else func
        if not callable(self.func):
            raise ValueError(f"{func!r} is not callable")
        self.label = func if isinstance(func, str) else label(func)
        self._where = func if isinstance(func, str) else None
        self._digest = _source_digest(self.func)

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
                yield self._checked(result, key)
        except SampleError:
            raise
        except Exception as error:
            raise self._failure(f"raised {type(error).__name__}: {error}", key) from error

    def _checked(self, result: Any, key: str) -> Sample:
        if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
            raise self._failure(f"gave {type(result).__name__} where a sample (a dict with text keys) is needed", key)
        result.setdefault(KEY, key)
        return result

    def _failure(self, what: str, key: str) -> SampleError:
        return SampleError(f"the function {self.label} {what}", key=key)


def label(func: Any) -> str:
    """What to call a function: `module:name`."""
    return f"{getattr(func, '__module__', '?')}:{getattr(func, '__qualname__', type(func).__name__)}"


def _source_digest(func: Any) -> str | None:
    """What tells that the code behind a function changed: a hash of the file it stands in."""
    path = getattr(sys.modules.get(getattr(func, "__module__", "")), "__file__", None)
    if not path or not path.endswith(".py"):
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


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
    resolved = Path(path).resolve(strict=True)
    name = f"tar2tf_user_{resolved.stem}_{abs(hash(str(resolved))):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, resolved)
        if spec is None or spec.loader is None:
            raise ImportError("not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
