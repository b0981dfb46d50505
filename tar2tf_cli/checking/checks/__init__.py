"""Custom checks, declared by other packages, that `verify` runs in addition to its own.

A module has one of these functions, or both. They return faults as pairs of a kind, a short name for JSON, and a
message:

    def check_record(data: bytes) -> Iterable[tuple[str, str]]
    def check_sample(sample: dict[str, Any]) -> Iterable[tuple[str, str]]

`check_record` is called with every record of a TFRecord whose CRCs are right; `check_sample` with every sample of a
tar: its `__key__`, and bytes by extension. The kernel then leaves all records to Python, and verifying takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tar2tf_cli.plugins import load_plugin, plugin_names

CustomCheck: TypeAlias = Callable[[Any], Iterable[tuple[str, str]]]


def custom_checks(function: str) -> list[CustomCheck]:
    """Return the custom check functions of one name in all declared modules."""
    modules = {name: load_plugin("checks", name) for name in plugin_names("checks")}
    return [_named(getattr(module, function), name) for name, module in modules.items() if hasattr(module, function)]


def _named(check: CustomCheck, name: str) -> CustomCheck:
    """Wrap a check so that its exceptions become faults with the name of the check."""

    def run(value: object) -> Iterable[tuple[str, str]]:
        try:
            return [*check(value)]
        except Exception as error:
            return [("check_failed", f"{name} failed: {type(error).__name__}: {error}")]

    return run
