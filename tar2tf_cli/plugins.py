"""Plugins, found by name among the modules of some folders of this package and the entry points of other packages.

| entry points | the object | is known as |
|---|---|---|
| `tar2tf.ops` | a subclass of `Op` | `--op NAME:…`, an item of `ops` |
| `tar2tf.presets` | a `Preset` | `--preset NAME` |
| `tar2tf.inputs` | a function `(conversion, endpoint) -> Source` | `--from NAME` |
| `tar2tf.stores` | a subclass of `Store` | `NAME://bucket` |
| `tar2tf.formats` | a `ShardFormat` | `--to NAME`, a suffix, or the content of a file |
| `tar2tf.checks` | a module with `check_record`, `check_sample` or both | every `verify` |

Entry points are looked up only for names that are not built in (checks: in every `verify`), which takes two
milliseconds; the package that declares one is imported when its part is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tar2tf_cli.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tar2tf_cli.api.shard_format import FormatTraits, ShardFormat

PluginGroup: TypeAlias = 'Literal["ops", "presets", "inputs", "stores", "formats", "checks"]'
"""The name of an entry point group after the prefix `tar2tf.`."""

_PACKAGE_FOLDER: Final = os.path.dirname(__file__)


def files_in(folder: str) -> list[str]:
    """Return the names of the modules in a folder of this package, sorted; they are not imported."""
    names = os.listdir(os.path.join(_PACKAGE_FOLDER, folder))
    return sorted(name[:-3] for name in names if name.endswith(".py") and not name.startswith("_"))


def plugin_names(group: PluginGroup) -> list[str]:
    """Return the names of the plugins that other packages declare in a group, sorted."""
    return sorted(_entry_points(group, *sys.path))


def load_plugin(group: PluginGroup, name: str) -> object | None:
    """Load the plugin of another package by its name; None if no package declares it.

    Raises:
        UsageError: when the package cannot be imported, or lacks the declared object.
    """
    entry = _entry_points(group, *sys.path).get(name)
    if entry is None:
        return None
    try:
        loaded: object = entry.load()
    except Exception as error:
        package = entry.dist.name if entry.dist else entry.value
        message = f"{name!r} of the package {package} cannot be used: {type(error).__name__}: {error}"
        raise UsageError(message, hint=f"install another version of {package}, or uninstall it") from None
    return loaded


@cache
def _entry_points(group: PluginGroup, *folders: str) -> dict[str, EntryPoint]:
    if not any(_declarations(folders)):
        return {}
    from importlib.metadata import entry_points  # 30 ms

    return {entry.name: entry for entry in entry_points(group=f"tar2tf.{group}")}


def _declarations(folders: Sequence[str]) -> Iterator[bool]:
    """Yield, for each installed package with entry points, whether it declares plugins of tar2tf."""
    for folder in folders:
        try:
            packages = [entry.path for entry in os.scandir(folder) if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:  # not a folder
            continue
        for path in packages:
            try:
                with open(os.path.join(path, "entry_points.txt"), "rb") as file:
                    yield b"[tar2tf." in file.read()
            except OSError:  # most have none
                continue


def input_kinds() -> list[str]:
    """Return the names of the built-in kinds of input, beginning with tar, the default."""
    return sorted(files_in("inputs/kinds"), key=lambda name: (name == "tar", name), reverse=True)


def preset_names() -> list[str]:
    """Return the names of the built-in presets, sorted."""
    return [name.replace("_", "-") for name in files_in("features/presets")]


DEFAULT_FORMAT: Final = "tfrecord"
"""The shard format of an output unless its path or an option names another."""


@cache
def format_names() -> list[str]:
    """Return the names of the built-in shard formats, beginning with the default."""
    return sorted(files_in("shards"), key=lambda name: name != DEFAULT_FORMAT)


@cache
def find_format(name: str) -> ShardFormat:
    """Return the shard format of a given name.

    Raises:
        UsageError: when no format has this name.
    """
    from tar2tf_cli.api.shard_format import ShardFormat

    found = (
        import_module(f"tar2tf_cli.shards.{name}").FORMAT if name in format_names() else load_plugin("formats", name)
    )
    if not isinstance(found, ShardFormat):
        raise UsageError(f"there is no shard format {name!r}", hint=f"formats: {', '.join(format_names())}")
    return found


def traits_of(format: str | None) -> FormatTraits:
    """Return the traits of a format by its name; `NO_TRAITS` for any other text, or None."""
    from tar2tf_cli.api.shard_format import NO_TRAITS

    known = format in format_names() or format in plugin_names("formats")
    return find_format(format).traits if format and known else NO_TRAITS


@cache
def formats() -> tuple[ShardFormat, ...]:
    """Return the built-in shard formats in the order in which a folder is searched: those of samples first."""
    return tuple(sorted(map(find_format, format_names()), key=lambda one: one.traits.holds != "sample"))


def plugin_formats() -> list[ShardFormat]:
    """Return the shard formats that other packages declare, ordered by name."""
    return [find_format(name) for name in plugin_names("formats")]


def format_of(head: bytes) -> ShardFormat | None:
    """Detect the shard format of a file from its first decompressed bytes, usually even when they are damaged."""
    for known in (formats, plugin_formats):
        choices = known()
        for damaged in (False, True):
            for one in choices:
                if one.recognizes(head, damaged=damaged):
                    return one
    return None
