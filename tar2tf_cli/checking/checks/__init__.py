"""Checks of one's own: `verify` makes those of each file in this folder besides its own.

A file has one of these functions, or both, which return what is wrong as pairs of a kind, a short name for JSON, and a
message:

    def check_record(data: bytes) -> Iterable[tuple[str, str]]
    def check_sample(sample: dict[str, Any]) -> Iterable[tuple[str, str]]

`check_record` is called with every record of a TFRecord whose CRCs are right; `check_sample` with every sample of a
tar: its `__key__`, and bytes by extension. The kernel then leaves all records to Python, and verifying takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeAlias

from tar2tf_cli.registry import files_in

OwnCheck: TypeAlias = Callable[[Any], Iterable[tuple[str, str]]]


def own_checks(function: str) -> list[OwnCheck]:
    """The functions of this name in all files."""
    modules = [import_module(f"{__name__}.{name}") for name in files_in(__name__)]
    return [_named(getattr(module, function), module.__name__) for module in modules if hasattr(module, function)]


def _named(check: OwnCheck, module: str) -> OwnCheck:
    """The check; an exception of it is a fault that names it."""

    def run(value: Any) -> Iterable[tuple[str, str]]:
        try:
            return [*check(value)]
        except Exception as error:
            return [("check_failed", f"{module.rpartition('.')[2]} failed: {type(error).__name__}: {error}")]

    return run
