"""Ops on samples and selections of their entries: the registry that flags, spec files and Python share.

They are imported when one of their names is first used, as most commands use none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tar2tf_cli.ops.base import OPS, Op, OpContext, parse_op
    from tar2tf_cli.ops.fields import DropEmpty, Keep, Rename
    from tar2tf_cli.ops.func import Func
    from tar2tf_cli.ops.image import Cast, CenterCrop, Convert, Decode, Encode, Resize, Rotate
    from tar2tf_cli.ops.select import Select, SelectDict, Selection, SelectJSON, SelectList

__all__ = ["OPS", "Op", "OpContext", "parse_op"]
__all__ += ["Cast", "CenterCrop", "Convert", "Decode", "Encode", "Resize", "Rotate"]
__all__ += ["DropEmpty", "Func", "Keep", "Rename"]
__all__ += ["Select", "SelectDict", "SelectJSON", "SelectList", "Selection"]

_MODULES: Final = ("base", "image", "fields", "func", "select")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = [import_module(f"{__name__}.{module}") for module in _MODULES]
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return [*globals(), *__all__]
