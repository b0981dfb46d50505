"""Conversion inside an AIStore cluster: when it is chosen, and how the records of stored inputs are requested."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from tar2tf_cli.api.backend import StoredShard
from tar2tf_cli.api.objects import ByteStream, ObjectInfo
from tar2tf_cli.api.op import Op
from tar2tf_cli.api.source import Capabilities, OnBytes, OnFault, Samples, SampleSource, Source
from tar2tf_cli.api.store import Body, Store, Transient
from tar2tf_cli.api.values import Record, SourceReport
from tar2tf_cli.engines import LocalBackend
from tar2tf_cli.errors import (
    DamagedShardError,
    Lost,
    OutputExistsError,
    RemoteError,
    SampleError,
    SinkError,
    SourceError,
    UsageError,
    changed,
)
from tar2tf_cli.events import Events
from tar2tf_cli.formats.checksums import blake2b, crc32c
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.remote import transformers as etl
from tar2tf_cli.remote.stream import (
    AnswerEnd,
    AnswerPart,
    AnswerRequest,
    Settings,
    StreamReader,
    end_record,
    from_example,
)
from tar2tf_cli.remote.transformers import Transformers
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.stores.ais import AisStore
from tar2tf_cli.stores.objects import look_up, open_object, retry
from tar2tf_cli.stores.source import ObjectSource
from tar2tf_cli.stores.transfer import ResumingStream

_BLOCK: Final = 1 << 20
_MOST_NAMES: Final = 32  # most transformers whose specifications are requested
_AGAIN: Final = "run the same command again"


class RemoteSource(ObjectSource):
    """The inputs in a bucket whose cluster makes the records; implements RecordMaker.

    Args:
        transformers: the transformers of the bucket's cluster.
        settings: the settings of the transformer.
        made_of: the specification of the transformer.
        first: the conversion's first input.
        entries: names of the entries to request of each sample, empty for all; None to request records.

    Attributes:
        transformers: the transformers of the bucket's cluster.
        made_of: the specification of the transformer.
    """

    capabilities = Capabilities(remote=True, threads=1)
    does = "makes the records"
    here = "the records are made locally"

    def __init__(
        self,
        transformers: Transformers,
        settings: Settings,
        made_of: etl.TransformerMessage,
        first: ObjectInfo,
        entries: Sequence[str] | None = None,
    ) -> None:
        super().__init__(transformers.store)
        self.transformers = transformers
        self.made_of = made_of
        self._first = first
        self._entries = entries
        self.settings = settings

    @staticmethod
    def needs(settings: Settings) -> Settings:
        """Return the part of a conversion's settings that the transformer must share."""
        return settings

    def read(self, item: ObjectInfo, on_bytes: OnBytes = None) -> RemoteReading:
        """Request the records of an input."""
        stream, where = self.open(item), self.locate(item.name)
        return RemoteReading(stream, where, self.settings.digest, lambda size: self.check_input(item, size, on_bytes))

    def makes_shards_in(self, store: Store) -> bool:
        """Whether a store is in the same cluster, which can then write shards to it."""
        return store.cluster == self.store.cluster

    def shard_tasks(
        self, shards: Mapping[str, ObjectInfo], store: Store, replaceable: Container[str], folder: str
    ) -> tuple[list[MakeShard], _ShardContext]:
        """Return tasks that each make the cluster store one shard."""
        return [MakeShard(item, path) for path, item in shards.items()], _ShardContext(self, store, replaceable, folder)

    def make_shard(self, item: ObjectInfo, target: Store, path: str, on_bytes: OnBytes = None) -> AnswerEnd:
        """Make the cluster store an input's records as a shard, and check the shard.

        Args:
            item: the input.
            target: a bucket of the same cluster.
            path: the shard's name in that bucket.
            on_bytes: called with the size of the input.

        Returns:
            The content of the end record. There is no shard if there are no records.

        Raises:
            SinkError: when the cluster stored something else.
            Tar2tfError: when the transformer fails; its own error.
        """
        where, shard = self.locate(item.name), target.locate(path)
        retry(self.store, lambda: self.store_as(item, target, path), where)
        with contextlib.closing(self._stream(item, "end")) as stream:
            end = StreamReader(stream, where, self.settings.digest).end()
        there = look_up(target, path)
        if there is None or there.size != end["bytes"] or not _has_checksum(target, there, end):
            retry(target, lambda: target.remove(path), shard)
            raise SinkError("the cluster stored other bytes than its transformer sent", shard=shard, hint=_AGAIN)
        if not end["bytes"]:
            retry(target, lambda: target.remove(path), shard)
        self.check_input(item, end["size"], on_bytes)
        return end

    def store_as(self, item: ObjectInfo, target: Store, path: str) -> None:
        """Make the cluster store the records of an input."""
        self.transformers.store_as(self.made_of, item, cast("AisStore", target), path, **self._query(item, "records"))

    def _stream(self, item: ObjectInfo, part: AnswerPart = "") -> ResumingStream:
        """Open the transformer's answer, whose size and version are not those of the object."""
        whole, where = ObjectInfo(item.name, None, None), self.locate(item.name)
        return ResumingStream(lambda *_: self.answer(item, part), whole, where, self.store.retry_for)

    def _fetch_each(self, items: Sequence[ObjectInfo]) -> None:
        """Return None, as the size of an answer is unknown before it is made."""

    def answer(self, item: ObjectInfo, part: AnswerPart) -> Body:
        """Request the answer for an input from its beginning, as transformers do not support ranges."""
        return self.transformers.fetch(self.made_of, item, **self._query(item, part))

    def _query(self, item: ObjectInfo, part: AnswerPart) -> dict[str, str]:
        asked = AnswerRequest(item == self._first, part, self._entries).text
        return {"etl_args": asked} if asked else {}

    def check_input(self, item: ObjectInfo, size: int | None, on_bytes: Callable[[int], None] | None) -> None:
        """Check that the records were made of the input that was listed."""
        where = self.locate(item.name)
        now = look_up(self.store, item.name)
        if now is None or (item.version and now.version != item.version) or size != (item.size or size):
            raise changed(where)
        if on_bytes:
            on_bytes(size or 0)


class RemoteSamples(RemoteSource, SampleSource):
    """The inputs in a bucket as samples to which the cluster has applied the ops.

    Samples are used as they arrive, and nothing is stored. Of each input that is fetched ahead, half a mebibyte is held
    in memory. A cluster aborts a response that is read too slowly for its time limit; like any interrupted response, it
    is requested again, and the part already read is skipped.
    """

    capabilities = Capabilities(remote=True, threads=1, gives="values")
    does = "applies the ops"
    here = "the ops are applied locally"

    @staticmethod
    def needs(settings: Settings) -> Settings:
        """Return only the settings of the ops, as every transformer of records can also send samples."""
        return settings.of_samples

    def samples(self, item: ObjectInfo, report: SourceReport, fault: OnFault, on_bytes: OnBytes = None) -> Samples:
        """Yield the samples of an input."""
        with self.read(item, on_bytes) as reading:
            for message in reading.messages():
                yield {}, from_example(message)
            report.skipped.update(reading.report.skipped)
            report.filtered.update(reading.report.filtered)
            for note in reading.report.errors:
                fault(_noted_fault(note))


def _noted_fault(note: Mapping[str, Any]) -> SampleError | DamagedShardError:
    """Restore a fault from its JSON in a report."""
    where = {name: note.get(name) for name in ("shard", "key", "member", "offset")}
    if lost := note.get("lost"):
        error = DamagedShardError(note["message"], kind="damaged")
        error.lost = Lost.from_json(lost)
        return error.at(**where)
    return SampleError(note["message"]).at(**where)


def _has_checksum(store: Store, shard: ObjectInfo, end: AnswerEnd) -> bool:
    """Whether an object has the checksum in an end record; reads it if the cluster uses another kind."""
    known = {"xxhash": end.get("xxh64"), "xxhash2": end.get("xxh64"), "crc32c": f"{end['crc32c']:08x}"}
    kind, value = shard.checksum or ("", "")
    if expected := known.get(kind):
        return value.lower() == str(expected)
    crc = 0
    with contextlib.closing(open_object(store, shard)) as stream:
        while data := stream.read(_BLOCK):
            crc = crc32c(data, crc)
    return crc == int(end["crc32c"])


@dataclass
class _ShardContext:
    """The context of tasks that store shards; has the arguments of `RecordMaker.shard_tasks`."""

    source: RemoteSource
    store: Store
    replaceable: Container[str]
    folder: str
    on_bytes: OnBytes = None


class MakeShard(NamedTuple):
    """Task that makes the cluster store the records of an input as a shard.

    The end record is kept in the working folder, so that a later run of the conversion can use the shard.

    Attributes:
        item: the input.
        path: the shard's name.
    """

    item: ObjectInfo
    path: str

    def run(self, context: _ShardContext) -> StoredShard[InputReport]:
        """Return the shard, which may already exist.

        Raises:
            OutputExistsError: when another program wrote an object of that name.
        """
        there = look_up(context.store, self.path)
        end = self._saved_end(context)
        if end is None or end["bytes"] != (there.size if there else 0):
            if there and os.path.normpath(self.path) not in context.replaceable:
                where = context.store.locate(self.path)
                raise OutputExistsError("another program wrote it during the conversion", shard=where, replaceable=True)
            end = context.source.make_shard(self.item, context.store, self.path, context.on_bytes)
            write_whole(self._end_file(context), [end_record(end)], lasting=False)
        return StoredShard(InputReport.from_json(end["report"]), end["bytes"], end["crc32c"])

    def _saved_end(self, context: _ShardContext) -> AnswerEnd | None:
        """Return the end record that an interrupted run saved, or None."""
        where = context.source.locate(self.item.name)
        with contextlib.suppress(FileNotFoundError, DamagedShardError), open(self._end_file(context), "rb") as file:
            return StreamReader(file, where, context.source.settings.digest).end()
        return None

    def _end_file(self, context: _ShardContext) -> str:
        digest = blake2b(self.path.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        return os.path.join(context.folder, f"made-{digest}.end")


class RemoteReading(StreamReader):
    """An input whose records the cluster makes; used like an `InputFlow`.

    Args:
        stream: the transformer's response.
        name: the input's path or URL, in errors and in the report.
        settings: the digest of the settings that the transformer should have.
        finished: called with the size of the input when it was read completely.
    """

    must_regroup = False  # the transformer regroups samples itself

    def __init__(self, stream: ByteStream, name: str, settings: str, finished: Callable[[int | None], None]) -> None:
        super().__init__(stream, name, settings)
        self._stream = stream
        self._finished = finished
        self._records: Iterator[Record] = iter(())

    def records(self) -> Iterator[Record]:
        """Iterate over the framed record of each example."""
        self._records = super().records()
        return self._records

    records_and_batches = records

    def is_unusable(self) -> bool:
        """Return False: for an unusable input, the transformer sends only the report."""
        return False

    def __enter__(self) -> RemoteReading:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Read to the end, which verifies that the stream is complete, and close it."""
        try:
            if kind is None:
                deque(self._records, maxlen=0)
                self._finished(self.size)
        finally:
            self._stream.close()


_UNESCAPED: Final = re.compile("[?#]|%(?![0-9A-Fa-f]{2})")


def chosen(
    conversion: Conversion, source: Source, inputs: Sequence[ObjectInfo], events: Events, *, samples: bool = False
) -> AbstractContextManager[RemoteSource | None] | None:
    """Return a context manager of the cluster's RecordMaker, for `cluster_backend` and `cluster_samples`.

    It yields None, after a note, if the cluster turns out to be unable to make the records or samples.

    Args:
        conversion: the conversion.
        source: lists and opens the inputs.
        inputs: the listed inputs.
        events: notified of the choice.
        samples: whether samples are wanted rather than records.
    """
    wanted = bool(conversion.remote_exec or conversion.etl)
    try:
        store = source.store
        if (store is None or not store.cluster) and wanted:
            raise RemoteError("--remote-exec needs inputs in an AIStore cluster", shard=source.bucket)
        if store is None or conversion.remote_exec is False or not inputs:
            return None
        transformer = _ConversionTransformer(Transformers(store), conversion, inputs, samples=samples)
        if conversion.etl:
            transformer.use(conversion.etl)
        elif wanted:
            transformer.find()
        else:
            transformer.look()
    except RemoteError as error:
        if wanted:
            events.not_remote(error)
        elif samples:
            events.note(f"note: {RemoteSamples.here}: {error.message}")
        return None
    return transformer.maker(events, wanted=wanted)


class ClusterBackend(LocalBackend):
    """An AIStore cluster that makes the records of its objects, while this machine waits for them.

    Args:
        made: the context manager of the RecordMaker.
    """

    def __init__(self, made: AbstractContextManager[RemoteSource | None]) -> None:
        self._made = made

    def maker(self) -> AbstractContextManager[RemoteSource | None]:
        """Return a context manager that keeps a transformer running."""
        return self._made


def _may_grow(ops: Sequence[Op]) -> bool:
    """Whether ops leave decoded entries of unlimited size, or of floats."""
    names = [op.name for op in ops]
    is_small = bool({"resize", "crop"} & {*names}) and any(
        op.name in ("cast", "convert") and getattr(op, "dtype", None) == "uint8" for op in ops
    )
    return "decode" in names and "encode" not in names and not is_small


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Convert SIGTERM to SystemExit, unless the process has a handler, so that `finally` blocks run."""
    process = os.getpid()

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:  # a forked process has nothing to clean up
            os.kill(os.getpid(), number)
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _ConversionTransformer:
    """The transformer of a conversion, which may have to be created first.

    Args:
        cluster: the transformers of the cluster.
        conversion: the conversion.
        inputs: the objects that the transformer will read.
        samples: whether samples are wanted rather than records.
    """

    def __init__(
        self, cluster: Transformers, conversion: Conversion, inputs: Sequence[ObjectInfo], *, samples: bool
    ) -> None:
        self._cluster = cluster
        self._inputs = inputs
        self._kind = RemoteSamples if samples else RemoteSource
        self._entries = [*(conversion.select or ())] if samples else None
        self._may_grow = samples and _may_grow(conversion.ops)
        self._settings = self._kind.needs(Settings.of(conversion))
        self._made_of: etl.TransformerMessage = {}
        self._stage: str | None = None
        self._why_not: str | None = None
        self._leased = ""

    def _fits(self, made_of: etl.TransformerMessage) -> bool:
        """Whether a transformer does the required work; if so, adopt its settings."""
        with contextlib.suppress(UsageError):
            text = etl.settings_of(made_of)
            if text == self._settings.text:
                return True
            if (
                text
                and self._kind.needs(settings := Settings.load(text, self._settings.sources)).text
                == self._settings.text
            ):
                self._settings = settings
                return True
        return False

    def use(self, name: str) -> None:
        """Use a transformer that the user names.

        Raises:
            RemoteError: when the transformer is not running, or has another spec.
        """
        self._made_of = self._cluster.ask(lambda: self._cluster.message(name))
        if not self._fits(self._made_of):
            what = f"the transformer {name!r} was made for another spec or version"
            hint = f"tar2tf etl init --spec SPEC --name {name} makes one for this spec; or leave out --etl"
            raise RemoteError(what, shard=self._cluster.where, hint=hint)

    def find(self) -> None:
        """Find a running transformer with these settings, or the stage of the one with its default name.

        Raises:
            RemoteError: when the cluster has no transformers.
        """
        stages = self._cluster.ask(self._cluster.stages)
        self._stage = stages.get(self._settings.name)
        if self._stage is None:
            self._made_of = self._cluster.ask(lambda: self._found(stages))

    def _found(self, stages: Mapping[str, str]) -> etl.TransformerMessage:
        """Return the message of a running transformer with these settings under any name; or an empty one.

        A transformer that was created for another run is not used; if that run was killed on this machine, it is
        deleted.
        """
        running = [name for name, stage in stages.items() if stage == "Running"]
        running.sort(key=lambda name: name != self._settings.name)
        for name in running[:_MOST_NAMES]:
            with contextlib.suppress(RemoteError):  # the transformer has just been stopped
                made_of = self._cluster.message(name)
                if etl.FOR_A_RUN in etl.variables_of(made_of):  # a transformer that is deleted when its run ends
                    if etl.is_abandoned(made_of):
                        self._cluster.delete_if_there(name)
                elif self._fits(made_of):
                    return made_of
        return {}

    def look(self) -> None:
        """Find a running transformer that can take all inputs, or the reason why none is used.

        A transformer is not created, as that takes longer than making the first batch locally, and not used for samples
        that grow, as sending them takes longer than making them. This takes one request to list the transformers, and
        one for the specification of each candidate.

        Raises:
            RemoteError: when the cluster has no transformers, or does not answer.
        """
        try:
            stages = self._cluster.stages()
            self._stage = stages.get(self._settings.name)
            self._made_of = self._found(stages)
        except (SourceError, Transient) as error:
            raise RemoteError(str(error)) from None
        if self._made_of and (name := self._unreachable()):
            self._why_not = f"the cluster's transformer cannot get the object {name!r}"
        elif not self._made_of:
            self._why_not = "the cluster has no running transformer for this spec"
        elif self._may_grow:
            self._why_not = "decoded, the samples are larger than in the cluster; remote_exec=True sends them"

    @contextlib.contextmanager
    def maker(self, events: Events, *, wanted: bool) -> Iterator[RemoteSource | None]:
        """Yield the RecordMaker once its transformer runs; or None, after a note, if it cannot be created."""
        maker = None
        with contextlib.ExitStack() as stack:
            try:
                self._make_unless_there(lambda: stack.enter_context(self._lease(events)))
                events.note(f"note: the cluster {self._kind.does}, with its transformer {self._made_of['name']}")
                maker = self._kind(self._cluster, self._settings, self._made_of, self._inputs[0], self._entries)
            except RemoteError as error:
                stack.close()
                if wanted:
                    events.not_remote(error)
                else:
                    events.note(f"note: {self._kind.here}: {error.sentence}")
            yield maker

    def _make_unless_there(self, lease: Callable[[], object]) -> None:
        """Create the transformer unless it exists.

        Args:
            lease: registers its deletion at the end of the run; called before it is created, since Ctrl-C may come
                meanwhile.

        Raises:
            RemoteError: when it cannot be created, or an input cannot be requested from it.
        """
        if self._why_not:
            raise RemoteError(self._why_not)
        name = self._settings.name
        if not self._made_of and self._cluster.is_ready(name, self._stage):
            self._made_of = self._cluster.ask(lambda: self._cluster.message(name))
        if not self._made_of:
            comm = "hpull" if self._undeliverable() else "hpush"
            made_of = self._cluster.message_for(self._settings, self._inputs, comm=comm, for_a_run=True)
            self._leased = str(made_of["name"])
            lease()
            self._cluster.make_anew(made_of)
            self._made_of = made_of
        if unreachable := self._unreachable():
            hint = "rename it, or make the transformer with --comm hpull"
            raise RemoteError(f"AIStore cannot ask a transformer for the object {unreachable!r} with hpush", hint=hint)

    @contextlib.contextmanager
    def _lease(self, events: Events) -> Iterator[None]:
        """Delete this run's transformer at the end of the run, including by SIGTERM or Ctrl-C."""
        command = f"delete the transformer with: tar2tf etl delete {self._leased}"
        with _ended_by_sigterm():
            try:
                yield
            finally:
                try:
                    self._cluster.delete_if_there(self._leased)
                except SourceError as error:
                    events.note(f"note: {error.sentence}; {command}")
                except KeyboardInterrupt:
                    events.note(f"note: interrupted; {command}")
                    raise

    def _undeliverable(self) -> str | None:
        """Return the first input whose name hpush cannot deliver, as AIStore does not escape it; or None."""
        return next((item.name for item in self._inputs if _UNESCAPED.search(item.name)), None)

    def _unreachable(self) -> str | None:
        """Return the first input whose name the cluster could not pass to the transformer; or None."""
        return self._undeliverable() if str(self._made_of.get("communication")).startswith("hpush") else None
