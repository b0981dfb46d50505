"""Records to standard output, in order, as each input is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tar2tf_cli.conversion.manifest import Manifest, ShardEntry
from tar2tf_cli.conversion.sharding import Shard
from tar2tf_cli.conversion.tasks import ShardReport
from tar2tf_cli.errors import SinkError
from tar2tf_cli.formats.record_file import write_all

__all__ = ["StandardOutput"]


class StandardOutput:
    """Takes the place of a commit where there is nothing to publish: no names, no manifest, nothing to resume.

    Attributes:
        folder: a temporary folder that holds what is not yet written.
    """

    up_to_date = False
    lasting = False
    direct = False

    def __init__(self) -> None:
        self.sealed: dict[tuple[str, int], ShardReport] = {}
        self.folder = ""
        self._whole: set[int] = set()
        self._next = 0

    def __enter__(self) -> StandardOutput:
        if sys.stdout is None:
            raise SinkError("standard output is closed")
        import tempfile

        try:
            self.folder = tempfile.mkdtemp(prefix="tar2tf-")
        except OSError as error:
            raise SinkError(
                f"no temporary folder can be made: {error.strerror}", hint="set TMPDIR to a folder with room"
            ) from None
        return self

    def __exit__(self, *exception: object) -> None:
        import shutil

        shutil.rmtree(self.folder, ignore_errors=True)

    def unfinished_path(self, shard: Shard) -> str:
        """Where a part of the stream is kept until its turn comes."""
        return os.path.join(self.folder, f"part-{shard.number}")

    def index_path(self, shard: Shard) -> str:
        """There is no index of a stream."""
        raise NotImplementedError

    def seal(self, shard: Shard, report: ShardReport) -> None:
        """Write out a part, once those before it are."""
        self._whole.add(shard.number)
        while self._next in self._whole:
            path = self.unfinished_path(Shard("", self._next))
            self._copy(path)
            os.unlink(path)
            self._next += 1

    def finish(self, manifest: Manifest, documents: Mapping[str, bytes]) -> list[ShardEntry]:
        """Nothing is left to do."""
        return []

    def _copy(self, path: str) -> None:
        try:
            with open(path, "rb", buffering=0) as file:
                while data := file.read(1 << 20):
                    write_all(lambda rest: os.write(1, rest), memoryview(data))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise SinkError(f"standard output: {error.strerror or error}") from None
