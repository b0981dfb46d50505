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
    from typing import Final, NoReturn


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
    """A module that is not imported until one of its attributes is used."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def _import_click() -> None:
    """Import click without `inspect`, which it only needs to format help, and which is a tenth of a short command."""
    stands_in = _ImportedOnUse("inspect")
    sys.modules.setdefault("inspect", stands_in)
    import click  # noqa: F401

    if sys.modules["inspect"] is stands_in:
        del sys.modules["inspect"]


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
