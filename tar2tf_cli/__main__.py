"""The command `tar2tf`, which is also `python -m tar2tf_cli`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn


NEW_OBJECTS: Final = 50_000
"""How many more containers than before make the garbage collector look for cycles: more than a short command makes."""


def main() -> NoReturn:
    """Run the command line; Ctrl-C while it is imported, or while an earlier one is reported, ends it at once."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's, unused here: without room for more it ends a process
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # pyarrow's own keeps twice what it reads
    gc.set_threshold(NEW_OBJECTS)
    codes: list[object] = []
    atexit.register(_end, codes)  # the first, so that it is called last
    try:
        _import_click()
        from tar2tf_cli.cli import main

        main()
    except SystemExit as end:
        codes.append(end.code)
        raise
    except KeyboardInterrupt:
        exec("")  # or CPython remembers one that came while it ran a string, and ends by the signal instead
        sys.exit(130)


class _ImportedOnUse(ModuleType):
    """A stand-in for a module that is not imported until one of its functions or classes is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        in_place = sys.modules.get(self.__name__) is self
        return _FoundOnUse(self, name) if in_place else getattr(self._imported(), name)

    def _imported(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return import_module(self.__name__)


class _FoundOnUse:
    """A stand-in for a function or class, whose module is imported when it is called or asked for an attribute."""

    def __init__(self, module: _ImportedOnUse, name: str) -> None:
        self._module, self._name = module, name

    def _found(self) -> Any:
        return getattr(self._module._imported(), self._name)

    def __call__(self, *args: object, **given: object) -> Any:
        return self._found()(*args, **given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._found(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._found())


_SELDOM_USED: Final = ("datetime", "gettext", "inspect", "uuid")
"""Modules that click imports, but uses only for help, messages, and types of options that tar2tf does not have."""


def _import_click() -> None:
    """Import click without modules that it seldom uses, which are a quarter of a short command."""
    stand_ins = {name: _ImportedOnUse(name) for name in _SELDOM_USED if name not in sys.modules}
    sys.modules |= stand_ins
    import click  # noqa: F401

    for name, stand_in in stand_ins.items():
        if sys.modules[name] is stand_in:
            del sys.modules[name]


def _end(codes: list[object]) -> None:
    """End the process without destroying each object, unless one may be a file that a user's function left open."""
    own_code = getattr(sys.modules.get("tar2tf_cli.ops.func"), "loaded", ())
    if own_code or not codes or not isinstance(codes[0], int):
        return
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return  # the interpreter tries again, and reports it
    os._exit(codes[0])


if __name__ == "__main__":
    main()
