"""The base class of sources that are lists of files or rows."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Literal

from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.stores.base import ObjectInfo, OnBytes, OnFault, Placed, Source

if TYPE_CHECKING:
    from tar2tf_cli.inputs.report import InputReport

__all__ = ["ListSource"]


class ListSource(Source):
    """A long list of files or rows, divided into inputs; shuffling and the limit apply to the whole list."""

    ordered = True
    threads = 1
    gives: Literal["bytes", "values", "examples"] = "values"

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.skipped: Counter[str] = Counter()

    @abstractmethod
    def samples(self, item: ObjectInfo, report: InputReport, fault: OnFault, on_bytes: OnBytes = None) -> Placed:
        """Yield the samples of an input, each with its file or row as `member`."""

    def open(self, item: ObjectInfo) -> ByteStream:
        """Not supported: a list is not one stream."""
        raise NotImplementedError

    def locate(self, name: str) -> str:
        """Return the bucket's path; the sample names the file or row."""
        return self.bucket
