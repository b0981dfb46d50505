"""Where else tasks run: on the nodes of a Ray cluster, or in an AIStore cluster beside the shards that it holds."""

from __future__ import annotations

from typing import Final

from tar2tf_cli.engines import Here, Place
from tar2tf_cli.errors import UsageError

_ENGINES: Final = ("local", "ray")


def place_of(engine: str, address: str | None = None) -> Place:
    """Return where an engine runs its tasks.

    Args:
        engine: `local` or `ray`.
        address: address of the Ray cluster.

    Raises:
        UsageError: when there is no such engine, it is not installed, or it cannot be reached by such an address.
    """
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}", hint=f"engines: {', '.join(_ENGINES)}")
    if engine == "ray":
        from tar2tf_cli.elsewhere.ray import RayPlace

        return RayPlace(address)
    if address:
        raise UsageError("--address is that of a Ray cluster", hint="use it with --engine ray")
    return Here()
