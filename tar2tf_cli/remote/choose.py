"""Where the records of a conversion are made: in the cluster that holds its inputs, or where the command runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tar2tf_cli.errors import RemoteError, SourceError, Tar2tfError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.remote import deploy
from tar2tf_cli.remote.settings import Settings
from tar2tf_cli.remote.source import RemoteSource
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo, Source
from tar2tf_cli.stores.ais_etl import Transformers
from tar2tf_cli.stores.retries import Transient, persist

__all__ = ["where_records_are_made"]


@contextlib.contextmanager
def where_records_are_made(
    conversion: Conversion, source: Source, inputs: Sequence[ObjectInfo], events: Events
) -> Iterator[Source]:
    """Yield the source to read: one that gives records made in the cluster, if that is wanted and possible.

    Args:
        conversion: what to convert; says whether the cluster should do it.
        source: the inputs as they are.
        inputs: their list.
        events: notified of the choice, and why the cluster cannot do what it was asked to.
    """
    with contextlib.ExitStack() as stack:
        try:
            chosen = _Choice(conversion, source, inputs, events).source(stack) if inputs else None
        except RemoteError as error:
            events.not_remote(error)
            chosen = None
        yield chosen or source


class _Choice:
    """Finds or makes the transformer of a conversion."""

    def __init__(self, conversion: Conversion, source: Source, inputs: Sequence[ObjectInfo], events: Events) -> None:
        self._conversion = conversion
        self._source = source
        self._inputs = inputs
        self._events = events

    def source(self, stack: contextlib.ExitStack) -> Source | None:
        """The source that gives the records; None to make them here.

        Args:
            stack: closed at the end of the run.

        Raises:
            RemoteError: when the cluster should make the records and cannot.
        """
        spec = self._conversion
        transformers = None if spec.remote_exec is False else self._source.transformers()
        if transformers is None:
            if spec.remote_exec or spec.etl:
                raise RemoteError("only an AIStore cluster makes records of its objects", shard=self._source.bucket)
            return None
        if not (spec.remote_exec or spec.etl):
            return self._running(transformers)
        settings = _settings(spec)
        if spec.etl:
            return self._of_name(transformers, settings, spec.etl)
        return self._made(transformers, settings, stack)

    def _running(self, transformers: Transformers) -> Source | None:
        """The source where a transformer of this very spec runs: one request finds out."""
        try:
            settings = _settings(self._conversion)
            if transformers.stages().get(settings.name) != "Running":
                return None
            return self._given(transformers, settings, transformers.message(settings.name))
        except (Tar2tfError, Transient):
            return None

    def _of_name(self, transformers: Transformers, settings: Settings, name: str) -> Source:
        """The source of a transformer that the user names."""
        made_of = transformers.store.persist(lambda: transformers.message(name), shard=transformers.where)
        if not made_of:
            hint = "tar2tf etl list shows those that are; tar2tf etl init makes one"
            raise RemoteError(f"there is no running transformer {name!r}", shard=transformers.where, hint=hint)
        if deploy.settings_of(made_of) != settings.text:
            hint = f"tar2tf etl init --spec SPEC --name {name} makes one of this spec; or leave out --etl"
            raise RemoteError(
                f"the transformer {name!r} is of another spec or version", shard=transformers.where, hint=hint
            )
        return self._given(transformers, settings, made_of)

    def _made(self, transformers: Transformers, settings: Settings, stack: contextlib.ExitStack) -> Source:
        """The source of this spec's transformer, which is made if there is none, and then deleted at the end."""
        ask = transformers.store.persist
        stage = ask(transformers.stages, shard=transformers.where).get(settings.name)
        if deploy.ready(transformers, settings.name, stage):
            made_of = ask(lambda: transformers.message(settings.name), shard=transformers.where)
        else:
            seconds = deploy.object_seconds(self._inputs)
            made_of = deploy.message(settings, seconds=seconds, for_a_run=True)
            stack.callback(self._delete, transformers, settings.name)  # first, as Ctrl-C may come while it is made
            deploy.init(transformers, made_of)
            return self._given(transformers, settings, made_of)
        if deploy.FOR_A_RUN in deploy.variables_of(made_of):  # left by a run that was killed
            stack.callback(self._delete, transformers, settings.name)
        return self._given(transformers, settings, made_of)

    def _given(self, transformers: Transformers, settings: Settings, made_of: Mapping[str, Any]) -> Source:
        self._events.note(f"note: the cluster makes the records, with its transformer {made_of['name']}")
        return RemoteSource(transformers, settings, made_of, self._inputs[0])

    def _delete(self, transformers: Transformers, name: str) -> None:
        """Delete a transformer that was made for this run."""
        try:
            persist(lambda: transformers.delete(name), 10, shard=transformers.where)
        except RemoteError:
            return  # it was not made, or is gone
        except SourceError as error:
            self._events.note(f"note: {error}; delete the transformer with: tar2tf etl delete {name}")


def _settings(conversion: Conversion) -> Settings:
    try:
        return Settings.of(conversion)
    except UsageError as error:
        raise RemoteError(error.message, hint=error.hint) from None
