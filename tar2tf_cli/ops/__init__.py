"""Ops on samples and selections of their entries: the registry that flags, spec files and Python share."""

from __future__ import annotations

from tar2tf_cli.ops.base import OPS, Op, OpContext, parse_op
from tar2tf_cli.ops.image import Cast, CenterCrop, Convert, Decode, Encode, Resize, Rotate  # isort: split

from tar2tf_cli.ops.fields import DropEmpty, Keep, Rename
from tar2tf_cli.ops.func import Func
from tar2tf_cli.ops.select import Select, SelectDict, Selection, SelectJSON, SelectList

__all__ = [
    "OPS",
    "Cast",
    "CenterCrop",
    "Convert",
    "Decode",
    "DropEmpty",
    "Encode",
    "Func",
    "Keep",
    "Op",
    "OpContext",
    "Rename",
    "Resize",
    "Rotate",
    "Select",
    "SelectDict",
    "SelectJSON",
    "SelectList",
    "Selection",
    "parse_op",
]
