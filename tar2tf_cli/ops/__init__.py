"""Ops on samples and selections of their entries, with one registry for flags, spec files and Python.

The files of this folder are imported when they are first used: that of an op with its name, all with the list of ops.
An op in a new file of this folder becomes available to flags, spec files and Python.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

_OF_ONE_OP: Final = ("Op", "OpContext", "find_op", "parse_op", "register")
"""Names that do not need the list of all ops."""

_NAMED: Final = {"Op": "DeclaredOp"}
"""Public names of classes that have another name in their modules."""


def __getattr__(name: str) -> object:
    """Look up a name of `__all__`, or an op's class in any module; also called by `from tar2tf_cli.ops import …`."""
    base: Any = import_module(f"{__name__}.base")
    if name in _OF_ONE_OP:
        return getattr(base, _NAMED.get(name, name))
    if name in __all__ or name[0].isupper():
        modules = base.import_ops()
        if name in __all__:
            return next(getattr(module, name) for module in modules if hasattr(module, name))
        if op := next((op for op in base.OPS.values() if op.__name__ == name), None):
            return op
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    base: Any = import_module(f"{__name__}.base")
    base.import_ops()
    return [*globals(), *__all__, *(op.__name__ for op in base.OPS.values())]
