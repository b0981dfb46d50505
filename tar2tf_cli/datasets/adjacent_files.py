"""Files next to shards, in a folder or bucket, which are only written if their content changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tar2tf_cli.errors import OutputExistsError, UsageError, write_errors
from tar2tf_cli.formats.files import write_whole
from tar2tf_cli.sinks import DirectorySink, Sink, open_sink
from tar2tf_cli.spec.templates import split_template
from tar2tf_cli.spec.urls import ConnectionOptions, is_remote

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AdjacentFiles:
    """Files next to shards, addressed by local paths or, in a bucket, by names; `inside` returns either.

    Args:
        sink: the folder or bucket.
    """

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink or DirectorySink()
        self._copies = TemporaryDirectory(prefix="tar2tf-") if self._sink.store else None

    @classmethod
    def of(cls, bucket: str, **connection: Unpack[ConnectionOptions]) -> Self:
        """Return the adjacent files for the shards of a folder, template or bucket.

        Raises:
            UsageError: when files cannot be written to the folder or bucket.
        """
        if bucket == "-":
            raise UsageError("standard input has no folder for an index", hint="name a folder, a shard or a bucket")
        folder = split_template(bucket)[0].rstrip("/")
        return cls(open_sink(f"{folder}/_", **connection) if is_remote(folder) else None)

    def inside(self, located: str) -> str:
        """Convert a path or URL to the path or name of the file."""
        return self._sink.inside(located)

    def locate(self, path: str) -> str:
        """Return the path or URL of a file, for messages."""
        return self._sink.locate(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file; None if it does not exist."""
        return self._sink.read(path)

    def write(self, files: Mapping[str, bytes], what: str, *, overwrite: bool) -> None:
        """Write files in the given order, except those whose content is the same already.

        Args:
            files: the content of each file, by path.
            what: the fault of an existing file with other content, for the error.
            overwrite: whether to replace such a file.

        Raises:
            OutputExistsError: when such a file exists; then nothing is written.
        """
        there = {path: self.read(path) for path in files}
        for path, data in there.items():
            if data not in (None, files[path]) and not overwrite:
                raise OutputExistsError(what, shard=self.locate(path), hint="add --overwrite to replace it")
        for path, data in files.items():
            if data != there[path] and self._copies:
                self._upload(self._copied(path, data), path)
            elif data != there[path]:
                write_whole(path, [data])

    @contextmanager
    def local(self, path: str) -> Iterator[str]:
        """Yield a local path of a file that the `with` block may change; a bucket's file is uploaded afterwards."""
        if not self._copies:
            with write_errors(path):
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            yield path
            return
        data = self.read(path)
        copy = os.path.join(self._copies.name, os.path.basename(path)) if data is None else self._copied(path, data)
        yield copy
        self._upload(copy, path)

    def _copied(self, path: str, data: bytes) -> str:
        assert self._copies
        copy = os.path.join(self._copies.name, os.path.basename(path))
        with write_errors(copy), open(copy, "wb") as file:
            file.write(data)
        return copy

    def _upload(self, copy: str, path: str) -> None:
        self._sink.publish(copy, path)
        self._sink.flush(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._sink.close()
        if self._copies:
            self._copies.cleanup()
