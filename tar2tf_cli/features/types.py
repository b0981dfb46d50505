"""The types that a feature can be given, as `--type` and a spec file name them."""

from __future__ import annotations

from typing import Final, Literal, get_args

__all__ = ["TYPES", "TypeName"]

TypeName = Literal["int64", "int64_list", "float", "float_list", "bytes", "bytes_list"]
TYPES: Final[tuple[str, ...]] = get_args(TypeName)
