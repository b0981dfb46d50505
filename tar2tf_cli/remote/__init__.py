"""Backends on other machines: nodes of a Ray cluster, or the AIStore cluster that stores the shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

from tar2tf_cli.api.backend import Backend
from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.source import Source
from tar2tf_cli.engines import LocalBackend
from tar2tf_cli.errors import UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.features.feature_map import AUTO
from tar2tf_cli.spec.conversion import Conversion

_ENGINES: Final = ("local", "ray")


def backend_of(engine: str, address: str | None = None) -> Backend:
    """Return the backend of an engine, by the engine's name.

    Args:
        engine: `local` or `ray`.
        address: address of the Ray cluster.

    Raises:
        UsageError: when the engine does not exist, is not installed, or does not accept such an address.
    """
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}", hint=f"engines: {', '.join(_ENGINES)}")
    if engine == "ray":
        from tar2tf_cli.remote.ray import RayBackend

        return RayBackend(address)
    if address:
        raise UsageError("--address is that of a Ray cluster", hint="use it with --engine ray")
    return LocalBackend()


def cluster_backend(
    conversion: Conversion, source: Source, inputs: Sequence[ObjectInfo], events: Events
) -> Backend | None:
    """Return the AIStore cluster as a backend if it should make the records of its inputs; otherwise None.

    Obvious obstacles are reported immediately; a transformer is created only when the `maker` of the backend is
    entered.

    Args:
        conversion: the conversion, including whether the cluster should do it.
        source: lists and opens the inputs.
        inputs: the listed inputs.
        events: notified of the choice, and why the cluster cannot make the records although the conversion requires it.
    """
    if not _may_be_remote(conversion, source) or AUTO in conversion.labels.values():
        return None
    from tar2tf_cli.remote.cluster import ClusterBackend, chosen

    made = chosen(conversion, source, inputs, events)
    return ClusterBackend(made) if made else None


@contextmanager
def cluster_samples(
    conversion: Conversion, source: Source, inputs: Sequence[ObjectInfo], events: Events
) -> Iterator[Source]:
    """Open a source of samples to which the AIStore cluster with the inputs has applied the ops.

    Args:
        conversion: the conversion, including whether the cluster should apply its ops.
        source: lists and opens the inputs; the context yields it if no cluster can be used.
        inputs: the listed inputs.
        events: notified of the choice.
    """
    made = None
    if _may_be_remote(conversion, source):
        from tar2tf_cli.remote.cluster import chosen

        made = chosen(conversion, source, inputs, events, samples=True)
    with made or nullcontext() as maker:
        yield maker or source


def _may_be_remote(conversion: Conversion, source: Source) -> bool:
    store = source.store
    return conversion.output.traits.carries_examples and bool(
        conversion.remote_exec or conversion.etl or (store and store.cluster)
    )
