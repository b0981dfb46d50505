"""The folders that anyone may add to: each file is an op, a preset, a store, a shard format, an input kind, a check."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from tar2tf_cli.api.shard_format import ShardFormat


def files_in(package: str) -> list[str]:
    """Names of the modules in a package, sorted; neither it nor they are imported.

    A folder that a program appends to the package's `__path__` counts, too.
    """
    spec = find_spec(package)
    names = {name for path in (spec and spec.submodule_search_locations) or () for name in os.listdir(path)}
    return sorted(name[:-3] for name in names if name.endswith(".py") and not name.startswith("_"))


def input_kinds() -> list[str]:
    """Names of the kinds of input, beginning with tar, the default."""
    return sorted(files_in("tar2tf_cli.inputs.kinds"), key=lambda name: (name == "tar", name), reverse=True)


def preset_names() -> list[str]:
    """Names of the presets, sorted."""
    return [name.replace("_", "-") for name in files_in("tar2tf_cli.features.presets")]


DEFAULT_FORMAT: Final = "tfrecord"
"""The format of an output whose path and options name no other."""


def format_names() -> list[str]:
    """Names of the shard formats, beginning with the default."""
    return sorted(files_in("tar2tf_cli.shards"), key=lambda name: name != DEFAULT_FORMAT)


@cache
def find_format(name: str) -> ShardFormat:
    """Return the shard format with a name.

    Raises:
        ModuleNotFoundError: when there is none.
    """
    found: ShardFormat = import_module(f"tar2tf_cli.shards.{name}").FORMAT
    return found


def formats() -> list[ShardFormat]:
    """All shard formats, in the order of their names."""
    return [find_format(name) for name in sorted(format_names())]


def format_of(head: bytes) -> ShardFormat | None:
    """Detect the shard format of a file from its first decompressed bytes, usually even when they are damaged."""
    known = formats()
    found = (one for damaged in (False, True) for one in known if one.recognizes(head, damaged=damaged))
    return next(found, None)
