"""One object of a cluster to the file that answers a request for it: what a transformer does, apart from HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.record_file import RecordFile
from tar2tf_cli.inputs.tar_samples import put_together
from tar2tf_cli.remote.ends import EndKept
from tar2tf_cli.remote.samples import to_features
from tar2tf_cli.remote.settings import Asked, Settings
from tar2tf_cli.remote.stream import StreamWriter
from tar2tf_cli.stores import ObjectInfo, Source
from tar2tf_cli.stores.directory import DirectorySource

__all__ = ["Transform"]


class _Object(Source):
    """The file of an object as a bucket of one input.

    Args:
        path: the file.
        name: what errors call it.
        seekable: whether it is read by offset. A limit decides by the first bytes of an input that is not, whether its
            members are adjacent, as for any bucket of objects.
    """

    def __init__(self, path: str, name: str, *, seekable: bool) -> None:
        self.bucket = name
        self.seekable = seekable
        self._file = DirectorySource(path)

    def list(self, templates: object = ()) -> list[ObjectInfo]:
        """The file as an input."""
        return self._file.list(())

    def open(self, item: ObjectInfo) -> ByteStream:
        """Open the file, which must stay the same until it is closed."""
        return self._file.open(item)

    def locate(self, name: str) -> str:
        """The object's name."""
        return self.bucket


class Transform:
    """Makes the answers of a transformer.

    Args:
        settings: those of the transformer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._conversion = settings.conversion()
        if settings.samples:
            self._conversion = replace(self._conversion, record_to_example=to_features)

    def __call__(self, path: str, name: str, asked: Asked, answer: str, check: Callable[[], None]) -> None:
        """Write the answer for one object to a file.

        Args:
            path: the file that holds the object.
            name: the object's name, for errors.
            asked: what the request asks for.
            answer: the path of the file to write.
            check: called after each read and before each record; raises to end the work.

        Raises:
            Tar2tfError: as in a conversion; the file is of no use then.
        """
        kept = EndKept(name, self._settings.digest)
        if asked.part == "end" and kept.give(answer):
            return
        source = _Object(path, name, seekable=self._conversion.limit is None)
        end = put_together(partial(self._write, source, asked, answer, check))
        if asked.part:
            kept.keep(answer, end)
        if asked.part == "end":
            kept.give(answer)

    def _write(
        self, source: _Object, asked: Asked, answer: str, check: Callable[[], None], regroup: bool
    ) -> dict[str, Any]:
        most = self._conversion.limit
        (item,) = source.list()
        options: dict[str, Any] = {
            "ahead": most is not None,
            "regroup": regroup,
            "first": asked.first,
        }
        with RecordFile(answer) as file:
            writer = StreamWriter(file, keys=self._settings.keys, settings=self._settings.digest)
            with Reading(self._conversion, source, item, on_bytes=lambda _: check(), **options) as reading:
                take = None if self._settings.keys or most is not None else writer.take
                for key, parts, size in islice(reading.records(take), most):
                    check()
                    writer.add(key, parts, size)
            return writer.finish(reading.report, item.size)
