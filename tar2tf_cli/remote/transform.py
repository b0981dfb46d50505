"""One object of a cluster to the file that answers a request for it: what a transformer does, apart from HTTP."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final

from tar2tf_cli.flow.reading import Reading
from tar2tf_cli.formats.blake2 import blake2b
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.formats.record_file import RecordFile, write_whole
from tar2tf_cli.inputs.tar_samples import put_together
from tar2tf_cli.remote.settings import Asked, Settings
from tar2tf_cli.remote.stream import StreamWriter, end_record, to_features
from tar2tf_cli.stores import ObjectInfo, Source
from tar2tf_cli.stores.directory import DirectorySource

__all__ = ["Transform"]

_BLOCK: Final = 1 << 20


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


class _EndKept:
    """The end record of one object's answer, in the folder for temporary files.

    Args:
        name: the object's name.
        settings: the digest of the transformer's settings.
    """

    def __init__(self, name: str, settings: str) -> None:
        key = "\0".join((os.environ.get("AIS_TARGET_URL", ""), name, settings))
        digest = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        self._path = os.path.join(tempfile.gettempdir(), f"tar2tf-end-{digest}")

    def keep(self, answer: str, end: Mapping[str, Any]) -> None:
        """Cut the end record off an answer and keep it, with the XXH64 of the rest, AIStore's usual checksum."""
        os.truncate(answer, end["bytes"])
        import xxhash

        digest = xxhash.xxh64()
        with open(answer, "rb", buffering=0) as file:
            while data := file.read(_BLOCK):
                digest.update(data)
        write_whole(self._path, [end_record({**end, "xxh64": digest.hexdigest()})], lasting=False)

    def give(self, answer: str) -> bool:
        """Make the end record the answer, and keep it no longer; false if there is none."""
        try:
            os.replace(self._path, answer)
        except FileNotFoundError:
            return False
        return True


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
        kept = _EndKept(name, self._settings.digest)
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
        how: dict[str, Any] = {"ahead": most is not None, "regroup": regroup, "first": asked.first}
        with RecordFile(answer) as file:
            writer = StreamWriter(file, keys=self._settings.keys, settings=self._settings.digest)
            with Reading(self._conversion, source, item, on_bytes=lambda _: check(), **how) as reading:
                take = None if self._settings.keys or most is not None else writer.take
                for key, parts, size in islice(reading.records(take), most):
                    check()
                    writer.add(key, parts, size)
            return writer.finish(reading.report, item.size)
