"""Ops on samples and selections of their entries, with one registry for flags, spec files and Python.

Most commands use no ops, so the files of this folder are imported only when a name of this module is first used. An op
in a new file of this folder becomes available to flags, spec files and Python.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tar2tf_cli.plugins import files_in

if TYPE_CHECKING:
    from tar2tf_cli.api.op import OpContext
    from tar2tf_cli.ops.base import OPS, all_ops, find_op, parse_op, register
    from tar2tf_cli.ops.base import DeclaredOp as Op
    from tar2tf_cli.ops.crop import CenterCrop, Crop
    from tar2tf_cli.ops.decode import Decode, Encode, Orient
    from tar2tf_cli.ops.dtype import Cast, Convert
    from tar2tf_cli.ops.fields import DropEmpty, Filter, Keep, Rename
    from tar2tf_cli.ops.func import Func
    from tar2tf_cli.ops.resize import Pad, Resize
    from tar2tf_cli.ops.rotate import Rotate
    from tar2tf_cli.ops.select import Select, SelectDict, Selection, SelectJSON, SelectList

__all__ = ["OPS", "Op", "OpContext", "all_ops", "find_op", "parse_op", "register"]
__all__ += ["Cast", "CenterCrop", "Convert", "Crop", "Decode", "Encode", "Orient", "Pad", "Resize", "Rotate"]
__all__ += ["DropEmpty", "Filter", "Func", "Keep", "Rename"]
__all__ += ["Select", "SelectDict", "SelectJSON", "SelectList", "Selection"]

_FIRST: Final = ("base", "image", "decode", "dtype", "resize", "crop", "rotate", "fields", "func", "select")
"""The modules whose ops are listed first, in this order."""

_NAMED: Final = {"Op": "DeclaredOp"}
"""Public names of classes that have another name in their modules."""


@cache
def _imported() -> list[ModuleType]:
    """Import all modules of this folder, and list their ops in the order of the modules, not of imports."""
    names = dict.fromkeys((*_FIRST, *files_in("ops")))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    ops = modules[0].OPS
    by_file = [(name, op) for module in modules for name, op in ops.items() if op.__module__ == module.__name__]
    ordered = {**dict(by_file), **ops}
    ops.clear()
    ops.update(ordered)
    return modules


def __getattr__(name: str) -> object:
    """Look up a name of `__all__`, or an op's class in any module; also called by `from tar2tf_cli.ops import …`."""
    if name in __all__ or name[0].isupper():
        modules = _imported()
        if name in __all__:
            inner = _NAMED.get(name, name)
            return next(getattr(module, inner) for module in modules if hasattr(module, inner))
        if op := next((op for op in modules[0].OPS.values() if op.__name__ == name), None):
            return op
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__, *(op.__name__ for op in _imported()[0].OPS.values())]
