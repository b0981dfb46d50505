"""The folders that anyone may add to: each file in them is an op, a preset, a store, a kind of input or a check."""

from __future__ import annotations

import os
from importlib.util import find_spec


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
