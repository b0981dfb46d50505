"""What lists of files or rows have in common as a source of inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator
from typing import Literal

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.stores.base import ObjectInfo, Placed, Source

__all__ = ["ListSource"]


class ListSource(Source):
    """A long list of files or rows, whose parts are the inputs; order, seed and limit are applied to the list."""

    ordered = True
    threads = 1
    gives: Literal["bytes", "values", "examples"] = "values"

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.skipped: Counter[str] = Counter()

    @abstractmethod
    def samples(
        self,
        item: ObjectInfo,
        report: InputReport,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None = None,
    ) -> Generator[Placed, None, None]:
        """The samples of an input, each with the file or row that it is made of as `member`."""

    def open(self, item: ObjectInfo) -> ByteStream:
        """Not to be opened as one stream."""
        raise NotImplementedError

    def locate(self, name: str) -> str:
        """The bucket's path; the sample says which file or row is meant."""
        return self.bucket
