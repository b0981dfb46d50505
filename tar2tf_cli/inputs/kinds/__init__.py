"""Kinds of input, one file each, named as in `--from`: `open_input(conversion, endpoint)` returns its `Source`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, cast

from tar2tf_cli.plugins import input_kinds, load_plugin

if TYPE_CHECKING:
    from tar2tf_cli.api.source import Source
    from tar2tf_cli.spec.conversion import Conversion

    OpenInput: TypeAlias = Callable[[Conversion, "str | None"], Source]


def open_kind(conversion: Conversion, endpoint: str | None) -> Source:
    """Open the inputs of a conversion by their kind, which is built in or from another package."""
    kind = conversion.input.kind
    opens = import_module(f"{__name__}.{kind}").open_input if kind in input_kinds() else load_plugin("inputs", kind)
    return cast("OpenInput", opens)(conversion, endpoint)
