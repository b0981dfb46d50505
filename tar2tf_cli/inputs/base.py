"""What lists of files or rows have in common as a source of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

from tar2tf_cli.errors import SampleError
from tar2tf_cli.formats.bytestream import ByteStream
from tar2tf_cli.inputs.report import InputReport
from tar2tf_cli.samples.grouping import Sample
from tar2tf_cli.stores.base import ObjectInfo

__all__ = ["ListSource"]


class ListSource(ABC):
    """A source that is no shards but a long list, of files or rows, whose parts are the inputs.

    Order, seed and limit are applied to the list, before anything is read.

    Attributes:
        skipped: what was passed over when the list was made, by reason.
        count: how many samples the inputs have together, faulty ones included; None when only reading tells.
    """

    seekable = False
    repeatable = True

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.skipped: Counter[str] = Counter()
        self.count: int | None = None

    @property
    @abstractmethod
    def documents(self) -> dict[str, bytes | None]:
        """What is to be written beside the manifest, by `NAME.SUFFIX`; None for what the reports of inputs describe."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What makes a conversion another one besides its spec and inputs."""

    @abstractmethod
    def list(self, templates: Sequence[str]) -> list[ObjectInfo]:
        """The parts of the list, in order, and what tells that they changed: nothing is read but the listing.

        Raises:
            SourceError: when it cannot be listed.
        """

    @abstractmethod
    def samples(
        self,
        item: ObjectInfo,
        report: InputReport,
        fault: Callable[[SampleError], None],
        on_bytes: Callable[[int], None] | None = None,
    ) -> Generator[tuple[str, Sample], None, None]:
        """The samples of an input, each with the name of the file or row that it is made of.

        Args:
            item: the input.
            report: counts the samples that became examples; gets what was skipped, and what describes the stored.
            fault: called with what cannot become a sample.
            on_bytes: called with the number of bytes after each read.

        Raises:
            SourceError: when something cannot be read, or changed since it was listed.
        """

    def open(self, item: ObjectInfo) -> ByteStream:
        """Not to be opened as one stream."""
        raise NotImplementedError

    def locate(self, name: str) -> str:
        """The bucket's path; which file or row is meant, the sample tells."""
        return self.bucket
