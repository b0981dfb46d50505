"""Where the records of a conversion are made: in the cluster that holds its inputs, or where the command runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tar2tf_cli.errors import RemoteError, SourceError, UsageError
from tar2tf_cli.events import Events
from tar2tf_cli.remote import deploy
from tar2tf_cli.remote.settings import Settings
from tar2tf_cli.remote.source import RemoteSamples, RemoteSource
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores import ObjectInfo, Source
from tar2tf_cli.stores.ais_etl import Transformers
from tar2tf_cli.stores.retries import Transient

__all__ = ["where_records_are_made"]

_UNESCAPED: Final = re.compile("[?#]|%(?![0-9A-Fa-f]{2})")

MadeOf = Mapping[str, Any]
"""What a transformer was made of."""


def where_records_are_made(
    conversion: Conversion, source: Source, inputs: Sequence[ObjectInfo], events: Events, samples: int = 0
) -> contextlib.AbstractContextManager[Source]:
    """Return a context that gives the source to read: one of records made in the cluster, if it can make them.

    What is known at once to be impossible is reported at once; a transformer is made when the context is entered.

    Args:
        conversion: what to convert; says whether the cluster should do it.
        source: the inputs as they are.
        inputs: their list.
        events: notified of the choice, and why the cluster cannot do what it was asked to.
        samples: how many inputs to fetch ahead for a source of samples to which the ops were applied; 0 for records.
    """
    wanted = bool(conversion.remote_exec or conversion.etl)
    try:
        transformers = source.transformers()
        if transformers is None and wanted:
            raise RemoteError("only an AIStore cluster makes records of its objects", shard=source.bucket)
        if transformers is None or conversion.remote_exec is False or not inputs:
            return contextlib.nullcontext(source)
        transformer = _Transformer(transformers, _settings(conversion, samples=bool(samples)))
        if conversion.etl:
            transformer.use(conversion.etl)
        elif wanted:
            transformer.find()
        elif why := transformer.why_not_there(inputs):
            return _made_here(source, why, events)
    except RemoteError as error:
        if wanted:
            events.not_remote(error)
        return contextlib.nullcontext(source)
    kind = partial(RemoteSamples, inputs, samples) if samples else RemoteSource
    return _made_there(transformer, source, inputs, events, kind)


@contextlib.contextmanager
def _made_here(source: Source, why: str, events: Events) -> Iterator[Source]:
    events.note(f"note: the records are made here: {why}")
    yield source


@contextlib.contextmanager
def _made_there(
    transformer: _Transformer, source: Source, inputs: Sequence[ObjectInfo], events: Events, kind: Callable[..., Source]
) -> Iterator[Source]:
    """The source of a transformer, which is made if there is none; the given one if it cannot be made."""
    try:
        with contextlib.ExitStack() as stack:
            made_of = transformer.ensure(inputs, lambda: stack.callback(transformer.delete, events))
            if name := _unreachable(made_of, inputs):
                hint = "rename it, or make the transformer with --comm hpull"
                raise RemoteError(f"AIStore cannot ask a transformer for the object {name!r} with hpush", hint=hint)
            settings, cluster = transformer.settings, transformer.cluster
            events.note(f"note: the cluster makes the records, with its transformer {made_of['name']}")
            rest = stack.pop_all()
    except RemoteError as error:
        events.not_remote(error)
        yield source
        return
    with rest:
        yield kind(cluster, settings, made_of, inputs[0])


class _Transformer:
    """The transformer of a conversion, which may have to be made.

    Args:
        cluster: the transformers of the cluster.
        settings: what it does.
    """

    def __init__(self, cluster: Transformers, settings: Settings) -> None:
        self.cluster = cluster
        self.settings = settings
        self._made_of: MadeOf = {}
        self._stage: str | None = None

    def use(self, name: str) -> None:
        """Use one that the user names.

        Raises:
            RemoteError: when it is not running, or of another spec.
        """
        self._made_of = self._ask(lambda: self.cluster.message(name))
        if deploy.settings_of(self._made_of) != self.settings.text:
            what = f"the transformer {name!r} was made for another spec or version"
            hint = f"tar2tf etl init --spec SPEC --name {name} makes one of this spec; or leave out --etl"
            raise RemoteError(what, shard=self.cluster.where, hint=hint)

    def find(self) -> None:
        """Find out in which stage the transformer of these settings is.

        Raises:
            RemoteError: when the cluster has no transformers.
        """
        self._stage = self._ask(self.cluster.stages).get(self.settings.name)

    def why_not_there(self, inputs: Sequence[ObjectInfo]) -> str | None:
        """Why there is none that is running and takes the names of all inputs; None if there is one.

        One request finds out, and one more of what it is made.

        Raises:
            RemoteError: when the cluster has no transformers, or does not answer.
        """
        try:
            if self.cluster.stages().get(self.settings.name) != "Running":
                return "the cluster has no running transformer of this spec"
            self._made_of = self.cluster.message(self.settings.name)
        except (SourceError, Transient) as error:
            raise RemoteError(str(error)) from None
        name = _unreachable(self._made_of, inputs)
        return f"the cluster's transformer cannot get the object {name!r}" if name else None

    def ensure(self, inputs: Sequence[ObjectInfo], at_the_end: Callable[[], object]) -> MadeOf:
        """Make it unless it is there, and return what it is made of.

        Args:
            inputs: the objects that it will read.
            at_the_end: has it deleted at the end of the run; called before it is made, as Ctrl-C may come meanwhile.

        Raises:
            RemoteError: when it cannot be made.
        """
        if self._made_of:
            return self._made_of
        name = self.settings.name
        if deploy.ready(self.cluster, name, self._stage):
            self._made_of = self._ask(lambda: self.cluster.message(name))
            if deploy.FOR_A_RUN in deploy.variables_of(self._made_of):  # left by a run that was killed
                at_the_end()
        if not self._made_of:
            at_the_end()
            seconds, comm = deploy.object_seconds(inputs), "hpull" if _odd(inputs) else "hpush"
            how: dict[str, Any] = {"comm": comm, "init_seconds": deploy.INIT_SECONDS, "seconds": seconds}
            self._made_of = deploy.message(self.settings, **how, for_a_run=True)
            deploy.init(self.cluster, self._made_of)
        return self._made_of

    def delete(self, events: Events) -> None:
        """Delete it at the end of a run."""
        try:
            deploy.delete(self.cluster, self.settings.name)
        except SourceError as error:
            events.note(f"note: {error}; delete the transformer with: tar2tf etl delete {self.settings.name}")

    def _ask(self, request: Callable[[], Any]) -> Any:
        return self.cluster.store.persist(request, shard=self.cluster.where)


def _odd(inputs: Sequence[ObjectInfo]) -> str | None:
    """The name of the first input that does not get to a transformer with hpush, as AIStore does not escape it."""
    return next((item.name for item in inputs if _UNESCAPED.search(item.name)), None)


def _unreachable(made_of: MadeOf, inputs: Sequence[ObjectInfo]) -> str | None:
    """The name of the first input that the cluster could not pass on to a transformer."""
    return _odd(inputs) if str(made_of.get("communication")).startswith("hpush") else None


def _settings(conversion: Conversion, *, samples: bool) -> Settings:
    try:
        return Settings.of(conversion, samples=samples)
    except UsageError as error:
        raise RemoteError(error.message, hint=error.hint) from None
