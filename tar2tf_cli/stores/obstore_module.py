"""obstore for this process: its runtime does not survive a fork, so a forked process loads a copy of its own."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any, Final

__all__ = ["obstore_store"]

_modules: Final[dict[int, Any]] = {}  # by process
_library: Final[list[str]] = []  # the path of the compiled module as installed


def obstore_store() -> Any:
    """Return the module `obstore.store`, safe to use in this process; called by one thread at a time.

    A tokio runtime that was started before a fork hangs in the forked process
    (https://github.com/tokio-rs/tokio/issues/4301), and each loaded copy of obstore's library has its own.
    """
    if os.getpid() not in _modules:
        if _modules:
            _load_a_copy()
        _modules[os.getpid()] = importlib.import_module("obstore.store")
        _library[:] = _library or [str(sys.modules["obstore._obstore"].__file__)]
    return _modules[os.getpid()]


def _load_a_copy() -> None:
    """Load the library from a copy of its file, as the dynamic linker would return the one already loaded."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    with tempfile.TemporaryDirectory() as folder:
        loader = ExtensionFileLoader("obstore._obstore", shutil.copy(_library[0], folder))
        sys.modules[loader.name] = module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
        loader.exec_module(module)
