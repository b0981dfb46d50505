"""The inputs of a conversion as a transformer of their cluster gives them: records instead of samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from tar2tf_cli.errors import changed
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.remote.deploy import revive, seconds_of
from tar2tf_cli.remote.settings import Asked, Settings
from tar2tf_cli.remote.stream import StreamReader, error_of
from tar2tf_cli.samples.batches import Batch
from tar2tf_cli.stores import ObjectInfo
from tar2tf_cli.stores.ais_etl import NotRunning, Transformers
from tar2tf_cli.stores.objects import ObjectSource
from tar2tf_cli.stores.transfer import Body, ResumingStream

__all__ = ["RemoteSource"]

_SECONDS: Final = "45s"  # where a transformer does not say how long it may take


class RemoteSource(ObjectSource):
    """The inputs of a bucket, whose records are made beside them.

    Args:
        transformers: those of the bucket's cluster.
        settings: what the transformer does.
        made_of: what the transformer was made of.
        first: the conversion's first input.
    """

    threads = 1

    def __init__(
        self, transformers: Transformers, settings: Settings, made_of: Mapping[str, Any], first: ObjectInfo
    ) -> None:
        super().__init__(transformers.store)
        self._transformers = transformers
        self._settings = settings
        self._made_of = made_of
        self._first = first

    def records(self, item: ObjectInfo, on_bytes: Callable[[int], None] | None = None) -> RemoteReading:
        """Request the records of an input."""
        reader = StreamReader(stream := self.open(item), self.locate(item.name), self._settings.digest)
        return RemoteReading(stream, reader, lambda: self._finished(item, reader.size, on_bytes))

    def _stream(self, item: ObjectInfo) -> ResumingStream:
        """The transformer's answer, whose size and version are not those of the object."""
        whole = ObjectInfo(item.name, None, None)
        return ResumingStream(lambda _: self._fetch(item), whole, self.locate(item.name), self._store.retry_for)

    def _fetch(self, item: ObjectInfo) -> Body:
        """Request an input from the beginning, as a transformer knows no ranges; see that there is a transformer."""
        asked = Asked(first=item == self._first).text
        query = {"etl_args": asked} if asked else {}
        seconds = seconds_of(self._made_of.get("obj_timeout") or _SECONDS)
        try:
            return self._transformers.fetch(self._made_of["name"], item, seconds, error_of, **query)
        except NotRunning:
            revive(self._transformers, self._made_of)
            raise

    def _finished(self, item: ObjectInfo, size: int | None, on_bytes: Callable[[int], None] | None) -> None:
        """Check that the records are those of the input that was listed."""
        where = self.locate(item.name)
        now = self._store.persist(lambda: self._store.head(item.name), shard=where)
        if now is None or (item.version and now.version != item.version) or size != (item.size or size):
            raise changed(where)
        if on_bytes:
            on_bytes(size or 0)


class RemoteReading:
    """One input whose records are made elsewhere; used like a `Reading`.

    Args:
        stream: what the transformer sends.
        reader: reads the stream.
        finished: called when all was read.
    """

    seekable = False
    regroups = False

    def __init__(self, stream: ByteStream, reader: StreamReader, finished: Callable[[], None]) -> None:
        self._stream = stream
        self._reader = reader
        self._finished = finished
        self._records: Iterator[tuple[str, Iterable[bytes], int]] = iter(())

    @property
    def report(self) -> InputReport:
        """What the transformer read; complete once the reading is closed."""
        return self._reader.report

    def records(self, take: Callable[[Batch], None] | None = None) -> Iterator[tuple[str, Iterable[bytes], int]]:
        """The framed record of each example."""
        self._records = self._reader.records()
        return self._records

    def __enter__(self) -> RemoteReading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Read to the end, which proves that nothing is missing, and close the stream."""
        try:
            if kind is None:
                deque(self._records, maxlen=0)
                self._finished()
        finally:
            self._stream.close()
