"""obstore for this process: its runtime does not survive a fork, so a forked process loads a copy of its own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any, Final

from tar2tf_cli.errors import UsageError

__all__ = ["obstore_store"]

_modules: Final[dict[int, Any]] = {}  # by process
_library: Final[list[str]] = []  # the path of the compiled module as installed
_memory: Final[list[int]] = []  # descriptor of the file in memory for the copy that the forked processes share


def obstore_store() -> Any:
    """Return the module `obstore.store`, safe to use in this process; called by one thread at a time.

    A tokio runtime that was started before a fork hangs in the forked process
    (https://github.com/tokio-rs/tokio/issues/4301), and each loaded copy of obstore's library has its own.

    Raises:
        UsageError: when a forked process cannot load a copy.
    """
    if os.getpid() not in _modules:
        if _modules:
            _load_a_copy()
        _modules[os.getpid()] = importlib.import_module("obstore.store")
        _library[:] = _library or [str(sys.modules["obstore._obstore"].__file__)]
        with suppress(AttributeError, OSError):  # neither every system nor every sandbox has them
            _memory[:] = [os.memfd_create("obstore")]
    return _modules[os.getpid()]


def _load_a_copy() -> None:
    """Load the library from a copy of its file, as the dynamic linker would return the one already loaded."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    with suppress(ImportError, OSError, IndexError):
        return _load(_copy_in_memory)
    try:
        return _load(_copy_on_disk)
    except (ImportError, OSError) as error:
        hint = "set TMPDIR to a folder that has 16 MB of space and is not mounted with noexec"
        raise UsageError(f"obstore cannot be loaded in a worker process: {error}", hint=hint) from None


def _load(copy: Callable[[], AbstractContextManager[str]]) -> None:
    with copy() as path:
        loader = ExtensionFileLoader("obstore._obstore", path)
        module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
        loader.exec_module(module)
    sys.modules[loader.name] = module


@contextmanager
def _copy_in_memory() -> Iterator[str]:
    """The path of the copy that the first of the forked processes makes for all of them."""
    import fcntl
    import shutil

    descriptor = _memory.pop()
    path = f"/proc/{os.getpid()}/fd/{descriptor}"  # new in each process, or the linker would take the one it knows
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_size != os.stat(_library[0]).st_size:
            shutil.copyfile(_library[0], path)  # which ends the lock
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def _copy_on_disk() -> Iterator[str]:
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copy(_library[0], folder)
